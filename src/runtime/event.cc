#include "runtime/event.h"

#include <algorithm>
#include <cstdio>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <set>
#include <stop_token>
#include <utility>

#include "base/log.h"
#include "base/mutex.h"
#include "codec/text.h"
#include "meta/object.h"

namespace varda::runtime {
namespace {

constexpr std::size_t kMessageBytesMax = 1024;
constexpr int kAttemptsMax = 10;
constexpr std::chrono::seconds kUnreachablePause{1};

const Resource& events_resource() {
  static const Resource resource{
      .group = "", .version = "v1", .kind = "Event", .plural = "events", .namespaced = true};
  return resource;
}

/// A map that evicts the least recently used entry.
template <typename V>
class Recent {
 public:
  explicit Recent(std::size_t max) : max_(std::max<std::size_t>(1, max)) {}
  V* find(const std::string& key) {
    const auto found = index_.find(key);
    if (found == index_.end()) return nullptr;
    items_.splice(items_.begin(), items_, found->second);
    return &found->second->second;
  }
  V& put(const std::string& key, V value) {
    if (V* old = find(key)) return *old = std::move(value);
    items_.emplace_front(key, std::move(value));
    index_[key] = items_.begin();
    if (items_.size() > max_) {
      index_.erase(items_.back().first);
      items_.pop_back();
    }
    return items_.front().second;
  }
  void erase(const std::string& key) {
    const auto found = index_.find(key);
    if (found == index_.end()) return;
    items_.erase(found->second);
    index_.erase(found);
  }

 private:
  std::size_t max_;
  std::list<std::pair<std::string, V>> items_;
  std::map<std::string, typename std::list<std::pair<std::string, V>>::iterator> index_;
};

struct Pending {
  std::string identity;  // equal events have equal identities
  Resource resource;
  ObjectKey object;
  std::string uid, resource_version;
  EventType type = EventType::kNormal;
  std::string reason, message;
  WallTime first, last;
  bool combined = false;  // stands for several messages; `message` is the last
  int count = 1;
  int attempts = 0;
};

/// Messages of events that are otherwise equal.
struct Similar {
  std::set<std::size_t> messages;  // hashes, because there may be thousands of groups
  SteadyTime last;
};

struct Known {
  std::string name;
  int count = 0;
};

struct Bucket {
  double tokens = 0;
  SteadyTime at;
};

/// At most kMessageBytesMax bytes, and no partial character at the end.
std::string cut(std::string_view text) {
  if (text.size() <= kMessageBytesMax) return std::string(text);
  return codec::clipped(text, kMessageBytesMax - 3) + "...";
}

std::string namespace_of(const ObjectKey& object) {
  return object.ns.empty() ? "default" : object.ns;
}

}  // namespace

struct ApiEventRecorder::Impl {
  Impl(const kube::Client& c, Options o)
      : client(c),
        options(std::move(o)),
        clock(options.clock ? *options.clock : system_clock()),
        rng(options.rng ? *options.rng : system_rng()),
        known(options.remembered_max),
        buckets(options.remembered_max),
        similar(options.remembered_max) {
    if (options.metrics)
      dropped = &options.metrics->counter("varda_events_dropped_total",
                                          "Events dropped: full queue, rate, or refused.");
  }

  /// Writes one event; false: retry later.
  bool write(const Context& ctx, const Pending& event);
  Json object_of(const Pending& event, const std::string& name) const;
  bool write_queued(const Context& ctx);
  /// Merges the event with similar events if there were too many lately.
  void combine(Pending& event, const std::string& kind_of, SteadyTime now) REQUIRES(mutex);

  const kube::Client& client;
  const Options options;
  const Clock& clock;
  Rng& rng;
  metrics::Counter* dropped = nullptr;

  Mutex writing;  // one writer at a time: run() or flush()
  Recent<Known> known GUARDED_BY(writing);

