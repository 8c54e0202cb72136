// Pod: defaults of the spec, allowed updates, and the row in kubectl's table.
#include <algorithm>

#include "apiserver/kinds/core_kind.h"

namespace varda::apiserver {

namespace {

// Always for mutable tags (":latest" or no tag), else IfNotPresent.
std::string pull_policy(std::string_view image) {
  if (image.find('@') != std::string_view::npos) return "IfNotPresent";
  const auto slash = image.rfind('/');
  const std::string_view last = slash == std::string_view::npos ? image : image.substr(slash + 1);
  const auto colon = last.rfind(':');
  return colon == std::string_view::npos || last.substr(colon) == ":latest" ? "Always"
                                                                            : "IfNotPresent";
}

void default_container(Json& container) {
  if (container["imagePullPolicy"].as_string().empty())
    container.set("imagePullPolicy", pull_policy(container["image"].as_string()));
  // Requests default to limits.
  const Json limits = container.at("resources/limits");
  for (const Json::Member& limit : limits.as_object()) {
    Json& requests = container.make("resources/requests");
    if (!requests.contains(limit.first)) requests.set(limit.first, limit.second);
  }
}

bool has_source(const Json& volume) { return volume.size() > 1; }

}  // namespace

void default_pod_spec(Json& spec) {
  if (!spec.is_object()) return;
  for (const char* list : {"initContainers", "containers", "ephemeralContainers"}) {
    Json* containers = spec.find(list);
    if (containers == nullptr || !containers->is_array()) continue;
    for (Json& container : containers->array_items()) {
      if (container.is_object()) default_container(container);
    }
  }
  if (Json* volumes = spec.find("volumes"); volumes != nullptr && volumes->is_array()) {
    for (Json& volume : volumes->array_items()) {
      if (volume.is_object() && !has_source(volume)) volume.set("emptyDir", Json::object());
    }
  }
  // The old and the new name of the same field.
  if (!spec["serviceAccountName"].as_string().empty()) {
    spec.set("serviceAccount", spec["serviceAccountName"]);
  } else if (!spec["serviceAccount"].as_string().empty()) {
    spec.set("serviceAccountName", spec["serviceAccount"]);
  } else {
    spec.erase("serviceAccountName");
    spec.erase("serviceAccount");
  }
}

namespace {

constexpr std::string_view kFrozen =
    "pod updates may not change fields other than "
    "`spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

std::string quality(const Json& spec) {
  bool any = false;
  bool guaranteed = true;
  for (const char* list : {"initContainers", "containers"}) {
    for (const Json& container : spec[list].as_array()) {
      const Json& limits = container.at("resources/limits");
      const Json& requests = container.at("resources/requests");
      any = any || !limits.empty() || !requests.empty();
      for (const char* resource : {"cpu", "memory"}) {
        const Json& limit = limits[resource];
        if (limit.is_null() || (!requests[resource].is_null() && !(requests[resource] == limit)))
          guaranteed = false;
      }
    }
  }
  return !any ? "BestEffort" : guaranteed ? "Guaranteed" : "Burstable";
}

// Pods stay on an absent node for five minutes, unless tolerations differ.
void default_tolerations(Json& spec) {
  for (const char* key : {"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"}) {
    const Json::Array& present = spec["tolerations"].as_array();
    const bool tolerated = std::any_of(present.begin(), present.end(), [&](const Json& t) {
      const std::string& effect = t["effect"].as_string();
      const bool every = t["key"].as_string().empty() && t["operator"].as_string() == "Exists";
      return (t["key"].as_string() == key || every) && (effect.empty() || effect == "NoExecute");
    });
    if (tolerated) continue;
    spec["tolerations"].push_back(Json::object({{"key", key},
                                                {"operator", "Exists"},
                                                {"effect", "NoExecute"},
                                                {"tolerationSeconds", 300}}));
  }
}

// The spec with all mutable parts taken from `old`.
Json frozen_part(Json spec, const Json& old) {
  for (const char* list : {"initContainers", "containers"}) {
    Json* containers = spec.find(list);
    if (containers == nullptr || !containers->is_array() || containers->size() != old[list].size())
      continue;
    for (std::size_t i = 0; i < containers->size(); ++i) {
      Json& container = containers->array_items()[i];
      if (container.is_object()) container.set("image", old[list].as_array()[i]["image"]);
    }
  }
  for (const char* member : {"activeDeadlineSeconds", "tolerations"}) {
    if (const Json* value = old.find(member)) {
      spec.set(member, *value);
    } else {
      spec.erase(member);
    }
  }
  // Scheduling gates may only be removed, while the pod waits for them.
  if (!old["schedulingGates"].empty()) spec.set("schedulingGates", old["schedulingGates"]);
  return spec;
}

std::string terminated_reason(const Json& terminated) {
  if (!terminated["reason"].as_string().empty()) return terminated["reason"].as_string();
  if (terminated["signal"].as_integer() != 0)
    return "Signal:" + std::to_string(terminated["signal"].as_integer());
  return "ExitCode:" + std::to_string(terminated["exitCode"].as_integer());
}

// The pod status derived from init containers; empty: all are done.
std::string init_reason(const Json& pod) {
  const Json::Array& statuses = pod.at("status/initContainerStatuses").as_array();
  for (std::size_t i = 0; i < statuses.size(); ++i) {
    const Json& state = statuses[i]["state"];
    const Json& terminated = state["terminated"];
    if (!terminated.is_null() && terminated["exitCode"].as_integer() == 0) continue;
    if (!terminated.is_null()) return "Init:" + terminated_reason(terminated);
    const std::string& waiting = state.at("waiting/reason").as_string();
    if (!waiting.empty() && waiting != "PodInitializing") return "Init:" + waiting;
    return "Init:" + std::to_string(i) + "/" + std::to_string(pod.at("spec/initContainers").size());
  }
  return "";
}

bool is_ready(const Json& pod) {
  const Json::Array& conditions = pod.at("status/conditions").as_array();
  return std::any_of(conditions.begin(), conditions.end(), [](const Json& c) {
    return c["type"].as_string() == "Ready" && c["status"].as_string() == "True";
  });
}

struct Summary {
  std::string reason;
  std::int64_t ready = 0, total = 0, restarts = 0;
  Json last_restart;
};

void count_restart(Summary& summary, const Json& status) {
  summary.restarts += status["restartCount"].as_integer();
  const Json& finished = status.at("lastState/terminated/finishedAt");
  if (finished.is_string() &&
      (summary.last_restart.is_null() || summary.last_restart.as_string() < finished.as_string())) {
    summary.last_restart = finished;
  }
}

Summary summarize(const Json& pod) {
  Summary summary;
  const Json& status = pod["status"];
  summary.total = static_cast<std::int64_t>(pod.at("spec/containers").size());
  summary.reason = text_or(status["reason"], status["phase"].as_string());
  const std::string init = init_reason(pod);
  if (!init.empty()) {
    summary.reason = init;
    for (const Json& container : status["initContainerStatuses"].as_array())
      count_restart(summary, container);
  } else {
    bool running = false;
    const Json::Array& containers = status["containerStatuses"].as_array();
    for (auto container = containers.rbegin(); container != containers.rend(); ++container) {
      count_restart(summary, *container);
      const Json& state = (*container)["state"];
      if (const std::string& waiting = state.at("waiting/reason").as_string(); !waiting.empty()) {
        summary.reason = waiting;
      } else if (!state["terminated"].is_null()) {
        summary.reason = terminated_reason(state["terminated"]);
      } else if (!state["running"].is_null() && (*container)["ready"].as_bool()) {
        running = true;
        ++summary.ready;
      }
    }
    if (summary.reason == "Completed" && running)
      summary.reason = is_ready(pod) ? "Running" : "NotReady";
  }
  if (!pod.at("metadata/deletionTimestamp").is_null()) {
    const std::string& phase = status["phase"].as_string();
    if (status["reason"].as_string() == "NodeLost") {
      summary.reason = "Unknown";
    } else if (phase != "Succeeded" && phase != "Failed") {
      summary.reason = "Terminating";
    }
  }
  return summary;
}

std::string readiness_gates(const Json& pod) {
  const Json::Array& gates = pod.at("spec/readinessGates").as_array();
  if (gates.empty()) return "<none>";
  const Json::Array& conditions = pod.at("status/conditions").as_array();
  const auto open = std::count_if(gates.begin(), gates.end(), [&](const Json& gate) {
    return std::any_of(conditions.begin(), conditions.end(), [&](const Json& c) {
      return c["type"] == gate["conditionType"] && c["status"].as_string() == "True";
    });
  });
  return std::to_string(open) + "/" + std::to_string(gates.size());
}

class PodKind : public CoreKind {
 public:
  PodKind()
      : CoreKind({.info = {.resource = {"", "v1", "Pod", "pods", true},
                           .short_names = {"po"},
                           .categories = {"all"},
                           .status = true,
                           .delete_returns_object = true},
                  .generation = Generation::kSpec}) {}

