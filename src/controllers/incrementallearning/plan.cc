#include "controllers/incrementallearning/plan.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "codec/digest.h"
#include "controllers/dataset/dataset.h"
#include "controllers/incrementallearning/settings.h"
#include "hosting/conditions.h"
#include "hosting/labels.h"
#include "hosting/pod_settings.h"
#include "runtime/last_applied.h"

namespace varda::controllers::incrementallearning {

namespace {

using api::IncrementalLearningJob;
using api::IncrementalVersion;
using hosting::Problem;
using workers::PodPtr;
using workers::Worker;

// An ONNX file has at most 2 GiB; the rest is for other files of the archive, and the report.
constexpr std::int64_t kUploadBytesMax = (2LL << 30) + (64LL << 20);
constexpr std::int64_t kDefaultSeed = 1;

bool needs_onnx(const IncrementalLearningJob& job) {
  return !job.spec.users_train() || !job.spec.users_serve();
}

api::TrainingInitialModel wanted_model(const IncrementalLearningJob& job) {
  api::TrainingInitialModel out;
  out.name = job.spec.initial_model.name;
  out.kind = job.spec.initial_model.kind;
  out.group = job.spec.initial_model.group;
  return out;
}

/// Nothing: candidates are compared with the base.
std::optional<api::TrainingInitialModel> wanted_baseline(const IncrementalLearningJob& job,
                                                         const incremental::State& state) {
  const auto& reference = job.spec.eval_spec.initial_eval_model;
  const bool passed = state.serving.round > 0 || !state.previous.empty();
  if (!reference || passed) return {};
  api::TrainingInitialModel out;
  out.name = reference->name;
  out.kind = reference->kind;
  out.group = reference->group;
  return out;
}

runs::BaseRequest baseline_request(const IncrementalLearningJob& job,
                                   const api::TrainingInitialModel& wanted) {
  return {wanted, job.metadata, job.spec.deploy_spec.model.name,
          job.spec.users_evaluate() ? runs::Trainer::kUsers : runs::Trainer::kOurs};
}

runs::BaseRequest request_of(const IncrementalLearningJob& job,
                             const api::TrainingInitialModel& wanted) {
  return {wanted, job.metadata, job.spec.deploy_spec.model.name,
          needs_onnx(job) ? runs::Trainer::kOurs : runs::Trainer::kUsers};
}

workers::ResolvedModel resolved(const IncrementalLearningJob& job,
                                const std::optional<api::TrainingBase>& base,
                                const IncrementalVersion& version) {
  const api::TrainingInitialModel wanted = wanted_model(job);
  api::TrainingBase archive;
  archive.archive = entry_of(version, base);
  workers::ResolvedModel out = runs::resolved(archive, request_of(job, wanted));
  // Containers see every version under the name that gets the versions.
  out.name = out.model_name = job.spec.deploy_spec.model.name;
  return out;
}

const IncrementalVersion* version_in(const std::vector<IncrementalVersion>& versions,
                                     const std::string& name) {
  const auto found = std::find_if(versions.begin(), versions.end(),
                                  [&](const auto& one) { return one.version == name; });
  return found == versions.end() ? nullptr : &*found;
}

/// The parts of a job that decide the work of its node.
struct JobView {
  const IncrementalLearningJob& job;
  const std::optional<api::TrainingBase>&base, &baseline;
  const std::vector<IncrementalVersion>& versions;
  const incremental::State& state;
  const incremental::Wanted& wanted;

