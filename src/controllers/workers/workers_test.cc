// Golden cases of testdata/workers: a JointInferenceService, of which only the workers with
// templates matter, and the world around it. Expected are objects, reasons for missing ones, ports,
// and the work of every EdgeNode.
//
// Besides API objects, a world has these documents:
//   Options {cloudUrl, server, claims}
//   Nodes {count, of}
//   Others {node, models, workers}: items of other owners in the node's work list
//   LivePods: {worker, node, number, then, status}: the pod (for the worker cloud: the Deployment)
//     that was created when the service was `then.job`, Models were `then.models` (merge patches of
//     the current ones), the node exposed `then.exposed`, the cloud worker was at `then.cloudUrl`,
//     and the build's output differed by `then.wish`.

#include "controllers/workers/workers.h"

#include <gtest/gtest.h>
#include <map>

#include "api/sedna/joint_inference_service.h"
#include "codec/yaml.h"
#include "controllers/edgenode/plan.h"
#include "controllers/testing/golden.h"
#include "runtime/writer.h"

namespace varda::controllers::workers {
namespace workers_test {

using testing::golden_cases;
using testing::GoldenCase;
using testing::typed;

struct Case {
  Json job_json;
  hosting::NodeList nodes;
  std::map<std::string, EdgeNodePtr> edge_nodes;
  std::map<std::string, ModelWorld> models;
  std::map<std::string, Json> model_json;
  std::vector<PodPtr> pods;
  std::shared_ptr<const api::Deployment> deployment;
  std::vector<hosting::PortClaim> claims;
  std::optional<std::string> cloud_url;
  bool server = false;  // the edge worker is our server
  std::vector<std::string> fetch_arguments;
  std::vector<Json> live;
};

struct Workers {
  std::shared_ptr<const api::JointInferenceService> service;
  std::vector<Worker> all;
  Job job() const { return {"JointInferenceService", service->metadata}; }
};

Workers workers_of(const Json& job, const Case& test) {
  Workers out;
  out.service = typed<api::JointInferenceService>(job);
  const auto resolved = [&](const api::ModelReference& reference, ModelUse use) {
    const auto found = test.models.find(reference.name);
    return resolve_model(reference, found == test.models.end() ? ModelWorld() : found->second, use)
        .model;
  };
  const api::JointInferenceServiceSpec& spec = out.service->spec;
  if (spec.edge_worker) {
    Worker worker = worker_of("edge", Worker::Layer::kEdge, *spec.edge_worker);
    worker.hard_example_mining = spec.edge_worker->hard_example_mining;
    worker.cloud_url = test.cloud_url;
    worker.model =
        resolved(spec.edge_worker->model, test.server ? ModelUse::kServer : ModelUse::kUsersWorker);
    if (test.server) {
      worker.pods = Worker::Pods::kServer;
      worker.serving_port = 8080;
      worker.request = Json::object({{"port", 8080}});
      worker.joint = Json::object({{"version", 1}});
      worker.server_spec = [](const std::string& directory, const std::string& /*samples*/) {
        return codec::parse_yaml(
                   "{hostNetwork: true, containers: [{name: server, image: varda-serve, ports: "
                   "[{containerPort: 8080}]}], "
                   "volumes: [{name: model, hostPath: {path: \"" +
                   directory + "\"}}]}")
            .value();
      };
    }
    out.all.push_back(std::move(worker));
  }
  if (spec.cloud_worker && spec.cloud_worker->has_template()) {
    Worker worker = worker_of("cloud", Worker::Layer::kCloud, *spec.cloud_worker);
    worker.service_port = spec.cloud_worker->service_port();
    worker.service_type = std::string(spec.cloud_worker->service_type());
    worker.model = resolved(spec.cloud_worker->model, ModelUse::kUsersWorker);
    out.all.push_back(std::move(worker));
  }
  return out;
}

WorkerWorld world_of(const Case& test) {
  return {test.nodes,
          [&test](const std::string& node) {
            const auto found = test.edge_nodes.find(node);
            return found == test.edge_nodes.end() ? nullptr : found->second;
          },
          test.pods,
          test.deployment,
          test.claims,
          "varda",
          test.fetch_arguments};
}

// The object on the API server after the writer has sent it and the node has started it.
Json live_object(Json object, const Json& owner, const std::string& uid, const std::string& node,
                 const Json& status) {
  const Json candidate = object;
  Json& metadata = object.make("metadata");
  metadata.erase("uid");
  metadata.set("uid", uid);
  metadata.set("creationTimestamp", "2024-05-01T10:00:00Z");
  metadata.set("ownerReferences", Json::array({Json::object({{"apiVersion", owner["apiVersion"]},
                                                             {"kind", owner["kind"]},
                                                             {"name", owner["metadata"]["name"]},
                                                             {"uid", owner["metadata"]["uid"]},
                                                             {"controller", true}})}));
  object.make("metadata/annotations").set(runtime::kLastApplied, codec::write_json(candidate));
  if (!node.empty()) object.make("spec").set("nodeName", node);
  object.set("status", status);
  return object;
}

// The node at the time when it exposed `exposed`.
EdgeNodePtr with_exposed(const api::EdgeNode& node, const std::string& exposed) {
  auto out = std::make_shared<api::EdgeNode>(node);
  for (api::EdgeModelReport& model : out->status.models) {
    model.exposed = exposed;
    model.versions.clear();
    api::EdgeVersionReport& version = model.versions.emplace_back();
    version.version = exposed;
    version.state = api::EdgeVersionReport::kReady;
    version.sha256 = std::string(64, exposed.empty() ? '0' : exposed.front());
  }
  return out;
}

Json made_then(const Case& now, const Json& live) {
  const Json& then = live["then"];
  Case test = now;
  test.pods.clear();
  test.deployment = nullptr;
  test.claims.clear();
  if (!then["cloudUrl"].is_null()) test.cloud_url = then["cloudUrl"].as_string();
  if (!then["exposed"].is_null()) {
    for (auto& [name, node] : test.edge_nodes)
      node = with_exposed(*node, then["exposed"].as_string());
  }
  for (const auto& [name, change] : then["models"].as_object())
    test.models[name].models = {hosting::any_model(
        typed<api::SednaModel>(meta::apply_merge_patch(test.model_json[name], change)))};
  Json job = now.job_json;
  if (!then["job"].is_null()) job = meta::apply_merge_patch(job, then["job"]);
  const Workers workers = workers_of(job, test);
  for (const Worker& worker : workers.all) {
    if (worker.name != live["worker"].string_or("edge")) continue;
    const std::string kind = worker.layer == Worker::Layer::kEdge ? "Pod" : "Deployment";
    const std::string wanted =
        worker.layer == Worker::Layer::kEdge
            ? worker_pod_name(workers.job(), worker, live["node"].as_string(),
                              live["number"].as_integer())
            : worker_name(workers.job(), worker);
    for (const Json& object : plan_worker(workers.job(), worker, world_of(test)).objects) {
      if (object["kind"].as_string() != kind || object["metadata"]["name"].as_string() != wanted)
        continue;
      const Json wanted_pod =
          then["wish"].is_null() ? object : meta::apply_merge_patch(object, then["wish"]);
      Json made = live_object(wanted_pod, now.job_json, "uid-of-" + wanted,
                              live["node"].as_string(), live["status"]);
      if (!live["change"].is_null()) made = meta::apply_merge_patch(made, live["change"]);
      return made;
    }
  }
  ADD_FAILURE() << "nothing would have been made of " << codec::write_json(live);
  return {};
}

Case load(const GoldenCase& golden) {
  Case test;
  std::vector<Json> others;
  test.job_json = golden.given["job"];
  for (const Json& object : testing::world_of(golden, "job")) {
    const std::string kind = object["kind"].as_string();
    const std::string name = object["metadata"]["name"].as_string();
    if (kind == "Node") test.nodes.push_back(typed<api::Node>(object));
    if (kind == "EdgeNode") test.edge_nodes[name] = typed<api::EdgeNode>(object);
    if (kind == "Model") {
      test.models[name].models = {hosting::any_model(typed<api::SednaModel>(object))};
      test.model_json[name] = object;
    }
    if (kind == "InferenceModel")
      test.models[name].inference_model = typed<api::InferenceModel>(object);
    if (kind == "Deployment") test.deployment = typed<api::Deployment>(object);
    if (kind == "Pod") test.pods.push_back(typed<api::Pod>(object));
    if (kind == "LivePod") test.live.push_back(object);
    if (kind == "Options") {
      if (object.contains("cloudUrl")) test.cloud_url = object["cloudUrl"].as_string();
      test.server = object["server"].as_bool();
      for (const Json& argument : object["fetchArguments"].as_array())
        test.fetch_arguments.push_back(argument.as_string());
      for (const Json& claim : object["claims"].as_array()) {
        test.claims.push_back({claim["node"].as_string(), claim["port"].as_integer(), "TCP",
                               claim["owner"].as_string(), "another", claim["since"].as_string()});
      }
    }
    if (kind == "Others") others.push_back(object);
    if (kind == "Nodes") {  // many of them
      for (std::int64_t i = 0; i < object["count"].as_integer(); ++i) {
        auto node = std::make_shared<api::Node>(*typed<api::Node>(object["of"]));
        node->metadata.name = "n" + std::to_string(i);
        test.nodes.push_back(std::move(node));
      }
    }
  }
  for (const Json& live : test.live) {
    const Json made = made_then(test, live);
    if (made["kind"].as_string() == "Pod") test.pods.push_back(typed<api::Pod>(made));
    if (made["kind"].as_string() == "Deployment") test.deployment = typed<api::Deployment>(made);
  }
  for (const Json& object : others) {  // younger than the others
    auto node = std::make_shared<api::EdgeNode>(*test.edge_nodes.at(object["node"].as_string()));
    for (std::int64_t i = 0; i < object["models"].as_integer(); ++i)
      node->spec.models.emplace_back().key = "others/m" + std::to_string(i);
    for (std::int64_t i = 0; i < object["workers"].as_integer(); ++i)
      node->spec.workers.emplace_back().key = "others/w" + std::to_string(i);
    test.edge_nodes[object["node"].as_string()] = std::move(node);
  }
  return test;
}

Json to_json(const std::optional<hosting::Problem>& problem) {
  return problem ? Json(problem->reason + ": " + problem->message) : Json();
}

Json to_json(const WorkerPlan& plan) {
  Json out = Json::object();
  if (plan.problem) out.set("problem", to_json(plan.problem));
  Json pods = Json::array();
  for (const WorkerPod& pod : plan.pods) {
    Json one =
        Json::object({{"name", pod.name}, {"node", pod.node}, {"there", pod.pod != nullptr}});
    if (pod.problem) one.set("problem", to_json(pod.problem));
    if (pod.outdated) one.set("outdated", true);
    if (pod.leaving) one.set("leaving", true);
    pods.push_back(std::move(one));
  }
  if (pods.size() > 20) pods = Json::object({{"count", static_cast<std::int64_t>(pods.size())}});
  if (!pods.empty()) out.set("pods", std::move(pods));
  Json ended = Json::array();
  for (const PodPtr& pod : plan.ended) ended.push_back(pod->metadata.name);
  if (!ended.empty()) out.set("ended", std::move(ended));
  Json objects = Json::array();
  for (const Json& object : plan.objects) objects.push_back(object);
  out.set("objects", std::move(objects));
  return out;
}

Json claims_json(const Workers& workers, const Case& test) {
  Json out = Json::array();
  for (const Worker& worker : workers.all) {
    for (const hosting::PortClaim& claim : claims_of(workers.job(), worker, test.nodes, test.pods))
      out.push_back(claim.node + " " + std::to_string(claim.port) + "/" + claim.protocol + " " +
                    claim.owner);
  }
  return out;
}

hosting::NodeWork work_on(const Workers& workers, const Case& test, const api::EdgeNode& node) {
  hosting::NodeWork work{workers.service->metadata.creation_timestamp, {}, {}};
  for (const Worker& worker : workers.all) {
    if (auto model = model_for(workers.job(), worker, test.nodes, node, test.pods))
      work.models.push_back(std::move(*model));
    for (auto& one : workers_for(workers.job(), worker, test.nodes, node, test.pods))
      work.workers.push_back(std::move(one));
  }
  return work;
}

Json plan_all(const Case& test) {
  const Workers workers = workers_of(test.job_json, test);
  Json out = Json::object();
  for (const Worker& worker : workers.all) {
    const WorkerPlan plan = plan_worker(workers.job(), worker, world_of(test));
    for (const Json& object : plan.objects) {
      EXPECT_EQ(object["metadata"]["namespace"].as_string(), workers.service->metadata.ns);
    }
    out.set(worker.name, to_json(plan));
  }
  if (Json claims = claims_json(workers, test); !claims.empty())
    out.set("claims", std::move(claims));
  for (const auto& [name, node] : test.edge_nodes) {
    edgenode::EdgeNodeWorld world;
    world.nodes = test.nodes;
    world.jobs.push_back(work_on(workers, test, *node));
    out.make("work").set(name, edgenode::plan_edge_node(*node, world).to_json());
  }
  return out;
}

class WorkersGolden : public ::testing::TestWithParam<std::string> {};

TEST_P(WorkersGolden, PlanAndWorkMatchGoldenFile) {
  const Case test = load(golden_cases("workers").at(GetParam()));
  golden_cases("workers").check(GetParam(), plan_all(test));
}

// Created objects, once running, match the plan exactly.
TEST_P(WorkersGolden, CreatedPodsMatchTheNextPlan) {
  Case test = load(golden_cases("workers").at(GetParam()));
  const Workers workers = workers_of(test.job_json, test);
  for (int round = 0; round < 3; ++round) {  // a roll-out replaces one at a time
    for (const Worker& worker : workers.all) {
      const WorkerPlan plan = plan_worker(workers.job(), worker, world_of(test));
      std::vector<PodPtr> pods;
      for (const PodPtr& pod : test.pods) {
        if (!is_worker_pod(workers.job(), worker, *pod)) pods.push_back(pod);
      }
      for (const Json& object : plan.objects) {
        const Json status =
            codec::parse_yaml(
                "{phase: Running, readyReplicas: 1, conditions: [{type: Ready, status: 'True'}]}")
                .value();
        const std::string uid = object["metadata"]["uid"].string_or("new");
        if (object["kind"].as_string() == "Pod") {
          const std::string node = object.at("metadata/labels")[kWorkerNodeLabel].as_string();
          pods.push_back(typed<api::Pod>(live_object(object, test.job_json, uid, node, status)));
        } else if (object["kind"].as_string() == "Deployment") {
          test.deployment =
              typed<api::Deployment>(live_object(object, test.job_json, uid, "", status));
        }
      }
      test.pods = std::move(pods);
    }
  }
  for (const Worker& worker : workers.all) {
    const WorkerPlan plan = plan_worker(workers.job(), worker, world_of(test));
    for (const Json& object : plan.objects) {
      if (object["kind"].as_string() != "Pod") continue;
      Json candidate;
      for (const PodPtr& pod : test.pods) {
        if (pod->metadata.name == object["metadata"]["name"].as_string())
          candidate =
              codec::parse_json(pod->metadata.annotations.at(std::string(runtime::kLastApplied)))
                  .value();
      }
      EXPECT_EQ(codec::write_yaml(candidate["spec"]), codec::write_yaml(object["spec"]));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Case, WorkersGolden, ::testing::ValuesIn(golden_cases("workers").names()),
                         [](const auto& test) { return test.param; });

}  // namespace workers_test
}  // namespace varda::controllers::workers
