#include "controllers/trainingmodel/plan.h"

#include <algorithm>
#include <utility>

#include "controllers/runs/runs.h"
#include "hosting/labels.h"
#include "hosting/node_index.h"
#include "hosting/pod_settings.h"
#include "hosting/servers.h"

namespace varda::controllers::trainingmodel {

namespace {

using api::TrainingModel;
using workers::PodPtr;
using workers::Worker;
using Pods = TrainingPlan::Pods;

// An ONNX file has at most 2 GiB; the rest is for other files of the archive, and the report.
constexpr std::int64_t kUploadBytesMax = (2LL << 30) + (64LL << 20);

/// Directory of fetched datasets in the containers of a Job.
constexpr std::string_view kDataMount = "/var/run/varda/data";

/// The parts of the worker that its node needs.
Worker placed_worker(const TrainingModel& training, const std::string& node) {
  Worker worker;
  worker.name = kWorkerName;
  worker.node_name = node;
  worker.any_node = api::is_job_node(node);
  worker.uploads = api::WorkerUploads{kUploadBytesMax, {}};
  if (const api::TrainingOutput& output = training.spec.output; !output.url.empty()) {
    worker.bucket = api::EdgeBucket{
        output.url,
        output.credentials ? training.metadata.ns + "/" + output.credentials->secret_name : "",
        {}};
  }
  worker.has_output = true;
  worker.needs_model = training.spec.initial_model.has_value();
  if (const auto base = pinned_base(training))
    worker.model = runs::resolved(*base, base_request(training));
  return worker;
}

/// The archives of spec.scripts in the form of an initial model, for room runs.
api::TrainingInitialModel scripts_of(const TrainingModel& training) {
  api::TrainingInitialModel out;
  if (!training.spec.scripts) return out;
  out.manifest = training.spec.scripts->manifest;
  out.target_version = training.spec.scripts->target_version;
  return out;
}

/// More files of the run, as the model of a worker without pods, so that the node installs them.
Worker files_worker(const char* name, const std::string& node) {
  Worker worker;
  worker.name = name;
  worker.node_name = node;
  return worker;
}

/// The file of a dataset, of a run without a node.
Worker data_worker(const TrainingModel& training, const std::string& node, const char* name,
                   const std::optional<api::TrainingBase>& file) {
  Worker worker = files_worker(name, node);
  if (file) worker.model = runs::resolved_file(*file, training.metadata);
  return worker;
}

/// The scripts as the model of a worker without pods, so that the node installs them.
Worker scripts_worker(const TrainingModel& training, const std::string& node) {
  Worker worker = files_worker(kScriptsName, node);
  if (const auto scripts = pinned_scripts(training)) {
    const api::TrainingInitialModel wanted = scripts_of(training);
    worker.model = runs::resolved(*scripts, {wanted, training.metadata, training.spec.model_name});
  }
  return worker;
}

Json pod_of_image(const TrainingModel& training, const api::EdgeNode& agent,
                  const hosting::Options& options) {
  const api::TrainingModelSpec& spec = training.spec;
  api::Pod pod;
  api::Container container;
  if (spec.built_in()) {
    container = runs::program_container("trainer", options.train_image, {"--worker"}, agent);
  } else {
    container.name = "trainer";
    container.image = spec.image;
  }
  pod.spec.containers.push_back(std::move(container));
  hosting::add_settings(spec, pod.spec);
  return pod.to_json()["spec"];
}

Json pod_spec_of(const TrainingModel& training, const api::EdgeNode& agent,
                 const hosting::Options& options) {
  Json spec = training.spec.pod_spec();
  if (spec.is_null()) spec = pod_of_image(training, agent, options);
  if (std::as_const(spec)["restartPolicy"].as_string().empty())
    spec.set("restartPolicy", "OnFailure");
  return spec;
}

Json parameters_of(const api::TrainingModelSpec& spec) {
  if (spec.built_in()) return spec.trainer;
  Json out = Json::object();
  for (const api::TrainingParameter& one : spec.parameters) out.set(one.key, one.value);
  return out;
}

Json settings_of(const api::TrainingModelSpec& spec) {
  Json out = Json::object(
      {{"modelName", spec.model_name}, {"checkpointSeconds", spec.checkpoint_seconds()}});
  if (!spec.evaluation || !spec.evaluation->dataset) out.set("holdOut", spec.hold_out());
  if (!spec.output.version.empty()) out.set("version", spec.output.version);
  return out;
}

void add_dataset(const runs::DatasetOnNode& dataset, const std::string& prefix, Worker& worker) {
  worker.variables.emplace_back(prefix + "_DATASET_URL", dataset.path);
  worker.variables.emplace_back(prefix + "_DATASET_FORMAT", dataset.format);
  if (std::find(worker.data.begin(), worker.data.end(), dataset.mount) == worker.data.end())
    worker.data.push_back(dataset.mount);
}

class Planner {
 public:
  Planner(const TrainingModel& training, const TrainingWorld& world,
          const hosting::Options& options, WallTime now)
      : training_(training), world_(world), options_(options), now_(now) {}