  bool wants(incremental::Stage stage) const {
    return wanted.worker && wanted.worker->stage == stage;
  }
  void set_model(Worker& worker, const std::string& version) const {
    if (const IncrementalVersion* found = version_in(versions, version))
      worker.model = resolved(job, base, *found);
  }
};

Json assignment_of(const JobView& view) {
  Json out = Json::object();
  if (!view.wanted.worker) return out;
  const incremental::Assignment& assignment = *view.wanted.worker;
  out = incremental::to_json(assignment);
  // The ledger of the trainer has no failed round up to `settled`, so that all of them count.
  Json consumed = Json::array();
  if (assignment.settled > 0)
    consumed.push_back(Json::array({Json(std::int64_t{1}), Json(assignment.settled)}));
  for (const std::int64_t round : assignment.consumed) consumed.push_back(round);
  out.set("consumed", std::move(consumed));
  std::set<std::int64_t> rounds(assignment.refused.begin(), assignment.refused.end());
  rounds.insert(view.job.status.refused.begin(), view.job.status.refused.end());
  Json refused = Json::array();
  for (const std::int64_t round : rounds) refused.push_back(round);
  out.set("refused", std::move(refused));
  if (view.baseline)
    out.set("baseline", Json::object({{"version", view.baseline->archive.version}}));
  out.set("trainProb", view.job.spec.dataset.train_share());
  out.set("seed", view.job.spec.train_spec.trainer["seed"].as_integer(kDefaultSeed));
  return out;
}

/// The parts of a worker that its node needs.
Worker placed_trainer(const JobView& view, const std::string& node) {
  Worker worker;
  worker.name = kTrainerName;
  worker.node_name = node;
  worker.uploads = api::WorkerUploads{kUploadBytesMax, {}};
  worker.has_output = true;
  const bool at_work = view.wanted.worker.has_value();
  // Between rounds the node keeps the version that the next round starts from.
  view.set_model(worker, at_work ? view.wanted.worker->base : view.state.serving.version);
  if (at_work) worker.assignment = assignment_of(view);
  return worker;
}

/// The candidate of the stage Eval, as the model of a worker without pods.
Worker candidate_worker(const JobView& view, const std::string& node) {
  Worker worker;
  worker.name = kCandidateName;
  worker.node_name = node;
  view.set_model(worker, view.wants(incremental::Stage::kEval) ? view.wanted.worker->version
                                                               : view.state.serving.version);
  return worker;
}

/// The model of the first comparisons, as the model of a worker without pods.
Worker baseline_worker(const JobView& view, const std::string& node) {
  Worker worker;
  worker.name = kBaselineName;
  worker.node_name = node;
  if (view.baseline) {
    const auto wanted = wanted_baseline(view.job, view.state);
    worker.model = runs::resolved(
        *view.baseline, baseline_request(view.job, wanted.value_or(api::TrainingInitialModel{})));
  }
  return worker;
}

Worker placed_server(const JobView& view, const std::string& node) {
  const api::IncrementalDeploySpec& spec = view.job.spec.deploy_spec;
  Worker worker;
  worker.name = kServerName;
  worker.node_name = node;
  worker.hard_example_mining = spec.hard_example_mining;
  worker.pod_spec = spec.pod_spec();
  worker.pod_metadata = spec.pod_metadata();
  view.set_model(worker, view.wanted.version_for(node));
  worker.variables.emplace_back("JOB_NAME", view.job.metadata.name);
  worker.variables.emplace_back("MODEL_HOT_UPDATE",
                                spec.model.hot_update_enabled ? "True" : "False");
  worker.variables.emplace_back("MODEL_POLL_PERIOD_SECONDS",
                                std::to_string(spec.model.poll_period_seconds));
  return worker;
}

/// The pod of our program, or that of the user. An attempt is one pod: the machine counts attempts.
Json worker_pod(const api::IncrementalWorker& spec, api::Container ours) {
  Json out = spec.pod_spec();
  if (out.is_null()) {
    api::Pod pod;
    pod.spec.containers.push_back(std::move(ours));
    hosting::add_settings(spec, pod.spec);
    out = pod.to_json()["spec"];
  }
  if (std::as_const(out)["restartPolicy"].as_string().empty()) out.set("restartPolicy", "Never");
  return out;
}

bool is_of(const api::Pod& pod, const incremental::Assignment& assignment) {
  const auto is = [&](std::string_view name, const std::string& value) {
    const auto found = pod.metadata.annotations.find(std::string(name));
    return found != pod.metadata.annotations.end() && found->second == value;
  };
  return is(kRoundAnnotation, std::to_string(assignment.round)) &&
         is(kAttemptAnnotation, std::to_string(assignment.attempt)) &&
         is(kStageAnnotation, std::string(incremental::to_string(assignment.stage)));
}

class Planner {
 public:
  Planner(const IncrementalLearningJob& job, const IncrementalWorld& world,
          const hosting::Options& options)
      : job_(job), world_(world), options_(options) {}

