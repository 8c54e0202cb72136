// Golden cases of testdata/federatedlearning: a job and the world around it. Expected are the plan,
// the work of every EdgeNode, the status, and the Model with the result.
//
//   LivePod: {of, status}: the pod that the plan made. `of` is aggregator, or the node of a
//   training
//            worker
//   Gone: {node}: a Node that was removed after its pods were made
//   Options: {registry, authority}: URL of the operator's registry, certificate of the edge's CA

#include "controllers/federatedlearning/plan.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <map>

#include "controllers/edgenode/plan.h"
#include "controllers/testing/golden.h"
#include "federated/rules.h"
#include "runtime/last_applied.h"

namespace varda::controllers::federatedlearning {
namespace federated_plan_test {

using testing::golden_cases;
using testing::GoldenCase;
using testing::typed;

const WallTime kNow = meta::parse_time("2026-05-01T12:00:00Z").value();

struct Case {
  api::FederatedLearningJob job;
  FederatedWorld world;
  std::map<std::string, workers::EdgeNodePtr> agents;
  hosting::Options options;
};

// The pod on the API server after the writer has sent it and the node has started it.
workers::PodPtr live_pod(const Json& wanted, const Json& owner, const Json& live,
                         const std::string& node) {
  Json pod = wanted;
  Json& metadata = pod.make("metadata");
  const std::string uid = "uid-of-" + wanted.at("metadata/name").as_string();
  metadata.set("uid", uid);
  metadata.set("creationTimestamp", "2026-05-01T10:00:00Z");
  metadata.set("ownerReferences", Json::array({Json::object({{"apiVersion", owner["apiVersion"]},
                                                             {"kind", owner["kind"]},
                                                             {"name", owner["metadata"]["name"]},
                                                             {"uid", owner["metadata"]["uid"]},
                                                             {"controller", true}})}));
  pod.make("metadata/annotations").set(runtime::kLastApplied, codec::write_json(wanted));
  pod.make("spec").set("nodeName", node);
  pod.set("status", live["status"]);
  return typed<api::Pod>(pod);
}

/// The job after two looks without pods and reports, and the pods that it wants then.
FederatedPlan settle(Case& test) {
  FederatedWorld before = test.world;
  std::map<std::string, workers::EdgeNodePtr> quiet;
  for (const auto& [name, agent] : test.agents) {
    auto copy = std::make_shared<api::EdgeNode>(*agent);
    for (api::EdgeWorkerReport& report : copy->status.workers) report.report = Json();
    quiet[name] = copy;
  }
  before.edge_node = [&quiet](const std::string& node) {
    const auto found = quiet.find(node);
    return found == quiet.end() ? nullptr : found->second;
  };
  test.job.status.aggregator.address = "10.42.0.7:7363";
  FederatedPlan made;
  for (int look = 0; look < 2; ++look) {
    made = plan(test.job, before, test.options, kNow);
    test.job.status = observe(test.job, made, before, test.options, kNow).status;
  }
  return plan(test.job, before, test.options, kNow);
}

std::unique_ptr<Case> load(const GoldenCase& golden) {
  auto test = std::make_unique<Case>();
  test->options.registry_url = "http://registry:8092";
  const Json& job = golden.given["job"];
  test->job = *typed<api::FederatedLearningJob>(job);
  FederatedWorld& world = test->world;
  std::vector<Json> live;
  std::vector<hosting::AnyModel> models;
  std::string gone;
  for (const Json& object : testing::world_of(golden, "job")) {
    const std::string kind = object["kind"].as_string(),
                      name = object.at("metadata/name").as_string();
    const bool sedna = object["apiVersion"].as_string().starts_with("sedna.io/");
    if (kind == "Node") world.nodes.push_back(typed<api::Node>(object));
    if (kind == "EdgeNode") test->agents[name] = typed<api::EdgeNode>(object);
    if (kind == "Model") {
      const hosting::AnyModel model = sedna ? hosting::any_model(typed<api::SednaModel>(object))
                                            : hosting::any_model(typed<api::Model>(object));
      models.push_back(model);
    }
    if (kind == "Gone") gone = object["node"].as_string();
    if (kind == "Dataset" && sedna) world.datasets[name].sedna = typed<api::SednaDataset>(object);
    if (kind == "Dataset" && !sedna) world.datasets[name].edgeai = typed<api::Dataset>(object);
    if (kind == "LivePod") live.push_back(object);
    if (kind == "Options") test->options.registry_url = object["registry"].as_string();
    if (const Json& pem = object["authority"]; kind == "Options" && pem.is_string())
      test->options.edge_authority = [pem = pem.as_string()] { return pem; };
  }
  world.edge_node = [agents = &test->agents](const std::string& node) {
    const auto found = agents->find(node);
    return found == agents->end() ? nullptr : found->second;
  };
  const auto choose_models = [&] {
    world.outputs.clear();
    world.initial.models.clear();
    for (const hosting::AnyModel& model : models) {
      if (model.metadata->name == model_name(test->job)) world.outputs.push_back(model);
      if (model.metadata->name == initial_model(test->job).name)
        world.initial.models.push_back(model);
    }
  };
  choose_models();
  if (live.empty()) return test;
  // The case's own status is a difference to the settled one. Its spec is younger than the pods.
  Json before = job;
  if (const Json& then = golden.given.at("job/then"); then.is_object())
    before = meta::apply_merge_patch(before, then);
  before.erase("status");
  if (const Json& base = job.at("status/base"); base.is_object())
    before.set("status", Json::object({{"base", base}}));
  const api::FederatedLearningJob now = test->job;
  test->job = *typed<api::FederatedLearningJob>(before);
  choose_models();
  const FederatedPlan made = settle(*test);
  Json settled = now.to_json();
  settled.set("status",
              meta::apply_merge_patch(test->job.status.to_json(),
                                      job["status"].is_object() ? job["status"] : Json::object()));
  for (const Json& one : live) {
    const std::string of = one["of"].as_string();
    const bool aggregator = of == "aggregator";
    std::string pod = made.pod_name, node = made.node;
    for (const PlannedTrainer& trainer : made.trainers) {
      if (aggregator || trainer.node != of) continue;
      pod = trainer.pod_name;
      node = trainer.node;
    }
    const auto found = std::find_if(
        made.objects.begin(), made.objects.end(),
        [&](const Json& wanted) { return wanted.at("metadata/name").as_string() == pod; });
    if (found == made.objects.end()) {
      ADD_FAILURE() << "no pod was made for " << of;
      continue;
    }
    world.pods.push_back(live_pod(*found, job, one, node));
  }
  test->job = *typed<api::FederatedLearningJob>(settled);
  choose_models();
  std::erase_if(world.nodes, [&](const auto& node) { return node->metadata.name == gone; });
  return test;
}

Json names_of(const std::vector<workers::PodPtr>& pods) {
  Json out = Json::array();
  for (const workers::PodPtr& pod : pods) out.push_back(pod->metadata.name);
  return out;
}

Json to_json(const FederatedPlan& plan, const Case& test, const api::FederatedLearningJob& job) {
  using Pods = FederatedPlan::Pods;
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
  if (!plan.remove.empty()) out.set("remove", names_of(plan.remove));
  if (!plan.failed.empty()) out.set("failed", names_of(plan.failed));
  for (const auto& [name, node] : test.agents) {
    const auto work = work_for(job, *node, test.world.nodes, test.world.pods);
    if (!work) continue;
    api::EdgeNodeSpec spec;
    spec.models = work->models;
    spec.workers = work->workers;
    out["work"].set(name, spec.to_json());
  }
  return out;
}

class FederatedGolden : public ::testing::TestWithParam<std::string> {};

TEST_P(FederatedGolden, PlanWorkAndStatusMatchGoldenFile) {
  const auto test = load(golden_cases("federatedlearning").at(GetParam()));
  const FederatedPlan first = plan(test->job, test->world, test->options, kNow);
  const FederatedObservation seen = observe(test->job, first, test->world, test->options, kNow);
  // The work of nodes depends on the places in the status.
  api::FederatedLearningJob after = test->job;
  after.status = seen.status;
  const FederatedPlan second = plan(after, test->world, test->options, kNow);
  Json found = to_json(second, *test, after);
  found.set("status", seen.status.to_json());
  if (seen.recheck_in)
    found.set("recheckSeconds",
              std::chrono::duration_cast<std::chrono::seconds>(*seen.recheck_in).count());
  if (seen.output) found.set("output", *seen.output);
  golden_cases("federatedlearning").check(GetParam(), found);

  // Written objects must be valid, and a second look must find nothing new.
  const api::Property* schema = api::FederatedLearningJob::kind().schema->find("status");
  ASSERT_NE(schema, nullptr);
  for (const auto& cause : api::validate(schema->schema, seen.status.to_json(), "status"))
    ADD_FAILURE() << cause.field << ": " << cause.message;
  if (seen.output) {
    const bool sedna = (*seen.output)["apiVersion"].as_string().starts_with("sedna.io/");
    for (const auto& cause :
         api::validate(sedna ? api::SednaModel::kind() : api::Model::kind(), *seen.output))
      ADD_FAILURE() << cause.field << ": " << cause.message;
  }
  const FederatedObservation again = observe(after, second, test->world, test->options, kNow);
  EXPECT_EQ(again.status.to_json(), seen.status.to_json());
}

// The EdgeNode planner adds nothing to what the job asks for, and drops nothing.
TEST_P(FederatedGolden, WorkListContainsExactlyTheJobsWork) {
  const GoldenCase& golden = golden_cases("federatedlearning").at(GetParam());
  const auto test = load(golden);
  api::FederatedLearningJob after = test->job;
  const FederatedPlan wanted = plan(test->job, test->world, test->options, kNow);
  after.status = observe(test->job, wanted, test->world, test->options, kNow).status;
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

TEST(FederatedSchema, EveryRuleOfTheAggregatorIsAllowed) {
  const api::Property* spec = api::FederatedLearningJob::kind().schema->find("spec");
  ASSERT_NE(spec, nullptr);
  const std::string crd = codec::write_json(api::crd(api::FederatedLearningJob::kind()));
  std::string names;
  for (const std::string& name : federated::Rule::names())
    names += (names.empty() ? "\"" : ",\"") + name + "\"";
  EXPECT_NE(crd.find("\"enum\":[" + names + "]"), std::string::npos) << names;
}

INSTANTIATE_TEST_SUITE_P(Case, FederatedGolden,
                         ::testing::ValuesIn(golden_cases("federatedlearning").names()),
                         [](const auto& test) { return test.param; });

}  // namespace federated_plan_test
}  // namespace varda::controllers::federatedlearning
