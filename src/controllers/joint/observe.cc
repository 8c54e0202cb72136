// What a JointInferenceService's status says. Readiness is what the endpoint answers, as the node's agent read it from the server;
// for the user's workers it is what their pods say. Nothing here is terminal: whatever comes back is Ready again.

#include <algorithm>
#include <cstdio>
#include <map>
#include <tuple>
#include <utility>

#include "codec/digest.h"
#include "controllers/inferencemodel/download_text.h"
#include "controllers/inferencemodel/plan.h"
#include "controllers/inferencemodel/pod_problem.h"
#include "controllers/joint/child.h"
#include "controllers/joint/counters.h"
#include "controllers/joint/plan.h"
#include "controllers/service_address.h"

namespace varda::controllers {

namespace {

using api::JointEndpoint;
using api::JointInferenceService;
using api::JointInferenceServiceStatus;
using api::JointTierStatus;
using codec::Json;

constexpr std::string_view kTrue = "True", kFalse = "False", kUnknown = "Unknown";
constexpr std::size_t kModelsPerNode = 128;  // maxItems of EdgeNode.spec.models

struct Verdict {
  std::string_view status = kFalse;
  std::string reason;
  std::string message;
};

Verdict no(Problem problem) { return {kFalse, std::move(problem.reason), std::move(problem.message)}; }
Verdict no(std::string reason, std::string message) { return {kFalse, std::move(reason), std::move(message)}; }
Verdict yes(std::string message) { return {kTrue, "Serving", std::move(message)}; }

struct View {
  const JointInferenceService& service;
  const JointPlan& plan;
  const JointWorld& world;
  const InferenceModelOptions& options;