  IncrementalPlan make() {
    if (!read()) return std::move(out_);
    find_node();
    find_versions();
    if (out_.problem) return std::move(out_);
    find_baseline();
    const JobView view{job_, out_.base, out_.baseline, out_.versions, out_.state, out_.wanted};
    plan_servers(view);
    plan_worker(view);
    return std::move(out_);
  }

 private:
  void fail(std::string reason, std::string message) {
    out_.problem = Problem{std::move(reason), std::move(message)};
  }

  bool read() {
    auto settings = settings_of(job_.spec);
    if (!settings.ok()) return fail("InvalidSpec", settings.error().message()), false;
    out_.settings = std::move(settings).value();
    auto state = incremental::parse_state(job_.status.machine);
    if (!state.ok())
      return fail("StateUnreadable", "status.machine: " + state.error().message() +
                                         "; delete status.machine to begin again"),
             false;
    out_.state = std::move(state).value();
    out_.wanted = incremental::wanted_of(out_.settings, out_.state);
    if (!world_.older_writer.empty())
      return fail("ModelInUse", "Model " + job_.spec.deploy_spec.model.name +
                                    " gets the versions of the older IncrementalLearningJob " +
                                    world_.older_writer +
                                    ": change deploySpec.model, or delete one of the jobs"),
             false;
    return true;
  }

  std::string dataset_node() const {
    const auto found = world_.datasets.find(job_.spec.dataset.name);
    if (found == world_.datasets.end()) return "";
    const std::string& group = job_.spec.dataset.group;
    const runs::NamedDatasets& named = found->second;
    if (named.edgeai != nullptr && group != "sedna.io") return named.edgeai->spec.node_name;
    if (named.sedna != nullptr && group != "edgeai.io") return named.sedna->spec.node_name;
    return "";
  }

  // The worker's directory is on its node, so the job stays there.
  void find_node() {
    out_.node = job_.status.node;
    if (out_.node.empty()) out_.node = job_.spec.training_node();
    if (out_.node.empty()) out_.node = dataset_node();
    if (out_.node.empty() && !job_.spec.serving_nodes().empty())
      out_.node = job_.spec.serving_nodes().front();
  }

  void add_secret(api::ManifestEntry& archive) const {
    if (job_.spec.credential_name.empty() || archive.credentials) return;
    api::ModelCredentials secret;
    secret.secret_name = job_.spec.credential_name;
    archive.credentials = std::move(secret);
  }

  void find_versions() {
    const api::TrainingInitialModel wanted = wanted_model(job_);
    const runs::BaseRequest request = request_of(job_, wanted);
    // A started job keeps its initial model, also if the spec asks for another one later.
    out_.base = out_.state.serving.version.empty() ? runs::pinned_base(job_.status.base, request)
                                                   : job_.status.base;
    if (!out_.base) {
      runs::BaseChoice choice = runs::choose_base(request, world_.initial);
      if (choice.problem) return fail(choice.problem->reason, choice.problem->message);
      out_.base = std::move(choice.base);
      add_secret(out_.base->archive);
    }
    out_.versions = job_.status.versions;
    const api::ManifestEntry& archive = out_.base->archive;
    if (out_.state.serving.version.empty()) out_.versions.clear();
    if (version_in(out_.versions, archive.version) == nullptr) {
      IncrementalVersion initial;
      initial.version = archive.version;
      initial.url = archive.download_url;
      initial.sha256 = archive.sha256sum;
      out_.versions.insert(out_.versions.begin(), std::move(initial));
    }
    // Later the Model may have the versions and the metrics of this job.
    if (out_.state.last_version == 0) describe_initial();
  }

  /// Size and metrics of the initial version, for a rollback to it.
  void describe_initial() {
    const api::ManifestEntry& archive = out_.base->archive;
    for (const hosting::AnyModel& model : world_.initial.models) {
      if (model.spec->url != archive.download_url ||
          api::known_sha256(*model.spec, *model.status) != archive.sha256sum)
        continue;
      for (IncrementalVersion& version : out_.versions) {
        if (version.version != archive.version || version.round != 0) continue;
        const auto& pinned = model.status->pinned;
        version.bytes = model.spec->size > 0 ? model.spec->size : pinned ? pinned->bytes : 0;
        version.metrics = model.status->metrics;
      }
    }
  }

