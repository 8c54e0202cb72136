// Reports of nodes: EdgeNode.status from a hostile node, as input of the controllers of every kind.
//
// Input: one status per line, alternately for the nodes edge0 and edge1. An empty line, or a status
// that the API server would refuse, leaves the node's last report. After each report the
// controllers run on a small cluster until they have nothing to write.
//
// Every status and work list that they write must be valid by its schema, complete, and without
// negative numbers. A second run must find nothing to write. Sums of counters must never shrink.
// Peers may be referred only to a peer's URL (https, no path, no user).
#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api/kind.h"
#include "base/check.h"
#include "base/log.h"
#include "codec/json.h"
#include "codec/yaml.h"
#include "controllers/dataset/plan.h"
#include "controllers/edgenode/archive_sharing.h"
#include "controllers/edgenode/plan.h"
#include "controllers/inferencemodel/plan.h"
#include "controllers/joint/child.h"
#include "controllers/joint/plan.h"
#include "controllers/model/plan.h"
#include "input.h"
#include "schema/schema.h"

namespace {

using namespace varda;                               // NOLINT: a program of one file
using namespace varda::controllers::dataset;         // NOLINT
using namespace varda::controllers::edgenode;        // NOLINT
using namespace varda::controllers::inferencemodel;  // NOLINT
using namespace varda::controllers::joint;           // NOLINT
using namespace varda::controllers::model;           // NOLINT
using namespace varda::controllers::replication;     // NOLINT
using namespace varda::controllers::workers;         // NOLINT
using namespace varda::hosting;                      // NOLINT
using codec::Json;

constexpr std::size_t kReportsMax = 6;
constexpr int kRoundsMax = 6;  // by then the work lists of two nodes must be stable

// Two edge nodes with a model each, of one archive. Two joint inference services on both nodes, one
// with our server and one with the user's workers. A Model and a Dataset with a replica on each
// node but the first.
constexpr const char* kCluster = R"(
apiVersion: v1
kind: Node
metadata: {name: edge0, uid: node-0, creationTimestamp: "2024-05-01T09:00:00Z", labels: {edgeai.io/layer: edge, line: a}}
status: {conditions: [{type: Ready, status: "True"}], addresses: [{type: InternalIP, address: 192.0.2.10}]}
---
apiVersion: v1
kind: Node
metadata: {name: edge1, uid: node-1, creationTimestamp: "2024-05-01T09:00:01Z", labels: {edgeai.io/layer: edge, line: a}}
status: {conditions: [{type: Ready, status: "True"}], addresses: [{type: InternalIP, address: 192.0.2.11}]}
---
apiVersion: v1
kind: Node
metadata: {name: cloud, uid: node-2, labels: {edgeai.io/layer: cloud}}
status: {conditions: [{type: Ready, status: "True"}], addresses: [{type: InternalIP, address: 192.0.2.1}]}
---
apiVersion: ai.kubeedge.io/v1alpha1
kind: InferenceModel
metadata: {name: m0, namespace: default, uid: m0, generation: 1, creationTimestamp: "2024-05-01T10:00:00Z"}
spec: &model
  modelName: m
  deployToLayer: edge
  frameworkType: onnx
  nodeName: edge0
  manifest:
  - {version: "3", downloadURL: "http://files/m-3.tar.gz", sha256sum: "3333333333333333333333333333333333333333333333333333333333333333"}
  - {version: "4", downloadURL: "http://files/m-4.tar.gz", sha256sum: "4444444444444444444444444444444444444444444444444444444444444444"}
  targetVersion: "3"
  servingPort: 8080
---
apiVersion: ai.kubeedge.io/v1alpha1
kind: InferenceModel
metadata: {name: m1, namespace: default, uid: m1, generation: 1, creationTimestamp: "2024-05-01T10:00:00Z"}
spec:
  modelName: m
  deployToLayer: edge
  frameworkType: onnx
  nodeName: edge1
  manifest:
  - {version: "4", downloadURL: "http://files/m-4.tar.gz", sha256sum: "4444444444444444444444444444444444444444444444444444444444444444"}
  - {version: "3", downloadURL: "http://files/m-3.tar.gz", sha256sum: "3333333333333333333333333333333333333333333333333333333333333333"}
  targetVersion: "4"
  servingPort: 8080
---
apiVersion: ai.kubeedge.io/v1alpha1
kind: InferenceModel
metadata:
  name: digits-cloud
  namespace: default
  uid: child
  ownerReferences: [{apiVersion: sedna.io/v1alpha1, kind: JointInferenceService, name: digits, uid: digits, controller: true}]
spec:
  modelName: big
  deployToLayer: cloud
  frameworkType: onnx
  manifest: [{version: "7", downloadURL: "http://files/big.tar.gz", sha256sum: "2222222222222222222222222222222222222222222222222222222222222222"}]
  targetVersion: "7"
status:
  url: http://127.0.0.1:30001
  servingVersion: "7"
  readyReplicas: 1
  conditions: [{type: Ready, status: "True", reason: Serving, message: answers, observedGeneration: 1, lastTransitionTime: "2024-05-01T10:01:00Z"}]
---
apiVersion: sedna.io/v1alpha1
kind: JointInferenceService
metadata: {name: digits, namespace: default, uid: digits, generation: 1, creationTimestamp: "2024-05-01T10:00:00Z"}
spec:
  edgeWorker:
    model: {name: small}
    selector: {matchLabels: {line: a}}
    hardExampleMining: {name: CrossEntropy, parameters: [{key: threshold_cross_entropy, value: "0.8"}]}
  cloudWorker: {model: {name: big}}
---
apiVersion: sedna.io/v1alpha1
kind: JointInferenceService
metadata: {name: helmet, namespace: default, uid: helmet, generation: 1, creationTimestamp: "2024-05-01T10:00:00Z"}
spec:
  edgeWorker:
    model: {name: small}
    selector: {matchLabels: {line: a}}
    hardExampleMining: {name: IBT, parameters: [{key: threshold_img, value: "0.9"}, {key: threshold_box, value: "0.9"}]}
    workerSpec: {containers: [{image: "worker:1", ports: [{containerPort: 80}]}]}
  cloudWorker:
    model: {name: big}
    workerSpec: {containers: [{image: "cloud-worker:1"}]}
---
apiVersion: v1
kind: Service
metadata: {name: helmet-cloud, namespace: default, uid: service}
spec: {type: NodePort, ports: [{port: 5000, nodePort: 30007}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: helmet-cloud, namespace: default, labels: {kubernetes.io/service-name: helmet-cloud}}
addressType: IPv4
endpoints: [{addresses: [127.9.0.5], conditions: {ready: true}}]
ports: [{port: 5000}]
---
apiVersion: sedna.io/v1alpha1
kind: Model
metadata: {name: small, namespace: default, uid: small}
spec: {url: "http://files/small.tar.gz", sha256: "1111111111111111111111111111111111111111111111111111111111111111", format: onnx}
---
apiVersion: sedna.io/v1alpha1
kind: Model
metadata: {name: big, namespace: default, uid: big, generation: 1}
spec: {url: "http://files/big.tar.gz", sha256: "2222222222222222222222222222222222222222222222222222222222222222", format: onnx, version: "7"}
---
apiVersion: edgeai.io/v1alpha1
kind: Model
metadata: {name: copied, namespace: default, uid: copied, generation: 1}
spec: {url: /data/copied, format: onnx, nodeName: edge0, replication: {}}
---
apiVersion: edgeai.io/v1alpha1
kind: Dataset
metadata: {name: faces, namespace: default, uid: faces, generation: 1, creationTimestamp: "2024-05-01T10:00:00Z"}
spec: {dataUrl: /data/faces.csv, format: csv, nodeName: edge0, replication: {}}
---
apiVersion: edgeai.io/v1alpha1
kind: EdgeNode
metadata: {name: edge0, uid: agent-0, generation: 1}
spec: {}
status: {observedGeneration: 1, modelRoot: /data/models, workerRoot: /data/workers, workerSocketDirectory: /data/worker, address: 192.0.2.10,
  peerUrl: "https://192.0.2.10:10445", conditions: [{type: Connected, status: "True", reason: AgentConnected, message: ""}],
  models: [{key: default/m0, exposed: "3", versions: [{version: "3", state: Ready}], serving: {version: "3", state: Ready}},
    {key: default/digits.edge, exposed: "111111111111", versions: [{version: "111111111111", state: Ready}],
      serving: {version: "111111111111", state: Ready}, joint: {tiers: [{name: cloud, state: Ready}]}},
    {key: default/helmet.edge, exposed: "111111111111", versions: [{version: "111111111111", state: Ready}]}]}
---
apiVersion: edgeai.io/v1alpha1
kind: EdgeNode
metadata: {name: edge1, uid: agent-1, generation: 1}
spec: {}
status: {observedGeneration: 1, modelRoot: /data/models, workerRoot: /data/workers, workerSocketDirectory: /data/worker, address: 192.0.2.11,
  peerUrl: "https://192.0.2.11:10445", conditions: [{type: Connected, status: "True", reason: AgentConnected, message: ""}],
  models: [{key: default/m1, exposed: "4", versions: [{version: "4", state: Ready}], serving: {version: "4", state: Ready}},
    {key: default/digits.edge, exposed: "111111111111", versions: [{version: "111111111111", state: Ready}],
      serving: {version: "111111111111", state: Ready}, joint: {tiers: [{name: cloud, state: Ready}]}},
    {key: default/helmet.edge, exposed: "111111111111", versions: [{version: "111111111111", state: Ready}]}]}
)";

// An API server's checks of a kind's status or spec.
class Part {
 public:
  Part(const api::Kind& kind, std::string name) : name_(std::move(name)) {
    whole_ = schema::compile(api::crd(kind).at("spec/versions/0/schema/openAPIV3Schema")).value();
    part_ = whole_->properties.at(name_);
  }

