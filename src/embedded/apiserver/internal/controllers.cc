#include "apiserver/internal/controllers.h"

#include <algorithm>

#include "apiserver/internal/admission.h"
#include "apiserver/internal/metadata.h"
#include "base/log.h"

namespace varda::apiserver {

namespace {

constexpr std::string_view kEverything = "/registry/";
constexpr std::string_view kNamespaces = "/registry/core/namespaces/";
constexpr std::string_view kServiceAccounts = "/registry/core/serviceaccounts/";
constexpr std::string_view kEvents = "/registry/core/events/";
const std::string kCrds =
    "/registry/" + std::string(kCrdGroup) + "/" + std::string(kCrdPlural) + "/";
// Delay after a failed attempt: concurrent writers, or the store is closing.
constexpr auto kRetry = std::chrono::milliseconds(200);
constexpr auto kUnreadablePause = std::chrono::seconds(1);
constexpr auto kSweepPeriod = std::chrono::seconds(60);
// Number of events removed per transaction.
constexpr std::size_t kSweepBatch = 500;

bool ignorable(const ApiStatus& status) { return status.code == 404; }

}  // namespace

void Controllers::start() {
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

void Controllers::stop() {
  if (!thread_.joinable()) return;
  thread_.request_stop();
  thread_.join();
}

bool Controllers::settle(const Context& ctx) {
  const SteadyTime until = ctx.deadline().value_or(SteadyTime::max());
  std::unique_lock lock(mutex_);
  const auto done = [&] { return idle_ && seen_ >= core_.store.revision(); };
  while (!done()) {
    if (ctx.done()) return false;
    // Delayed retries count as work, so this wait ends without notifications. The short step
    // notices a stop request.
    const SteadyTime step = std::min(until, system_clock().now() + std::chrono::milliseconds(50));
    settled_.wait_until(lock, step);
  }
  return true;
}

void Controllers::add(Task task, const std::string& key) {
  Work work{task, key};
  later_.erase(work);
  if (queued_.insert(work).second) queue_.push_back(std::move(work));
}

void Controllers::note_event(const store::Entry& entry, const Json& object) {
  // Uses the latest time: an event may report something that happened long ago. Equal seconds keep
  // write order.
  WallTime when{};
  for (const char* path : {"lastTimestamp", "eventTime", "metadata/creationTimestamp"}) {
    auto parsed = meta::parse_time(object.at(path).as_string());
    if (parsed.ok()) when = std::max(when, *parsed);
  }
  events_[entry.key] = {when, entry.modified};
  if (events_.size() > core_.options.limits.events_max + kSweepBatch) next_sweep_ = {};
}

void Controllers::sweep_events(SteadyTime now) {
  if (now < next_sweep_ || events_.empty()) return;
  next_sweep_ = now + kSweepPeriod;
  const WallTime oldest = core_.clock.wall() - core_.options.limits.event_ttl;
  std::vector<std::pair<EventAge, std::string>> by_age;
  for (const auto& [key, when] : events_) by_age.emplace_back(when, key);
  std::sort(by_age.begin(), by_age.end());
  const std::size_t most = core_.options.limits.events_max;
  const std::size_t surplus = by_age.size() > most ? by_age.size() - most : 0;
  std::vector<store::Op> ops;
  for (std::size_t i = 0; i < by_age.size() && ops.size() < kSweepBatch; ++i) {
    if (i >= surplus && by_age[i].first.first >= oldest) break;
    ops.emplace_back(store::Delete{.key = by_age[i].second, .expected = std::nullopt});
  }
  if (ops.empty()) return;
  if (ops.size() == kSweepBatch) next_sweep_ = {};
  for (const store::Op& op : ops) events_.erase(std::get<store::Delete>(op).key);
  if (auto swept = core_.store.commit(std::move(ops)); !swept.ok())
    log::warn("cannot remove old events", {{"error", swept.error()}});
}

void Controllers::note(const store::Entry& entry, const Json& object) {
  const std::string& key = entry.key;
  forget(key);
  if (key.starts_with(kEvents)) note_event(entry, object);
  Node node;
  node.key = key;
  node.uid = uid_of(object);
  node.name = {namespace_of(object), name_of(object)};
  node.deleting = deleting(object);
  for (const Json& item : object.at("metadata/finalizers").as_array()) {
    node.waits_foreground = node.waits_foreground || item.as_string() == "foregroundDeletion";
    node.waits_orphan = node.waits_orphan || item.as_string() == "orphan";
  }
  for (const Json& reference : object.at("metadata/ownerReferences").as_array()) {
    node.owners.push_back({.uid = reference["uid"].as_string(),
                           .api_version = reference["apiVersion"].as_string(),
                           .kind = reference["kind"].as_string(),
                           .name = reference["name"].as_string(),
                           .blocks = reference["blockOwnerDeletion"].as_bool()});
    dependents_[node.owners.back().uid].insert(key);
  }
  by_uid_[node.uid] = key;
  if (!node.owners.empty()) add(Task::kCollect, key);
  if (node.deleting && node.waits_orphan) add(Task::kOrphan, key);
  if (node.deleting && node.waits_foreground) add(Task::kForeground, key);
  if (key.starts_with(kNamespaces))
    add(node.deleting ? Task::kNamespace : Task::kServiceAccount, node.name.name);
  if (key.starts_with(kCrds) && node.deleting) add(Task::kCrd, key);
  // Content of a terminating namespace changed: check the namespace again.
  if (!node.name.ns.empty()) {
    const auto space = nodes_.find(std::string(kNamespaces) + node.name.ns);
    if (space != nodes_.end() && space->second.deleting) add(Task::kNamespace, node.name.ns);
  }
  for (const Owner& owner : node.owners) {
    const auto parent = by_uid_.find(owner.uid);
    if (parent != by_uid_.end() && nodes_[parent->second].waits_foreground)
      add(Task::kForeground, parent->second);
  }
  nodes_[key] = std::move(node);
}

void Controllers::forget(const std::string& key) {
  if (key.starts_with(kEvents)) events_.erase(key);
  const auto found = nodes_.find(key);
  if (found == nodes_.end()) return;
  for (const Owner& owner : found->second.owners) {
    const auto list = dependents_.find(owner.uid);
    if (list == dependents_.end()) continue;
    list->second.erase(key);
    if (list->second.empty()) dependents_.erase(list);
  }
  const auto by_uid = by_uid_.find(found->second.uid);
  if (by_uid != by_uid_.end() && by_uid->second == key) by_uid_.erase(by_uid);
  nodes_.erase(found);
}

Status Controllers::resync() {
  TRY(store::Page page, core_.store.list({.prefix = std::string(kEverything)}));
  nodes_.clear();
  by_uid_.clear();
  dependents_.clear();
  events_.clear();
  for (const store::Entry& entry : page.entries) {
    auto object = codec::parse_json(*entry.value);
    if (object.ok()) note(entry, *object);
  }
  TRY(watch_, core_.store.watch(std::string(kEverything), page.revision));
  std::lock_guard lock(mutex_);
  seen_ = page.revision;
  return {};
}

void Controllers::note_end(const std::string& key) {
  const auto found = nodes_.find(key);
  if (found == nodes_.end()) return;
  const Node node = found->second;
  forget(key);
  if (const auto left = dependents_.find(node.uid); left != dependents_.end()) {
    for (const std::string& dependent : std::set<std::string>(left->second))
      add(Task::kCollect, dependent);
  }
  for (const Owner& owner : node.owners) {
    const auto parent = by_uid_.find(owner.uid);
    if (parent != by_uid_.end() && nodes_[parent->second].waits_foreground)
      add(Task::kForeground, parent->second);
  }
  if (key.starts_with(kCrds)) {
    for (const auto& [name, other] : nodes_) {
      if (name.starts_with(kCrds)) add(Task::kCrdNames, name);
    }
  }
  if (!node.name.ns.empty()) {
    const auto space = nodes_.find(std::string(kNamespaces) + node.name.ns);
    if (space != nodes_.end()) {
      if (space->second.deleting) add(Task::kNamespace, node.name.ns);
      if (node.key == std::string(kServiceAccounts) + node.name.ns + "/default")
        add(Task::kServiceAccount, node.name.ns);
    }
  }
  // A terminating CRD waits for its objects; this deletion may have been the last one.
  for (const auto& [work, when] : std::map<Work, SteadyTime>(later_)) {
    if (work.first == Task::kCrd) add(work.first, work.second);
  }
}

void Controllers::run(const std::stop_token& stop) {
  const Context ctx{stop};
  while (!stop.stop_requested() && !closed_) {
    const auto next = step();
    if (!next) continue;
    if (watch_ == nullptr) {
      (void)ctx.sleep_until(*next);  // the loop condition checks `stop`
      continue;
    }
    (void)watch_->wait(ctx.with_deadline(*next));
    std::lock_guard lock(mutex_);
    idle_ = false;
  }
}

std::optional<SteadyTime> Controllers::step() {
  const SteadyTime now = core_.clock.now();
  if (watch_ == nullptr) {
    if (auto synced = resync(); !synced.ok()) {
      log::warn("garbage collection cannot read the store", {{"error", synced.error()}});
      return now + kUnreadablePause;
    }
  }
  auto events = watch_->poll(512);
  if (!events.ok()) {
    closed_ = events.error().code() == Code::kUnavailable;  // the store is closing
    watch_.reset();
    return std::nullopt;
  }
  for (const store::Event& event : *events) {
    if (event.type == store::EventType::kDelete) {
      note_end(event.entry.key);
    } else if (auto object = codec::parse_json(*event.entry.value); object.ok()) {
      note(event.entry, *object);
    }
  }
  if (!events->empty()) {
    std::lock_guard lock(mutex_);
    seen_ = std::max(seen_, events->back().entry.modified);
  }
  for (auto it = later_.begin(); it != later_.end();) {
    if (it->second > now) {
      ++it;
      continue;
    }
    const Work due = it->first;
    it = later_.erase(it);
    if (queued_.insert(due).second) queue_.push_back(due);
  }
  if (!queue_.empty()) {
    const Work next = queue_.front();
    queue_.pop_front();
    queued_.erase(next);
    if (!work(next) && !queued_.contains(next)) later_[next] = core_.clock.now() + kRetry;
    return std::nullopt;
  }
  if (!events->empty()) return std::nullopt;
  sweep_events(now);
  {
    std::lock_guard lock(mutex_);
    seen_ = std::max(seen_, watch_->progress());
    idle_ = later_.empty();
  }
  settled_.notify_all();
  SteadyTime until = now + std::chrono::seconds(60);
  for (const auto& [work, when] : later_) until = std::min(until, when);
  return until;
}

bool Controllers::work(const Work& work) {
  switch (work.first) {
    case Task::kCollect:
      return collect(work.second);
    case Task::kForeground:
      return foreground(work.second);
    case Task::kOrphan:
      return orphan(work.second);
    case Task::kNamespace:
      return end_namespace(work.second);
    case Task::kServiceAccount:
      return service_account(work.second);
    case Task::kCrd:
      return end_crd(work.second);
    case Task::kCrdNames:
      return accept_names(work.second);
  }
  return true;
}

bool Controllers::remove(const Node& node, const std::string& propagation, bool check_uid) {
  const auto located = core_.registry.kinds()->locate(node.key);
  if (located.kind == nullptr) return true;
  DeleteOptions deletion;
  if (check_uid) deletion.uid = node.uid;
  deletion.propagation = propagation;
  auto removed = objects_.remove(*located.kind, located.key.ns, located.key.name, deletion, {});
  if (removed.ok() || ignorable(removed.error())) return true;
  if (removed.error().code == 409 && check_uid) return true;  // a new object of that name
  log::warn("cannot delete object", {{"object", node.key}, {"error", removed.error().message}});
  return false;
}

bool Controllers::drop_finalizer(const Node& node, std::string_view finalizer) {
  const auto located = core_.registry.kinds()->locate(node.key);
  if (located.kind == nullptr) return true;
  const auto change = [&](const Json& old) -> Outcome<Json> {
    Json object = old;
    remove_finalizer(object, finalizer);
    object["metadata"].erase("resourceVersion");
    return object;
  };
  auto updated = objects_.update(*located.kind, located.key.ns, located.key.name, change, {});
  if (updated.ok() || ignorable(updated.error())) return true;
  log::warn("cannot remove finalizer",
            {{"object", node.key}, {"finalizer", finalizer}, {"error", updated.error().message}});
  return false;
}

std::vector<const Controllers::Node*> Controllers::dependents(const std::string& uid) const {
  std::vector<const Node*> out;
  const auto list = dependents_.find(uid);
  if (list == dependents_.end()) return out;
  for (const std::string& key : list->second) out.push_back(&nodes_.at(key));
  return out;
}

// Deletes an object after all of its owners are gone.
bool Controllers::collect(const std::string& key) {
  const auto found = nodes_.find(key);
  if (found == nodes_.end() || found->second.owners.empty() || found->second.deleting) return true;
  const Node node = found->second;
  const auto kinds = core_.registry.kinds();
  bool waits_for_owner = false;
  bool blocked = false;
  std::vector<std::string> absent;
  for (const Owner& owner : node.owners) {
    const auto parent = by_uid_.find(owner.uid);
    if (parent == by_uid_.end()) {
      // An owner of an unknown kind may exist elsewhere: leave the object alone.
      if (kinds->by_kind(owner.api_version, owner.kind) == nullptr) return true;
      absent.push_back(owner.uid);
      continue;
    }
    const Node& holder = nodes_.at(parent->second);
    const bool elsewhere = !holder.name.ns.empty() && holder.name.ns != node.name.ns;
    if (elsewhere) {
      absent.push_back(owner.uid);
      continue;
    }
    if (holder.deleting && holder.waits_foreground) {
      waits_for_owner = true;
      blocked = blocked || owner.blocks;
      continue;
    }
    // One owner remains: only remove the references to absent owners.
    if (absent.empty()) return true;
    const auto located = kinds->locate(key);
    if (located.kind == nullptr) return true;
    const auto change = [&](const Json& old) -> Outcome<Json> {
      Json object = old;
      if (Json* list = object["metadata"].find("ownerReferences")) {
        std::erase_if(list->array_items(), [&](const Json& reference) {
          return std::find(absent.begin(), absent.end(), reference["uid"].as_string()) !=
                 absent.end();
        });
      }
      object["metadata"].erase("resourceVersion");
      return object;
    };
    auto updated = objects_.update(*located.kind, node.name.ns, node.name.name, change, {});
    return updated.ok() || ignorable(updated.error());
  }
  // Below an owner in foreground deletion, objects with dependents are deleted in the foreground
  // too.
  const bool deep = waits_for_owner && !dependents(node.uid).empty();
  std::string propagation = deep ? "Foreground" : "Background";
  if (!waits_for_owner && (node.waits_orphan || node.waits_foreground))
    propagation = node.waits_orphan ? "Orphan" : "Foreground";
  return remove(node, propagation);
}

bool Controllers::foreground(const std::string& key) {
  const auto found = nodes_.find(key);
  if (found == nodes_.end() || !found->second.deleting || !found->second.waits_foreground)
    return true;
  const Node node = found->second;
  bool blocked = false;
  for (const Node* dependent : dependents(node.uid)) {
    if (!dependent->deleting) add(Task::kCollect, dependent->key);
    for (const Owner& owner : dependent->owners)
      blocked = blocked || (owner.uid == node.uid && owner.blocks);
  }
  return blocked || drop_finalizer(node, "foregroundDeletion");
}

bool Controllers::orphan(const std::string& key) {
  const auto found = nodes_.find(key);
  if (found == nodes_.end() || !found->second.deleting || !found->second.waits_orphan) return true;
  const Node node = found->second;
  bool done = true;
  for (const Node* dependent : dependents(node.uid)) {
    const auto located = core_.registry.kinds()->locate(dependent->key);
    if (located.kind == nullptr) continue;
    const auto change = [&](const Json& old) -> Outcome<Json> {
      Json object = old;
      if (Json* list = object["metadata"].find("ownerReferences")) {
        auto& items = list->array_items();
        std::erase_if(
            items, [&](const Json& reference) { return reference["uid"].as_string() == node.uid; });
        if (items.empty()) object["metadata"].erase("ownerReferences");
      }
      object["metadata"].erase("resourceVersion");
      return object;
    };
    auto updated = objects_.update(*located.kind, located.key.ns, located.key.name, change, {});
    if (!updated.ok() && !ignorable(updated.error())) done = false;
  }
  return done && drop_finalizer(node, "orphan");
}

bool Controllers::end_namespace(const std::string& name) {
  const auto space = nodes_.find(std::string(kNamespaces) + name);
  if (space == nodes_.end() || !space->second.deleting) return true;
  const Node node = space->second;
  const auto kinds = core_.registry.kinds();
  std::map<std::string, int> remaining;
  std::map<std::string, int> finalizers;
  bool failed = false;
  for (const KindPtr& kind : kinds->stored()) {
    if (!kind->resource().namespaced) continue;
    auto page = core_.store.list({.prefix = kind->storage_prefix() + name + "/"});
    if (!page.ok()) return false;
    for (const store::Entry& entry : page->entries) {
      auto object = Objects::decode(*kind, entry);
      if (!object.ok()) continue;
      DeleteOptions deletion;
      deletion.propagation = deleting(*object) ? "" : "Background";
      auto removed = objects_.remove(*kind, name, name_of(*object), deletion, {});
      if (!removed.ok()) {
        failed = failed || !ignorable(removed.error());
        continue;
      }
      if (removed->complete) continue;
      ++remaining[kind->resource().group_resource()];
      for (const Json& item : removed->object.at("metadata/finalizers").as_array())
        ++finalizers[item.as_string()];
    }
  }
  const KindPtr namespaces = kinds->find("", "namespaces");
  if (namespaces == nullptr || failed) return namespaces == nullptr;
  if (!remaining.empty()) {
    const std::string now = objects_.now();
    const auto join = [](const std::map<std::string, int>& counts, std::string_view suffix) {
      std::string out;
      for (const auto& [what, count] : counts) {
        out += (out.empty() ? "" : ", ") + what + std::string(suffix) + std::to_string(count) +
               " resource instances";
      }
      return out;
    };
    const auto change = [&](const Json& old) -> Outcome<Json> {
      Json object = old;
      Json conditions = Json::array();
      const auto condition = [&](const char* type, bool holds, const char* reason,
                                 std::string message) {
        std::string since = now;
        for (const Json& before : old.at("status/conditions").as_array()) {
          if (before["type"].as_string() == type &&
              before["status"].as_string() == (holds ? "True" : "False")) {
            since = before["lastTransitionTime"].as_string();
          }
        }
        conditions.push_back(Json::object({{"type", type},
                                           {"status", holds ? "True" : "False"},
                                           {"lastTransitionTime", since},
                                           {"reason", reason},
                                           {"message", std::move(message)}}));
      };
      condition("NamespaceDeletionDiscoveryFailure", false, "ResourcesDiscovered",
                "All resources successfully discovered");
      condition("NamespaceDeletionGroupVersionParsingFailure", false, "ParsedGroupVersions",
                "All legacy kube types successfully parsed");
      condition("NamespaceDeletionContentFailure", false, "ContentDeleted",
                "All content successfully deleted, may be waiting on finalization");
      condition("NamespaceContentRemaining", true, "SomeResourcesRemain",
                "Some resources are remaining: " + join(remaining, " has "));
      if (finalizers.empty()) {
        condition("NamespaceFinalizersRemaining", false, "ContentHasNoFinalizers",
                  "All content-preserving finalizers finished");
      } else {
        condition(
            "NamespaceFinalizersRemaining", true, "SomeFinalizersRemain",
            "Some content in the namespace has finalizers remaining: " + join(finalizers, " in "));
      }
      object["status"].set("conditions", std::move(conditions));
      object["metadata"].erase("resourceVersion");
      return object;
    };
    Objects::UpdateOptions options;
    options.part = Part::kStatus;
    auto updated = objects_.update(*namespaces, "", name, change, options);
    return updated.ok() || ignorable(updated.error());  // later deletions requeue it
  }
  // The lock blocks creations in the namespace: check once more, then remove it.
  std::unique_lock lock(core_.namespaces);
  for (const KindPtr& kind : kinds->stored()) {
    if (!kind->resource().namespaced) continue;
    auto page = core_.store.list({.prefix = kind->storage_prefix() + name + "/", .limit = 1});
    if (!page.ok() || !page->entries.empty()) return false;
  }
  auto entry = core_.store.get(node.key);
  if (!entry.ok() || !*entry) return entry.ok();
  auto object = Objects::decode(*namespaces, **entry);
  if (!object.ok() || !deleting(*object)) return true;
  if (!has_finalizers(*object)) return core_.store.remove(node.key, (*entry)->modified).ok();
  // metadata.finalizers belong to other controllers; only the finalizer in spec is removed.
  if (object->at("spec/finalizers").empty()) return true;
  (*object)["spec"].erase("finalizers");
  (*object)["metadata"].erase("resourceVersion");
  return core_.store.put(node.key, codec::write_json(*object), (*entry)->modified).ok();
}

bool Controllers::end_crd(const std::string& key) {
  const auto found = nodes_.find(key);
  if (found == nodes_.end() || !found->second.deleting) return true;
  const Node node = found->second;
  auto entry = core_.store.get(key);
  if (!entry.ok()) return false;
  if (!*entry) return true;
  auto crd = codec::parse_json(*(*entry)->value);
  if (!crd.ok()) return true;
  const std::string prefix = "/registry/" + crd->at("spec/group").as_string() + "/" +
                             crd->at("spec/names/plural").as_string() + "/";
  auto page = core_.store.list({.prefix = prefix});
  if (!page.ok()) return false;
  const auto kinds = core_.registry.kinds();
  bool left = false;
  for (const store::Entry& object : page->entries) {
    const auto located = kinds->locate(object.key);
    if (located.kind == nullptr || !located.kind->info().custom) break;  // its names were refused
    DeleteOptions deletion;
    auto removed = objects_.remove(*located.kind, located.key.ns, located.key.name, deletion, {});
    if (removed.ok() ? !removed->complete : !ignorable(removed.error())) left = true;
  }
  return !left && drop_finalizer(node, kCrdFinalizer);
}

// Another definition may have released its names: an update without changes checks them again.
bool Controllers::accept_names(const std::string& key) {
  const auto located = core_.registry.kinds()->locate(key);
  if (located.kind == nullptr) return true;
  const auto change = [](const Json& old) -> Outcome<Json> { return old; };
  auto updated = objects_.update(*located.kind, "", located.key.name, change, {});
  return updated.ok() || ignorable(updated.error()) || updated.error().code == 422;
}

bool Controllers::service_account(const std::string& ns) {
  const auto space = nodes_.find(std::string(kNamespaces) + ns);
  if (space == nodes_.end() || space->second.deleting) return true;
  if (nodes_.contains(std::string(kServiceAccounts) + ns + "/default")) return true;
  const KindPtr kind = core_.registry.kinds()->find("", "serviceaccounts");
  if (kind == nullptr) return true;
  Json account =
      Json::object({{"kind", "ServiceAccount"},
                    {"apiVersion", "v1"},
                    {"metadata", Json::object({{"name", "default"}, {"namespace", ns}})}});
  auto made = objects_.create(*kind, ns, std::move(account), {});
  return made.ok() || made.error().code == 409 || made.error().code == 404 ||
         made.error().code == 403;
}

}  // namespace varda::apiserver
