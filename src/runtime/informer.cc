#include "runtime/informer.h"

#include <algorithm>
#include <exception>
#include <set>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/text.h"
#include "codec/json.h"
#include "runtime/internal/decoder.h"

namespace varda::runtime {
namespace {

/// Versions are opaque in principle, but grow at all known servers. A version that is not a number
/// leads to no conclusion.
std::optional<std::uint64_t> number(std::string_view version) {
  return parse_integer<std::uint64_t>(version);
}

constexpr const char* kOwners = "\nowners";  // no caller would choose this name

/// Pause before a resource that the server lacks is listed again.
constexpr Duration kNotServedAgain = std::chrono::minutes(5);

/// After this many refusals the version is assumed to be the reason.
constexpr int kRefusedMax = 3;

bool surely_older(std::string_view a, std::string_view b) {
  const auto left = number(a), right = number(b);
  return left && right && *left < *right;
}

ObjectKey key_of(const Json& object) {
  const Json& metadata = object["metadata"];
  return {metadata["namespace"].as_string(), metadata["name"].as_string()};
}

/// The reduced form of an object that Options::whole rejects.
Json name_of(const Json& object) {
  Json metadata = Json::object();
  for (const char* member :
       {"name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp",
        "deletionTimestamp", "labels", "ownerReferences"}) {
    if (const Json& value = object["metadata"][member]; !value.is_null())
      metadata.set(member, value);
  }
  return Json::object({{"apiVersion", object["apiVersion"]},
                       {"kind", object["kind"]},
                       {"metadata", std::move(metadata)}});
}

}  // namespace

Json Stored::json() const {
  auto tree = codec::parse_json(text);
  CHECK(tree.ok());  // write_json() wrote it
  return std::move(*tree);
}

std::shared_ptr<const void> Stored::object() const {
  return decoder ? decoder->object(id, text) : typed;
}

std::vector<std::string> Informer::values_of(const Index& index, const Stored& object) const {
  if (!object.problem.empty()) return {};
  // A reduced object is indexed by its owners only.
  const bool whole = !decoder_ || object.typed || object.decoder;
  if (!whole && index.name != kOwners) return {};
  std::vector<std::string> values;
  try {
    values = index.of(object);
  } catch (const std::exception& e) {
    log::error("index function threw, object not indexed",
               {{"resource", options_.resource.group_resource()},
                {"object", object.metadata.key().str()},
                {"index", index.name},
                {"exception", e.what()}});
    return {};
  }
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  return values;
}

void Informer::Index::remove(const StoredPtr& object) {
  const auto [first, last] = places.equal_range(object.get());
  for (auto place = first; place != last; ++place) {
    const Objects::iterator at = place->second;
    const auto [begin, end] =
        std::equal_range(at->second.begin(), at->second.end(), object, ByKey{});
    at->second.erase(begin, end);
    if (at->second.empty()) objects.erase(at);
  }
  places.erase(first, last);
}

void Informer::Index::insert(const std::vector<std::string>& values, const StoredPtr& object) {
  for (const std::string& value : values) {
    const auto at = objects.try_emplace(value).first;
    at->second.insert(std::lower_bound(at->second.begin(), at->second.end(), object, ByKey{}),
                      object);
    places.emplace(object.get(), at);
  }
}

Informer::Informer(const kube::Client& client, Options options)
    : client_(client), options_(std::move(options)) {
  std::vector<std::string> namespaces{options_.filter.ns};
  if (options_.filter.ns.empty() && options_.resource.namespaced && !options_.namespaces.empty())
    namespaces = options_.namespaces;
  for (std::string& ns : namespaces)
    scopes_.push_back({.ns = std::move(ns), .backoff = options_.backoff_min});
  synced_ = std::vector<std::atomic<bool>>(scopes_.size());
  unsynced_ = scopes_.size();
  versions_.resize(scopes_.size());
  if (options_.decode) decoder_ = std::make_shared<Decoder>(options_.decode, options_.decoded_max);
  add_index(kOwners, [](const Stored& object) {
    std::vector<std::string> uids;
    for (const meta::OwnerReference& owner : object.metadata.owner_references)
      uids.push_back(owner.uid);
    return uids;
  });
}

void Informer::on_change(Handler handler) { handlers_.push_back(std::move(handler)); }

void Informer::add_index(std::string name, IndexOf of) {
  const bool exists = std::any_of(indexes_.begin(), indexes_.end(),
                                  [&](const Index& index) { return index.name == name; });
  if (!exists) indexes_.push_back({std::move(name), std::move(of), {}});
}

void Informer::on_progress(ProgressHandler handler) {
  CHECK(scopes_.size() == 1);
  progress_ = std::move(handler);
}

void Informer::run(const Context& ctx) {
  const auto follow = [&](std::size_t scope) {
    while (!ctx.stopped()) {
      const Duration pause = step(ctx, scope);
      if (pause > Duration::zero() && !ctx.sleep_for(pause).ok()) return;
    }
  };
  std::vector<std::jthread> others;
  for (std::size_t scope = 1; scope < scopes_.size(); ++scope)
    others.emplace_back([&follow, scope] { follow(scope); });
  follow(0);
}

Duration Informer::step(const Context& ctx, std::size_t index) {
  Rng& rng = options_.rng ? *options_.rng : system_rng();
  const Clock& clock = options_.clock ? *options_.clock : system_clock();
  Scope& scope = scopes_.at(index);
  Watched watched;
  Status status;
  try {
    if (!scope.listed) {
      status = list_once(ctx, index);
      scope.listed = status.ok();
      if (options_.optional && !status.ok() && status.error().code() == Code::kNotFound) {
        if (served_.exchange(false))
          log::info("resource not served", {{"resource", options_.resource.group_resource()}});
        if (!synced_[index].exchange(true)) unsynced_.fetch_sub(1, std::memory_order_release);
        return kNotServedAgain;
      }
      if (status.ok()) served_ = true;
    }
    if (status.ok()) status = watch_once(ctx, index, watched);
  } catch (const std::exception& e) {
    // A handler may have missed part of the change, and the next list delivers everything.
    scope.listed = false;
    status = Error(Code::kInternal, std::string("exception: ") + e.what());
  }
  if (ctx.stopped()) return Duration::zero();
  // A watch that lasted or delivered events was a success, even if it ended with an error. One that
  // ends at once must not cause a busy loop.
  const bool lived = watched.since && clock.now() - *watched.since > std::chrono::seconds(5);
  if (lived || watched.events > 0) {
    scope.backoff = options_.backoff_min;
    scope.refused = 0;
  }
  if (!status.ok()) {
    const Code code = status.error().code();
    const bool unreachable = code == Code::kUnavailable || code == Code::kCancelled;
    if (scope.listed && !unreachable) ++scope.refused;
    // An expired version stays expired, and unreadable data stays unreadable. Any other refusal may
    // be due to the version: a server restored from a backup calls it "too large".
    if (code == Code::kGone || code == Code::kCorrupt || code == Code::kExhausted ||
        scope.refused >= kRefusedMax) {
      scope.listed = false;
      scope.refused = 0;
    }
    if (code == Code::kGone) {
      log::info("watch expired (410 Gone), relisting", {{"resource", options_.resource.plural}});
    } else {
      log::warn("cannot follow a resource, retrying", {{"resource", options_.resource.plural},
                                                       {"error", status.error()},
                                                       {"delay_ms", scope.backoff.count()}});
    }
  }
  if (status.ok() && lived) return Duration::zero();
  const auto jitter = std::chrono::milliseconds(
      rng.below(static_cast<std::uint64_t>(scope.backoff.count()) / 2 + 1));
  const Duration pause = scope.backoff + jitter;
  scope.backoff = std::min(scope.backoff * 2, options_.backoff_max);
  return pause;
}

Task informer_task(Informer& informer, const Clock& clock, std::size_t scope) {
  const auto next = std::make_shared<SteadyTime>(SteadyTime::min());
  return {"informer " + informer.resource().plural,
          [next] { return std::optional<SteadyTime>(*next); },
          [&informer, &clock, scope, next](const Context& ctx) {
            const Duration pause = informer.step(ctx, scope);
            *next = pause > Duration::zero() ? clock.now() + pause : SteadyTime::min();
          }};
}

Status Informer::list_once(const Context& ctx, std::size_t scope) {
  std::vector<StoredPtr> fresh;
  std::string resource_version;
  const auto take = [&](std::size_t number, kube::List page) {
    if (number == 0) fresh.clear();
    resource_version = std::move(page.resource_version);
    fresh.reserve(fresh.size() + page.items.size());
    for (Json& item : page.items) {
      if (key_of(std::as_const(item)).name.empty()) {
        log::warn("list item has no name, skipped",
                  {{"resource", options_.resource.group_resource()}});
        continue;
      }
      fresh.push_back(store_of(std::move(item)));
    }
  };
  TRY_VOID(client_.list_pages(ctx, options_.resource,
                              {.ns = scopes_[scope].ns,
                               .label_selector = options_.filter.label_selector,
                               .field_selector = options_.filter.field_selector,
                               .limit = options_.page_items},
                              take));
  if (options_.metrics) {
    options_.metrics
        ->counter("varda_informer_lists_total", "Lists of a resource by its informer.",
                  {{"resource", options_.resource.group_resource()}})
        .add();
  }
  replace(std::move(fresh), resource_version, scope);
  return {};
}

Status Informer::watch_once(const Context& ctx, std::size_t scope, Watched& watched) {
  Rng& rng = options_.rng ? *options_.rng : system_rng();
  const auto seconds = options_.watch_timeout.count();
  TRY(const std::unique_ptr<kube::Watch> watch,
      client_.watch(ctx, options_.resource,
                    {.ns = scopes_[scope].ns,
                     .label_selector = options_.filter.label_selector,
                     .field_selector = options_.filter.field_selector,
                     .resource_version = resource_version(scope),
                     .timeout = std::chrono::seconds(
                         seconds + static_cast<long>(
                                       rng.below(static_cast<std::uint64_t>(seconds / 2 + 1))))}));
  watched.since = (options_.clock ? *options_.clock : system_clock()).now();
  while (true) {
    TRY(std::optional<kube::WatchEvent> event, watch->next());
    if (!event) return {};
    apply(std::move(*event), scope);
    ++watched.events;
  }
}

std::optional<std::size_t> Informer::scope_of(const std::string& ns) const {
  for (std::size_t scope = 0; scope < scopes_.size(); ++scope) {
    if (scopes_[scope].ns.empty() || scopes_[scope].ns == ns) return scope;
  }
  return std::nullopt;
}

void Informer::replace(std::vector<StoredPtr> fresh, const std::string& resource_version,
                       std::size_t scope) {
  std::set<ObjectKey> listed;
  for (const StoredPtr& object : fresh) listed.insert(object->metadata.key());
  MutexLock order(order_);
  std::vector<ObjectKey> absent;
  bool restored = false;  // a backup was restored, so versions no longer order changes
  {
    MutexLock lock(mutex_);
    restored = surely_older(resource_version, versions_[scope]);
    for (const StoredPtr& object : objects_) {
      const ObjectKey key = object->metadata.key();
      if (scope_of(key.ns) != scope) continue;
      // Objects that this process wrote after the list was made stay.
      const bool newer =
          !restored && surely_older(resource_version, object->metadata.resource_version);
      if (!listed.contains(key) && !newer) absent.push_back(key);
    }
  }
  if (restored)
    log::warn("resourceVersion decreased, replacing all cached objects",
              {{"resource", options_.resource.group_resource()}, {"version", resource_version}});
  for (const ObjectKey& key : absent) drop(key);
  for (StoredPtr& object : fresh) put(std::move(object), restored);
  // A version only grows, unless the server restarted with lower numbers. A list is authoritative.
  {
    MutexLock lock(mutex_);
    versions_[scope] = resource_version;
  }
  // Before progress_(), so that its handler sees has_synced().
  if (!synced_[scope].exchange(true)) unsynced_.fetch_sub(1, std::memory_order_release);
  if (progress_) progress_(resource_version, Progress::kListed);
}

void Informer::apply(kube::WatchEvent event, std::size_t scope) {
  using Type = kube::WatchEvent::Type;
  if (event.type == Type::kBookmark) {
    MutexLock order(order_);
    passed(event.resource_version, scope);
    return;
  }
  const ObjectKey key = key_of(event.object);
  if (key.name.empty()) {
    log::warn("watch event has no object name, skipped",
              {{"resource", options_.resource.group_resource()}});
    return;
  }
  // An event that repeats a write known from wrote() is not decoded again.
  const StoredPtr before = get(key);
  const bool known =
      event.type != Type::kDeleted && before && !event.resource_version.empty() &&
      before->metadata.resource_version == event.resource_version &&
      before->metadata.uid == std::as_const(event.object)["metadata"]["uid"].as_string();
  StoredPtr object =
      event.type == Type::kDeleted || known ? nullptr : store_of(std::move(event.object));
  MutexLock order(order_);
  if (known) {
    passed(event.resource_version, scope);
    return;
  }
  const StoredPtr old = get(key);
  // Events older than the copy are ignored, even if the server or a proxy repeats them.
  const bool stale = old && surely_older(event.resource_version, old->metadata.resource_version);
  if (object && !stale) {
    put(std::move(object));
  } else if (old && !stale) {
    drop(key);
  }
  passed(event.resource_version, scope);
}

void Informer::wrote(const Json& object) {
  const std::string& version = object["metadata"]["resourceVersion"].as_string();
  const ObjectKey key = key_of(object);
  if (!options_.filter.label_selector.empty() || !options_.filter.field_selector.empty()) return;
  const auto scope = scope_of(key.ns);
  if (!scope || key.name.empty() || object["kind"].as_string() != options_.resource.kind) return;
  StoredPtr stored = store_of(object);
  MutexLock order(order_);
  // The watch has delivered everything up to its version. Only later versions are new, and a
  // deletion after them is still to come.
  if (!surely_older(resource_version(*scope), version)) return;
  put(std::move(stored));
}

StoredPtr Informer::store_of(Json object) const {
  const bool whole = !options_.whole || options_.whole(object);
  if (!whole) object = name_of(object);
  if (Json* metadata = object.find("metadata"); metadata && metadata->is_object())
    metadata->erase("managedFields");
  if (options_.trim) options_.trim(object);
  auto out = std::make_shared<Stored>();
  auto metadata = meta::ObjectMeta::from_json(std::as_const(object)["metadata"]);
  if (metadata.ok()) {
    out->metadata = std::move(*metadata);
    // The C++ object holds the annotations. Without a decoder they stay: a gateway reads
    // revocations there.
    if (decoder_) out->metadata.annotations.clear();
  } else {
    // Unreadable, but still an object with a name and a version.
    const Json& raw = std::as_const(object)["metadata"];
    out->problem = metadata.error().message();
    out->metadata.name = raw["name"].as_string();
    out->metadata.ns = raw["namespace"].as_string();
    out->metadata.uid = raw["uid"].as_string();
    out->metadata.resource_version = raw["resourceVersion"].as_string();
    if (raw["deletionTimestamp"].is_string())
      out->metadata.deletion_timestamp = raw["deletionTimestamp"].as_string();
  }
  out->text = codec::write_json(object);
  out->text.shrink_to_fit();
  if (whole && decoder_ && out->problem.empty()) {
    auto typed = decoder_->decode(object);
    if (!typed.ok()) {
      out->problem = typed.error().message();
    } else if (options_.keep == Keep::kObject) {
      out->typed = std::move(*typed);
    } else {
      out->decoder = decoder_;
      out->id = decoder_->add(std::move(*typed));
    }
  }
  return out;
}

void Informer::put(StoredPtr object, bool whatever_version) {
  const ObjectKey key = object->metadata.key();
  const StoredPtr old = get(key);
  if (old) {
    const std::string& before = old->metadata.resource_version;
    const std::string& after = object->metadata.resource_version;
    // A repeat of a write known from wrote(), or of an object in a list.
    const bool same =
        !after.empty() && before == after && old->metadata.uid == object->metadata.uid;
    if (same && (!whatever_version || old->text == object->text)) return;
    if (!whatever_version && surely_older(after, before) &&
        old->metadata.uid == object->metadata.uid)
      return;
  }
  swap(key, object);
  if (!object->problem.empty()) {
    log::warn("cannot decode object, treated as missing",
              {{"resource", options_.resource.group_resource()},
               {"object", key.str()},
               {"problem", object->problem}});
    if (options_.on_problem) options_.on_problem(*object);
  }
  dispatch({key, old, object});
}

void Informer::drop(const ObjectKey& key) {
  if (const StoredPtr old = swap(key, nullptr)) dispatch({key, old, nullptr});
}

void Informer::passed(const std::string& resource_version, std::size_t scope) {
  if (resource_version.empty()) return;
  {
    MutexLock lock(mutex_);
    // Repeated old events must not move the version back.
    if (surely_older(resource_version, versions_[scope])) return;
    versions_[scope] = resource_version;
  }
  if (progress_) progress_(resource_version, Progress::kWatched);
}

StoredPtr Informer::swap(const ObjectKey& key, StoredPtr now) {
  // order_ prevents other changes to the copy, so index functions can run without blocking readers.
  const StoredPtr old = get(key);
  std::vector<std::vector<std::string>> values;
  for (const Index& index : indexes_)
    values.push_back(now ? values_of(index, *now) : std::vector<std::string>());
  MutexLock lock(mutex_);
  for (std::size_t i = 0; i < indexes_.size(); ++i) {
    if (old) indexes_[i].remove(old);
    if (now) indexes_[i].insert(values[i], now);
  }
  if (old) objects_.erase(old);
  if (now) objects_.insert(std::move(now));
  return old;
}

void Informer::dispatch(const Change& change) {
  for (const Handler& handler : handlers_) handler(change);
}

StoredPtr Informer::get(const ObjectKey& key) const {
  MutexLock lock(mutex_);
  const auto found = objects_.find(key);
  return found == objects_.end() ? nullptr : *found;
}

std::vector<StoredPtr> Informer::list(std::string_view ns) const {
  MutexLock lock(mutex_);
  std::vector<StoredPtr> out;
  for (auto at = objects_.lower_bound(ObjectKey{std::string(ns), ""}); at != objects_.end(); ++at) {
    if (!ns.empty() && (*at)->metadata.ns != ns) break;
    out.push_back(*at);
  }
  return out;
}

std::vector<StoredPtr> Informer::owned_by(const std::string& uid) const {
  return by_index(kOwners, uid);
}

const Informer::Index& Informer::index_of(std::string_view name) const {
  const auto index = std::find_if(indexes_.begin(), indexes_.end(),
                                  [&](const Index& one) { return one.name == name; });
  CHECK(index != indexes_.end());
  return *index;
}

std::vector<StoredPtr> Informer::by_index(std::string_view name, std::string_view value) const {
  const Index& index = index_of(name);
  MutexLock lock(mutex_);
  const auto found = index.objects.find(value);
  return found == index.objects.end() ? std::vector<StoredPtr>() : found->second;
}

StoredPtr Informer::first_by_index(std::string_view name, std::string_view value) const {
  const Index& index = index_of(name);
  MutexLock lock(mutex_);
  const auto found = index.objects.find(value);
  return found == index.objects.end() || found->second.empty() ? nullptr : found->second.front();
}

std::size_t Informer::size() const {
  MutexLock lock(mutex_);
  return objects_.size();
}

std::string Informer::resource_version(std::size_t scope) const {
  MutexLock lock(mutex_);
  return versions_.at(scope);
}

Informer* Caches::find(const Resource& resource) const {
  for (const auto& informer : informers_) {
    if (informer->resource() == resource) return informer.get();
  }
  return nullptr;
}

Informer* Caches::find(std::string_view api_version, std::string_view kind) const {
  for (const auto& informer : informers_) {
    if (informer->resource().kind == kind && informer->resource().api_version() == api_version)
      return informer.get();
  }
  return nullptr;
}

Informer& Caches::add(const kube::Client& client, Informer::Options options) {
  if (Informer* found = find(options.resource)) {
    CHECK(found->type() == options.type);
    CHECK(options.filter == Informer::Filter{} || options.filter == found->filter());
    return *found;
  }
  informers_.push_back(std::make_unique<Informer>(client, std::move(options)));
  return *informers_.back();
}

bool Caches::synced() const {
  return std::all_of(informers_.begin(), informers_.end(),
                     [](const auto& informer) { return informer->has_synced(); });
}

}  // namespace varda::runtime