  TrainingPlan make() {
    find_node();
    const bool reported = has_reported();
    choose_pods(reported);
    return std::move(out_);
  }

 private:
  void find_node() {
    const api::TrainingModelSpec& spec = training_.spec;
    out_.is_job = becomes_job(training_, options_) || has_job_node(training_);
    if (training_.status.ended()) {
      out_.node = training_.status.node;
    } else if (out_.is_job) {
      out_.node = api::job_node_name(training_.metadata.uid);
    } else {
      const hosting::Labels cloud{{std::string(hosting::kLayerLabel), "cloud"}};
      hosting::Placement placed = hosting::place(
          {spec.node_name, spec.without_node() ? cloud : spec.node_selector, training_.status.node},
          world_.nodes);
      out_.node = std::move(placed.node);
      out_.problem = std::move(placed.problem);
      if (!out_.problem) check_layer();
    }
    if (out_.node.empty()) return;
    out_.pod_name = workers::worker_pod_name(job_of(training_), placed_worker(training_, out_.node),
                                             out_.node, 0);
    if (out_.is_job) out_.pod = newest(world_.pods);
    for (const PodPtr& pod : world_.pods)
      if (pod->metadata.name == out_.pod_name) out_.pod = pod;
  }

  // A cluster's policy may allow long work on nodes of the cloud layer only.
  void check_layer() {
    const api::Node* node = hosting::find_node(world_.nodes, out_.node);
    if (training_.spec.deploy_to_layer != "cloud" || node == nullptr) return;
    const std::string layer = hosting::layer_of(*node);
    if (layer != "cloud")
      fail("NodeInOtherLayer",
           "node " + out_.node + " is of the " + layer + " layer, but spec.deployToLayer is cloud");
  }

  // The container has done its work. Another start would repeat it.
  bool has_reported() const {
    if (out_.node.empty()) return false;
    const workers::EdgeNodePtr agent = world_.edge_node(out_.node);
    return read_report(agent.get(), training_.metadata.ns + "/" + out_.pod_name,
                       training_.metadata.uid)
        .result.has_value();
  }

  void choose_pods(bool reported) {
    const api::TrainingModelStatus& status = training_.status;
    if (out_.is_job) return choose_job(reported);
    if (!status.ended() && (world_.job != nullptr || world_.job_pod != nullptr)) {
      // converge() removes the Job. Two trainers of a run would write the same Model.
      return fail("JobReplaced", "the Job of the former spec ends");
    }
    if (status.ended()) {
      return remove(
          runs::pods_to_remove(world_.pods, status.conditions, status.completion_time, now_));
    }
    if (reported) {
      out_.pods = Pods::kLeave;
      return;
    }
    if (training_.spec.suspend) return remove(runs::living(world_.pods));
    Worker worker = placed_worker(training_, out_.node);
    if (!out_.problem) complete(worker);
    if (out_.problem) {
      out_.pods = Pods::kLeave;
      return;
    }
    place_pod(worker);
  }

