// Workers of jobs: turns the user's spec into Pods, Deployments, Services and work for nodes. Pure
// functions over a snapshot of the caches, shared by all kinds of jobs of sedna.io.
//
//   Worker edge = worker_of("edge", Worker::Layer::kEdge, spec.edge_worker);
//   … the kind fills in model, policy, addresses
//   WorkerPlan plan = plan_worker(job, edge, world);   // objects to converge to, and problems
//   … for EdgeNode.spec: model_for(job, edge, nodes, edge_node, pods), workers_for(…, pods)
//
// Additions never replace a part of the user's template: docs/guides/workers.md lists them. Labels
// of edgeai.io belong to Varda, since they identify the pod's job.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/core/deployment.h"
#include "api/core/pod.h"
#include "api/edgeai/edge_node.h"
#include "api/sedna/worker.h"
#include "codec/json.h"
#include "controllers/workers/model_reference.h"
#include "hosting/placement.h"
#include "hosting/port_claims.h"
#include "meta/object.h"

namespace varda::controllers::workers {

using codec::Json;
using PodPtr = std::shared_ptr<const api::Pod>;
using EdgeNodePtr = std::shared_ptr<const api::EdgeNode>;

// Labels on all children of a job.
inline constexpr std::string_view kJobKindLabel = "edgeai.io/job-kind";
inline constexpr std::string_view kJobLabel = "edgeai.io/job";
inline constexpr std::string_view kWorkerLabel = "edgeai.io/worker";
inline constexpr std::string_view kWorkerNodeLabel =
    "edgeai.io/worker-node";  // on pods for one node; the name, if it fits a label
// Hashes on pods and Deployments: the inputs of the child. A child with both current hashes stays
// unchanged, even if this build would create it differently.
inline constexpr std::string_view kTemplateHash = "edgeai.io/template-hash";  // of the user's spec
inline constexpr std::string_view kAssignmentHash =
    "edgeai.io/assignment-hash";  // of model version, policy, address

inline constexpr std::size_t kNodesPerWorkerMax = 500;
/// Directories in containers, with the token and the socket of the worker API.
inline constexpr std::string_view kWorkerTokenMount = "/var/run/varda/worker";
inline constexpr std::string_view kWorkerSocketMount = "/var/run/varda/agent";
/// Directory in containers for the results of a worker with an output.
inline constexpr std::string_view kOutputMount = "/var/run/varda/output";
/// A worker that registers with this capability follows its assignment without a restart.
inline constexpr std::string_view kAssignmentCapability = "assignment";

/// The job that owns the workers. `metadata` outlives it.
struct Job {
  std::string_view kind;  // "JointInferenceService"
  const meta::ObjectMeta& metadata;
};

struct Worker {
  enum class Layer { kEdge, kCloud };
  enum class Pods {
    kUsers,   // the user's template, plus the worker contract
    kServer,  // our server, described by server_spec alone
  };

  std::string name;  // edge, cloud, or a tier's name: part of children's names, and kWorkerLabel
  Layer layer = Layer::kEdge;
  Pods pods = Pods::kUsers;
  // Placement: a node by name, all matching nodes, or (cloud layer) any node.
  std::string node_name;
  std::optional<api::NodeSelection> selector;
  std::string node_layer;     // limits `selector` to nodes of this layer (layer_of()); "": any
  std::int64_t replicas = 1;  // kEdge with a selector: 0 or 1 per node
  std::optional<std::size_t> nodes_wanted = {};  // kEdge, of `selector`; absent: every node

