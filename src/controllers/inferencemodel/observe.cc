// Makes the status of an InferenceModel. The URL, the serving version and Ready are true when they
// appear: they come from answers of servers, never from the spec.

#include <algorithm>
#include <set>

#include "controllers/inferencemodel/plan.h"
#include "controllers/inferencemodel/unchanged_pod.h"
#include "hosting/conditions.h"
#include "hosting/download_text.h"
#include "hosting/labels.h"
#include "hosting/model_keys.h"
#include "hosting/node_limits.h"
#include "hosting/pod_problem.h"
#include "hosting/service_address.h"

namespace varda::controllers::inferencemodel {

namespace {

using api::InferenceModel;
using api::InferenceModelStatus;

using hosting::kFalse;
using hosting::kTrue;
using hosting::kUnknown;
using hosting::no;
using hosting::Verdict;

struct Failure {
  std::string version, reason, message;
};

// Findings, before they become a status.
struct Finding {
  Verdict ready;
  std::optional<Verdict> target;  // absent: a model with an image has no versions
  std::optional<Failure> failure;
  std::string url, serving_version, node;
  std::int64_t replicas = 0, ready_replicas = 0;
  std::vector<std::string> cached_versions;
};

// The problem of an ended pod in the edge layer, where the operator replaces the pod.
hosting::Problem ended_problem(const api::Pod& pod) {
  hosting::Problem problem =
      hosting::pod_problem(pod).value_or(hosting::Problem{"PodFailed", "the pod has ended"});
  while (!problem.message.empty() &&
         (problem.message.back() == '.' || problem.message.back() == ' '))
    problem.message.pop_back();
  problem.message += "; the pod is replaced after a back-off";
  return problem;
}

// ---- edge ----

std::optional<Verdict> unreachable(const Plan& plan, const World& world, bool agent_needed) {
  const std::string& name = plan.placement.node;
  auto lost = hosting::out_of_reach(name, hosting::find_node(world.nodes, name),
                                    agent_needed ? world.edge_node.get() : nullptr);
  if (!lost) return {};
  return Verdict{kUnknown, std::move(lost->reason), std::move(lost->message)};
}

bool same_work(const api::EdgeModel& assigned, const InferenceModel& model) {
  if (assigned.target != model.spec.target_version) return false;
  const api::ManifestEntry* entry = model.spec.find_version(assigned.target);
  for (const api::EdgeModelVersion& version : assigned.versions) {
    if (version.version == assigned.target)
      return entry != nullptr && version.url == entry->download_url &&
             version.sha256 == entry->sha256sum;
  }
  return false;
}

const api::Container* server_of(const api::Pod& pod) {
  for (const api::Container& container : pod.spec.containers) {
    if (container.name == "server") return &container;
  }
  return nullptr;
}

// True: the pod will be replaced, because the spec wants another node, image, port or network.
bool outdated(const api::Pod& pod, const Plan& plan) {
  if (plan.pod_unchanged) return false;
  if (!pod.spec.node_name.empty() && pod.spec.node_name != plan.placement.node) return true;
  const api::Container* is = server_of(pod);
  for (const Json& object : plan.objects) {
    const auto wanted = api::Pod::from_json(object);
    const api::Container* desired = wanted.ok() ? server_of(*wanted) : nullptr;
    if (is == nullptr || desired == nullptr) continue;
    const bool same_port = !is->ports.empty() && is->ports.front().container_port ==
                                                     desired->ports.front().container_port;
    if (is->image != desired->image || !same_port ||
        pod.spec.host_network != wanted->spec.host_network)
      return true;
  }
  return false;
}

struct EdgeView {
  const InferenceModel& model;
  const Plan& plan;
  const World& world;
  const api::Pod* pod;
  const api::EdgeModelReport* report;  // null: none, or a model with an image
  bool vouched = false;                // it answered before, and its agent reports that it does
};

// The node's report of the target version, if it is about the archive that the manifest names now.
const api::EdgeVersionReport* target_report(const EdgeView& view) {
  const std::string& target = view.model.spec.target_version;
  const api::ManifestEntry* entry = view.model.spec.find_version(target);
  const api::EdgeVersionReport* version =
      view.report == nullptr ? nullptr : view.report->find_version(target);
  if (version == nullptr || entry == nullptr) return nullptr;
  return version->sha256.empty() || version->sha256 == entry->sha256sum ? version : nullptr;
}

std::optional<Failure> target_failure(const EdgeView& view) {
  const std::string& target = view.model.spec.target_version;
  if (const auto& refused = view.plan.refused_target)
    return Failure{target, refused->reason, refused->message};
  if (view.report == nullptr) return {};
  if (const api::EdgeVersionReport* version = target_report(view);
      version != nullptr && version->state == api::EdgeVersionReport::kFailed) {
    return Failure{target, version->reason.empty() ? "InstallFailed" : version->reason,
                   version->message};
  }
  const auto& serving = view.report->serving;
  if (serving && serving->failed_version == target) {
    return Failure{target, serving->reason.empty() ? "LoadFailed" : serving->reason,
                   serving->message};
  }
  return {};
}

// The progress of the target version towards serving.
Verdict target_progress(const EdgeView& view) {
  const std::string& node = view.plan.placement.node;
  const std::string& target = view.model.spec.target_version;
  if (view.plan.refused_target) return no(*view.plan.refused_target);
  const api::EdgeModel* assigned =
      view.world.edge_node == nullptr
          ? nullptr
          : view.world.edge_node->spec.find_model(view.model.metadata.key().str());
  if (view.world.edge_node != nullptr) {
    if (auto full =
            hosting::no_room_for_model(*view.world.edge_node, view.model.metadata.key().str()))
      return no(std::move(full->reason), std::move(full->message));
  }
  if (assigned == nullptr || !same_work(*assigned, view.model) || view.report == nullptr) {
    return no("WaitingForNode",
              "waiting for the agent of node " + node + " to accept version " + target);
  }
  if (auto failure = target_failure(view))
    return no(failure->reason, "version " + target + ": " + failure->message);
  const api::EdgeVersionReport* version = target_report(view);
  if (version == nullptr || version->state == api::EdgeVersionReport::kPending)
    return no("Pending", "version " + target + " is waiting for its download");
  if (version->state == api::EdgeVersionReport::kDownloading) {
    const std::string& url =
        view.model.spec.find_version(target)->download_url;  // same_work() found it
    return no("Downloading", "node " + node + " is downloading version " + target +
                                 hosting::progress_text(*version, url));
  }
  if (view.report->exposed != target)
    return no("Installing", "node " + node + " is installing version " + target);
  return no("Loading", "the server is loading version " + target);
}

// True: the target serves, from the archive that the manifest names now.
bool serves_target(const EdgeView& view, const Finding& found) {
  if (found.ready.status != kTrue || found.serving_version != view.model.spec.target_version)
    return false;
  const api::EdgeVersionReport* version = target_report(view);
  return version != nullptr && version->state == api::EdgeVersionReport::kReady &&
         !target_failure(view);
}

// Whether the model answers, by its pod and (with managed files) by the agent's report of the
// server.
Verdict edge_answers(const EdgeView& view) {
  const api::Pod* pod = view.pod;
  const bool manifest_way = !view.model.spec.from_image();
  if (pod == nullptr || pod->metadata.deleting()) {
    if (manifest_way && (view.report == nullptr || view.report->exposed.empty()))
      return target_progress(view);
    return view.plan.refused ? no(*view.plan.refused)
                             : no("PodPending", "the pod is being created");
  }
  if (!view.plan.ended_pod.empty()) return no(ended_problem(*pod));
  if (outdated(*pod, view.plan)) return no("PodPending", "the pod is being replaced");
  if (!pod->ready() && !view.vouched) {
    if (auto problem = hosting::pod_problem(*pod)) return no(*problem);
    if (manifest_way && view.report != nullptr && view.report->serving &&
        view.report->serving->state == api::EdgeServingReport::kFailed) {
      const api::EdgeServingReport& serving = *view.report->serving;
      return no(serving.reason.empty() ? "LoadFailed" : serving.reason, serving.message);
    }
    return no("PodNotReady", pod->status.phase == "Pending"
                                 ? "the pod is starting"
                                 : "the pod is running but does not answer yet");
  }
  if (!manifest_way) return {kTrue, "Serving", ""};
  if (view.report == nullptr || !view.report->serving)
    return no("WaitingForNode", "waiting for the agent to report the server");
  const api::EdgeServingReport& serving = *view.report->serving;
  if (serving.state == api::EdgeServingReport::kReady) return {kTrue, "Serving", ""};
  if (serving.state == api::EdgeServingReport::kLoading)
    return no("Loading", "the server is loading the model");
  if (serving.state == api::EdgeServingReport::kUnreachable)
    return no("ServerUnreachable",
              serving.message.empty() ? "the server does not answer" : serving.message);
  return no(serving.reason.empty() ? "LoadFailed" : serving.reason, serving.message);
}

bool answered_before(const InferenceModel& model, const std::string& node) {
  const meta::Condition* ready = meta::find_condition(model.status.conditions, "Ready");
  return ready != nullptr && ready->status != kFalse && !model.status.url.empty() &&
         model.status.node == node;
}

Finding observe_edge(const InferenceModel& model, const Plan& plan, const World& world,
                     const hosting::Options& options) {
  const bool manifest_way = !model.spec.from_image();
  const api::Pod* pod = edge_pod(model, world.pods);
  const api::EdgeModelReport* report =
      manifest_way && world.edge_node != nullptr
          ? world.edge_node->status.find_model(model.metadata.key().str())
          : nullptr;
  const bool vouched = answered_before(model, plan.placement.node) &&
                       hosting::agent_vouches(pod, world.edge_node.get(), report);
  const EdgeView view{model, plan, world, pod, report, vouched};

  Finding found;
  found.node = plan.placement.node;
  found.replicas = pod != nullptr ? 1 : 0;
  found.ready_replicas = pod != nullptr && (pod->ready() || vouched) ? 1 : 0;
  if (report != nullptr) {
    for (const api::EdgeVersionReport& version : report->versions) {
      if (version.state == api::EdgeVersionReport::kReady)
        found.cached_versions.push_back(version.version);
    }
  }
  found.failure = target_failure(view);

  const bool on_node = !found.node.empty();
  const auto lost = on_node && !vouched ? unreachable(plan, world, manifest_way) : std::nullopt;
  if (lost && model.spec.replicas > 0 && !plan.problem) {
    // The node's state is unknown, and it may still serve. Its last report stays.
    found.ready = *lost;
    const bool same_place = model.status.node == found.node &&
                            model.status.url.ends_with(":" + std::to_string(model.spec.port()));
    if (same_place) found.url = model.status.url;
    const bool reported = report != nullptr && report->serving && !report->serving->version.empty();
    if (manifest_way)
      found.serving_version = reported     ? report->serving->version
                              : same_place ? model.status.serving_version
                                           : "";
    if (manifest_way) found.target = *lost;
    return found;
  }

  const Verdict answers = on_node ? edge_answers(view) : no("PodPending", "");
  if (answers.status == kTrue) {
    if (const std::string host = hosting::pod_address(
            pod, world.edge_node.get(), hosting::find_node(world.nodes, plan.placement.node),
            options.node_port_host.empty() ? hosting::Machines::kMany : hosting::Machines::kOne);
        !host.empty()) {
      const api::Container* server = server_of(*pod);
      const bool assigned = server != nullptr && !server->ports.empty();
      found.url = hosting::with_scheme(
          hosting::http_url(host,
                            assigned ? server->ports.front().container_port : model.spec.port()),
          server != nullptr && hosting::answers_https(*server));
    }
    if (report != nullptr) found.serving_version = report->serving->version;
  }
  if (plan.problem) {
    found.ready = no(*plan.problem);
  } else if (model.spec.replicas == 0) {
    found.ready = no("ScaledToZero", "replicas is 0; the files stay on the node");
  } else {
    found.ready = answers;
  }
  if (found.ready.status == kTrue) {
    found.ready.message =
        (manifest_way ? "version " + found.serving_version + " answers at " : "answers at ") +
        found.url;
  }
  if (manifest_way) {
    if (serves_target(view, found)) {
      found.target = Verdict{kTrue, "Serving", "version " + model.spec.target_version + " serves"};
      found.failure.reset();
    } else if (plan.problem) {
      found.target = no(*plan.problem);
    } else if (found.ready.status == kFalse && !found.failure && found.ready.reason != "Serving") {
      found.target = found.ready;  // nothing serves: both conditions have one cause
    } else {
      found.target = target_progress(view);
    }
  }
  return found;
}

// ---- cloud ----

std::string version_of(const api::Pod& pod) {
  const auto found = pod.metadata.annotations.find(std::string(hosting::kVersionLabel));
  return found == pod.metadata.annotations.end() ? "" : found->second;
}

// The reason why the ReplicaSet cannot make pods: pod security, quotas.
std::optional<hosting::Problem> deployment_problem(const World& world) {
  if (world.deployment == nullptr) return {};
  const api::CoreCondition* failure =
      find_condition(world.deployment->status.conditions, "ReplicaFailure");
  if (failure == nullptr || failure->status != kTrue) return {};
  return hosting::Problem{failure->reason.empty() ? "FailedCreate" : failure->reason,
                          failure->message};
}

// Names the Secret in the problem: the pod knows only a directory.
std::optional<hosting::Problem> cloud_pod_problem(const InferenceModel& model,
                                                  const std::string& version, const api::Pod& pod) {
  std::optional<hosting::Problem> problem = hosting::pod_problem(pod);
  const api::ManifestEntry* entry = model.spec.find_version(version);
  if (problem && problem->reason == "CredentialsMissing" && entry != nullptr && entry->credentials)
    problem->message = "Secret " + entry->credentials->secret_name + ": " + problem->message;
  return problem;
}

Finding observe_cloud(const InferenceModel& model, const Plan& plan, const World& world,
                      const hosting::Options& options) {
  const bool manifest_way = !model.spec.from_image();
  const std::string& target = model.spec.target_version;
  Finding found;
  std::set<std::string> serving;
  std::int64_t ready_on_target = 0, others = 0;
  std::optional<hosting::Problem> any_problem, target_problem, of_ended;
  for (const auto& pod : world.pods) {
    const auto layer = pod->metadata.labels.find(std::string(hosting::kLayerLabel));
    if (pod->metadata.deleting() || pod->status.phase == "Succeeded") continue;
    if (layer == pod->metadata.labels.end() || layer->second != "cloud") continue;
    const std::string version = version_of(*pod);
    if (pod->ended()) {  // its ReplicaSet has made another one; this one stays for inspection
      if (!of_ended && version == target) of_ended = hosting::pod_problem(*pod);
      continue;
    }
    ++found.replicas;
    if (version != target) ++others;
    if (pod->ready()) {
      ++found.ready_replicas;
      serving.insert(version);
      if (version == target) ++ready_on_target;
    } else if (auto problem = cloud_pod_problem(model, version, *pod)) {
      if (!any_problem) any_problem = problem;
      if (version == target && !target_problem) target_problem = problem;
    }
  }

  // If no pod reports a problem, causes come from the API server, the ReplicaSet and ended pods.
  // Pods that the last ReplicaSet cannot make are pods of the target.
  for (const auto& [cause, of_target] :
       {std::pair(plan.refused_target, true), std::pair(plan.refused, true),
        std::pair(deployment_problem(world), true), std::pair(of_ended, found.replicas == 0)}) {
    if (!any_problem) any_problem = cause;
    if (!target_problem && of_target) target_problem = cause;
  }
  // The Service's address without its scheme: the last published URL may have another one.
  std::string last_url = model.status.url;
  if (last_url.starts_with("https:")) last_url.erase(4, 1);
  auto [url, url_problem] = hosting::service_address(
      {world.service, world.slices, world.nodes, options.node_port_host, last_url},
      hosting::ServiceState::kAnswering);
  url = hosting::with_scheme(std::move(url), model.spec.https());
  const bool answers = !url.empty() && found.ready_replicas > 0;
  if (answers) found.url = url;
  if (answers && manifest_way) {
    // While pods of two versions answer, the status keeps the version that served last until it is
    // gone.
    const std::string& last = model.status.serving_version;
    found.serving_version = serving.contains(last)     ? last
                            : serving.contains(target) ? target
                                                       : *serving.begin();
  }
  const std::string counted = std::to_string(found.ready_replicas) + " of " +
                              std::to_string(model.spec.replicas) + " replicas answer";
  if (plan.problem) {
    found.ready = no(*plan.problem);
  } else if (answers) {
    found.ready = {kTrue, "Serving", counted + " at " + url};
  } else if (model.spec.replicas == 0) {
    found.ready = no("ScaledToZero", "replicas is 0");
  } else if (any_problem) {
    found.ready = no(*any_problem);
  } else if (found.ready_replicas > 0 && url_problem) {
    found.ready = no(url_problem->reason, counted + ", and " + url_problem->message);
  } else if (found.ready_replicas > 0) {
    found.ready = no("ServiceNotReady", counted + ", but the Service does not forward to them yet");
  } else {
    found.ready = no("PodNotReady", counted);
  }
  if (!manifest_way) return found;

  if (target_problem && target_problem->reason != "Unschedulable")
    found.failure = Failure{target, target_problem->reason, target_problem->message};
  if (plan.refused_target) {
    found.failure = Failure{target, plan.refused_target->reason, plan.refused_target->message};
    found.target = no(*plan.refused_target);
  } else if (answers && ready_on_target > 0 && others == 0 && serving.size() == 1) {
    found.target = Verdict{kTrue, "Serving", "version " + target + " serves"};
    found.failure.reset();
  } else if (plan.problem || model.spec.replicas == 0) {
    found.target = found.ready;
  } else if (target_problem) {
    found.target = no(target_problem->reason, "version " + target + ": " + target_problem->message);
  } else {
    found.target = no("RollingOut", std::to_string(ready_on_target) + " of " +
                                        std::to_string(model.spec.replicas) +
                                        " replicas answer with version " + target);
  }
  return found;
}

// ---- trial ----

std::optional<api::ModelTrialStatus> observe_trial(const InferenceModel& model, const World& world,
                                                   const hosting::Options& options) {
  using Status = api::ModelTrialStatus;
  if (!model.spec.trial) return {};
  Status out;
  out.version = model.spec.trial->version;
  out.mode = model.spec.trial->mode;
  out.state = Status::kPending;
  const auto failed = [&out](std::string reason, std::string message) {
    out.state = Status::kFailed;
    out.reason = std::move(reason);
    out.message = std::move(message);
    return out;
  };
  if (!model.spec.on_edge() || model.spec.from_image())
    return failed("TrialUnsupported",
                  "trial works in the edge layer only, and with archives: set deployToLayer edge");
  const api::ManifestEntry* entry = model.spec.find_version(out.version);
  if (entry == nullptr)
    return failed("VersionMissing", "the model has no archive of version " + out.version);
  // A chosen Model's signature was checked under the Model's name.
  if (!model.status.model_ref)
    if (const auto refused = hosting::signature_problem(model, *entry, world.keys.get()))
      return failed(refused->reason, refused->message);
  const api::Pod* pod = edge_pod(model, world.pods);
  const auto server = options.servers.find(served_framework(model, world.edge_node.get(), pod));
  const hosting::ServerEntry* table = server == options.servers.end() ? nullptr : &server->second;
  if (!takes_trials(server_traits(pod, table), table))
    return failed("TrialUnsupported",
                  "trial works with varda-serve only, and this model uses another server");
  const api::EdgeModelReport* report =
      world.edge_node == nullptr ? nullptr
                                 : world.edge_node->status.find_model(model.metadata.key().str());
  if (report != nullptr && report->trial && report->trial->version == out.version &&
      report->trial->mode == out.mode)
    return report->trial;

  return out;
}

}  // namespace

InferenceModelStatus observe(const InferenceModel& asked, const Plan& plan, const World& world,
                             const hosting::Options& options, std::string_view now) {
  const InferenceModel& model = plan.resolved ? *plan.resolved : asked;
  const bool on_edge = model.spec.on_edge();
  Finding found = on_edge ? observe_edge(model, plan, world, options)
                          : observe_cloud(model, plan, world, options);

  InferenceModelStatus status;
  status.unknown = model.status.unknown;
  if (asked.spec.model_ref) status.model_ref = model.status.model_ref;
  status.conditions = model.status.conditions;
  const auto set = [&](std::string type, const Verdict& verdict) {
    meta::set_condition(status.conditions,
                        {std::move(type), std::string(verdict.status), verdict.reason,
                         verdict.message, model.metadata.generation, ""},
                        now);
  };
  set("Ready", found.ready);
  if (found.target) {
    // The last choice may serve, but modelRef asks for another one.
    set("TargetVersionReady", plan.unresolved ? no(*plan.unresolved) : *found.target);
  } else {
    std::erase_if(status.conditions, [](const meta::Condition& condition) {
      return condition.type == "TargetVersionReady";
    });
  }
  if (plan.outdated_pod) {
    set("PodCurrent", no("Outdated",
                         "an earlier operator or server table created the pod, which is kept "
                         "unchanged; `kubectl delete pod " +
                             model.metadata.name + " -n " + model.metadata.ns + "` recreates it"));
  } else {
    std::erase_if(status.conditions,
                  [](const meta::Condition& condition) { return condition.type == "PodCurrent"; });
  }
  status.observed_generation = model.metadata.generation;
  status.url = std::move(found.url);
  status.serving_version = found.serving_version;
  status.node = std::move(found.node);
  status.replicas = found.replicas;
  status.ready_replicas = found.ready_replicas;
  status.selector = std::string(hosting::kModelLabel) + "=" + model.metadata.name;
  status.cached_versions = std::move(found.cached_versions);
  status.trial = observe_trial(model, world, options);

  if (model.spec.from_image()) return status;
  status.model_status.active = found.serving_version;
  status.model_status.target = model.spec.target_version;
  const auto& before = model.status.model_status.last_failure;
  if (found.failure) {
    api::ModelFailure failure{found.failure->version, found.failure->reason, found.failure->message,
                              std::string(now)};
    if (before && before->version == failure.version && before->reason == failure.reason &&
        before->message == failure.message) {
      failure.time = before->time;
    }
    status.model_status.last_failure = std::move(failure);
  } else if (before && before->version == model.spec.target_version && found.target &&
             found.target->status != kTrue) {
    status.model_status.last_failure = before;  // until the target serves
  }
  return status;
}

}  // namespace varda::controllers::inferencemodel