  void prepare_create(Json& pod) const override {
    CoreKind::prepare_create(pod);
    Json& spec = pod["spec"];
    if (!spec.is_object()) spec = Json::object();
    if (!spec.contains("priority")) spec.set("priority", 0);
    if (!spec.contains("preemptionPolicy")) spec.set("preemptionPolicy", "PreemptLowerPriority");
    pod.set("status", Json::object({{"phase", "Pending"}, {"qosClass", quality(spec)}}));
  }

  void apply_defaults(Json& pod) const override {
    CoreKind::apply_defaults(pod);
    Json& spec = pod["spec"];
    default_pod_spec(spec);
    if (!spec.contains("enableServiceLinks")) spec.set("enableServiceLinks", true);
    default_tolerations(spec);
    if (std::as_const(spec)["hostNetwork"].as_bool()) use_host_ports(spec);
    // Nodes have one address per pod only.
    Json* status = pod.find("status");
    if (status == nullptr || !status->is_object()) return;
    if (const Json ip = std::as_const(*status)["podIP"]; ip.is_string())
      status->set("podIPs", Json::array({Json::object({{"ip", ip}})}));
    if (const Json ip = std::as_const(*status)["hostIP"];
        ip.is_string() && !status->contains("hostIPs")) {
      status->set("hostIPs", Json::array({Json::object({{"ip", ip}})}));
    }
  }

