// Workers of jobs: from what the user wrote to Pods, Deployments, Services, and to what nodes are told to do. Pure functions over a
// snapshot of the caches, shared by all kinds of jobs of sedna.io.
//
//   Worker edge = worker_of("edge", Worker::Layer::kEdge, spec.edge_worker);   // then the kind fills in model, policy, addresses
//   WorkerPlan plan = plan_worker(job, edge, world);                           // objects to converge to, and what is wrong
//   ... and for EdgeNode.spec:  model_for(job, edge, nodes, edge_node, pods), workers_for(…, pods)
//
// What is added to a user's template never takes the place of what stands there: docs/guides/workers.md says all of it. Labels of
// edgeai.io are ours, since they say whose pod it is.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/core/deployment.h"
#include "api/core/pod.h"
#include "api/edgeai/edge_node.h"
#include "api/sedna/worker.h"
#include "codec/json.h"
#include "controllers/inferencemodel/placement.h"
#include "controllers/port_claims.h"
#include "controllers/workers/model_reference.h"
#include "meta/object.h"

namespace varda::controllers {

using codec::Json;
using PodPtr = std::shared_ptr<const api::Pod>;
using EdgeNodePtr = std::shared_ptr<const api::EdgeNode>;

// On all children of a job.
inline constexpr std::string_view kJobKindLabel = "edgeai.io/job-kind";
inline constexpr std::string_view kJobLabel = "edgeai.io/job";
inline constexpr std::string_view kWorkerLabel = "edgeai.io/worker";
inline constexpr std::string_view kWorkerNodeLabel = "edgeai.io/worker-node";  // on pods made for a node, where its name is a label
// On pods, and on Deployments: what they were made for. A child whose two hashes are those of now stays as it is, whatever this
// build would add to it otherwise.
inline constexpr std::string_view kTemplateHash = "edgeai.io/template-hash";      // what the user asked
inline constexpr std::string_view kAssignmentHash = "edgeai.io/assignment-hash";  // model version, policy, address

inline constexpr std::size_t kNodesPerWorkerMax = 500;
/// In containers: the directories of the worker API's token and socket.
inline constexpr std::string_view kWorkerTokenMount = "/var/run/varda/worker";
inline constexpr std::string_view kWorkerSocketMount = "/var/run/varda/agent";
/// A worker that registers with it follows its assignment by itself.
inline constexpr std::string_view kAssignmentCapability = "assignment";

/// Whose workers. `metadata` outlives it.
struct Job {
  std::string_view kind;  // "JointInferenceService"
  const meta::ObjectMeta& metadata;
};

struct Worker {
  enum class Layer { kEdge, kCloud };
  enum class Pods {
    kUsers,   // the user's template: gets the worker contract
    kServer,  // of our server: server_spec says all of it
  };

  std::string name;  // edge, cloud, or a tier's: in names of children, in kWorkerLabel
  Layer layer = Layer::kEdge;
  Pods pods = Pods::kUsers;
  // Where: a node by its name, all that match, or (cloud layer) wherever the scheduler likes.
  std::string node_name;
  std::optional<api::NodeSelection> selector;
  std::string node_layer;     // of those only nodes of this layer (layer_of()); "": of any
  std::int64_t replicas = 1;  // of a selector: on each node 1

  // kUsers
  Json pod_spec, pod_metadata;  // as written, in whichever spelling
  std::optional<api::HardExampleMining> hard_example_mining;
  /// kEdge: where the cloud worker is asked. Absent: there is none to ask. "": it is not known yet; pods that are there stay, none
  /// is made.
  std::optional<std::string> cloud_url;
  // kCloud
  std::int64_t service_port = 5000;
  std::string service_type = "NodePort";
  /// Replicas follow the load: `replicas` is what a new Deployment begins with.
  std::optional<api::WorkerAutoscaling> autoscaling;

  // kServer
  /// The PodSpec for the model's directory on a node.
  std::function<Json(const std::string& directory)> server_spec;
  Json asked;                     // what a pod is made anew for, with its node: an object, without what follows by itself
  std::int64_t serving_port = 0;  // where the pod answers
  Json cascade;                   // of EdgeNode.spec.models; null: none