  void find_baseline() {
    const auto wanted = wanted_baseline(job_, out_.state);
    if (!wanted) return;
    const runs::BaseRequest request = baseline_request(job_, *wanted);
    out_.baseline = runs::pinned_base(job_.status.baseline, request);
    if (!out_.baseline) {
      runs::BaseChoice choice = runs::choose_base(request, world_.baseline);
      out_.baseline_problem = std::move(choice.problem);
      out_.baseline = std::move(choice.base);
      if (out_.baseline) add_secret(out_.baseline->archive);
    }
    // The initial model is on the node anyway.
    if (out_.baseline && out_.baseline->archive == out_.base->archive) out_.baseline.reset();
  }

  // ---- the service

  void plan_servers(const JobView& view) {
    std::vector<std::string> nodes = job_.spec.serving_nodes();
    if (nodes.empty() && !out_.node.empty()) nodes.push_back(out_.node);
    for (const std::string& node : nodes) {
      PlannedServer& server = out_.servers.emplace_back();
      server.node = node;
      if (job_.spec.users_serve()) {
        plan_users_server(view, server);
      } else {
        plan_child(server);
      }
    }
  }

  void plan_child(PlannedServer& server) {
    server.name = child_name(job_, server.node);
    for (const ChildPtr& child : world_.children)
      if (child->metadata.name == server.name) server.child = child;
    const std::string& version = out_.wanted.version_for(server.node);
    if (version_in(out_.versions, version) != nullptr) {
      out_.objects.push_back(child_of(job_, out_, server.node, server.child.get(), options_));
      return;
    }
    server.problem =
        Problem{"VersionPending", version.empty() ? "the first version is not chosen yet"
                                                  : "version " + version + " has no archive"};
    if (server.child == nullptr) return;
    Json applied = runtime::last_applied(server.child->metadata);
    if (applied.is_null()) return;
    applied.make("metadata").set("uid", server.child->metadata.uid);
    out_.objects.push_back(std::move(applied));
  }

  void plan_users_server(const JobView& view, PlannedServer& server) {
    const Worker worker = placed_server(view, server.node);
    server.name = workers::worker_pod_name(job_of(job_), worker, server.node, 0);
    server.pod = find_pod(server.name);
    if (hosting::find_node(world_.nodes, server.node) == nullptr) {
      server.problem = Problem{"NodeNotFound", "node " + server.node + " does not exist"};
      return keep(server.pod);
    }
    workers::WorkerPlan made = workers::plan_worker(job_of(job_), worker, around(server.pod));
    for (Json& object : made.objects) out_.objects.push_back(std::move(object));
    for (PodPtr& ended : made.ended) out_.failed.push_back(std::move(ended));
    server.problem = std::move(made.problem);
  }

  // ---- the worker of the stage

  void plan_worker(const JobView& view) {
    Worker worker = placed_trainer(view, out_.node);
    if (!out_.node.empty())
      out_.pod_name = workers::worker_pod_name(job_of(job_), worker, out_.node, 0);
    const PodPtr present = find_pod(out_.pod_name);
    if (out_.wanted.worker && present != nullptr && is_of(*present, *out_.wanted.worker))
      out_.pod = present;
    out_.blocked = complete(view, worker);
    if (!out_.blocked) out_.blocked = deploy_problem();
    if (!out_.wanted.worker) return;  // the pod of an ended attempt goes
    if (out_.pod != nullptr && (out_.blocked || out_.pod->ended())) return keep(out_.pod);
    if (out_.blocked) return;
    out_.waiting = files_problem(view, worker, *world_.edge_node(out_.node));
    if (out_.waiting) return keep(out_.pod);
    workers::WorkerPlan made = workers::plan_worker(job_of(job_), worker, around(out_.pod));
    for (Json& object : made.objects) out_.objects.push_back(std::move(object));
    out_.waiting = std::move(made.problem);
  }