  void prepare_update(Json& pod, const Json& old, Part part) const override {
    if (part == Part::kWhole) {
      for (const char* member : {"priority", "preemptionPolicy"}) {
        const Json* before = old["spec"].find(member);
        if (before != nullptr && pod["spec"].is_object() && !pod["spec"].contains(member))
          pod["spec"].set(member, *before);
      }
    }
    CoreKind::prepare_update(pod, old, part);
    if (part == Part::kStatus && pod["status"].is_object() && pod.at("status/qosClass").is_null()) {
      pod["status"].set("qosClass", old.at("status/qosClass").is_null()
                                        ? Json(quality(pod["spec"]))
                                        : old.at("status/qosClass"));
    }
  }

  Causes validate_create(const Json& pod) const override {
    return validate_pod_spec(pod["spec"], "spec");
  }

  Causes validate_update(const Json& pod, const Json& old, Part part) const override {
    if (part == Part::kStatus) return validate_reported_addresses("Pod", old, pod);
    if (!(frozen_part(pod["spec"], old["spec"]) == old["spec"]))
      return {forbidden_field("spec", kFrozen)};
    Causes causes;
    const Json::Array& now = pod.at("spec/tolerations").as_array();
    for (const Json& toleration : old.at("spec/tolerations").as_array()) {
      if (std::find(now.begin(), now.end(), toleration) == now.end()) {
        causes.push_back(forbidden_field(
            "spec.tolerations",
            "existing toleration can not be modified except its tolerationSeconds"));
        break;
      }
    }
    for (const char* list : {"initContainers", "containers"}) {
      const Json::Array& containers = pod["spec"][list].as_array();
      for (std::size_t i = 0; i < containers.size(); ++i) {
        if (containers[i]["image"].as_string().empty())
          causes.push_back(required(indexed(child("spec", list), i) + ".image"));
      }
    }
    return causes;
  }

  const std::vector<Column>& columns() const override {
    static const std::vector<Column> columns = {
        name_column(),
        column("Ready", "Ready containers, and all containers."),
        column("Status", "Phase of the pod, or the reason why it does not run."),
        column("Restarts", "Number of restarts of its containers."),
        age_column(),
        column("IP", "Address of the pod.", 1),
        column("Node", "Node of the pod.", 1),
        column("Nominated Node", "Node for the pod after the preemption of other pods.", 1),
        column("Readiness Gates", "Further conditions for readiness.", 1),
    };
    return columns;
  }

  std::vector<Json> cells(const Json& pod, WallTime now) const override {
    const Summary summary = summarize(pod);
    std::string restarts = std::to_string(summary.restarts);
    if (summary.restarts > 0 && summary.last_restart.is_string())
      restarts += " (" + age_cell(summary.last_restart, now) + " ago)";
    return {pod.at("metadata/name"),
            std::to_string(summary.ready) + "/" + std::to_string(summary.total),
            summary.reason,
            restarts,
            age_of(pod, now),
            text_or(pod.at("status/podIP"), "<none>"),
            text_or(pod.at("spec/nodeName"), "<none>"),
            text_or(pod.at("status/nominatedNodeName"), "<none>"),
            readiness_gates(pod)};
  }

  const std::vector<std::string>& selectable_fields() const override {
    static const std::vector<std::string> fields = {"spec.nodeName",
                                                    "spec.restartPolicy",
                                                    "spec.schedulerName",
                                                    "spec.serviceAccountName",
                                                    "spec.hostNetwork",
                                                    "status.phase",
                                                    "status.podIP",
                                                    "status.podIPs",
                                                    "status.nominatedNodeName"};
    return fields;
  }

  std::string field(const Json& pod, std::string_view name) const override {
    if (name == "spec.hostNetwork") return pod.at("spec/hostNetwork").as_bool() ? "true" : "false";
    if (name == "status.podIPs") return CoreKind::field(pod, "status.podIP");
    return CoreKind::field(pod, name);
  }

 private:
  // A pod in the host network listens on its container ports.
  static void use_host_ports(Json& spec) {
    for (const char* list : {"initContainers", "containers"}) {
      Json* containers = spec.find(list);
      if (containers == nullptr || !containers->is_array()) continue;
      for (Json& container : containers->array_items()) {
        Json* ports = container.find("ports");
        if (ports == nullptr || !ports->is_array()) continue;
        for (Json& port : ports->array_items()) {
          if (port.is_object() && !port.contains("hostPort"))
            port.set("hostPort", port["containerPort"]);
        }
      }
    }
  }
};

}  // namespace

KindPtr make_pod() { return std::make_shared<PodKind>(); }

}  // namespace varda::apiserver
