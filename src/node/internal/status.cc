// Rules: Kubernetes' pod lifecycle (kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle).
#include "node/internal/status.h"

#include <algorithm>

namespace varda::node::internal {
namespace {

using State = ContainerRecord::State;

Json terminated(const Termination& t, const std::string& scheme) {
  Json json = Json::object({{"exitCode", t.code}});
  if (t.signal != 0) json.set("signal", t.signal);
  json.set("reason", t.reason);
  if (!t.message.empty()) json.set("message", t.message);
  json.set("startedAt", t.started.empty() ? Json() : Json(t.started));
  json.set("finishedAt", t.finished);
  if (!t.id.empty()) json.set("containerID", scheme + "://" + t.id);
  return json;
}

Json container_status(const ContainerRecord& c, const Json& spec, const std::string& scheme,
                      bool initializing) {
  Json json = Json::object({{"name", c.name}});
  std::string id;
  Json state = Json::object();
  switch (c.state) {
    case State::kRunning:
      state.set("running", Json::object({{"startedAt", c.started}}));
      id = c.id;
      break;
    case State::kTerminated:
      state.set("terminated", terminated(c.ended, scheme));
      id = c.ended.id;
      break;
    case State::kWaiting:
    case State::kStarting: {
      const std::string usual = initializing ? "PodInitializing" : "ContainerCreating";
      Json waiting = Json::object({{"reason", c.reason.empty() ? usual : c.reason}});
      if (!c.message.empty()) waiting.set("message", c.message);
      state.set("waiting", std::move(waiting));
      if (c.last) id = c.last->id;
      break;
    }
  }
  json.set("state", std::move(state));
  json.set("lastState",
           c.last ? Json::object({{"terminated", terminated(*c.last, scheme)}}) : Json::object());
  json.set("ready", c.ready);
  json.set("restartCount", std::max(0, c.attempt));
  json.set("image", spec["image"].as_string());
  json.set("imageID", c.attempt >= 0 ? spec["image"].as_string() : "");
  if (!id.empty()) json.set("containerID", scheme + "://" + id);
  json.set("started", c.running() && c.up);
  return json;
}

Json container_statuses(const std::vector<ContainerRecord>& records, const Json& specs,
                        const std::string& scheme, bool initializing) {
  Json list = Json::array();
  for (std::size_t i = 0; i < records.size(); ++i)
    list.push_back(container_status(records[i], specs.as_array().at(i), scheme, initializing));
  return list;
}

std::string names(const std::vector<std::string>& list) {
  std::string out = "[";
  for (const std::string& name : list) out += (out.size() > 1 ? " " : "") + name;
  return out + "]";
}

bool initialized(const PodRecord& record) {
  return std::all_of(record.init.begin(), record.init.end(),
                     [](const ContainerRecord& c) { return c.succeeded(); });
}

struct Counts {
  int waiting = 0, running = 0, stopped = 0, succeeded = 0;
};

Counts count(const std::vector<ContainerRecord>& containers) {
  Counts n;
  for (const ContainerRecord& c : containers) {
    if (c.running()) {
      ++n.running;
    } else if (c.state == State::kTerminated) {
      ++n.stopped;
      if (c.ended.code == 0) ++n.succeeded;
    } else if (c.last) {
      ++n.stopped;  // between two runs
    } else {
      ++n.waiting;
    }
  }
  return n;
}

bool init_failed_for_good(const PodRecord& record) {
  return record.restart_policy() == "Never" &&
         std::any_of(record.init.begin(), record.init.end(), [](const ContainerRecord& c) {
           return c.state == State::kTerminated && c.ended.code != 0;
         });
}

// Keeps the transition time while the condition's status is unchanged.
Json condition(const Json& before, const std::string& type, bool holds, const std::string& reason,
               const std::string& message, const std::string& now) {
  const std::string status = holds ? "True" : "False";
  std::string since = now;
  for (const Json& old : before["conditions"].as_array()) {
    if (old["type"].as_string() == type && old["status"].as_string() == status)
      since = old["lastTransitionTime"].string_or(now);
  }
  Json json = Json::object({{"type", type},
                            {"status", status},
                            {"lastProbeTime", Json()},
                            {"lastTransitionTime", since}});
  if (!reason.empty()) json.set("reason", reason);
  if (!message.empty()) json.set("message", message);
  return json;
}

Json conditions(const PodRecord& record, const std::string& phase, const StatusContext& context) {
  std::vector<std::string> incomplete, unready;
  for (const ContainerRecord& c : record.init) {
    if (!c.succeeded()) incomplete.push_back(c.name);
  }
  for (const ContainerRecord& c : record.main) {
    if (!c.ready) unready.push_back(c.name);
  }
  const Json& before = record.status;
  const bool over = phase == "Succeeded" || phase == "Failed";
  const std::string over_reason = phase == "Succeeded" ? "PodCompleted" : "PodFailed";
  const std::string why_not_initialized =
      incomplete.empty() ? "" : "containers with incomplete status: " + names(incomplete);
  const std::string why_not_ready =
      over || unready.empty() ? "" : "containers with unready status: " + names(unready);
  const bool ready = !over && unready.empty() && incomplete.empty();
  const std::string reason = ready ? "" : over ? over_reason : "ContainersNotReady";
  Json list = Json::array();
  list.push_back(condition(before, "Initialized", incomplete.empty(),
                           !incomplete.empty()    ? "ContainersNotInitialized"
                           : phase == "Succeeded" ? "PodCompleted"
                                                  : "",
                           why_not_initialized, context.now));
  list.push_back(condition(before, "Ready", ready, reason, why_not_ready, context.now));
  list.push_back(condition(before, "ContainersReady", ready, reason, why_not_ready, context.now));
  // Conditions of other writers, such as the scheduler's PodScheduled, stay as in the object.
  bool scheduled = false;
  for (const Json& other : record.pod.at("status/conditions").as_array()) {
    const std::string& type = other["type"].as_string();
    if (type == "Initialized" || type == "Ready" || type == "ContainersReady") continue;
    scheduled = scheduled || type == "PodScheduled";
    list.push_back(other);
  }
  if (!scheduled) list.push_back(condition(before, "PodScheduled", true, "", "", context.now));
  return list;
}

// kubernetes.io/docs/concepts/workloads/pods/pod-qos: Guaranteed if limits equal requests for cpu
// and memory everywhere, Burstable if any is set, else BestEffort.
std::string qos_class(const Json& spec) {
  bool any = false, all = true;
  for (const char* kind : {"initContainers", "containers"}) {
    for (const Json& container : spec[kind].as_array()) {
      const Json& requests = container.at("resources/requests");
      const Json& limits = container.at("resources/limits");
      for (const char* resource : {"cpu", "memory"}) {
        any = any || requests.contains(resource) || limits.contains(resource);
        all = all && limits.contains(resource) &&
              (!requests.contains(resource) || requests[resource] == limits[resource]);
      }
    }
  }
  return !any ? "BestEffort" : all ? "Guaranteed" : "Burstable";
}

}  // namespace

std::string pod_phase(const PodRecord& record) {
  if (init_failed_for_good(record)) return "Failed";
  if (!initialized(record)) return "Pending";
  const Counts n = count(record.main);
  const std::string policy = record.restart_policy();
  if (n.waiting > 0) return "Pending";
  if (n.running > 0) return "Running";
  if (n.stopped == 0) return "Pending";
  // A deleted pod does not restart, whatever its policy.
  if (policy == "Always" && !record.deleting()) return "Running";
  if (n.stopped == n.succeeded) return "Succeeded";
  if (policy == "OnFailure" && !record.deleting()) return "Running";
  return "Failed";
}

bool is_terminal(const PodRecord& record) {
  if (init_failed_for_good(record)) return true;
  const std::string policy = record.restart_policy();
  if (policy == "Always" || !initialized(record)) return false;
  return std::all_of(record.main.begin(), record.main.end(), [&](const ContainerRecord& c) {
    return c.state == State::kTerminated && (policy == "Never" || c.ended.code == 0);
  });
}

Json make_status(const PodRecord& record, const StatusContext& context) {
  const std::string phase = pod_phase(record);
  const Json& spec = record.pod["spec"];
  Json status = Json::object({{"phase", phase}});
  status.set("conditions", conditions(record, phase, context));
  if (!context.host_ip.empty()) {
    status.set("hostIP", context.host_ip);
    status.set("hostIPs", Json::array({Json::object({{"ip", context.host_ip}})}));
  }
  if (!record.ip.empty()) {
    status.set("podIP", record.ip);
    status.set("podIPs", Json::array({Json::object({{"ip", record.ip}})}));
  }
  if (!record.start_time.empty()) status.set("startTime", record.start_time);
  const bool initializing = !initialized(record);
  if (!record.init.empty()) {
    status.set("initContainerStatuses", container_statuses(record.init, spec["initContainers"],
                                                           context.scheme, initializing));
    // An init container is ready once it has completed.
    for (Json& item : status["initContainerStatuses"].array_items())
      item.set("ready", item.at("state/terminated/exitCode").as_integer(1) == 0);
  }
  status.set("containerStatuses",
             container_statuses(record.main, spec["containers"], context.scheme, initializing));
  status.set("qosClass", qos_class(spec));
  return status;
}

}  // namespace varda::node::internal
