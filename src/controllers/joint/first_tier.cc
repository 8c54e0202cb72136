// Findings about the first tier. Our server is ready if its endpoint answers, as the node's agent
// reports. A user's worker is ready if its pod is. No finding is terminal: a pod that returns is
// Ready again.

#include <algorithm>

#include "controllers/joint/findings.h"
#include "hosting/download_text.h"
#include "hosting/pod_problem.h"

namespace varda::controllers::joint {

namespace {

using api::JointEndpoint;
using api::JointTierStatus;
using codec::Json;

const api::Container* server_of(const api::Pod& pod) {
  for (const api::Container& container : pod.spec.containers) {
    if (container.name == "server") return &container;
  }
  return nullptr;
}

/// The port of the user's worker, if it declares one that is reachable on its node or this machine;
/// else 0.
std::int64_t declared_port(const api::Pod& pod, hosting::Machines machines) {
  for (const api::Container& container : pod.spec.containers) {
    for (const api::ContainerPort& port : container.ports) {
      if (machines == hosting::Machines::kOne || pod.spec.host_network) return port.container_port;
      if (port.host_port != 0) return port.host_port;
    }
  }
  return 0;
}

std::string url_of(const View& view, const workers::WorkerPod& pod, const api::EdgeNode* agent) {
  std::int64_t port = view.plan.port;
  bool https = view.plan.manages_first_tier() && view.service.spec.security.https();
  if (pod.pod != nullptr) {
    if (!view.plan.manages_first_tier()) {
      port = declared_port(*pod.pod, view.machines());
    } else if (const api::Container* server = server_of(*pod.pod);
               server != nullptr && !server->ports.empty()) {
      port = server->ports.front().container_port;
      https = hosting::answers_https(*server);
    }
  } else if (!view.plan.manages_first_tier()) {
    return "";
  }
  const std::string host = hosting::pod_address(
      pod.pod.get(), agent, hosting::find_node(view.world.nodes, pod.node), view.machines());
  return port == 0 || host.empty() ? ""
                                   : hosting::with_scheme(hosting::http_url(host, port), https);
}

// The reason why the node fails to serve its target version, or to apply its tiers.
std::optional<Verdict> model_failure(const PodFinding& found, const std::string& key) {
  const api::EdgeModel* assigned =
      found.agent == nullptr ? nullptr : found.agent->spec.find_model(key);
  if (assigned == nullptr || found.report == nullptr) return {};
  const api::EdgeVersionReport* version = found.report->find_version(assigned->target);
  if (version != nullptr && version->state == api::EdgeVersionReport::kFailed) {
    return no(version->reason.empty() ? "InstallFailed" : version->reason,
              "version " + assigned->target + ": " + version->message);
  }
  const auto& serving = found.report->serving;
  if (serving && !serving->failed_version.empty() && serving->failed_version == assigned->target)
    return no(serving->reason.empty() ? "LoadFailed" : serving->reason,
              "version " + assigned->target + ": " + serving->message);
  const Json& problem = found.report->joint["problem"];
  if (problem.is_object())
    return no(reason_of(problem, "JointRefused"),
              "the previous tiers stay in use: " +
                  problem["message"].string_or("the server gave no reason"));
  for (const Json& tier :
       found.report->joint["tiers"].as_array()) {  // of a later tier, seen in its answers
    const Json& mismatch = tier["problem"];
    if (!mismatch.is_object()) continue;
    return no(reason_of(mismatch, "PolicyMismatch"),
              "the policy of tier " + tier["name"].as_string() +
                  " cannot read the tier's answers, so every answer is accepted: " +
                  mismatch["message"].as_string());
  }
  return {};
}

std::optional<Verdict> model_progress(const PodFinding& found, const std::string& node,
                                      const std::string& key) {
  if (found.agent == nullptr) return {};
  const api::EdgeModel* assigned = found.agent->spec.find_model(key);
  if (assigned == nullptr) return {};
  const api::EdgeVersionReport* version =
      found.report == nullptr ? nullptr : found.report->find_version(assigned->target);
  if (version == nullptr || version->state != api::EdgeVersionReport::kDownloading) return {};
  std::string url;
  for (const api::EdgeModelVersion& one : assigned->versions) {
    if (one.version == assigned->target) url = one.url;
  }
  return no("Downloading", "node " + node + " is downloading version " + assigned->target +
                               hosting::progress_text(*version, url));
}

const JointEndpoint* endpoint_before(const View& view, const std::string& node) {
  for (const JointEndpoint& endpoint : view.service.status.endpoints) {
    if (endpoint.node == node) return &endpoint;
  }
  return nullptr;
}

Verdict answers(const View& view, const workers::WorkerPod& pod, const PodFinding& found) {
  const bool managed = view.plan.manages_first_tier();
  if (const JointEndpoint* before = endpoint_before(view, pod.node);
      managed && before != nullptr && before->ready &&
      hosting::agent_vouches(pod.pod.get(), found.agent.get(), found.report)) {
    return yes("");
  }
  if (auto lost = hosting::out_of_reach(pod.node, hosting::find_node(view.world.nodes, pod.node),
                                        found.agent.get()))
    return {kUnknown, std::move(lost->reason), std::move(lost->message)};
  if (pod.pod == nullptr || pod.pod->metadata.deleting()) {
    if (managed) {
      if (auto failure = model_failure(found, view.model_key())) return *failure;
      if (auto progress = model_progress(found, pod.node, view.model_key())) return *progress;
    }
    if (pod.problem) return no(*pod.problem);
    if (view.plan.refused) return no(*view.plan.refused);
    if (pod.pod != nullptr) {
      return no("PodPending", "pod " + pod.pod->metadata.name + " of node " + pod.node +
                                  " is terminating; the next pod is created afterwards");
    }
    return no("PodPending", "the pod is being created");
  }
  if (!pod.pod->ready()) {
    // A problem that needs an action comes before the pod's status: the pod may wait for that
    // action.
    if (pod.problem && (pod.pod->ended() || !hosting::is_progress(pod.problem->reason)))
      return no(*pod.problem);
    if (auto problem = hosting::pod_problem(*pod.pod)) return no(*problem);
    if (managed && found.report != nullptr && found.report->serving &&
        found.report->serving->state == api::EdgeServingReport::kFailed) {
      const api::EdgeServingReport& serving = *found.report->serving;
      return no(serving.reason.empty() ? "LoadFailed" : serving.reason, serving.message);
    }
    return no("PodNotReady", pod.pod->status.phase == "Pending"
                                 ? "the pod is starting"
                                 : "the pod is running but does not answer yet");
  }
  if (!managed) return yes("");
  if (found.report == nullptr || !found.report->serving)
    return no("WaitingForNode",
              "waiting for the agent of node " + pod.node + " to report the server");
  const api::EdgeServingReport& serving = *found.report->serving;
  if (serving.state == api::EdgeServingReport::kReady) return yes("");
  if (serving.state == api::EdgeServingReport::kLoading)
    return no("Loading", "the server is loading the model");
  if (serving.state == api::EdgeServingReport::kUnreachable)
    return no("ServerUnreachable",
              serving.message.empty() ? "the server does not answer" : serving.message);
  return no(serving.reason.empty() ? "LoadFailed" : serving.reason, serving.message);
}

PodFinding find_pod(const View& view, const workers::WorkerPod& pod) {
  PodFinding found;
  found.leaving = pod.leaving;
  found.agent = view.world.edge_node(pod.node);
  if (found.agent != nullptr && view.plan.manages_first_tier())
    found.report = found.agent->status.find_model(view.model_key());
  found.answers = answers(view, pod, found);
  const JointEndpoint* before = endpoint_before(view, pod.node);
  if (found.answers.status == kUnknown && before != nullptr &&
      (pod.pod != nullptr || before->ready)) {
    found.endpoint = *before;  // unknown: the node may still serve
    return found;
  }
  found.endpoint.node = pod.node;
  found.endpoint.url = url_of(view, pod, found.agent.get());
  found.endpoint.ready = found.answers.status == kTrue;
  if (found.report != nullptr && found.report->serving)
    found.endpoint.version = found.report->serving->version;
  if (found.answers.status == kTrue && view.plan.manages_first_tier())
    found.flaw = model_failure(found, view.model_key());
  if (found.answers.status == kTrue && !found.flaw && pod.problem &&
      !hosting::is_progress(pod.problem->reason)) {
    found.flaw = no(*pod.problem);
    // The pod answers. While its node is out of reach, the flaw can be neither confirmed nor
    // repaired.
    if (hosting::out_of_reach(pod.node, hosting::find_node(view.world.nodes, pod.node),
                              found.agent.get()))
      found.flaw->status = kUnknown;
  }
  return found;
}

}  // namespace

FirstTier find_first(const View& view) {
  FirstTier first;
  for (const workers::WorkerPod& pod : view.plan.first.pods)
    first.pods.push_back(find_pod(view, pod));
  const PodFinding *lost = nullptr, *idle = nullptr, *flawed = nullptr, *until = nullptr;
  std::size_t in_place = 0;
  for (const PodFinding& pod : first.pods) {
    if (pod.answers.status == kTrue) {
      if (first.ready++ == 0 || first.url.empty()) first.url = pod.endpoint.url;
    }
    if (pod.leaving) {  // it answers until its successors do, and is not awaited
      if (pod.answers.status == kTrue && until == nullptr) until = &pod;
      continue;
    }
    if (pod.answers.status == kTrue) {
      ++in_place;
      if (pod.flaw && flawed == nullptr) flawed = &pod;
    } else if (pod.answers.status == kUnknown) {
      if (lost == nullptr) lost = &pod;
    } else if (idle == nullptr || (hosting::is_progress(idle->answers.reason) &&
                                   !hosting::is_progress(pod.answers.reason))) {
      idle = &pod;  // a problem that needs an action comes before a short wait
    }
  }
  const bool one_version =
      !first.pods.empty() &&
      std::all_of(first.pods.begin(), first.pods.end(), [&](const PodFinding& pod) {
        return pod.endpoint.version == first.pods.front().endpoint.version;
      });
  if (one_version) first.version = first.pods.front().endpoint.version;

  const auto wanted = static_cast<std::size_t>(std::count_if(
      first.pods.begin(), first.pods.end(), [](const PodFinding& pod) { return !pod.leaving; }));
  const std::string some = wanted > 1 ? counted(in_place, wanted) + " pods answer; " : "";
  const std::optional<hosting::Problem>& problem = view.plan.first_problem;
  const bool spec_wrong =
      problem && !hosting::is_progress(problem->reason);  // its pods' problems follow from it
  if (lost != nullptr && first.ready == 0) {
    first.answers = lost->answers;
    if (first.url.empty()) first.url = view.service.status.url;
  } else if (first.ready > 0) {
    first.answers =
        yes((wanted > 1 ? counted(in_place, wanted) + " pods answer" : std::string("answers")) +
            (first.url.empty() ? "" : ", at " + first.url));
  } else if (spec_wrong) {
    first.answers = no(*problem);
  } else if (idle != nullptr) {
    first.answers = idle->answers;
  } else if (problem) {
    first.answers = no(*problem);
  } else {
    first.answers = no("ScaledToZero", "replicas is 0");
  }
  if (spec_wrong) {
    first.verdict = no(*problem);
  } else if (idle != nullptr) {
    first.verdict = idle->answers;
    first.verdict.message = some + first.verdict.message;
    if (until != nullptr)
      first.verdict.message +=
          "; until then, the pod of node " + until->endpoint.node + " keeps serving";
  } else if (flawed != nullptr) {
    first.verdict = *flawed->flaw;
  } else if (lost != nullptr) {
    first.verdict = lost->answers;
    first.verdict.message = some + first.verdict.message;
  } else if (wanted == 0) {
    first.verdict = first.answers;
  } else {
    first.verdict =
        yes(wanted > 1 ? "all " + std::to_string(wanted) + " pods answer" : "the pod answers");
  }
  return first;
}

JointTierStatus status_of(const View& view, const FirstTier& first) {
  const Tier& spec = view.plan.tiers.front();
  JointTierStatus tier;
  tier.name = spec.name;
  tier.layer = spec.layer;
  if (first.pods.size() == 1) tier.node = first.pods.front().endpoint.node;
  if (tier.layer.empty()) {
    const api::Node* node = hosting::find_node(
        view.world.nodes, first.pods.empty() ? spec.node : first.pods.front().endpoint.node);
    tier.layer = node == nullptr ? std::string(api::JointTier::kEdge) : hosting::layer_of(*node);
  }
  tier.model = spec.model->name;
  tier.version = first.version;
  tier.url = first.url;
  tier.ready = std::any_of(first.pods.begin(), first.pods.end(),
                           [](const PodFinding& pod) { return pod.endpoint.ready; });
  return tier;
}

}  // namespace varda::controllers::joint