  /// Nothing: each server could get a new version. A port or a name may become free at any time.
  std::optional<Problem> deploy_problem() const {
    for (const PlannedServer& server : out_.servers) {
      std::optional<Problem> problem = server.problem;
      if (server.child != nullptr) {
        const auto& conditions = server.child->status.conditions;
        const meta::Condition* ready = meta::find_condition(conditions, "Ready");
        if (ready == nullptr)
          return Problem{"ServerPending",
                         "InferenceModel " + server.name + " has no condition Ready yet"};
        if (ready->status != hosting::kTrue) problem = Problem{ready->reason, ready->message};
      }
      if (problem && (problem->reason == "PortInUse" || problem->reason == "NameInUse"))
        return Problem{problem->reason,
                       "no version can be deployed: " + server.node + ": " + problem->message};
    }
    return {};
  }

  /// Fills in the data and the pod. Returns the reason why no worker can run.
  std::optional<Problem> complete(const JobView& view, Worker& worker) const {
    if (out_.node.empty())
      return Problem{"NodeMissing", "no node is set, and there is no Dataset " +
                                        job_.spec.dataset.name + ": set nodeName"};
    if (hosting::find_node(world_.nodes, out_.node) == nullptr)
      return Problem{"NodeNotFound", "node " + out_.node + " does not exist"};
    if (options_.registry_url.empty())
      return Problem{"RegistryMissing",
                     "the operator has no registry for results: start it with --registry URL"};
    const workers::EdgeNodePtr agent = world_.edge_node(out_.node);
    if (auto problem = runs::agent_problem(agent.get(), out_.node)) return problem;
    if (out_.baseline_problem)
      return Problem{out_.baseline_problem->reason,
                     "evalSpec.initialEvalModel: " + out_.baseline_problem->message};
    const auto choose = [&](const std::string& name, const std::string& group) {
      const auto found = world_.datasets.find(name);
      return runs::choose_dataset(
          {name, group, {}}, found == world_.datasets.end() ? runs::NamedDatasets{} : found->second,
          *agent,
          // Files arrive at any time, so no worker waits for a count.
          runs::Started::kYes);
    };
    runs::DatasetChoice data = choose(job_.spec.dataset.name, job_.spec.dataset.group);
    if (data.problem) return data.problem;
    std::optional<runs::DatasetOnNode> frozen;
    if (const auto& dataset = job_.spec.eval_spec.dataset) {
      runs::DatasetChoice choice = choose(dataset->name, dataset->group);
      if (choice.problem) return choice.problem;
      frozen = std::move(choice.dataset);
    }
    std::optional<runs::DatasetOnNode> old;
    if (const auto& dataset = job_.spec.train_spec.replay) {
      runs::DatasetChoice choice = choose(dataset->name, dataset->group);
      if (choice.problem) return choice.problem;
      old = std::move(choice.dataset);
    }
    if (out_.wanted.worker) add_pod(view, worker, {*data.dataset, frozen, old}, *agent);
    return {};
  }

  struct Inputs {
    const runs::DatasetOnNode& fresh;
    const std::optional<runs::DatasetOnNode>& frozen;
    const std::optional<runs::DatasetOnNode>& old;
  };

  void add_pod(const JobView& view, Worker& worker, const Inputs& inputs,
               const api::EdgeNode& agent) const {
    const bool evaluates = view.wants(incremental::Stage::kEval);
    const api::IncrementalWorker& spec =
        evaluates ? static_cast<const api::IncrementalWorker&>(job_.spec.eval_spec)
                  : job_.spec.train_spec;
    std::set<std::string> mounts{inputs.fresh.mount};
    if (inputs.frozen) mounts.insert(inputs.frozen->mount);
    if (inputs.old) mounts.insert(inputs.old->mount);
    worker.data.assign(mounts.begin(), mounts.end());
    Variables names = datasets(inputs);
    add_variables(view, worker, inputs.fresh);
    worker.pod_spec =
        worker_pod(spec, runs::program_container("trainer", options_.train_image,
                                                 {"--worker", "--incremental"}, agent));
    if (spec.has_template()) {
      add_selection(worker.pod_spec, names, agent);
      names = selected(inputs);
    }
    for (auto& [name, value] : names) worker.variables.emplace_back(name, std::move(value));
    worker.pod_metadata = spec.pod_metadata();
    const incremental::Assignment& assignment = *out_.wanted.worker;
    Json& annotations = worker.pod_metadata.make("annotations");
    annotations.set(kRoundAnnotation, std::to_string(assignment.round));
    annotations.set(kAttemptAnnotation, std::to_string(assignment.attempt));
    annotations.set(kStageAnnotation, incremental::to_string(assignment.stage));
  }