  Machines machines() const { return options.node_port_host.empty() ? Machines::kMany : Machines::kOne; }
  std::string model_key() const { return service.metadata.key().str() + "." + plan.tiers.front().name; }
};

// ---- the first tier

/// One pod of it, or the place of one.
struct PodFinding {
  JointEndpoint endpoint;
  Verdict answers;
  std::optional<Verdict> flaw;  // it answers, but not as the spec has it
  bool leaving = false;
  EdgeNodePtr agent;
  const api::EdgeModelReport* report = nullptr;  // of our server's model
};

const api::Container* server_of(const api::Pod& pod) {
  for (const api::Container& container : pod.spec.containers) {
    if (container.name == "server") return &container;
  }
  return nullptr;
}

/// Where the user's worker is asked, if it declares a port that its node or this machine lets through; else 0.
std::int64_t declared_port(const api::Pod& pod, Machines machines) {
  for (const api::Container& container : pod.spec.containers) {
    for (const api::ContainerPort& port : container.ports) {
      if (machines == Machines::kOne || pod.spec.host_network) return port.container_port;
      if (port.host_port != 0) return port.host_port;
    }
  }
  return 0;
}

std::string url_of(const View& view, const WorkerPod& pod, const api::EdgeNode* agent) {
  std::int64_t port = view.plan.port;
  if (pod.pod != nullptr) {
    if (!view.plan.ours_first()) {
      port = declared_port(*pod.pod, view.machines());
    } else if (const api::Container* server = server_of(*pod.pod); server != nullptr && !server->ports.empty()) {
      port = server->ports.front().container_port;
    }
  } else if (!view.plan.ours_first()) {
    return "";
  }
  const std::string host = pod_address(pod.pod.get(), agent, find_node(view.world.nodes, pod.node), view.machines());
  return port == 0 || host.empty() ? "" : http_url(host, port);
}

// How far the node is with the version that it shall serve, or why it does not get there.
std::optional<Verdict> model_failure(const PodFinding& found, const std::string& key) {
  const api::EdgeModel* told = found.agent == nullptr ? nullptr : found.agent->spec.find_model(key);
  if (told == nullptr || found.report == nullptr) return {};
  const api::EdgeVersionReport* version = found.report->find_version(told->target);
  if (version != nullptr && version->state == api::EdgeVersionReport::kFailed) {
    return no(version->reason.empty() ? "InstallFailed" : version->reason, "version " + told->target + ": " + version->message);
  }
  const auto& serving = found.report->serving;
  if (serving && !serving->failed_version.empty() && serving->failed_version == told->target)
    return no(serving->reason.empty() ? "LoadFailed" : serving->reason, "version " + told->target + ": " + serving->message);
  const Json& problem = found.report->cascade["problem"];
  if (problem.is_object())
    return no(problem["reason"].string_or("CascadeRefused"),
              "the tiers of before are in force: " + problem["message"].string_or("the server does not say why"));
  return {};
}

std::optional<Verdict> model_progress(const PodFinding& found, const std::string& node, const std::string& key) {
  if (found.agent == nullptr) return {};
  const api::EdgeModel* told = found.agent->spec.find_model(key);
  if (told == nullptr) {
    if (found.agent->spec.models.size() >= kModelsPerNode)
      return no("NodeFull", "node " + node + " holds " + std::to_string(kModelsPerNode) + " models already: use another node");
    return {};
  }
  const api::EdgeVersionReport* version = found.report == nullptr ? nullptr : found.report->find_version(told->target);
  if (version == nullptr || version->state != api::EdgeVersionReport::kDownloading) return {};
  std::string url;
  for (const api::EdgeModelVersion& one : told->versions) {
    if (one.version == told->target) url = one.url;
  }
  const std::string far = download_text(*version, url);
  return no("Downloading", "node " + node + " downloads version " + told->target + (far.empty() ? "" : ": " + far));
}

Verdict answers(const View& view, const WorkerPod& pod, const PodFinding& found) {
  const bool ours = view.plan.ours_first();
  if (auto lost = out_of_reach(pod.node, find_node(view.world.nodes, pod.node), found.agent.get()))
    return {kUnknown, std::move(lost->reason), std::move(lost->message)};
  if (pod.pod == nullptr || pod.pod->metadata.deleting()) {
    if (ours) {
      if (auto failure = model_failure(found, view.model_key())) return *failure;
      if (auto progress = model_progress(found, pod.node, view.model_key())) return *progress;
    }
    if (pod.problem) return no(*pod.problem);
    if (view.plan.refused) return no(*view.plan.refused);
    if (pod.pod != nullptr) {
      return no("PodPending",
                "pod " + pod.pod->metadata.name + " of node " + pod.node + " is ending; the next one is made once it is gone");
    }
    return no("PodPending", "the pod is being made");
  }
  if (!pod.pod->ready()) {
    if (pod.problem && pod.pod->ended()) return no(*pod.problem);
    if (auto problem = pod_problem(*pod.pod)) return no(*problem);
    if (ours && found.report != nullptr && found.report->serving &&
        found.report->serving->state == api::EdgeServingReport::kFailed) {
      const api::EdgeServingReport& serving = *found.report->serving;
      return no(serving.reason.empty() ? "LoadFailed" : serving.reason, serving.message);
    }
    return no("PodNotReady",
              pod.pod->status.phase == "Pending" ? "the pod is being started" : "the pod runs and does not answer yet");
  }
  if (!ours) return yes("");
  if (found.report == nullptr || !found.report->serving)
    return no("WaitingForNode", "waiting for the agent of node " + pod.node + " to see the server");
  const api::EdgeServingReport& serving = *found.report->serving;
  if (serving.state == api::EdgeServingReport::kReady) return yes("");
  if (serving.state == api::EdgeServingReport::kLoading) return no("Loading", "the server loads the model");
  if (serving.state == api::EdgeServingReport::kUnreachable)
    return no("ServerUnreachable", serving.message.empty() ? "the server does not answer" : serving.message);
  return no(serving.reason.empty() ? "LoadFailed" : serving.reason, serving.message);
}

const JointEndpoint* endpoint_before(const View& view, const std::string& node) {
  for (const JointEndpoint& endpoint : view.service.status.endpoints) {
    if (endpoint.node == node) return &endpoint;
  }
  return nullptr;
}

PodFinding find_pod(const View& view, const WorkerPod& pod) {
  PodFinding found;
  found.leaving = pod.leaving;
  found.agent = view.world.edge_node(pod.node);
  if (found.agent != nullptr && view.plan.ours_first()) found.report = found.agent->status.find_model(view.model_key());
  found.answers = answers(view, pod, found);
  const JointEndpoint* before = endpoint_before(view, pod.node);
  if (found.answers.status == kUnknown && before != nullptr && (pod.pod != nullptr || before->ready)) {
    found.endpoint = *before;  // nobody knows; the node may well go on serving
    return found;
  }
  found.endpoint.node = pod.node;
  found.endpoint.url = url_of(view, pod, found.agent.get());
  found.endpoint.ready = found.answers.status == kTrue;
  if (found.report != nullptr && found.report->serving) found.endpoint.version = found.report->serving->version;
  if (found.answers.status == kTrue && view.plan.ours_first()) found.flaw = model_failure(found, view.model_key());
  if (found.answers.status == kTrue && !found.flaw && pod.problem && !is_progress(pod.problem->reason))
    found.flaw = no(*pod.problem);
  return found;
}

struct FirstTier {
  std::vector<PodFinding> pods;
  std::size_t ready = 0;
  Verdict verdict;  // of EdgeReady
  Verdict answers;  // of Ready
  std::string url, version;
};

std::string counted(std::size_t some, std::size_t all) { return std::to_string(some) + " of " + std::to_string(all); }

FirstTier find_first(const View& view) {
  FirstTier first;
  for (const WorkerPod& pod : view.plan.first.pods) first.pods.push_back(find_pod(view, pod));
  const PodFinding *lost = nullptr, *idle = nullptr, *flawed = nullptr, *until = nullptr;
  std::size_t in_place = 0;
  for (const PodFinding& pod : first.pods) {
    if (pod.answers.status == kTrue) {
      if (first.ready++ == 0 || first.url.empty()) first.url = pod.endpoint.url;
    }
    if (pod.leaving) {  // it answers for others meanwhile, and nobody waits for it
      if (pod.answers.status == kTrue && until == nullptr) until = &pod;
      continue;
    }
    if (pod.answers.status == kTrue) {
      ++in_place;
      if (pod.flaw && flawed == nullptr) flawed = &pod;
    } else if (pod.answers.status == kUnknown) {
      if (lost == nullptr) lost = &pod;
    } else if (idle == nullptr || (is_progress(idle->answers.reason) && !is_progress(pod.answers.reason))) {
      idle = &pod;  // what somebody has to do comes before what takes a moment
    }
  }
  const bool one_version = !first.pods.empty() && std::all_of(first.pods.begin(), first.pods.end(), [&](const PodFinding& pod) {
    return pod.endpoint.version == first.pods.front().endpoint.version;
  });
  if (one_version) first.version = first.pods.front().endpoint.version;

  const auto wanted = static_cast<std::size_t>(
      std::count_if(first.pods.begin(), first.pods.end(), [](const PodFinding& pod) { return !pod.leaving; }));
  const std::string some = wanted > 1 ? counted(in_place, wanted) + " pods answer; " : "";
  const std::optional<Problem>& problem = view.plan.first_problem;
  const bool spec_wrong = problem && !is_progress(problem->reason);  // what its pods lack follows from that
  if (lost != nullptr && first.ready == 0) {
    first.answers = lost->answers;
    if (first.url.empty()) first.url = view.service.status.url;
  } else if (first.ready > 0) {
    first.answers = yes((wanted > 1 ? counted(in_place, wanted) + " pods answer" : std::string("answers")) +
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
    if (until != nullptr) first.verdict.message += "; until it answers, that of node " + until->endpoint.node + " goes on";
  } else if (flawed != nullptr) {
    first.verdict = *flawed->flaw;
  } else if (lost != nullptr) {
    first.verdict = lost->answers;
    first.verdict.message = some + first.verdict.message;
  } else if (wanted == 0) {
    first.verdict = first.answers;
  } else {
    first.verdict = yes(wanted > 1 ? "all " + std::to_string(wanted) + " pods answer" : "the pod answers");
  }
  return first;
}

// ---- further tiers

const JointTierStatus* tier_before(const View& view, const std::string& name) {
  for (const JointTierStatus& tier : view.service.status.tiers) {
    if (tier.name == name) return &tier;
  }
  return nullptr;
}

struct FurtherTier {
  JointTierStatus status;
  Verdict verdict;
};

ServiceAddress address_of_service(const View& view, const std::string& told, ServiceState state) {
  return service_address({view.world.service, view.world.endpoints, view.world.nodes, view.options.node_port_host, told}, state);
}

void observe_inference_model(const View& view, const TierPlan& plan, FurtherTier& tier) {
  const JointTierStatus* before = tier_before(view, tier.status.name);
  const auto found = view.world.inference_models.find(plan.inference_model);
  const api::InferenceModel* model = found == view.world.inference_models.end() ? nullptr : found->second.get();
  if (model != nullptr && plan.owned && !is_child(*model, view.service)) model = nullptr;
  if (model == nullptr) {
    // Just made, about to be, or not heard of yet; who answered so far goes on until then.
    if (before != nullptr) {
      tier.status.url = before->url;
      tier.status.model = before->model;
    }
    tier.verdict = plan.problem ? no(*plan.problem) : no("Pending", "its InferenceModel is being made");
    return;
  }
  tier.status.model = model->spec.model_name;
  tier.status.version = model->status.serving_version;
  tier.status.node = model->status.node.empty() ? model->spec.node_name : model->status.node;
  tier.status.url = model->status.url;
  const bool own_service = view.world.service != nullptr && view.world.service->metadata.name == model->metadata.name;
  if (tier.status.url.empty() && plan.owned && !model->spec.on_edge() && own_service) {
    // Known before anybody answers there: a server that does not answer is found out, one without an address is not asked at all.
    tier.status.url = address_of_service(view, before == nullptr ? "" : before->url, ServiceState::kAllocated).url;
  }
  if (tier.status.url.empty() && before != nullptr && !before->url.empty()) {  // it comes back there, or tells where
    tier.status.url = before->url;
    tier.status.model = before->model;
  }
  const meta::Condition* ready = meta::find_condition(model->status.conditions, "Ready");
  tier.status.ready = ready != nullptr && ready->status == kTrue && !model->status.url.empty();
  const std::string name = "InferenceModel " + model->metadata.name;
  if (tier.status.ready) {  // whatever it is that keeps it from being what the spec has now
    tier.verdict = yes(name + " answers at " + model->status.url);
    if (plan.problem) tier.verdict.message += ", as it was: " + plan.problem->reason + ": " + plan.problem->message;
  } else if (plan.problem) {
    tier.verdict = no(*plan.problem);
  } else if (ready == nullptr) {
    tier.verdict = no("Pending", name + " is being looked at");
  } else {
    const bool unknown = ready->status == kUnknown;
    tier.verdict = {unknown ? kUnknown : kFalse, ready->reason.empty() ? "NotReady" : ready->reason, name + ": " + ready->message};
  }
}

void observe_cloud_worker(const View& view, const TierPlan& plan, FurtherTier& tier) {
  const JointTierStatus* before = tier_before(view, tier.status.name);
  const std::string told = before == nullptr ? "" : before->url;
  const ServiceAddress known = address_of_service(view, told, ServiceState::kAllocated);
  const ServiceAddress answering = address_of_service(view, told, ServiceState::kAnswering);
  tier.status.url = known.url.empty() ? told : known.url;
  std::optional<Problem> problem = plan.problem;
  std::size_t ready = 0, all = 0;
  for (const PodPtr& pod : view.world.pods) {
    const auto label = pod->metadata.labels.find(std::string(kWorkerLabel));
    if (label == pod->metadata.labels.end() || label->second != tier.status.name) continue;
    if (pod->metadata.deleting() || pod->ended()) continue;
    ++all;
    if (pod->ready()) {
      ++ready;
      if (tier.status.node.empty()) tier.status.node = pod->spec.node_name;
    } else if (!problem) {
      problem = pod_problem(*pod);
    }
  }
  if (all > 1) tier.status.node.clear();
  tier.status.ready = ready > 0 && !answering.url.empty();
  if (tier.status.ready) {
    tier.verdict = yes(counted(ready, all) + " pods answer, at " + answering.url);
    if (plan.problem) tier.verdict.message += ", as they were: " + plan.problem->reason + ": " + plan.problem->message;
  } else if (problem) {
    tier.verdict = no(*problem);
  } else if (known.problem) {
    tier.verdict = no(*known.problem);
  } else if (all == 0) {
    tier.verdict = view.service.spec.cloud_worker->replicas == 0 ? no("ScaledToZero", "replicas is 0")
                                                                 : no("PodPending", "the pods are being made");
  } else {
    tier.verdict = ready == 0
                       ? no("PodNotReady", counted(ready, all) + " pods answer")
                       : no("ServiceNotReady", counted(ready, all) + " pods answer, and the Service does not lead there yet");
  }
}

std::vector<FurtherTier> find_further(const View& view) {
  std::vector<FurtherTier> out;
  for (std::size_t i = 1; i < view.plan.tiers.size(); ++i) {
    const Tier& spec = view.plan.tiers[i];
    const TierPlan& plan = view.plan.further[i - 1];
    FurtherTier& tier = out.emplace_back();
    tier.status.name = spec.name;
    tier.status.layer = spec.layer;
    if (tier.status.layer.empty()) {
      const api::Node* node = find_node(view.world.nodes, spec.node);
      tier.status.layer = node == nullptr ? "" : layer_of(*node);
    }
    tier.status.model = spec.model->name;
    if (spec.has_template()) {
      observe_cloud_worker(view, plan, tier);
    } else {
      observe_inference_model(view, plan, tier);
    }
  }
  return out;
}

Verdict cloud_verdict(const std::vector<FurtherTier>& tiers) {
  const FurtherTier* worst = nullptr;
  for (const FurtherTier& tier : tiers) {
    if (tier.verdict.status == kTrue) continue;
    if (worst == nullptr || (worst->verdict.status == kUnknown && tier.verdict.status == kFalse)) worst = &tier;
  }
  if (worst == nullptr) {
    return tiers.size() == 1 ? tiers.front().verdict : yes("all " + std::to_string(tiers.size()) + " further tiers answer");
  }
  Verdict verdict = worst->verdict;
  if (tiers.size() > 1) verdict.message = worst->status.name + ": " + verdict.message;
  return verdict;
}

// ---- both

Verdict degraded(const View& view, const FirstTier& first, const std::vector<FurtherTier>& further) {
  std::size_t count = 0;
  const PodFinding* one = nullptr;
  const PodFinding* lost = nullptr;
  for (const PodFinding& pod : first.pods) {
    if (pod.answers.status == kUnknown && !pod.leaving && lost == nullptr) lost = &pod;
    if (pod.answers.status != kTrue || pod.report == nullptr || !pod.report->cascade["degraded"].is_object()) continue;
    if (count++ == 0) one = &pod;
  }
  if (one != nullptr) {
    const Json& said = one->report->cascade["degraded"];
    return {kTrue, said["reason"].string_or("Degraded"),
            (first.pods.size() > 1 ? counted(count, first.pods.size()) + " nodes; " + one->endpoint.node + ": " : "") +
                said["message"].string_or("the first tier answers alone")};
  }
  if (first.ready == 0) {
    if (lost != nullptr) return {kUnknown, lost->answers.reason, lost->answers.message};
    return no("NotServing", "the first tier does not answer");
  }
  if (!view.plan.ours_first()) {
    for (const FurtherTier& tier : further) {
      if (tier.verdict.status != kTrue)
        return {kTrue, tier.verdict.reason, "the edge answers without tier " + tier.status.name + ": " + tier.verdict.message};
    }
  }
  for (const FurtherTier& tier : further) {
    if (tier.status.url.empty())
      return {kTrue, "NoAddress", "tier " + tier.status.name + " has no address yet: " + tier.verdict.message};
  }
  if (lost != nullptr) return {kUnknown, lost->answers.reason, lost->answers.message};
  return no("AllTiersAsked", "no tier is missing from the answers");
}

// ---- counts

// Of a worker's start, as a status has room for it.
std::string epoch_of(std::string start) {
  constexpr std::size_t kEpochMax = 63;
  return start.size() <= kEpochMax ? start : codec::Sha256::of(start).hex().substr(0, kEpochMax);
}

std::vector<Count> told_counts(const View& view, const FirstTier& first) {
  std::vector<Count> out;
  for (const PodFinding& pod : first.pods) {
    if (pod.report == nullptr || !pod.report->cascade["counters"].is_object()) continue;
    out.push_back({.node = pod.endpoint.node,
                   .epoch = pod.report->cascade["epoch"].as_string(),
                   .counters = pod.report->cascade["counters"]});
  }
  if (view.plan.ours_first()) return out;
  std::string node;
  for (const PodFinding& pod : first.pods) {  // by node
    if (pod.agent == nullptr || pod.endpoint.node == node) continue;
    node = pod.endpoint.node;
    for (const api::EdgeWorkerReport& worker : pod.agent->status.workers) {
      const Json& metrics = worker.report["metrics"];
      if (worker.uid != view.service.metadata.uid || !metrics.is_object()) continue;
      const auto number = [&](const char* name) { return std::max<std::int64_t>(metrics[name].as_integer(), 0); };
      const std::string& instance = worker.report["registered"]["instance"].as_string();
      out.push_back({.node = node,
                     .epoch = epoch_of(worker.key.substr(worker.key.find('/') + 1) + (instance.empty() ? "" : "/" + instance)),
                     .counters = Json::object({{"inferences", number("inferenceNumber")},
                                               {"hard", number("hardExampleNumber")},
                                               {"asked", Json::object({{view.plan.tiers[1].name, number("uploadCloudNumber")}})}}),
                     .back = Count::Back::kNewStart});
    }
  }
  return out;
}

std::string decimal(double value) {
  char text[64];
  std::snprintf(text, sizeof text, "%.2f", value);
  std::string out = text;
  while (out.back() == '0') out.pop_back();
  if (out.back() == '.') out.pop_back();
  return out;
}

// The slowest node's: it is what its clients see.
std::string latency(const FirstTier& first, const std::string& tier, const char* member) {
  std::int64_t most = 0;
  for (const PodFinding& pod : first.pods) {
    if (pod.report == nullptr) continue;
    for (const Json& one : pod.report->cascade["tiers"].as_array()) {
      if (one["name"].as_string() == tier) most = std::max(most, one[member].as_integer());
    }
  }
  return most == 0 ? "" : decimal(static_cast<double>(most) / 1000);
}

Counting who_counts(const View& view, const FirstTier& first) {
  Counting who;
  for (const auto& node : view.world.nodes) who.nodes.insert(node->metadata.name);
  if (view.plan.ours_first()) return who;
  std::map<std::string, std::size_t> workers;
  for (const PodFinding& pod : first.pods) who.side_by_side = std::max(who.side_by_side, ++workers[pod.endpoint.node]);
  return who;
}

void add_counts(const View& view, const FirstTier& first, JointInferenceServiceStatus& status) {
  status.counters = gather(std::move(status.counters), told_counts(view, first), who_counts(view, first));
  const Json all = total(status.counters);
  status.inference_number = all["inferences"].as_integer();
  status.hard_example_number = all["hard"].as_integer();
  status.bytes_sent_up = all["bytesUp"].as_integer();
  std::int64_t up = 0;  // a request that goes up asks the first further tier that can be asked, and more of them at times
  for (std::size_t i = 0; i < status.tiers.size(); ++i) {
    JointTierStatus& tier = status.tiers[i];
    tier.answered = all["answered"][tier.name].as_integer();
    tier.asked = all["asked"][tier.name].as_integer();
    for (const auto& [reason, count] : all["errors"][tier.name].as_object()) {
      if (count.as_integer() > 0) tier.errors[reason] = count.as_integer();
    }
    tier.p50_ms = latency(first, tier.name, "p50Us");
    tier.p99_ms = latency(first, tier.name, "p99Us");
    if (i > 0) up = std::max(up, tier.asked);
  }
  if (status.inference_number > 0) {
    status.upload_cloud_ratio = decimal(std::min(1.0, static_cast<double>(up) / static_cast<double>(status.inference_number)));
  }
}

void count_workers(const View& view, JointInferenceServiceStatus& status) {
  for (const WorkerPod& pod : view.plan.first.pods) {
    if (pod.pod == nullptr || pod.pod->metadata.deleting()) continue;
    if (pod.pod->ready()) ++status.active;
    if (pod.pod->ended() || (!pod.pod->ready() && pod_problem(*pod.pod))) ++status.failed;
  }
  for (std::size_t i = 0; i < view.plan.further.size(); ++i) {
    const auto model = view.world.inference_models.find(view.plan.further[i].inference_model);
    if (view.plan.further[i].owned && model != view.world.inference_models.end())
      status.active += model->second->status.ready_replicas;
    if (!view.plan.tiers[i + 1].has_template()) continue;
    for (const PodPtr& pod : view.world.pods) {
      const auto label = pod->metadata.labels.find(std::string(kWorkerLabel));
      if (label == pod->metadata.labels.end() || label->second != view.plan.tiers[i + 1].name || pod->metadata.deleting()) continue;
      if (pod->ready()) ++status.active;
      if (pod->ended() || (!pod->ready() && pod_problem(*pod))) ++status.failed;
    }
  }
}

bool same(const JointInferenceServiceStatus& a, const JointInferenceServiceStatus& b) {
  const auto parts = [](const JointInferenceServiceStatus& s) {
    return std::tie(s.conditions, s.observed_generation, s.url, s.endpoints, s.active, s.failed, s.inference_number,
                    s.hard_example_number, s.upload_cloud_ratio, s.bytes_sent_up, s.tiers, s.start_time, s.counters);
  };
  return parts(a) == parts(b);
}

// What changes with every request.
void clear_counts(JointInferenceServiceStatus& status) {
  status.inference_number = status.hard_example_number = status.bytes_sent_up = 0;
  status.upload_cloud_ratio.clear();
  status.counters.clear();
  status.update_time.clear();
  for (JointTierStatus& tier : status.tiers) {
    tier.answered = tier.asked = 0;
    tier.errors.clear();
    tier.p50_ms.clear();
    tier.p99_ms.clear();
  }
}

// One a node: of several workers there, one that answers.
void add_endpoint(const JointEndpoint& endpoint, std::vector<JointEndpoint>& endpoints) {
  if (!endpoints.empty() && endpoints.back().node == endpoint.node) {  // by node
    if (!endpoints.back().ready && endpoint.ready) endpoints.back() = endpoint;
  } else if (endpoints.size() < JointInferenceServiceStatus::kEndpointsMax) {
    endpoints.push_back(endpoint);
  }
}

JointTierStatus first_status(const View& view, const FirstTier& first) {
  const Tier& spec = view.plan.tiers.front();
  JointTierStatus tier;
  tier.name = spec.name;
  tier.layer = spec.layer;
  if (first.pods.size() == 1) tier.node = first.pods.front().endpoint.node;
  if (tier.layer.empty()) {
    const api::Node* node = find_node(view.world.nodes, first.pods.empty() ? spec.node : first.pods.front().endpoint.node);
    tier.layer = node == nullptr ? std::string(api::JointTier::kEdge) : layer_of(*node);
  }
  tier.model = spec.model->name;
  tier.version = first.version;
  tier.url = first.url;
  tier.ready = std::any_of(first.pods.begin(), first.pods.end(), [](const PodFinding& pod) { return pod.endpoint.ready; });
  return tier;
}

}  // namespace

JointObservation observe(const JointInferenceService& service, const JointPlan& plan, const JointWorld& world,
                         const InferenceModelOptions& options, WallTime now) {
  if (service.metadata.deleting()) return {service.status, {}};
  const std::string time = meta::format_time(now);
  JointInferenceServiceStatus status = service.status;
  status.observed_generation = service.metadata.generation;
  const auto set = [&](std::string type, const Verdict& verdict) {
    meta::set_condition(
        status.conditions,
        {std::move(type), std::string(verdict.status), verdict.reason, verdict.message, service.metadata.generation, ""}, time);
  };
  if (plan.problem) {
    set("Ready", no(*plan.problem));
    set("EdgeReady", no(*plan.problem));
    set("CloudReady", no(*plan.problem));
    set("Degraded", {kUnknown, plan.problem->reason, "what served before goes on, and is not looked at"});
  } else {
    const View view{service, plan, world, options};
    const FirstTier first = find_first(view);
    const std::vector<FurtherTier> further = find_further(view);
    set("Ready", first.answers);
    set("EdgeReady", first.verdict);
    set("CloudReady", cloud_verdict(further));
    set("Degraded", degraded(view, first, further));
    status.url = first.answers.status == kFalse ? "" : first.url;
    status.endpoints.clear();
    for (const PodFinding& pod : first.pods) {
      if (!pod.leaving || pod.answers.status == kTrue) add_endpoint(pod.endpoint, status.endpoints);
    }
    status.tiers = {first_status(view, first)};
    for (const FurtherTier& tier : further) status.tiers.push_back(tier.status);
    status.active = status.failed = 0;
    count_workers(view, status);
    add_counts(view, first, status);
    if (first.ready > 0 && status.start_time.empty()) status.start_time = time;
  }
  JointObservation out;
  if (same(status, service.status)) {
    out.status = service.status;
    return out;
  }
  JointInferenceServiceStatus state = status, state_before = service.status;
  clear_counts(state);
  clear_counts(state_before);
  if (same(state, state_before)) {
    const auto last = meta::parse_time(service.status.update_time);
    const auto age = last.ok() ? now - *last : WallTime::duration::max();
    // A clock that was set back makes nobody wait for it to catch up.
    if (age >= WallTime::duration::zero() && age < kCountsPeriod) {
      out.status = service.status;
      out.look_again = std::chrono::duration_cast<Duration>(kCountsPeriod - age);
      return out;
    }
  }
  status.update_time = time;
  out.status = std::move(status);
  return out;
}

}  // namespace varda::controllers