  // For kUsers.
  Json pod_spec, pod_metadata;  // as written, in either spelling
  std::optional<api::HardExampleMining> hard_example_mining;
  /// kEdge: URL of the cloud worker. Absent: there is no cloud worker. "": not known yet; existing
  /// pods stay, and no pod is created.
  std::optional<std::string> cloud_url;
  /// kEdge: files that the worker may upload to the registry. Absent: none.
  std::optional<api::WorkerUploads> uploads;
  /// kEdge: the bucket for these files. Absent: the registry.
  std::optional<api::EdgeBucket> bucket = {};
  /// kEdge: targets that the worker may reach through its agent, such as an aggregator. At most
  /// api::EdgeStream::kMax.
  std::vector<api::EdgeStream> streams = {};
  /// kEdge: the node keeps a directory for the worker's results, also over restarts of the pod.
  /// MODEL_URL is then that directory, and BASE_MODEL_URL the model.
  bool has_output = false;
  /// Further variables of the contract: name and value.
  std::vector<std::pair<std::string, std::string>> variables = {};
  /// The same, with the values of the pod's creation: a change of a value replaces no pod.
  std::vector<std::pair<std::string, std::string>> first_values = {};
  /// kEdge: further members of the assignment, an object. A change replaces no pod.
  Json assignment = {};
  /// kEdge: paths of the node, mounted read-only at the same paths. The caller checks that the
  /// node's administrator allows them.
  std::vector<std::string> data = {};
  /// kEdge: a directory of the node, mounted read-only at `path`. Another revision of the files
  /// replaces the pod.
  struct Mount {
    std::string directory, path, revision;
  };
  std::vector<Mount> mounts = {};
  bool needs_model = true;  // false: pods are created without `model`
  bool any_node = false;    // kEdge: the cluster places the pod, and the pod has its agent
  // For kCloud.
  std::int64_t service_port = 5000;
  std::string service_type = "NodePort";
  /// Replicas follow the load: `replicas` is the initial value of a new Deployment.
  std::optional<api::WorkerAutoscaling> autoscaling;

  // For kServer.
  /// Builds the PodSpec for the model's directory on a node, and the directory of kept samples
  /// ("": the node keeps none).
  std::function<Json(const std::string& directory, const std::string& samples)> server_spec;
  Json request;                   // an object; a change of it, or of the node, replaces the pod
  std::int64_t serving_port = 0;  // the pod's port
  Json joint;                     // for EdgeNode.spec.models; null: none
  Json samples;                   // likewise