  using Variables = std::vector<std::pair<std::string, std::string>>;

  static void add_dataset(const std::string& prefix, const runs::DatasetOnNode& dataset,
                          Variables& out) {
    out.emplace_back(prefix + "_DATASET_URL", dataset.path);
    out.emplace_back(prefix + "_DATASET_FORMAT", dataset.format);
  }

  static Variables datasets(const Inputs& inputs) {
    Variables out;
    add_dataset("TRAIN", inputs.fresh, out);
    if (inputs.frozen) add_dataset("EVAL", *inputs.frozen, out);
    if (inputs.old) add_dataset("REPLAY", *inputs.old, out);
    return out;
  }

  /// The lists of varda-train --select, for programs of the user.
  static Variables selected(const Inputs& inputs) {
    const std::string& from = inputs.fresh.format;
    const std::string format = from == "csv" || from == "tsv" ? from : "txt";
    const std::string directory = std::string(workers::kOutputMount) + "/selection/";
    Variables out{{"TRAIN_DATASET_URL", directory + "train." + format},
                  {"TRAIN_DATASET_FORMAT", format},
                  {"TEST_DATASET_URL", directory + "test." + format},
                  {"TEST_DATASET_FORMAT", format}};
    if (inputs.frozen) add_dataset("EVAL", *inputs.frozen, out);
    if (inputs.old) add_dataset("REPLAY", *inputs.old, out);
    return out;
  }

  /// An init container that writes the lists. Its own variables have precedence.
  void add_selection(Json& pod_spec, const Variables& names, const api::EdgeNode& agent) const {
    api::Pod pod;
    pod.spec.containers.push_back(runs::program_container(
        "varda-select", options_.train_image, {"--worker", "--incremental", "--select"}, agent));
    Json select = pod.to_json().at("spec/containers/0");
    Json env = Json::array();
    for (const auto& [name, value] : names)
      env.push_back(Json::object({{"name", name}, {"value", value}}));
    select.set("env", std::move(env));
    Json all = Json::array({std::move(select)});
    for (const Json& users : std::as_const(pod_spec)["initContainers"].as_array())
      all.push_back(users);
    pod_spec.set("initContainers", std::move(all));
  }

  void add_variables(const JobView& view, Worker& worker, const runs::DatasetOnNode& data) const {
    const incremental::Assignment& assignment = *out_.wanted.worker;
    const auto add = [&](const char* name, std::string value) {
      worker.variables.emplace_back(name, std::move(value));
    };
    add("JOB_NAME", job_.metadata.name);
    add("DATASET_NAME", job_.spec.dataset.name);
    add("ORIGINAL_DATASET_URL", data.path);
    add("ROUND", std::to_string(assignment.round));
    add("ATTEMPT", std::to_string(assignment.attempt));
    add("INCREMENTAL", codec::write_json(assignment_of(view)));
    const Json& trainer = job_.spec.train_spec.trainer;
    add("PARAMETERS", codec::write_json(trainer.is_object() ? trainer : Json::object()));
    if (!compares(view)) return;
    const std::string baseline = baseline_url(view);
    if (!baseline.empty()) add("BASELINE_MODEL_URL", baseline);
    if (!view.wants(incremental::Stage::kEval)) return;
    add("CANDIDATE_MODEL_URL", kCandidateMount);
    if (!worker.model) return;
    const std::string base = "/models/" + worker.model->name + "/" + assignment.base;
    add("MODEL_URLS", std::string(kCandidateMount) + ";" + (baseline.empty() ? base : baseline));
  }

  /// The stage of the worker ends with a comparison.
  bool compares(const JobView& view) const {
    return view.wants(incremental::Stage::kEval) || !out_.settings.separate_evaluation;
  }

  /// "": the base is the baseline. A program of the user fetches an archive without a digest.
  std::string baseline_url(const JobView& view) const {
    const Worker baseline = baseline_worker(view, out_.node);
    if (!baseline.model) return "";
    return baseline.model->archive() != nullptr ? kBaselineMount : baseline.model->url;
  }

