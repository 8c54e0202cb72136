// The InferenceModels of an IncrementalLearningJob.

#include <algorithm>
#include <set>
#include <utility>

#include "codec/digest.h"
#include "controllers/incrementallearning/plan.h"
#include "controllers/workers/workers.h"
#include "hosting/labels.h"

namespace varda::controllers::incrementallearning {

namespace {

using api::IncrementalLearningJob;
using api::IncrementalVersion;

constexpr std::size_t kChildNameMax = 63;
constexpr std::size_t kNodeDigits = 12;
constexpr std::size_t kFormerVersions = 2;  // that stay on nodes for a rollback

bool is_label(const std::string& name) {
  return name.size() <= kChildNameMax && std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
         });
}

Json manifest_entry(const api::ManifestEntry& from) {
  Json entry = Json::object({{"version", from.version}, {"downloadURL", from.download_url}});
  if (!from.sha256sum.empty()) entry.set("sha256sum", from.sha256sum);
  if (!from.mirrors.empty()) {
    Json mirrors = Json::array();
    for (const std::string& url : from.mirrors) mirrors.push_back(url);
    entry.set("mirrors", std::move(mirrors));
  }
  if (from.credentials)
    entry.set("credentials", Json::object({{"secretName", from.credentials->secret_name}}));
  return entry;
}

/// Settings of kept samples. Without a policy the server keeps none, but counts answers and
/// failures: the machine needs these for rollbacks and triggers.
Json kept_samples(const api::IncrementalDeploySpec& deploy) {
  Json out = deploy.samples.is_null() ? Json::object() : deploy.samples;
  if (deploy.hard_example_mining) {
    Json policy = Json::object({{"name", deploy.hard_example_mining->name}});
    Json parameters = deploy.hard_example_mining->parameters_to_json();
    if (parameters.size() > 0) policy.set("parameters", std::move(parameters));
    out.set("hardExampleMining", std::move(policy));
  }
  return out;
}

/// Versions that the node needs: to serve, to try, and to go back to.
std::set<std::string> needed_versions(const IncrementalPlan& plan,
                                      const api::InferenceModel* existing) {
  std::set<std::string> out{plan.wanted.serving, plan.wanted.rollout};
  if (plan.wanted.trial) out.insert(plan.wanted.trial->version);
  if (existing != nullptr) out.insert(existing->status.serving_version);
  const auto& previous = plan.state.previous;
  for (std::size_t i = previous.size() - std::min(previous.size(), kFormerVersions);
       i < previous.size(); ++i)
    out.insert(previous[i].version);
  return out;
}

}  // namespace

std::string child_name(const IncrementalLearningJob& job, const std::string& node) {
  if (job.spec.deploy_spec.node_names.empty()) return job.metadata.name;
  const std::string plain = job.metadata.name + "-" + node;
  if (is_label(plain)) return plain;
  return job.metadata.name + "-" + codec::Sha256::of(node).hex().substr(0, kNodeDigits);
}

Json child_of(const IncrementalLearningJob& job, const IncrementalPlan& plan,
              const std::string& node, const api::InferenceModel* existing,
              const hosting::Options& /*options*/) {
  const api::IncrementalDeploySpec& deploy = job.spec.deploy_spec;
  const std::set<std::string> needed = needed_versions(plan, existing);
  Json manifest = Json::array();
  for (const IncrementalVersion& version : plan.versions)
    if (needed.contains(version.version))
      manifest.push_back(manifest_entry(entry_of(version, plan.base)));
  Json spec = Json::object({{"modelName", deploy.model.name},
                            {"deployToLayer", "edge"},
                            {"frameworkType", "onnx"},
                            {"nodeName", node},
                            {"manifest", std::move(manifest)},
                            {"targetVersion", plan.wanted.version_for(node)}});
  if (deploy.serving_port != 0) spec.set("servingPort", deploy.serving_port);
  if (plan.wanted.trial && !plan.servers.empty() && plan.servers.front().node == node) {
    const incremental::Wanted::OnTrial& trial = *plan.wanted.trial;
    Json on_trial = Json::object({{"version", trial.version}, {"mode", to_string(trial.mode)}});
    if (trial.mode == incremental::Trial::Mode::kCanary) on_trial.set("share", trial.share);
    spec.set("trial", std::move(on_trial));
  }
  spec.set("samples", kept_samples(deploy));
  const Json settings = deploy.settings_to_json();
  for (const auto& [name, value] : settings.as_object()) spec.set(name, value);
  Json labels =
      Json::object({{std::string(hosting::kManagedByLabel), "varda"},
                    {std::string(workers::kJobKindLabel), IncrementalLearningJob::resource().kind},
                    {std::string(workers::kJobLabel), job.metadata.name}});
  return Json::object(
      {{"apiVersion", api::InferenceModel::resource().api_version()},
       {"kind", api::InferenceModel::resource().kind},
       {"metadata", Json::object({{"name", child_name(job, node)}, {"labels", std::move(labels)}})},
       {"spec", std::move(spec)}});
}

}  // namespace varda::controllers::incrementallearning
