#include "controllers/incrementallearning/servers.h"

#include <algorithm>

#include "hosting/labels.h"
#include "hosting/pod_problem.h"

namespace varda::controllers::incrementallearning {

namespace {

using hosting::Problem;

std::int64_t restarts_of(const api::Pod& pod) {
  std::int64_t out = 0;
  for (const api::ContainerStatus& container : pod.status.container_statuses)
    out += std::max<std::int64_t>(container.restart_count, 0);
  return out;
}

incremental::TrialReport trial_of(const api::ModelTrialStatus& status) {
  incremental::TrialReport out;
  out.version = status.version;
  out.failed = status.state == api::ModelTrialStatus::kFailed;
  out.message = status.reason.empty() ? status.message : status.reason + ": " + status.message;
  out.counters.since = status.since;
  out.counters.answers = status.answers;
  out.counters.failures = status.failures;
  out.counters.hard = status.hard.value_or(0);
  out.counters.agreed = status.agreed;
  if (status.hard && status.serving.hard) {
    out.counters.base_answers = status.serving.answers;
    out.counters.base_hard = *status.serving.hard;
  }
  if (status.microseconds.serving > 0 && status.microseconds.trial > 0)
    out.microseconds =
        incremental::Pair{.base = static_cast<double>(status.microseconds.serving),
                          .candidate = static_cast<double>(status.microseconds.trial)};
  return out;
}

incremental::Counters counters_of(const api::SampleReport& report) {
  incremental::Counters out;
  out.since = report.since;
  out.answers = report.answers;
  out.failures = report.failures;
  out.hard = report.hard;
  out.scores = report.scores;
  return out;
}

class Look {
 public:
  Look(const api::IncrementalLearningJob& job, const IncrementalWorld& world)
      : job_(job), world_(world) {}

  ServerFinding at(const PlannedServer& server) const {
    ServerFinding out;
    out.name = server.name;
    out.report.name = server.node;
    const workers::EdgeNodePtr agent = world_.edge_node(server.node);
    const api::Node* node = hosting::find_node(world_.nodes, server.node);
    // A roll-out does not wait for a node that was removed, or that a user misspelt.
    out.report.connected =
        node != nullptr && !hosting::out_of_reach(server.node, node, agent.get()).has_value();
    if (job_.spec.users_serve()) {
      look_at_pod(server, out);
    } else {
      look_at_child(server, out);
    }
    count_crashes(server.node, out);
    return out;
  }

 private:
  void look_at_child(const PlannedServer& server, ServerFinding& out) const {
    out.problem = server.problem.value_or(
        Problem{"ServerPending", "InferenceModel " + server.name + " is being created"});
    if (server.child == nullptr) return;
    const api::InferenceModelStatus& status = server.child->status;
    out.report.serving = status.serving_version;
    out.url = status.url;
    const meta::Condition* ready = meta::find_condition(status.conditions, "Ready");
    out.ready = ready != nullptr && ready->status == "True";
    if (!out.ready && ready != nullptr) out.problem = {ready->reason, ready->message};
    if (const auto& failure = status.model_status.last_failure) {
      out.report.failed_version = failure->version;
      out.report.message = failure->reason + ": " + failure->message;
    }
    if (status.trial) out.report.trial = trial_of(*status.trial);
    if (status.samples) {
      if (status.samples->version == status.serving_version)
        out.report.counters = counters_of(*status.samples);
      out.pending = status.samples->pending;
    }
    find_samples(server, out);
    for (const workers::PodPtr& pod : world_.server_pods) {
      const meta::OwnerReference* owner = pod->metadata.controller();
      if (owner != nullptr && owner->uid == server.child->metadata.uid)
        out.restarts += restarts_of(*pod);
    }
  }

  /// Labels of kept samples, as the node reports them.
  void find_samples(const PlannedServer& server, ServerFinding& out) const {
    const workers::EdgeNodePtr agent = world_.edge_node(server.node);
    if (agent == nullptr) return;
    const std::string key = server.child->metadata.key().str();
    const api::EdgeSamplesReport* found = agent->status.find_samples(key);
    if (found == nullptr || found->uid != job_.metadata.uid) return;
    out.labels = *found;
    out.pending = found->pending;
  }

  void look_at_pod(const PlannedServer& server, ServerFinding& out) const {
    out.problem =
        server.problem.value_or(Problem{"PodPending", "pod " + server.name + " is being created"});
    if (server.pod == nullptr || server.pod->metadata.deleting()) return;
    const api::Pod& pod = *server.pod;
    out.restarts = restarts_of(pod);
    const auto version = pod.metadata.annotations.find(std::string(hosting::kVersionLabel));
    if (pod.ready() && version != pod.metadata.annotations.end())
      out.report.serving = version->second;
    out.ready = pod.ready() && !server.problem;
    if (!out.ready && !server.problem) {
      out.problem = hosting::pod_problem(pod).value_or(
          Problem{"PodPending", "pod " + server.name + " is not Ready"});
    }
    // A pod that fails with a version never serves it.
    if (version != pod.metadata.annotations.end() &&
        std::any_of(pod.status.container_statuses.begin(), pod.status.container_statuses.end(),
                    [](const auto& one) { return runs::failed_now(one); })) {
      out.report.failed_version = version->second;
      out.report.message = out.problem.message;
    }
  }

  void count_crashes(const std::string& node, ServerFinding& out) const {
    const auto& all = job_.status.serving;
    const auto before =
        std::find_if(all.begin(), all.end(), [&](const auto& one) { return one.node == node; });
    out.restarts_before = out.restarts;
    if (before == all.end() || before->version != out.report.serving) return;
    // A new pod begins at 0.
    out.restarts_before = out.restarts < before->restarts ? 0 : before->restarts_before;
    out.report.crashes = out.restarts - out.restarts_before;
  }

  const api::IncrementalLearningJob& job_;
  const IncrementalWorld& world_;
};

}  // namespace

std::vector<ServerFinding> look_at_servers(const api::IncrementalLearningJob& job,
                                           const IncrementalPlan& plan,
                                           const IncrementalWorld& world) {
  std::vector<ServerFinding> out;
  const Look look(job, world);
  for (const PlannedServer& server : plan.servers) out.push_back(look.at(server));
  return out;
}

}  // namespace varda::controllers::incrementallearning