  void mount_model(Worker& worker, const Worker& of, const char* directory,
                   const api::EdgeNode& agent) const {
    worker.mounts.push_back({agent.status.model_root + "/" +
                                 workers::worker_model_key(job_of(job_), of) + "/" +
                                 of.model->version,
                             directory, of.model->archive()->sha256});
  }

  /// The files that the pod needs before it starts. Adds the mount of the candidate.
  std::optional<Problem> files_problem(const JobView& view, Worker& worker,
                                       const api::EdgeNode& agent) const {
    const auto missing = [&](const Worker& one) -> std::optional<Problem> {
      if (!one.model)
        return Problem{"VersionPending", "the archive of the version is not known yet"};
      if (workers::has_wanted_model(job_of(job_), one, agent)) return {};
      return Problem{"WaitingForNode", "waiting for node " + out_.node + " to have version " +
                                           one.model->version + " of model " + one.model->name};
    };
    if (auto problem = missing(worker)) return problem;
    const Worker baseline = baseline_worker(view, out_.node);
    if (compares(view) && baseline.model && baseline.model->archive() != nullptr) {
      if (auto problem = missing(baseline)) return problem;
      mount_model(worker, baseline, kBaselineMount, agent);
    }
    if (!view.wants(incremental::Stage::kEval)) return {};
    const Worker candidate = candidate_worker(view, out_.node);
    if (auto problem = missing(candidate)) return problem;
    mount_model(worker, candidate, kCandidateMount, agent);
    return {};
  }

  PodPtr find_pod(const std::string& name) const {
    const auto found = std::find_if(world_.pods.begin(), world_.pods.end(),
                                    [&](const PodPtr& pod) { return pod->metadata.name == name; });
    return found == world_.pods.end() ? nullptr : *found;
  }

  void keep(const PodPtr& pod) {
    if (pod != nullptr && !pod->metadata.deleting())
      out_.objects.push_back(workers::unchanged_pod(*pod));
  }

  workers::WorkerWorld around(const PodPtr& pod) const {
    return {.nodes = world_.nodes,
            .edge_node = world_.edge_node,
            .pods = pod == nullptr ? std::vector<PodPtr>{} : std::vector<PodPtr>{pod},
            .deployment = nullptr,
            .claims = {}};
  }

