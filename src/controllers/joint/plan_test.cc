// Golden cases of testdata/joint: a service and the world around it. Expected are the plan, the
// work of every EdgeNode and the status.

#include "controllers/joint/plan.h"

#include <algorithm>
#include <gtest/gtest.h>

#include "codec/yaml.h"
#include "controllers/edgenode/plan.h"
#include "controllers/joint/child.h"
#include "controllers/testing/golden.h"

namespace varda::controllers::joint {
namespace joint_plan_test {

using codec::Json;
using testing::golden_cases;
using testing::GoldenCase;
using testing::typed;

struct Case {
  api::JointInferenceService service;
  JointWorld world;
  std::map<std::string, workers::EdgeNodePtr> agents;
  hosting::Options options;
};

std::unique_ptr<Case> load(const GoldenCase& golden) {
  auto test = std::make_unique<Case>();
  test->options.node_port_host = "127.0.0.1";
  test->service = *typed<api::JointInferenceService>(golden.given["service"]);
  JointWorld& world = test->world;
  for (const Json& object : testing::world_of(golden, "service")) {
    const std::string kind = object["kind"].as_string(),
                      name = object.at("metadata/name").as_string();
    if (kind == "Node") world.nodes.push_back(typed<api::Node>(object));
    if (kind == "EdgeNode") test->agents[name] = typed<api::EdgeNode>(object);
    if (kind == "Model") {
      const bool sedna = object["apiVersion"].as_string().starts_with("sedna.io/");
      world.models[name].push_back(sedna ? hosting::any_model(typed<api::SednaModel>(object))
                                         : hosting::any_model(typed<api::Model>(object)));
    }
    if (kind == "InferenceModel") {
      world.inference_models[name] = typed<api::InferenceModel>(object);
      if (is_child(*world.inference_models[name], test->service))
        world.children.push_back(world.inference_models[name]);
    }
    if (kind == "Pod") world.pods.push_back(typed<api::Pod>(object));
    if (kind == "Service") world.service = typed<api::Service>(object);
    if (kind == "Deployment") world.deployment = typed<api::Deployment>(object);
    if (kind == "EndpointSlice") world.slices.push_back(typed<api::EndpointSlice>(object));
    if (kind == "Claim") {
      world.claims.push_back({.node = object["node"].as_string(),
                              .port = object["port"].as_integer(),
                              .owner = object["owner"].as_string(),
                              .uid = object["uid"].as_string(),
                              .since = object["since"].as_string(),
                              .held = object["held"].as_bool()});
    }
    if (kind == "ModelKeys")
      world.keys = hosting::ModelKeys::parse(object["keys"].as_string()).value();
    if (kind == "Options") {
      if (object.contains("nodePortHost"))
        test->options.node_port_host = object["nodePortHost"].as_string();
      if (object.contains("autoscalersServed"))
        world.autoscalers_served = object["autoscalersServed"].as_bool();
      if (object.contains("edgeNetwork"))
        test->options.edge_network = object["edgeNetwork"].as_string();
    }
  }
  world.edge_node = [agents = &test->agents](const std::string& node) {
    const auto found = agents->find(node);
    return found == agents->end() ? nullptr : found->second;
  };
  return test;
}

Json to_json(const hosting::Problem& problem) {
  return Json::object({{"reason", problem.reason}, {"message", problem.message}});
}

Json to_json(const JointPlan& plan, const Case& test, const api::JointInferenceService& service) {
  Json out = Json::object();
  if (plan.problem) out.set("problem", to_json(*plan.problem));
  if (plan.first_problem) out.set("first", to_json(*plan.first_problem));
  for (std::size_t i = 0; i < plan.further.size(); ++i) {
    if (plan.further[i].problem)
      out["further"].set(plan.tiers[i + 1].name, to_json(*plan.further[i].problem));
  }
  if (plan.children == JointPlan::Children::kLeave) out.set("children", "leave");
  Json objects = Json::array();
  for (const Json& object : plan.objects) objects.push_back(object);
  out.set("objects", std::move(objects));
  for (const auto& [name, node] : test.agents) {
    const auto work = work_for(service, *node, test.world, test.options);
    if (!work) continue;
    api::EdgeNodeSpec spec;
    spec.models = work->models;
    spec.workers = work->workers;
    out["work"].set(name, spec.to_json());
  }
  return out;
}

const WallTime kNow = meta::parse_time("2026-05-01T12:00:00Z").value();

class JointGolden : public ::testing::TestWithParam<std::string> {};

TEST_P(JointGolden, PlanWorkAndStatusMatchGoldenFile) {
  const auto test = load(golden_cases("joint").at(GetParam()));
  const JointPlan wanted = plan(test->service, test->world, test->options);
  const JointObservation seen = observe(test->service, wanted, test->world, test->options, kNow);
  // The work of nodes depends on the addresses in the status.
  api::JointInferenceService after = test->service;
  after.status = seen.status;
  const JointPlan second = plan(after, test->world, test->options);
  Json found = to_json(second, *test, after);
  found.set("status", seen.status.to_json());
  golden_cases("joint").check(GetParam(), found);

  // Written objects must be valid, and a second look must find nothing new.
  const api::Property* schema = api::JointInferenceService::kind().schema->find("status");
  ASSERT_NE(schema, nullptr);
  for (const auto& cause : api::validate(schema->schema, seen.status.to_json(), "status"))
    ADD_FAILURE() << cause.field << ": " << cause.message;
  for (const Json& object : second.objects) {
    if (object["kind"].as_string() != "InferenceModel") continue;
    for (const auto& cause : api::validate(api::InferenceModel::kind(), object))
      ADD_FAILURE() << cause.field << ": " << cause.message;
  }
  const JointObservation again =
      observe(after, second, test->world, test->options, kNow + std::chrono::hours(24));
  EXPECT_EQ(again.status.to_json(), seen.status.to_json());
  EXPECT_FALSE(again.recheck_in);
  const JointPlan third = plan(after, test->world, test->options);
  EXPECT_EQ(third.objects, second.objects);
}

// The EdgeNode planner adds nothing to what the service asks for, and drops nothing.
TEST_P(JointGolden, WorkListContainsExactlyTheServiceWork) {
  const GoldenCase& golden = golden_cases("joint").at(GetParam());
  const auto test = load(golden);
  api::JointInferenceService after = test->service;
  const JointPlan wanted = plan(test->service, test->world, test->options);
  after.status = observe(test->service, wanted, test->world, test->options, kNow).status;
  for (const auto& [name, node] : test->agents) {
    edgenode::EdgeNodeWorld nodes;
    nodes.nodes = test->world.nodes;
    if (auto work = work_for(after, *node, test->world, test->options))
      nodes.jobs.push_back(std::move(*work));
    const Json& expected = golden.expect["work"][name];
    EXPECT_EQ(edgenode::plan_edge_node(*node, nodes).to_json(),
              expected.is_null() ? Json::object() : expected)
        << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Case, JointGolden, ::testing::ValuesIn(golden_cases("joint").names()),
                         [](const auto& test) { return test.param; });

// A service that serves, while its node's report changes and time passes.
class JointCounts : public ::testing::Test {
 protected:
  JointCounts() : test_(load(golden_cases("joint").at("two_models_serving"))) {
    take(at(std::chrono::seconds(0)));
  }
  static WallTime at(std::chrono::seconds after) { return kNow + after; }
  JointObservation look(WallTime now) {
    const JointPlan wanted = plan(test_->service, test_->world, test_->options);
    return observe(test_->service, wanted, test_->world, test_->options, now);
  }
  JointObservation take(WallTime now) {
    JointObservation seen = look(now);
    test_->service.status = seen.status;
    return seen;
  }
  void report(std::string_view change) {
    api::EdgeNode node = *test_->agents.at("edge0");
    Json& joint = node.status.models.front().joint;
    joint = meta::apply_merge_patch(joint, codec::parse_yaml(change).value());
    test_->agents["edge0"] = std::make_shared<const api::EdgeNode>(std::move(node));
  }
  std::string condition(std::string_view type) {
    const meta::Condition* found = meta::find_condition(test_->service.status.conditions, type);
    return found == nullptr ? "" : found->status + " " + found->reason;
  }
  std::unique_ptr<Case> test_;
};

TEST_F(JointCounts, CountsAloneAreWrittenTenSecondsAfterLastChange) {
  const std::int64_t before = test_->service.status.inference_number;
  report("{counters: {inferences: 1000}}");
  const JointObservation early = take(at(std::chrono::seconds(4)));
  EXPECT_EQ(early.status.inference_number, before);
  EXPECT_EQ(early.recheck_in, Duration(std::chrono::seconds(6)));
  const JointObservation late = take(at(std::chrono::seconds(10)));
  EXPECT_EQ(late.status.inference_number, 1000);
  EXPECT_FALSE(late.recheck_in);
  EXPECT_EQ(late.status.update_time, "2026-05-01T12:00:10Z");
}

TEST_F(JointCounts, TransitionIsWrittenAtOnceWithCounts) {
  report(
      "{counters: {inferences: 1000}, degraded: {reason: BreakerOpen, message: 'cloud: connection "
      "refused'}}");
  const JointObservation seen = take(at(std::chrono::seconds(1)));
  EXPECT_EQ(condition("Degraded"), "True BreakerOpen");
  EXPECT_EQ(seen.status.inference_number, 1000);
  EXPECT_EQ(condition("Ready"), "True Serving");
  report("{degraded: null}");
  take(at(std::chrono::seconds(2)));
  EXPECT_EQ(condition("Degraded"), "False AllTiersAsked");
}

TEST_F(JointCounts, HostileCountersLeaveValidStatus) {
  Json many = Json::object();
  for (int i = 0; i < 100; ++i) many.set("made-up-" + std::to_string(i), i + 1);
  Json hostile = Json::object(
      {{"epoch", std::string(100, 'e')},
       {"degraded", Json::object({{"reason", ""}, {"message", std::string(40'000, 'm')}})},
       {"problem", Json::object({{"reason", std::string(2'000, 'r')},
                                 {"message", std::string(40'000, 'm')}})}});
  Json& counters = hostile["counters"] = many;
  counters.set("inferences", 5);
  counters["errors"].set("cloud", many);
  counters["errors"].set("nowhere", many);
  api::EdgeNode node = *test_->agents.at("edge0");
  node.status.models.front().joint = hostile;
  test_->agents["edge0"] = std::make_shared<const api::EdgeNode>(std::move(node));
  const api::JointInferenceServiceStatus status = take(at(std::chrono::seconds(20))).status;
  for (const auto& cause : api::validate(
           api::JointInferenceService::kind().schema->find("status")->schema, status.to_json()))
    ADD_FAILURE() << cause.field << ": " << cause.message;
  EXPECT_EQ(condition("Degraded"), "True Degraded");
  EXPECT_EQ(condition("EdgeReady"), "False JointRefused");
  EXPECT_EQ(status.inference_number, 46);
  EXPECT_EQ(status.counters.back().counters.size(), 2u) << "inferences and errors";
  EXPECT_EQ(status.counters.back().counters["errors"].size(), 1u);
  EXPECT_EQ(look(at(std::chrono::hours(1))).status.to_json(), status.to_json());
}

TEST_F(JointCounts, ClockSetBackDoesNotDelayCounts) {
  report("{counters: {inferences: 1000}}");
  EXPECT_EQ(take(at(std::chrono::seconds(-3600))).status.inference_number, 1000);
}

TEST_F(JointCounts, CountsOfFormerServiceAreIgnored) {
  report("{uid: of-the-former-service, counters: {inferences: 1000}}");
  EXPECT_EQ(take(at(std::chrono::seconds(20))).status.inference_number, 41);
  report("{uid: service-uid, epoch: other, counters: {inferences: 5}}");
  EXPECT_EQ(take(at(std::chrono::seconds(40))).status.inference_number, 46);
}

TEST_F(JointCounts, CountsContinueInNewNodeEpoch) {
  report("{counters: {inferences: 1000}}");
  take(at(std::chrono::seconds(20)));
  report("{epoch: other, counters: {inferences: 5}}");
  EXPECT_EQ(take(at(std::chrono::seconds(40))).status.inference_number, 1005);
  report("{counters: {inferences: 7}}");
  EXPECT_EQ(take(at(std::chrono::seconds(60))).status.inference_number, 1007);
}

}  // namespace joint_plan_test
}  // namespace varda::controllers::joint