  std::optional<ResolvedModel> model;  // absent: it could not be resolved; what runs goes on, nothing is made
};

/// The worker that a kind's spec describes; `model`, policy and addresses are still to be filled in.
Worker worker_of(std::string name, Worker::Layer layer, const api::Worker& spec);

/// On which nodes. Problems: NodeNotFound, NoNodeMatches, InvalidSpec (a selector that no server validated), and TooManyNodes: then
/// `names` are the kNodesPerWorkerMax that joined first, so that a node that comes takes nothing from another.
struct WorkerNodes {
  std::vector<std::string> names;  // sorted
  std::optional<Problem> problem;
};
WorkerNodes nodes_of(const Worker& worker, const NodeList& nodes);
/// Whether `a` joined before `b`: where a worker cannot have all nodes, it has `b` only after `a`.
bool joined_before(const api::Node& a, const api::Node& b);

/// "NAME-edge-1f2e3d4c5b6a" (of the node's name), further replicas there "NAME-edge-1f2e3d4c5b6a-1".
std::string worker_pod_name(const Job& job, const Worker& worker, const std::string& node, std::int64_t number);
/// "NAME-WORKER": of the Deployment and the Service.
std::string worker_name(const Job& job, const Worker& worker);
/// "NS/NAME.WORKER": of its model in EdgeNode.spec.models.
std::string worker_model_key(const Job& job, const Worker& worker);
/// Of its pods (kEdge) or of whatever its Deployment made.
bool is_worker_pod(const Job& job, const Worker& worker, const api::Pod& pod);

/// What is around one worker, as the caches hold it.
struct WorkerWorld {
  const NodeList& nodes;
  std::function<EdgeNodePtr(const std::string& node)> edge_node;  // null: no agent has come from there
  std::vector<PodPtr> pods;                                       // of its job at least; others are passed over
  std::shared_ptr<const api::Deployment> deployment;              // kCloud: of worker_name()
  std::vector<PortClaim> claims;                                  // of others on its nodes
  std::string fetch_image = "varda";                              // kCloud: fetches the model
  std::vector<std::string> fetch_arguments = {};                  // kCloud: further arguments of that program
};

/// One pod of the edge layer that shall be.
struct WorkerPod {
  std::string name, node;
  PodPtr pod;  // what is there, of this job; null: nothing
  /// Why it is not there, or not as the spec has it: AgentMissing, NodeFull, WaitingForNode (the model is on its way),
  /// CloudAddressPending, PortInUse, PodReplaced (ended, another one comes after a pause), RollingOut (its turn to be replaced
  /// comes), and what out_of_reach() says of its node, on which nothing is changed.
  std::optional<Problem> problem;
  bool outdated = false;  // there, and for something else than the spec says now
  bool leaving = false;   // there, on a node that is not the worker's any more, until its pods in other places work
};

struct WorkerPlan {
  std::vector<Json> objects;       // for Writer::converge, with everything that stays
  std::vector<WorkerPod> pods;     // kEdge: by node, then number; then those that leave, by name
  std::vector<PodPtr> ended;       // kEdge: to be removed after a pause (ReplacementPauses by the pod's key); then another is made
  std::optional<Problem> problem;  // the first thing that keeps the worker from being as it shall be, of the worker or of a pod
};

inline constexpr std::string_view kModelNotMounted = "ModelNotMounted";
/// Why the pods of a user's worker do not see their model: its Model names a path, and the template neither mounts anything there
/// nor sets MODEL_URL. Varda mounts no path itself: the author of a Model may be another one than that of the template.
std::optional<Problem> unmounted_model(const Worker& worker);

/// What should exist of a worker. Cannot fail. Never replaces all pods of the edge layer at once: those that do not work first,
/// then one at a time while all others that can be reached are Ready. Pods on nodes that the worker was moved away from go once as
/// many in their new places are Ready.
WorkerPlan plan_worker(const Job& job, const Worker& worker, const WorkerWorld& world);

/// The ports of nodes that its pods want, and those that pods which are there have (kEdge), for rivals.
std::vector<PortClaim> claims_of(const Job& job, const Worker& worker, const NodeList& nodes, const std::vector<PodPtr>& pods);
/// A pod of it has the port on the node.
bool holds_port(const Job& job, const Worker& worker, const std::vector<PodPtr>& pods, const std::string& node,
                const HostPort& port);

/// autoscaling/v2, which a cluster may lack, and `varda up` does.
const meta::Resource& autoscaler_resource();
/// The HorizontalPodAutoscaler of a cloud worker's Deployment, with the same name. `worker.autoscaling` is set.
Json make_autoscaler(const Job& job, const Worker& worker);

/// For EdgeNode.spec.models and .workers of `node`. Nothing where the worker has no pod there, nor should have, or no files.
std::optional<api::EdgeModel> model_for(const Job& job, const Worker& worker, const NodeList& nodes, const api::EdgeNode& node,
                                        const std::vector<PodPtr>& pods);
std::vector<api::EdgeWorker> workers_for(const Job& job, const Worker& worker, const NodeList& nodes, const api::EdgeNode& node,
                                         const std::vector<PodPtr>& pods);

}  // namespace varda::controllers
