// Golden cases of testdata/trainingmodel: a run and the world around it. Expected are the plan, the
// work of every EdgeNode, the status, and the Model with the result.
//
//   LivePod: {status, then}: the pod that the plan made; `then` is a merge patch of the run
//   Options: {registry, gateway}: URLs of the operator. With a gateway runs may become Jobs

#include "controllers/trainingmodel/plan.h"

#include <gtest/gtest.h>
#include <map>

#include "controllers/edgenode/plan.h"
#include "controllers/testing/golden.h"
#include "runtime/last_applied.h"

namespace varda::controllers::trainingmodel {
namespace training_plan_test {

using testing::golden_cases;
using testing::GoldenCase;
using testing::typed;

const WallTime kNow = meta::parse_time("2026-05-01T12:00:00Z").value();

struct Case {
  api::TrainingModel training;
  TrainingWorld world;
  std::map<std::string, workers::EdgeNodePtr> agents;
  hosting::Options options;
};

// The pod on the API server after the writer has sent it and the node has started it.
Json live_pod(const Json& wanted, const Json& owner, const Json& live, const std::string& node) {
  Json pod = wanted;
  Json& metadata = pod.make("metadata");
  metadata.set("uid", "uid-of-" + wanted.at("metadata/name").as_string());
  metadata.set("creationTimestamp", "2026-05-01T10:00:00Z");
  metadata.set("ownerReferences", Json::array({Json::object({{"apiVersion", owner["apiVersion"]},
                                                             {"kind", owner["kind"]},
                                                             {"name", owner["metadata"]["name"]},
                                                             {"uid", owner["metadata"]["uid"]},
                                                             {"controller", true}})}));
  pod.make("metadata/annotations").set(runtime::kLastApplied, codec::write_json(wanted));
  pod.make("spec").set("nodeName", node);
  pod.set("status", live["status"]);
  if (const Json& end = live.at("metadata/deletionTimestamp"); !end.is_null())
    pod["metadata"].set("deletionTimestamp", end);
  return pod;
}

/// The pod of the run before the reports, the end and the suspension of the case.
Json made_then(const Case& now, const Json& training, const Json& live) {
  Json before = training;
  before.make("spec").set("suspend", false);
  Json& status = before.make("status");
  status = status.contains("base") ? Json::object({{"base", status["base"]}}) : Json::object();
  if (!live["then"].is_null()) before = meta::apply_merge_patch(before, live["then"]);
  Case test = now;
  const auto old = typed<api::TrainingModel>(before);
  const std::string node = node_of(*old).empty() ? "edge0" : node_of(*old);
  auto agent = std::make_shared<api::EdgeNode>(*test.agents.at(node));
  agent->status.workers.clear();
  test.world.edge_node = [agent](const std::string&) { return agent; };
  if (hosting::find_node(test.world.nodes, node) == nullptr) {
    auto object = std::make_shared<api::Node>();
    object->metadata.name = node;
    test.world.nodes.push_back(std::move(object));
  }
  for (const std::string name : {"digits-train", "digits-test"}) {
    auto data = std::make_shared<api::Dataset>();
    data->metadata.name = name;
    data->spec.url = "/data/digits/train.csv";
    data->spec.format = "csv";
    data->spec.node_name = node;
    data->status.number_of_samples = 1;
    data->status.conditions.push_back({"Ready", "True", "Counted", "", 0, ""});
    test.world.datasets[name] = {std::move(data), nullptr};
  }
  const TrainingPlan made = plan(*old, test.world, test.options, kNow);
  if (made.objects.empty()) {
    ADD_FAILURE() << "no pod was made: " << (made.problem ? made.problem->message : "");
    return {};
  }
  return live_pod(made.objects.front(), training, live, node);
}

std::unique_ptr<Case> load(const GoldenCase& golden) {
  auto test = std::make_unique<Case>();
  test->options.registry_url = "http://registry:8092";
  const Json& training = golden.given["training"];
  test->training = *typed<api::TrainingModel>(training);
  TrainingWorld& world = test->world;
  Json live;
  const std::string& initial = training.at("spec/initialModel/name").as_string();
  for (const Json& object : testing::world_of(golden, "training")) {
    const std::string kind = object["kind"].as_string(),
                      name = object.at("metadata/name").as_string();
    const bool sedna = object["apiVersion"].as_string().starts_with("sedna.io/");
    if (kind == "Node") world.nodes.push_back(typed<api::Node>(object));
    if (kind == "EdgeNode") test->agents[name] = typed<api::EdgeNode>(object);
    if (kind == "Model" && name == test->training.spec.model_name)
      world.output = typed<api::Model>(object);
    if (kind == "Model" && name == initial)
      world.initial.models.push_back(hosting::any_model(typed<api::Model>(object)));
    if (kind == "InferenceModel")
      world.initial.inference_model = typed<api::InferenceModel>(object);
    if (kind == "Dataset" && sedna) world.datasets[name].sedna = typed<api::SednaDataset>(object);
    if (kind == "Dataset" && !sedna) world.datasets[name].edgeai = typed<api::Dataset>(object);
    if (kind == "LivePod") live = object;
    if (kind == "Job") world.job = typed<api::Job>(object);
    if (kind == "Pod") world.pods.push_back(typed<api::Pod>(object));
    if (kind == "Options") {
      test->options.registry_url = object["registry"].as_string();
      if (object.contains("gateway"))
        test->options.jobs = hosting::ClusterJobs{.gateway_url = object["gateway"].as_string()};
    }
  }
  if (becomes_job(test->training, test->options)) world.nodes.push_back(job_node(test->training));
  world.edge_node = [agents = &test->agents](const std::string& node) {
    const auto found = agents->find(node);
    return found == agents->end() ? nullptr : found->second;
  };
  if (!live.is_null()) world.pods.push_back(typed<api::Pod>(made_then(*test, training, live)));
  return test;
}

Json names_of(const std::vector<workers::PodPtr>& pods) {
  Json out = Json::array();
  for (const workers::PodPtr& pod : pods) out.push_back(pod->metadata.name);
  return out;
}

Json to_json(const TrainingPlan& plan, const Case& test, const api::TrainingModel& training) {
  using Pods = TrainingPlan::Pods;
  Json out = Json::object({{"pods", plan.pods == Pods::kConverge ? "converge"
                                    : plan.pods == Pods::kLeave  ? "leave"
                                                                 : "remove"}});
  if (plan.problem)
    out.set("problem",
            Json::object({{"reason", plan.problem->reason}, {"message", plan.problem->message}}));
  if (plan.pods == Pods::kConverge) {
    Json objects = Json::array();
    for (const Json& object : plan.objects) objects.push_back(object);
    out.set("objects", std::move(objects));
  }
  if (plan.make_node) out.set("makeNode", true);
  if (!plan.remove.empty()) out.set("remove", names_of(plan.remove));
  if (!plan.failed.empty()) out.set("failed", names_of(plan.failed));
  for (const auto& [name, node] : test.agents) {
    const auto work = work_for(training, *node, test.world.nodes, test.world.pods);
    if (!work) continue;
    api::EdgeNodeSpec spec;
    spec.models = work->models;
    spec.workers = work->workers;
    out["work"].set(name, spec.to_json());
  }
  return out;
}

class TrainingGolden : public ::testing::TestWithParam<std::string> {};

TEST_P(TrainingGolden, PlanWorkAndStatusMatchGoldenFile) {
  const auto test = load(golden_cases("trainingmodel").at(GetParam()));
  const TrainingPlan first = plan(test->training, test->world, test->options, kNow);
  const TrainingObservation seen = observe(test->training, first, test->world, test->options, kNow);
  // The work of the node depends on the pinned model in the status.
  api::TrainingModel after = test->training;
  after.status = seen.status;
  const TrainingPlan second = plan(after, test->world, test->options, kNow);
  Json found = to_json(second, *test, after);
  found.set("status", seen.status.to_json());
  if (seen.recheck_in)
    found.set("recheckSeconds",
              std::chrono::duration_cast<std::chrono::seconds>(*seen.recheck_in).count());
  if (seen.output) found.set("output", *seen.output);
  golden_cases("trainingmodel").check(GetParam(), found);

  // Written objects must be valid, and a second look must find nothing new.
  const api::Property* schema = api::TrainingModel::kind().schema->find("status");
  ASSERT_NE(schema, nullptr);
  for (const auto& cause : api::validate(schema->schema, seen.status.to_json(), "status"))
    ADD_FAILURE() << cause.field << ": " << cause.message;
  if (seen.output) {
    for (const auto& cause : api::validate(api::Model::kind(), *seen.output))
      ADD_FAILURE() << cause.field << ": " << cause.message;
  }
  const TrainingObservation again = observe(after, second, test->world, test->options, kNow);
  EXPECT_EQ(again.status.to_json(), seen.status.to_json());
}

// The EdgeNode planner adds nothing to what the run asks for, and drops nothing.
TEST_P(TrainingGolden, WorkListContainsExactlyTheRunsWork) {
  const GoldenCase& golden = golden_cases("trainingmodel").at(GetParam());
  const auto test = load(golden);
  api::TrainingModel after = test->training;
  const TrainingPlan wanted = plan(test->training, test->world, test->options, kNow);
  after.status = observe(test->training, wanted, test->world, test->options, kNow).status;
  for (const auto& [name, node] : test->agents) {
    edgenode::EdgeNodeWorld nodes;
    nodes.nodes = test->world.nodes;
    if (auto work = work_for(after, *node, test->world.nodes, test->world.pods))
      nodes.jobs.push_back(std::move(*work));
    const Json& expected = golden.expect["work"][name];
    EXPECT_EQ(edgenode::plan_edge_node(*node, nodes).to_json(),
              expected.is_null() ? Json::object() : expected)
        << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Case, TrainingGolden,
                         ::testing::ValuesIn(golden_cases("trainingmodel").names()),
                         [](const auto& test) { return test.param; });

}  // namespace training_plan_test
}  // namespace varda::controllers::trainingmodel