  Mutex mutex;
  Wakeup wakeup;
  Recent<Bucket> buckets GUARDED_BY(mutex);
  Recent<Similar> similar GUARDED_BY(mutex);
  std::deque<Pending> queue GUARDED_BY(mutex);
  SteadyTime again GUARDED_BY(mutex) =
      SteadyTime::min();  // no attempt before this: the server was unreachable
};

ApiEventRecorder::ApiEventRecorder(const kube::Client& client, Options options)
    : impl_(std::make_unique<Impl>(client, std::move(options))) {}
ApiEventRecorder::~ApiEventRecorder() = default;

void ApiEventRecorder::record(const ObjectRef& object, EventType type, std::string_view reason,
                              std::string_view message) {
  const WallTime wall = impl_->clock.wall();
  Pending event;
  event.resource = *object.resource;
  event.object = object.key;
  event.uid = object.uid;
  event.resource_version = object.resource_version;
  event.type = type;
  event.reason = std::string(reason);
  event.message = cut(message);
  event.first = event.last = wall;
  const std::string kind_of = object.uid + '\n' + object.str() + '\n' +
                              (type == EventType::kNormal ? "N" : "W") + event.reason;
  event.identity = kind_of + '\n' + event.message;

  bool queued = true;
  {
    MutexLock lock(impl_->mutex);
    const SteadyTime now = impl_->clock.now();
    impl_->combine(event, kind_of, now);
    const auto same = std::find_if(impl_->queue.begin(), impl_->queue.end(),
                                   [&](const Pending& p) { return p.identity == event.identity; });
    if (same != impl_->queue.end()) {
      ++same->count;
      same->last = wall;
      same->message = event.message;
      return;
    }
    const std::string object_key = object.uid + '\n' + object.str();
    const double burst = impl_->options.burst;
    Bucket* bucket = impl_->buckets.find(object_key);
    if (!bucket) bucket = &impl_->buckets.put(object_key, {burst, now});
    const double refill = std::chrono::duration<double>(now - bucket->at).count() /
                          static_cast<double>(impl_->options.refill.count());
    bucket->tokens = std::min(burst, bucket->tokens + refill);
    bucket->at = now;
    queued = bucket->tokens >= 1 && impl_->queue.size() < impl_->options.queue_max;
    if (queued) {
      bucket->tokens -= 1;
      impl_->queue.push_back(std::move(event));
    }
  }
  if (queued) {
    impl_->wakeup.notify();
  } else if (impl_->dropped) {
    impl_->dropped->add();
  }
}

void ApiEventRecorder::Impl::combine(Pending& event, const std::string& kind_of, SteadyTime now) {
  Similar* group = similar.find(kind_of);
  if (!group || now - group->last > options.similar_within) group = &similar.put(kind_of, {});
  group->last = now;
  group->messages.insert(std::hash<std::string>()(event.message));
  if (group->messages.size() < options.similar_max) return;
  // The set need not grow further, because its size already marks the group as large.
  group->messages.erase(group->messages.begin());
  event.combined = true;
  event.identity = kind_of;
  event.message = cut("(combined from similar events): " + event.message);
}

Json ApiEventRecorder::Impl::object_of(const Pending& event, const std::string& name) const {
  Json involved = Json::object({{"kind", event.resource.kind},
                                {"apiVersion", event.resource.api_version()},
                                {"name", event.object.name}});
  if (!event.object.ns.empty()) involved.set("namespace", event.object.ns);
  if (!event.uid.empty()) involved.set("uid", event.uid);
  if (!event.resource_version.empty()) involved.set("resourceVersion", event.resource_version);
  Json source = Json::object({{"component", options.component}});
  if (!options.host.empty()) source.set("host", options.host);
  return Json::object(
      {{"apiVersion", "v1"},
       {"kind", "Event"},
       {"metadata", Json::object({{"name", name}, {"namespace", namespace_of(event.object)}})},
       {"involvedObject", std::move(involved)},
       {"reason", event.reason},
       {"message", event.message},
       {"source", std::move(source)},
       {"firstTimestamp", meta::format_time(event.first)},
       {"lastTimestamp", meta::format_time(event.last)},
       {"count", event.count},
       {"type", event.type == EventType::kNormal ? "Normal" : "Warning"},
       {"reportingComponent", options.component},
       {"reportingInstance", options.host}});
}

bool ApiEventRecorder::Impl::write(const Context& ctx, const Pending& event) {
  MutexLock lock(writing);
  Status status;
  Known* before = known.find(event.identity);
  if (before) {
    Json patch = Json::object(
        {{"count", before->count + event.count}, {"lastTimestamp", meta::format_time(event.last)}});
    if (event.combined) patch.set("message", event.message);
    status = [&]() -> Status {
      TRY(const Json ignored,
          client.patch(ctx, events_resource(), {namespace_of(event.object), before->name},
                       kube::PatchType::kMerge, patch));
      return {};
    }();
    if (status.ok()) {
      before->count += event.count;
      return true;
    }
    // The server deletes events after a while; then a new one is created.
    if (status.error().code() == Code::kNotFound) {
      known.erase(event.identity);
      before = nullptr;
    }
  }
  if (!before) {
    std::string about = event.object.name.substr(0, 200);
    while (about.ends_with('-') || about.ends_with('.'))
      about.pop_back();  // a name must not contain "-." or ".."
    // Names sort by time: kubectl sorts events of one second by name.
    char time[17];
    std::snprintf(
        time, sizeof time, "%016llx",
        static_cast<unsigned long long>(
            std::chrono::duration_cast<std::chrono::nanoseconds>(event.first.time_since_epoch())
                .count()));
    const std::string name = about + "." + time + rng.name_suffix(5);
    const auto created = client.create(ctx, events_resource(), object_of(event, name));
    if (created.ok()) {
      known.put(event.identity, {name, event.count});
      return true;
    }
    status = created.error();
  }
  const Code code = status.error().code();
  if (code == Code::kUnavailable || code == Code::kTimeout || code == Code::kCancelled)
    return false;
  // A terminating namespace, a missing permission: a retry would not help.
  log::debug("event refused",
             {{"object", event.object.str()}, {"reason", event.reason}, {"error", status.error()}});
  if (dropped) dropped->add();
  return true;
}

/// False: the server is unreachable now.
bool ApiEventRecorder::Impl::write_queued(const Context& ctx) {
  while (true) {
    Pending event;
    {
      MutexLock lock(mutex);
      if (queue.empty()) return true;
      event = std::move(queue.front());
      queue.pop_front();
    }
    if (write(ctx, event)) continue;
    if (++event.attempts < kAttemptsMax) {
      MutexLock lock(mutex);
      queue.push_front(std::move(event));
    } else if (dropped) {
      dropped->add();
    }
    return false;
  }
}

void ApiEventRecorder::run(const Context& ctx) { run_tasks(ctx, {task()}, impl_->clock); }

Task ApiEventRecorder::task() {
  return {.name = "events",
          .due = [this] { return due(); },
          .step = [this](const Context& ctx) { step(ctx); },
          .wakeup = &impl_->wakeup};
}

void ApiEventRecorder::step(const Context& ctx) {
  const bool reached = impl_->write_queued(ctx);
  MutexLock lock(impl_->mutex);
  impl_->again = reached ? SteadyTime::min() : impl_->clock.now() + kUnreachablePause;
}

std::optional<SteadyTime> ApiEventRecorder::due() const {
  MutexLock lock(impl_->mutex);
  if (impl_->queue.empty()) return std::nullopt;
  return impl_->again;
}

void ApiEventRecorder::flush(const Context& ctx) { (void)impl_->write_queued(ctx); }

}  // namespace varda::runtime