  // A Job that ended keeps its pod with the log, and no Job of an ended run starts a pod.
  void choose_job(bool reported) {
    const api::TrainingModelStatus& status = training_.status;
    if (status.ended() || (training_.spec.suspend && !reported)) {
      if (agent_may_end()) {
        out_.pods = Pods::kLeave;
      } else if (world_.job != nullptr) {
        out_.objects.push_back(suspended(*world_.job));
      }
      return;
    }
    out_.pods = Pods::kLeave;
    if (reported) return;
    for (const PodPtr& pod : world_.pods)
      if (waits_for_agent_only(*pod)) out_.failed.push_back(pod);
    Worker worker = placed_worker(training_, out_.node);
    complete(worker);
    if (out_.problem) return;
    const workers::EdgeNodePtr node = world_.edge_node(out_.node);
    const auto token = node == nullptr ? std::nullopt : api::job_token_of(node->metadata);
    out_.make_node = node == nullptr;
    if (!token) return;
    auto job =
        job_of_run(training_, {worker, files_, volumes_, *token}, options_, world_.job.get());
    out_.pods = Pods::kConverge;
    if (job) {
      out_.objects.push_back(std::move(*job));
    } else {
      fail("JobReplaced", "the Job of the former spec ends");
    }
  }

  /// After a complete run the agent ends by itself, and the Job with it.
  bool agent_may_end() const {
    const api::TrainingModelStatus& status = training_.status;
    const auto end = meta::parse_time(status.completion_time);
    return status.phase == api::TrainingModelStatus::kComplete && end.ok() &&
           now_ < *end + runs::kEndPatience;
  }

  void remove(std::vector<PodPtr> pods) {
    out_.pods = Pods::kRemove;
    out_.remove = std::move(pods);
  }

  void fail(std::string reason, std::string message) {
    out_.problem = hosting::Problem{std::move(reason), std::move(message)};
  }

  /// Fills in the model, the data and the pod, or sets the problem.
  void complete(Worker& worker) {
    const api::TrainingModelSpec& spec = training_.spec;
    if (options_.registry_url.empty() && spec.output.url.empty())
      return fail("RegistryMissing",
                  "the operator has no registry for results: start it with --registry URL, or name "
                  "a bucket in spec.output.url");
    const workers::EdgeNodePtr agent =
        out_.is_job
            ? std::make_shared<const api::EdgeNode>(agent_of_job(job_of(training_), out_.node, {}))
            : world_.edge_node(out_.node);
    out_.problem = runs::agent_problem(agent.get(), out_.node);
    if (out_.problem) return;
    if (spec.initial_model && !choose_model(worker, *agent)) return;
    if (spec.scripts && !add_scripts(worker, *agent)) return;
    using runs::Started;
    const Started started = out_.pod != nullptr ? Started::kYes : Started::kNo;
    const auto choose = [&](const api::TrainingDataset& reference) {
      const auto found = world_.datasets.find(reference.name);
      runs::DatasetChoice choice = runs::choose_dataset(
          reference, found == world_.datasets.end() ? runs::NamedDatasets{} : found->second, *agent,
          started);
      out_.problem = std::move(choice.problem);
      return std::move(choice.dataset);
    };
    if (out_.is_job) {
      if (spec.dataset && !add_cluster_data(*spec.dataset, kDataName, "TRAIN", out_.data, worker))
        return;
      if (spec.evaluation && spec.evaluation->dataset &&
          !add_cluster_data(*spec.evaluation->dataset, kEvaluationName, "EVAL",
                            out_.evaluation_data, worker))
        return;
    } else if (spec.dataset) {
      const auto dataset = choose(*spec.dataset);
      if (!dataset) return;
      out_.fingerprint = dataset->fingerprint;
      add_dataset(*dataset, "TRAIN", worker);
    }
    if (!out_.is_job && spec.evaluation && spec.evaluation->dataset) {
      const auto dataset = choose(*spec.evaluation->dataset);
      if (!dataset) return;
      add_dataset(*dataset, "EVAL", worker);
    }
    worker.variables.emplace_back("PARAMETERS", codec::write_json(parameters_of(spec)));
    if (spec.built_in())
      worker.variables.emplace_back("TRAINING", codec::write_json(settings_of(spec)));
    for (const api::TrainingParameter& one : spec.parameters)
      worker.variables.emplace_back(one.key, one.value);
    worker.pod_spec = pod_spec_of(training_, *agent, options_);
    worker.pod_metadata = spec.pod_metadata();
  }