  const IncrementalLearningJob& job_;
  const IncrementalWorld& world_;
  const hosting::Options& options_;
  IncrementalPlan out_;
};

/// Kept samples of the job's server on the node. Nothing: it does not serve there, or keeps none.
std::optional<api::EdgeSamples> samples_work(const IncrementalLearningJob& job,
                                             const std::string& node, const LabelWay& labels) {
  const api::IncrementalDeploySpec& deploy = job.spec.deploy_spec;
  if (job.spec.users_serve() || (deploy.samples.is_null() && !deploy.hard_example_mining))
    return {};
  const auto& all = job.status.serving;
  const auto serves = [&](const api::IncrementalServing& one) { return one.node == node; };
  if (std::none_of(all.begin(), all.end(), serves)) return {};
  api::EdgeSamples out;
  out.key = meta::ObjectKey{job.metadata.ns, child_name(job, node)}.str();
  out.uid = job.metadata.uid;
  if (labels.node == node) out.path = labels.folder;
  out.url = labels.url;
  out.model = labels.model;
  if (const Json& minimum = deploy.pseudo_labels["minimum"]; minimum.is_number())
    out.minimum = minimum.as_double();
  return out;
}

/// A deleted Node may come back. Until then the agent keeps the files of the job's workers.
void keep_present(const IncrementalLearningJob& job, const api::EdgeNode& node,
                  hosting::NodeWork& work) {
  const std::string prefix = job.metadata.key().str() + ".";
  for (const api::EdgeWorker& present : node.spec.workers)
    if (present.uid == job.metadata.uid) work.workers.push_back(present);
  for (const api::EdgeModel& present : node.spec.models)
    if (present.key.starts_with(prefix)) work.models.push_back(present);
}

}  // namespace

workers::Job job_of(const IncrementalLearningJob& job) {
  return {IncrementalLearningJob::resource().kind, job.metadata};
}

Result<incremental::Settings> settings_of(const api::IncrementalLearningJobSpec& spec) {
  TRY(incremental::Settings out, incremental::parse_settings(spec.to_json()));
  // The user's trainer makes a model, and reports no comparison.
  if (spec.users_train()) out.separate_evaluation = true;
  return out;
}

namespace {

const std::string& group_of_output(const IncrementalLearningJob& job) {
  const std::string& group = job.spec.deploy_spec.model.group;
  return group.empty() ? api::Model::resource().group : group;
}

}  // namespace

std::optional<hosting::AnyModel> output_model(const IncrementalLearningJob& job,
                                              const hosting::AnyModels& models) {
  const std::string& group = group_of_output(job);
  for (const hosting::AnyModel& model : models)
    if (model.group == group) return model;
  return {};
}

bool writes_first(const IncrementalLearningJob& other, const IncrementalLearningJob& job) {
  const auto age = [](const IncrementalLearningJob& one) {
    return std::tie(one.metadata.creation_timestamp, one.metadata.uid);
  };
  return !other.metadata.deleting() && other.metadata.ns == job.metadata.ns &&
         other.spec.deploy_spec.model.name == job.spec.deploy_spec.model.name &&
         group_of_output(other) == group_of_output(job) && age(other) < age(job);
}

api::ManifestEntry entry_of(const IncrementalVersion& version,
                            const std::optional<api::TrainingBase>& base) {
  if (version.round == 0 && base && base->archive.version == version.version) return base->archive;
  api::ManifestEntry out;
  out.version = version.version;
  out.download_url = version.url;
  out.sha256sum = version.sha256;
  return out;
}

IncrementalPlan plan(const IncrementalLearningJob& job, const IncrementalWorld& world,
                     const hosting::Options& options) {
  return Planner(job, world, options).make();
}

std::optional<hosting::NodeWork> work_for(const IncrementalLearningJob& job,
                                          const api::EdgeNode& node, const hosting::NodeList& nodes,
                                          const std::vector<PodPtr>& pods, const LabelWay& labels) {
  if (job.metadata.deleting()) return {};
  const std::string& name = node.metadata.name;
  hosting::NodeWork work;
  work.since = job.metadata.creation_timestamp;
  if (hosting::find_node(nodes, name) == nullptr) {
    keep_present(job, node, work);
  } else {
    const auto settings = settings_of(job.spec);
    const auto state = incremental::parse_state(job.status.machine);
    if (!settings.ok() || !state.ok()) {
      keep_present(job, node, work);
    } else {
      const incremental::Wanted wanted = incremental::wanted_of(*settings, *state);
      const JobView view{job,    job.status.base, job.status.baseline, job.status.versions,
                         *state, wanted};
      const auto add = [&](const Worker& worker, bool has_pods) {
        std::vector<PodPtr> own;
        const std::string pod_name = workers::worker_pod_name(job_of(job), worker, name, 0);
        for (const PodPtr& pod : pods)
          if (pod->metadata.name == pod_name) own.push_back(pod);
        if (auto model = workers::model_for(job_of(job), worker, nodes, node, own))
          work.models.push_back(std::move(*model));
        if (!has_pods) return;
        for (api::EdgeWorker& one : workers::workers_for(job_of(job), worker, nodes, node, own))
          work.workers.push_back(std::move(one));
      };
      if (job.status.node == name && !state->serving.version.empty()) {
        add(placed_trainer(view, name), true);
        if (settings->separate_evaluation) add(candidate_worker(view, name), false);
        if (job.status.baseline) add(baseline_worker(view, name), false);
      }
      const auto serves = [&](const api::IncrementalServing& one) { return one.node == name; };
      if (job.spec.users_serve() && !state->serving.version.empty() &&
          std::any_of(job.status.serving.begin(), job.status.serving.end(), serves))
        add(placed_server(view, name), true);
    }
  }
  if (auto samples = samples_work(job, name, labels)) work.samples.push_back(std::move(*samples));
  if (work.models.empty() && work.workers.empty() && work.samples.empty()) return {};
  const auto by_key = [](const auto& a, const auto& b) { return a.key < b.key; };
  std::sort(work.models.begin(), work.models.end(), by_key);
  std::sort(work.workers.begin(), work.workers.end(), by_key);
  return work;
}

}  // namespace varda::controllers::incrementallearning