  std::optional<ResolvedModel> model;  // absent: unresolved; running pods stay, no pod is created
};

/// The worker described by a kind's spec; the caller fills in `model`, policy and addresses.
Worker worker_of(std::string name, Worker::Layer layer, const api::Worker& spec);
/// Sets replicas and nodes_wanted from the member `replicas` of a spec. The worker has its layer
/// and its selector.
void set_replicas(Worker& worker, std::optional<std::int64_t> replicas);
/// The largest number of nodes that the worker's selector gives it.
std::size_t nodes_max(const Worker& worker);

/// Nodes of a worker. Problems: NodeNotFound, NoNodeMatches, InvalidSpec (a selector that no server
/// validated), TooFewNodes (for nodes_wanted), TooManyNodes. If more nodes match than the worker
/// may have (nodes_wanted, else kNodesPerWorkerMax), `names` are those that joined first: a new
/// node displaces no other.
struct WorkerNodes {
  std::vector<std::string> names;  // sorted
  std::optional<hosting::Problem> problem;
};
WorkerNodes nodes_of(const Worker& worker, const hosting::NodeList& nodes);
/// Index values of an object with this selection, for search by a node: as
/// hosting::selector_values.
std::vector<std::string> selection_values(const api::NodeSelection& selection);
/// True if `a` joined before `b`: a worker that cannot have all nodes prefers `a`.
bool joined_before(const api::Node& a, const api::Node& b);

/// "NAME-edge-1f2e3d4c5b6a" (hash of the node's name); further replicas there
/// "NAME-edge-1f2e3d4c5b6a-1".
std::string worker_pod_name(const Job& job, const Worker& worker, const std::string& node,
                            std::int64_t number);
/// "NAME-WORKER": name of the Deployment and the Service.
std::string worker_name(const Job& job, const Worker& worker);
/// "NS/NAME.WORKER": key of the worker's model in EdgeNode.spec.models.
std::string worker_model_key(const Job& job, const Worker& worker);
/// Target port of the Service: the first declared TCP port, else the Service's port.
std::int64_t bind_port(const Worker& worker);
/// True for the worker's own pods (kEdge) and pods of its Deployment.
bool is_worker_pod(const Job& job, const Worker& worker, const api::Pod& pod);

/// The surroundings of one worker, as cached.
struct WorkerWorld {
  const hosting::NodeList& nodes;
  std::function<EdgeNodePtr(const std::string& node)> edge_node;  // null: no agent reported
  std::vector<PodPtr> pods;                                       // of the job; others are ignored
  std::shared_ptr<const api::Deployment> deployment;              // kCloud: named worker_name()
  std::vector<hosting::PortClaim> claims;                         // of others on the nodes
  std::string fetch_image = "varda";                              // kCloud: fetches the model
  std::vector<std::string> fetch_arguments = {};                  // kCloud: for that program
};

/// One desired pod of the edge layer.
struct WorkerPod {
  std::string name, node;
  PodPtr pod;  // the present pod of this job; null: none
  /// Why the pod is missing or not as specified. Reasons are AgentMissing, ModelPending, NodeFull,
  /// WaitingForNode (the model is being installed), CloudAddressPending, PortInUse, and RollingOut
  /// (it waits for its turn to be replaced). Further reasons come from an ended pod, which is
  /// replaced after a pause, and from out_of_reach(). A node that is out of reach is not changed.
  std::optional<hosting::Problem> problem;
  bool outdated = false;  // present, but made for an older spec
  bool leaving = false;   // present on a former node, until the pods in the new places work
};

struct WorkerPlan {
  std::vector<Json> objects;    // for Writer::converge, including everything that stays
  std::vector<WorkerPod> pods;  // kEdge: by node, then number; then leaving ones, by name
  std::vector<PodPtr> ended;    // kEdge: replaced after a pause (ReplacementPauses, by pod key)
  std::optional<hosting::Problem> problem;  // the first problem, of the worker or of a pod
};

inline constexpr std::string_view kModelNotMounted = "ModelNotMounted";
/// Set if the pods of a user's worker cannot see their model: its Model names a path that one of
/// the nodes does not allow, and the template neither mounts it nor sets MODEL_URL. Varda mounts
/// only paths that the node's administrator allows: the authors of Model and template may differ.
std::optional<hosting::Problem> unmounted_model(const Worker& worker, const WorkerWorld& world);

/// The objects that should exist for a worker. Cannot fail. Never replaces all pods of the edge
/// layer at once: broken pods first, then one at a time while all other reachable pods are Ready.
/// Pods on former nodes are removed once as many pods in the new places are Ready.
WorkerPlan plan_worker(const Job& job, const Worker& worker, const WorkerWorld& world);

/// The pod as it is, for Writer::converge. With its uid, so that a pod deleted meanwhile is not
/// created again.
Json unchanged_pod(const api::Pod& pod);

/// Node ports that the worker's pods want, and those that present pods have (kEdge), as input for
/// competing owners.
std::vector<hosting::PortClaim> claims_of(const Job& job, const Worker& worker,
                                          const hosting::NodeList& nodes,
                                          const std::vector<PodPtr>& pods);
/// True if a pod of the worker has the port on the node.
bool holds_port(const Job& job, const Worker& worker, const std::vector<PodPtr>& pods,
                const std::string& node, const hosting::HostPort& port);

/// HorizontalPodAutoscaler of autoscaling/v2; clusters may lack it, and `varda up` does.
const meta::Resource& autoscaler_resource();
/// The HorizontalPodAutoscaler of a cloud worker's Deployment, with the same name. Requires
/// `worker.autoscaling`.
Json make_autoscaler(const Job& job, const Worker& worker);

/// Items for EdgeNode.spec.models and .workers of `node`. Empty if the worker has and needs no pod
/// there, or has no files.
std::optional<api::EdgeModel> model_for(const Job& job, const Worker& worker,
                                        const hosting::NodeList& nodes, const api::EdgeNode& node,
                                        const std::vector<PodPtr>& pods);
std::vector<api::EdgeWorker> workers_for(const Job& job, const Worker& worker,
                                         const hosting::NodeList& nodes, const api::EdgeNode& node,
                                         const std::vector<PodPtr>& pods);
/// The port of a worker's stream with `listen` on the node, "HOST:PORT"; "" until it is reported.
std::string stream_listener(const Job& job, const Worker& worker, const api::EdgeNode& node,
                            std::int64_t number, std::string_view stream);
/// The pod of a worker with any_node, for the template of a Job.
struct PodOfJob {
  Json job_labels;
  Json metadata, spec;
  std::string template_hash, assignment_hash;  // kTemplateHash, kAssignmentHash
};
/// `pod`: the worker's name on `agent`, which has all files. The paths of the agent become volumes.
PodOfJob make_pod_of_job(const Job& job, const Worker& worker, const std::string& pod,
                         const api::EdgeNode& agent);
/// True if the node offers the wanted version of the worker's model, and no former one. Requires a
/// model.
bool has_wanted_model(const Job& job, const Worker& worker, const api::EdgeNode& node);

}  // namespace varda::controllers::workers