  /// The data of a run without a node: a file for the agent of the Job, or a volume.
  bool add_cluster_data(const api::TrainingDataset& reference, const char* name,
                        const std::string& prefix, std::optional<api::TrainingBase>& file,
                        Worker& worker) {
    const auto found = world_.datasets.find(reference.name);
    runs::ClusterDatasetChoice choice = runs::choose_cluster_dataset(
        reference, found == world_.datasets.end() ? runs::NamedDatasets{} : found->second);
    out_.problem = std::move(choice.problem);
    if (!choice.dataset) return false;
    runs::DatasetInCluster& dataset = *choice.dataset;
    std::string path;
    if (dataset.file) {
      Worker files = data_worker(training_, out_.node, name, dataset.file);
      path = std::string(kDataMount) + "/" + name;
      add_mount(files, path, dataset.file->archive, worker);
      file = std::move(dataset.file);
      files_.push_back(std::move(files));
    } else {
      const JobVolume volume{dataset.claim};
      path = volume.directory();
      const auto same = [&](const JobVolume& one) { return one.claim == volume.claim; };
      if (std::none_of(volumes_.begin(), volumes_.end(), same)) volumes_.push_back(volume);
    }
    if (!dataset.path.empty()) path += "/" + dataset.path;
    worker.variables.emplace_back(prefix + "_DATASET_URL", path);
    worker.variables.emplace_back(prefix + "_DATASET_FORMAT", dataset.format);
    return true;
  }

  /// Mounts the version that the agent installs as the model of `files`.
  void add_mount(const Worker& files, const std::string& path, const api::ManifestEntry& archive,
                 Worker& worker) const {
    const std::string root = out_.is_job
                                 ? agent_of_job(job_of(training_), out_.node, {}).status.model_root
                                 : world_.edge_node(out_.node)->status.model_root;
    worker.mounts.push_back(
        {root + "/" + workers::worker_model_key(job_of(training_), files) + "/" + archive.version,
         path, archive.sha256sum});
  }

  bool choose_model(Worker& worker, const api::EdgeNode& agent) {
    if (worker.model) {
      out_.base = training_.status.base;
    } else {
      runs::BaseChoice choice = runs::choose_base(base_request(training_), world_.initial);
      out_.problem = std::move(choice.problem);
      if (!choice.base) return false;
      worker.model = runs::resolved(*choice.base, base_request(training_));
      out_.base = std::move(choice.base);
    }
    // The agent of a Job installs the model before the trainer starts.
    if (out_.is_job) return true;
    // A server may serve a former version meanwhile. A run from another version is wrong.
    if (workers::has_wanted_model(job_of(training_), worker, agent)) return true;
    fail("WaitingForNode", "waiting for node " + out_.node + " to have version " +
                               worker.model->version + " of model " + worker.model->name);
    return false;
  }

  bool add_scripts(Worker& worker, const api::EdgeNode& agent) {
    Worker scripts = scripts_worker(training_, out_.node);
    if (scripts.model) {
      out_.scripts = training_.status.scripts;
    } else {
      const api::TrainingInitialModel wanted = scripts_of(training_);
      const runs::BaseRequest request{wanted, training_.metadata, training_.spec.model_name};
      runs::BaseChoice choice = runs::choose_base(request, world_.initial);
      out_.problem = std::move(choice.problem);
      if (!choice.base) return false;
      scripts.model = runs::resolved(*choice.base, request);
      out_.scripts = std::move(choice.base);
    }
    const std::string version = scripts.model->version;
    if (!out_.is_job && !workers::has_wanted_model(job_of(training_), scripts, agent)) {
      fail("WaitingForNode",
           "waiting for node " + out_.node + " to have version " + version + " of the scripts");
      return false;
    }
    add_mount(scripts, kScriptsMount, out_.scripts->archive, worker);
    if (out_.is_job) files_.push_back(std::move(scripts));
    return true;
  }

  void place_pod(const Worker& worker) {
    const workers::WorkerWorld around{.nodes = world_.nodes,
                                      .edge_node = world_.edge_node,
                                      .pods = world_.pods,
                                      .deployment = nullptr,
                                      .claims = {}};
    workers::WorkerPlan made = workers::plan_worker(job_of(training_), worker, around);
    // A run has one pod: one on a former node does not stay until the new pod is Ready.
    for (const workers::WorkerPod& pod : made.pods) {
      if (!pod.leaving) continue;
      std::erase_if(made.objects, [&](const Json& object) {
        return object.at("metadata/name").as_string() == pod.name;
      });
    }
    out_.objects = std::move(made.objects);
    out_.problem = std::move(made.problem);
    for (const PodPtr& pod : made.ended) {
      if (pod->status.phase == "Failed") out_.failed.push_back(pod);
    }
    // A pod that succeeded is not replaced, whatever plan_worker() says.
    if (out_.pod != nullptr && out_.pod->status.phase == "Succeeded") {
      out_.problem.reset();
      out_.pods = Pods::kLeave;
    }
  }