  /// The value as the server stores it; absent: the server refuses it.
  std::optional<Json> stored(Json value) const {
    Json object = Json::object({{name_, std::move(value)}});
    std::vector<std::string> unknown;
    schema::prune(*whole_, object, unknown);
    schema::apply_defaults(*whole_, object);
    if (!wrong(object[name_]).empty()) return std::nullopt;
    return std::move(object[name_]);
  }
  void check(const Json& value) const {
    const std::string causes = wrong(value);
    if (!causes.empty())
      log::error("controller wrote an invalid object", {{"part", name_}, {"causes", causes}});
    CHECK(causes.empty());
    Json object = Json::object({{name_, value}});
    std::vector<std::string> unknown;
    schema::prune(*whole_, object, unknown);
    CHECK(unknown.empty());
  }

 private:
  std::string wrong(const Json& value) const {
    std::string out;
    auto causes = schema::validate(*part_, value, {.old = nullptr, .field = name_});
    const auto lists = schema::validate_lists(*part_, value, name_);
    causes.insert(causes.end(), lists.begin(), lists.end());
    for (const auto& cause : causes) out += cause.field + ": " + cause.message + "; ";
    return out;
  }

  const std::string name_;
  schema::SchemaPtr whole_, part_;
};

const Part& part(const api::Kind& kind, const std::string& name) {
  static std::map<std::pair<const api::Kind*, std::string>, Part> parts;
  const std::pair<const api::Kind*, std::string> key(&kind, name);
  const auto found = parts.find(key);
  return found != parts.end() ? found->second : parts.emplace(key, Part(kind, name)).first->second;
}

bool has_negative(const Json& value) {
  if (value.is_integer()) return value.as_integer() < 0;
  for (const Json& item : value.as_array())
    if (has_negative(item)) return true;
  for (const auto& [name, member] : value.as_object())
    if (has_negative(member)) return true;
  return false;
}

template <typename T>
void check_status(const Json& status) {
  part(T::kind(), "status").check(status);
  CHECK(!has_negative(status));
  for (const Json& condition : status["conditions"].as_array()) {
    for (const char* member : {"type", "status", "reason", "lastTransitionTime"})
      CHECK(!condition[member].as_string().empty());
  }
}

template <typename T>
std::shared_ptr<T> typed(const Json& object) {
  return std::make_shared<T>(T::from_json(object).value());
}

// The cluster as the controllers see it. Copied for each input.
struct Cluster {
  NodeList nodes;
  EdgeNodeMap agents;
  std::vector<std::shared_ptr<const api::InferenceModel>> models;
  std::vector<std::shared_ptr<const api::JointInferenceService>> services;
  std::vector<std::shared_ptr<const api::SednaModel>> sedna_models;
  std::vector<std::shared_ptr<const api::Model>> edgeai_models;
  std::vector<std::shared_ptr<const api::Dataset>> datasets;
  std::shared_ptr<const api::Service> cloud_service;  // for helmet's cloud worker
  std::vector<std::shared_ptr<const api::EndpointSlice>> cloud_slices;
  std::vector<PodPtr> pods;
  ArchivePeers peers;
  WallTime now = meta::parse_time("2024-05-01T12:00:00Z").value();
};

const hosting::Options& options() {
  static const hosting::Options options = [] {
    hosting::Options out;
    out.node_port_host = "127.0.0.1";
    return out;
  }();
  return options;
}

World world_of(const api::InferenceModel& model, const Cluster& cluster) {
  World world;
  world.nodes = cluster.nodes;
  world.models = cluster.models;
  world.pods = cluster.pods;
  if (const auto agent = cluster.agents.find(place(model, cluster.nodes).node);
      agent != cluster.agents.end())
    world.edge_node = agent->second;
  return world;
}

JointWorld world_of(const api::JointInferenceService& service, const Cluster& cluster) {
  JointWorld world;
  world.nodes = cluster.nodes;
  world.edge_node = [agents = cluster.agents](const std::string& node) {
    const auto found = agents.find(node);
    return found == agents.end() ? nullptr : found->second;
  };
  for (const auto& model : cluster.sedna_models)
    world.models[model->metadata.name].push_back(hosting::any_model(model));
  for (const auto& model : cluster.models) {
    world.inference_models[model->metadata.name] = model;
    if (is_child(*model, service)) world.children.push_back(model);
  }
  if (service.metadata.name == "helmet") {
    world.service = cluster.cloud_service;
    world.slices = cluster.cloud_slices;
  }
  for (const auto& pod : cluster.pods) {
    const auto label = pod->metadata.labels.find(std::string(kJobLabel));
    if (label != pod->metadata.labels.end() && label->second == service.metadata.name)
      world.pods.push_back(pod);
  }
  return world;
}

template <typename T>
void check_model(std::shared_ptr<const T>& model, const Cluster& cluster) {
  const ModelView which{T::resource(), model->metadata};
  const ReplicationWorld world{cluster.nodes, cluster.agents};
  std::vector<std::shared_ptr<const api::EdgeNode>> agents;
  for (const auto& [name, agent] : cluster.agents) agents.push_back(agent);
  const auto look = [&](const api::ModelMetricsStatus& before, WallTime now) {
    const std::string time = meta::format_time(now);
    api::ModelMetricsStatus status = observe(which, before, agents, time);
    status.replication = observe_copies(which, model->spec, world, before, time);
    return status;
  };
  auto after = std::make_shared<T>(*model);
  after->status = look(model->status, cluster.now);
  check_status<T>(after->status.to_json());
  CHECK(look(after->status, cluster.now + std::chrono::hours(24)).to_json() ==
        after->status.to_json());
  model = after;
}

void check_dataset(std::shared_ptr<const api::Dataset>& dataset, const Cluster& cluster) {
  DatasetWorld world;
  for (const auto& node : cluster.nodes)
    if (node->metadata.name == dataset->spec.node_name) world.node = node;
  world.edge_node = cluster.agents.at(dataset->spec.node_name);
  const auto look = [&](const api::Dataset& before, WallTime now) {
    const std::string time = meta::format_time(now);
    api::DatasetStatus status = observe(view(before), world, time);
    status.replication =
        observe_replication(claim_of(view(before)).value(), {cluster.nodes, cluster.agents},
                            before.status.replication.value_or(api::ReplicationStatus()), time);
    return status;
  };
  auto after = std::make_shared<api::Dataset>(*dataset);
  after->status = look(*dataset, cluster.now);
  check_status<api::Dataset>(after->status.to_json());
  CHECK(look(*after, cluster.now + std::chrono::hours(24)).to_json() == after->status.to_json());
  dataset = after;
}

void check_inference_model(std::shared_ptr<const api::InferenceModel>& model,
                           const Cluster& cluster) {
  const World world = world_of(*model, cluster);
  const Plan wanted = plan(*model, world, options());
  auto after = std::make_shared<api::InferenceModel>(*model);
  after->status = observe(*model, wanted, world, options(), meta::format_time(cluster.now));
  check_status<api::InferenceModel>(after->status.to_json());
  const Plan again = plan(*after, world, options());
  CHECK(again.objects == wanted.objects);
  CHECK(observe(*after, again, world, options(),
                meta::format_time(cluster.now + std::chrono::hours(24)))
            .to_json() == after->status.to_json());
  model = after;
}

void check_service(std::shared_ptr<const api::JointInferenceService>& service,
                   const Cluster& cluster) {
  const JointWorld world = world_of(*service, cluster);
  auto after = std::make_shared<api::JointInferenceService>(*service);
  after->status = service->status;
  // A plan may need values that an earlier status assigned. The second or third run changes nothing
  // more.
  for (int i = 0; i < 3; ++i) {
    after->status =
        observe(*after, plan(*after, world, options()), world, options(), cluster.now).status;
    check_status<api::JointInferenceService>(after->status.to_json());
  }
  const JointPlan second = plan(*after, world, options());
  for (const Json& object : second.objects)
    if (object["kind"].as_string() == "InferenceModel")
      CHECK(api::validate(api::InferenceModel::kind(), object).empty());
  const JointObservation again =
      observe(*after, second, world, options(), cluster.now + std::chrono::hours(24));
  CHECK(again.status.to_json() == after->status.to_json());
  CHECK(!again.recheck_in);
  CHECK(plan(*after, world, options()).objects == second.objects);

  const api::JointInferenceServiceStatus &was = service->status, &is = after->status;
  CHECK(is.inference_number >= was.inference_number);
  CHECK(is.hard_example_number >= was.hard_example_number);
  CHECK(is.bytes_sent >= was.bytes_sent);
  service = after;
}

Json work_list(const std::string& name, Cluster& cluster) {
  const api::EdgeNode& node = *cluster.agents.at(name);
  EdgeNodeWorld world;
  world.nodes = cluster.nodes;
  world.models = cluster.models;
  world.pods = cluster.pods;
  world.datasets = cluster.datasets;
  for (const auto& model : cluster.edgeai_models)
    if (auto claim = claim_of({api::Model::resource(), model->metadata}, model->spec))
      world.claims.push_back(std::move(*claim));
  world.servers = &options().servers;
  world.edge_nodes = cluster.agents;
  for (const auto& service : cluster.services)
    if (auto work = work_for(*service, node, world_of(*service, cluster), options()))
      world.jobs.push_back(std::move(*work));
  api::EdgeNodeSpec spec = plan_edge_node(node, world);
  if (!node.status.usable_peer_url().empty() && !spec.models.empty())
    share_archives(spec, node, world, cluster.peers);

  part(api::EdgeNode::kind(), "spec").check(spec.to_json());
  const auto check_sources = [&](const std::vector<api::EdgeReplicaSource>& sources) {
    for (const api::EdgeReplicaSource& source : sources) {
      CHECK(api::is_peer_url(source.url));
      CHECK(source.node != name && cluster.agents.contains(source.node));
    }
  };
  for (const api::EdgeReplica& replica : spec.replicas) check_sources(replica.sources);
  for (const api::EdgeModel& model : spec.models)
    for (const api::EdgeModelVersion& version : model.versions) check_sources(version.peers);
  for (const api::EdgeShare& share : spec.shares)
    for (const std::string& other : share.nodes) CHECK(cluster.agents.contains(other));
  return spec.to_json();
}

// Computes the nodes' work lists until they are stable.
void settle(Cluster& cluster) {
  for (int round = 0; round < kRoundsMax; ++round) {
    bool changed = false;
    for (const char* name : {"edge0", "edge1"}) {
      const Json spec = work_list(name, cluster);
      auto& agent = cluster.agents.at(name);
      if (spec == agent->spec.to_json()) continue;
      changed = true;
      Json object = agent->to_json();
      object.set("spec", spec);
      agent = typed<api::EdgeNode>(object);
    }
    if (!changed) return;
  }
  CHECK(false && "the work lists of two nodes never come to rest");
}

void look(Cluster& cluster) {
  settle(cluster);
  for (auto& model : cluster.models)
    if (model->spec.on_edge()) check_inference_model(model, cluster);
  for (auto& service : cluster.services) check_service(service, cluster);
  for (auto& model : cluster.sedna_models) check_model(model, cluster);
  for (auto& model : cluster.edgeai_models) check_model(model, cluster);
  for (auto& dataset : cluster.datasets) check_dataset(dataset, cluster);
  settle(cluster);  // work lists contain addresses from statuses
  for (const auto& [name, agent] : cluster.agents) {
    (void)sharing_facts(*agent);
    CHECK(reported_models(*agent, api::Model::resource()).size() <= 1024);
  }
}

constexpr const char* kNodeOfPod =
    "spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/0/"
    "matchFields/0/values/0";

// Starts the pods of a plan, and one pod of its Deployment.
void start(const std::vector<Json>& objects, const api::Kind& kind, const meta::ObjectMeta& owner,
           Cluster& cluster) {
  for (Json object : objects) {
    const bool deployment = object["kind"].as_string() == "Deployment";
    if (deployment) {
      const Json name = object.at("metadata/name");
      object = Json(object.at("spec/template"));
      object["metadata"].set("name", name);
    } else if (object["kind"].as_string() != "Pod") {
      continue;
    }
    const Json node = deployment ? Json("cloud") : object.at(kNodeOfPod);
    CHECK(!node.as_string().empty());
    object["spec"].set("nodeName", node);
    object["metadata"].set("namespace", owner.ns);
    object["metadata"].set("uid", "pod-" + std::to_string(cluster.pods.size()));
    object["metadata"].set("ownerReferences",
                           Json::array({Json::object({{"apiVersion", kind.resource.api_version()},
                                                      {"kind", kind.resource.kind},
                                                      {"name", owner.name},
                                                      {"uid", owner.uid},
                                                      {"controller", true}})}));
    object.set(
        "status",
        codec::parse_yaml(
            R"({phase: Running, podIP: 127.9.1.1, conditions: [{type: Ready, status: "True"}]})")
            .value());
    cluster.pods.push_back(typed<api::Pod>(object));
  }
}

Cluster running_cluster() {
  Cluster cluster;
  const auto documents = codec::parse_yaml_stream(kCluster).value();
  for (const Json& object : documents) {
    const std::string kind = object["kind"].as_string(),
                      name = object.at("metadata/name").as_string();
    if (kind == "Node") cluster.nodes.push_back(typed<api::Node>(object));
    if (kind == "EdgeNode") cluster.agents[name] = typed<api::EdgeNode>(object);
    if (kind == "InferenceModel") cluster.models.push_back(typed<api::InferenceModel>(object));
    if (kind == "JointInferenceService")
      cluster.services.push_back(typed<api::JointInferenceService>(object));
    if (kind == "Service") cluster.cloud_service = typed<api::Service>(object);
    if (kind == "EndpointSlice") cluster.cloud_slices.push_back(typed<api::EndpointSlice>(object));
    if (kind == "Dataset") cluster.datasets.push_back(typed<api::Dataset>(object));
    if (kind != "Model") continue;
    if (object["apiVersion"].as_string() == "sedna.io/v1alpha1") {
      cluster.sedna_models.push_back(typed<api::SednaModel>(object));
    } else {
      cluster.edgeai_models.push_back(typed<api::Model>(object));
    }
  }
  look(cluster);
  std::size_t pods = 0;
  do {  // the pods of users' workers appear one after the other
    pods = cluster.pods.size();
    Cluster before = cluster;
    for (const auto& model : before.models)
      if (model->spec.on_edge() && edge_pod(*model, before.pods) == nullptr)
        start(plan(*model, world_of(*model, before), options()).objects,
              api::InferenceModel::kind(), model->metadata, cluster);
    for (const auto& service : before.services) {
      std::vector<Json> missing = plan(*service, world_of(*service, before), options()).objects;
      std::erase_if(missing, [&](const Json& object) {
        return std::any_of(before.pods.begin(), before.pods.end(), [&](const PodPtr& pod) {
          return pod->metadata.name == object.at("metadata/name").as_string();
        });
      });
      start(missing, api::JointInferenceService::kind(), service->metadata, cluster);
    }
    look(cluster);
  } while (cluster.pods.size() > pods);
  // Everything that inputs can reach must exist: a pod per model, and one per service and node.
  // Working services are Ready.
  CHECK(cluster.pods.size() == 7);
  for (const auto& model : cluster.models)
    if (model->spec.on_edge())
      CHECK(meta::find_condition(model->status.conditions, "Ready")->status == "True");
  for (const auto& service : cluster.services) {
    const meta::Condition* const ready = meta::find_condition(service->status.conditions, "Ready");
    if (ready->status != "True")
      log::error("not Ready", {{"service", service->metadata.name},
                               {"why", ready->reason + ": " + ready->message}});
    CHECK(ready->status == "True");
  }
  return cluster;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Cluster start = running_cluster();
  Cluster cluster = start;
  fuzz::Input input(data, size);
  for (std::size_t i = 0; i < kReportsMax && !input.rest().empty(); ++i) {
    auto report = codec::parse_json(input.line());
    if (!report.ok() || !report->is_object()) continue;
    auto status = part(api::EdgeNode::kind(), "status").stored(std::move(report).value());
    if (!status) continue;
    auto& agent = cluster.agents.at(i % 2 == 0 ? "edge0" : "edge1");
    Json object = agent->to_json();
    object.set("status", std::move(*status));
    auto read = api::EdgeNode::from_json(object);
    if (!read.ok()) continue;  // the caches skip it
    agent = std::make_shared<const api::EdgeNode>(std::move(read).value());
    cluster.now += std::chrono::hours(1);
    look(cluster);
  }
  return 0;
}
