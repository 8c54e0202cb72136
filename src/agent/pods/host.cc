#include "agent/pods/host.h"

#include <algorithm>

#include "api/core/pod.h"
#include "base/log.h"
#include "meta/patch.h"

namespace varda::agent::pods {
namespace {

// Core kinds that this room reads as JSON.
const meta::Resource& config_maps() {
  static const meta::Resource resource{"", "v1", "ConfigMap", "configmaps", true};
  return resource;
}
const meta::Resource& secrets() {
  static const meta::Resource resource{"", "v1", "Secret", "secrets", true};
  return resource;
}

const std::string& uid_of(const codec::Json& object) {
  return object.at("metadata/uid").as_string();
}

// Errors that a retry cannot fix: the object is gone or recreated, or the server rejects the
// request.
bool hopeless(const Error& error) {
  return error.code() == Code::kNotFound || error.code() == Code::kConflict ||
         error.code() == Code::kInvalid || error.code() == Code::kForbidden ||
         error.code() == Code::kUnsupported;
}

}  // namespace

std::optional<codec::Json> pod_status_patch(const codec::Json& live, const codec::Json& status) {
  const codec::Json now = live["status"].is_object() ? live["status"] : codec::Json::object();
  codec::Json next = status;
  // Keep members of other writers, which the runner never sets.
  for (const auto& [name, value] : now.as_object())
    if ((name == "qosClass" || name == "nominatedNodeName") && !next.contains(name))
      next.set(name, value);
  const auto others = [](const codec::Json& condition) {
    const std::string& type = condition["type"].as_string();
    return type == "PodScheduled" || type == "DisruptionTarget";
  };
  for (const codec::Json& condition : now["conditions"].as_array()) {
    if (!others(condition)) continue;
    const auto& new_conditions = next["conditions"].as_array();
    if (std::none_of(new_conditions.begin(), new_conditions.end(),
                     [&](const codec::Json& c) { return c["type"] == condition["type"]; }))
      next["conditions"].push_back(condition);
  }
  if (next == now) return std::nullopt;
  return codec::Json::object({{"metadata", codec::Json::object({{"uid", uid_of(live)}})},
                              {"status", meta::make_merge_patch(now, next)}});
}

Host::Host(const kube::Client& client, const runtime::Informer& pods,
           runtime::EventRecorder& events, Options options)
    : client_(client),
      pods_(pods),
      events_(events),
      options_(options),
      clock_(options.clock != nullptr ? *options.clock : system_clock()),
      backoff_(options.backoff_first) {}

void Host::wake() {
  const MutexLock lock(mutex_);
  dirty_ = true;
  wakeup_.notify();
}

void Host::status_changed(const node::PodName& pod, const node::Json& status) {
  const MutexLock lock(mutex_);
  if (statuses_.size() >= options_.pods_max && !statuses_.contains(pod)) {
    log::warn("too many pod statuses queued, dropping one", {{"pod", pod.ns + "/" + pod.name}});
    return;
  }
  statuses_[pod] = status;
  dirty_ = true;
  wakeup_.notify();
}

void Host::finished(const node::PodName& pod) {
  const MutexLock lock(mutex_);
  finished_.insert(
      pod);  // no limit of its own: step() drops each pod that the informer does not list
  dirty_ = true;
  wakeup_.notify();
}

void Host::event(const node::PodName& pod, const std::string& type, const std::string& reason,
                 const std::string& message) {
  events_.record({&api::Pod::resource(), {pod.ns, pod.name}, pod.uid, ""},
                 type == "Warning" ? runtime::EventType::kWarning : runtime::EventType::kNormal,
                 reason, message);
}

Result<node::Json> Host::config_map(const std::string& ns, const std::string& name) {
  return client_.get(Context(stop_.get_token()).with_timeout(options_.config_timeout),
                     config_maps(), {ns, name});
}

Result<node::Json> Host::secret(const std::string& ns, const std::string& name) {
  return client_.get(Context(stop_.get_token()).with_timeout(options_.config_timeout), secrets(),
                     {ns, name});
}

bool Host::send_status(const Context& ctx, const node::PodName& pod, const node::Json& status) {
  const auto live = pods_.get({pod.ns, pod.name});
  if (!live || live->metadata.uid != pod.uid) return true;  // pod deleted meanwhile
  const auto patch = pod_status_patch(live->json(), status);
  if (!patch) return true;
  const auto sent = client_.patch(ctx, api::Pod::resource(), {pod.ns, pod.name},
                                  kube::PatchType::kMerge, *patch, "status");
  if (sent.ok()) return true;
  if (!hopeless(sent.error())) return false;
  if (sent.error().code() != Code::kNotFound)
    log::warn("pod status rejected", {{"pod", pod.ns + "/" + pod.name}, {"error", sent.error()}});
  return true;
}

bool Host::send_delete(const Context& ctx, const node::PodName& pod) {
  const auto live = pods_.get({pod.ns, pod.name});
  if (!live || live->metadata.uid != pod.uid) return true;
  if (!live->metadata.deleting()) return true;  // released here, but not deleted by a client
  const auto sent = client_.remove(ctx, api::Pod::resource(), {pod.ns, pod.name},
                                   {.uid = pod.uid, .grace_seconds = 0});
  return sent.ok() || hopeless(sent.error());
}

bool Host::idle() const {
  const MutexLock lock(mutex_);
  return statuses_.empty() && finished_.empty();
}

std::optional<SteadyTime> Host::due() const {
  // Before the first list, the set of pods is unknown.
  if (!pods_.has_synced()) return std::nullopt;
  const MutexLock lock(mutex_);
  if (retry_) return retry_;
  return dirty_ ? std::optional(SteadyTime::min()) : std::nullopt;
}

void Host::step(const Context& ctx) {
  std::map<node::PodName, node::Json> statuses;
  std::set<node::PodName> finished;
  {
    const MutexLock lock(mutex_);
    dirty_ = false;
    retry_.reset();
    statuses = statuses_;
    finished = finished_;
  }
  bool all = true;
  for (const auto& [pod, status] : statuses) {
    if (ctx.done()) return;
    if (!send_status(ctx, pod, status)) {
      all = false;
      continue;
    }
    const MutexLock lock(mutex_);
    if (const auto still = statuses_.find(pod); still != statuses_.end() && still->second == status)
      statuses_.erase(still);
  }
  for (const node::PodName& pod : finished) {
    if (ctx.done()) return;
    if (!send_delete(ctx, pod)) {
      all = false;
      continue;
    }
    const MutexLock lock(mutex_);
    finished_.erase(pod);
  }
  if (all) {
    backoff_ = options_.backoff_first;
  } else {
    const MutexLock lock(mutex_);
    retry_ = clock_.now() + backoff_;
    backoff_ = std::min(backoff_ * 2, options_.backoff_max);
  }
}

runtime::Task Host::task() {
  return {.name = "pod statuses",
          .due = [this] { return due(); },
          .step = [this](const Context& ctx) { step(ctx); },
          .wakeup = &wakeup_};
}

}  // namespace varda::agent::pods