  const TrainingModel& training_;
  const TrainingWorld& world_;
  const hosting::Options& options_;
  const WallTime now_;
  std::vector<Worker> files_;       // of a Job
  std::vector<JobVolume> volumes_;  // of a Job
  TrainingPlan out_;
};

bool has_node(const hosting::NodeList& nodes, const std::string& name) {
  return std::any_of(nodes.begin(), nodes.end(),
                     [&](const auto& node) { return node->metadata.name == name; });
}

/// A deleted Node may come back. Until then the agent keeps the run's checkpoint and unsent files,
/// which go with the worker.
void keep_present(const TrainingModel& training, const std::vector<std::string>& models,
                  const api::EdgeNode& node, hosting::NodeWork& work) {
  for (const api::EdgeWorker& present : node.spec.workers) {
    if (present.uid == training.metadata.uid && work.workers.empty())
      work.workers.push_back(present);
  }
  if (!work.models.empty()) return;
  for (const std::string& model : models) {
    const api::EdgeModel* present = node.spec.find_model(model);
    if (present != nullptr) work.models.push_back(*present);
  }
}

}  // namespace

const std::string& node_of(const TrainingModel& training) {
  return training.spec.node_name.empty() ? training.status.node : training.spec.node_name;
}

runs::BaseRequest base_request(const TrainingModel& training) {
  const api::TrainingModelSpec& spec = training.spec;
  return {*spec.initial_model, training.metadata, spec.model_name,
          spec.built_in() ? runs::Trainer::kOurs : runs::Trainer::kUsers};
}

std::optional<api::TrainingBase> pinned_base(const TrainingModel& training) {
  if (!training.spec.initial_model) return {};
  return runs::pinned_base(training.status.base, base_request(training));
}

std::optional<api::TrainingBase> pinned_scripts(const TrainingModel& training) {
  if (!training.spec.scripts) return {};
  const api::TrainingInitialModel wanted = scripts_of(training);
  return runs::pinned_base(training.status.scripts,
                           {wanted, training.metadata, training.spec.model_name});
}

workers::Job job_of(const TrainingModel& training) {
  return {TrainingModel::resource().kind, training.metadata};
}

TrainingPlan plan(const TrainingModel& training, const TrainingWorld& world,
                  const hosting::Options& options, WallTime now) {
  return Planner(training, world, options, now).make();
}

std::optional<hosting::NodeWork> work_for(const TrainingModel& training, const api::EdgeNode& node,
                                          const hosting::NodeList& nodes,
                                          const std::vector<PodPtr>& pods) {
  if (training.metadata.deleting() || training.status.ended()) return {};
  const std::string& name = node_of(training);
  const Worker worker = placed_worker(training, name);
  const workers::Job job = job_of(training);
  hosting::NodeList around = nodes;
  if (has_job_node(training)) around.push_back(job_node(training));
  hosting::NodeWork work;
  work.since = training.metadata.creation_timestamp;
  const auto add_model = [&](const Worker& files) {
    if (auto model = workers::model_for(job, files, around, node, pods))
      work.models.push_back(std::move(*model));
  };
  add_model(worker);
  const Worker scripts = scripts_worker(training, name);
  if (training.spec.scripts) add_model(scripts);
  if (has_job_node(training)) {
    const api::TrainingModelStatus& status = training.status;
    if (status.data) add_model(data_worker(training, name, kDataName, status.data));
    if (status.evaluation_data)
      add_model(data_worker(training, name, kEvaluationName, status.evaluation_data));
  }
  std::sort(work.models.begin(), work.models.end(),
            [](const auto& a, const auto& b) { return a.key < b.key; });
  work.workers = workers::workers_for(job, worker, around, node, pods);
  if (name == node.metadata.name && !has_node(around, node.metadata.name))
    keep_present(training,
                 {workers::worker_model_key(job, worker), workers::worker_model_key(job, scripts)},
                 node, work);
  if (work.models.empty() && work.workers.empty()) return {};
  return work;
}

}  // namespace varda::controllers::trainingmodel
