// Golden cases of testdata/incrementallearning: a job and the world around it. Expected are the
// plan, the work of every EdgeNode, the status, and the Model with the serving version.
//
//   Looks: {number}: looks of the operator at the world without pods, before the one that counts
//   LivePod: {status}: the pod of the stage that the last look made
//   LiveChild: {status}: the InferenceModel that the last look made

#include "controllers/incrementallearning/plan.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <map>

#include "controllers/edgenode/plan.h"
#include "controllers/incrementallearning/servers.h"
#include "controllers/testing/golden.h"
#include "runtime/last_applied.h"

namespace varda::controllers::incrementallearning {
namespace incremental_plan_test {

using testing::golden_cases;
using testing::GoldenCase;
using testing::typed;

const WallTime kNow = meta::parse_time("2026-05-01T12:00:00Z").value();

struct Case {
  api::IncrementalLearningJob job;
  IncrementalWorld world;
  std::map<std::string, workers::EdgeNodePtr> agents;
  hosting::Options options;
};

/// The object on the API server after the writer has sent it.
Json live(const Json& wanted, const Json& owner, const Json& status) {
  Json out = wanted;
  Json& metadata = out.make("metadata");
  metadata.set("namespace", "default");
  metadata.set("uid", "uid-of-" + wanted.at("metadata/name").as_string());
  metadata.set("creationTimestamp", "2026-05-01T10:00:00Z");
  metadata.set("ownerReferences", Json::array({Json::object({{"apiVersion", owner["apiVersion"]},
                                                             {"kind", owner["kind"]},
                                                             {"name", owner["metadata"]["name"]},
                                                             {"uid", owner["metadata"]["uid"]},
                                                             {"controller", true}})}));
  out.make("metadata/annotations").set(runtime::kLastApplied, codec::write_json(wanted));
  out.set("status", status);
  return out;
}

void look(Case& test) {
  const IncrementalPlan made = plan(test.job, test.world, test.options);
  test.job.status = observe(test.job, made, test.world, test.options, kNow).status;
}

std::unique_ptr<Case> load(const GoldenCase& golden) {
  auto test = std::make_unique<Case>();
  test->options.registry_url = "http://registry:8092";
  const Json& job = golden.given["job"];
  test->job = *typed<api::IncrementalLearningJob>(job);
  IncrementalWorld& world = test->world;
  std::int64_t looks = 1;
  Json live_pod, live_child;
  for (const Json& object : testing::world_of(golden, "job")) {
    const std::string kind = object["kind"].as_string(),
                      name = object.at("metadata/name").as_string();
    const bool sedna = object["apiVersion"].as_string().starts_with("sedna.io/");
    if (kind == "Node") world.nodes.push_back(typed<api::Node>(object));
    if (kind == "EdgeNode") test->agents[name] = typed<api::EdgeNode>(object);
    if (kind == "Model") {
      const hosting::AnyModel model = sedna ? hosting::any_model(typed<api::SednaModel>(object))
                                            : hosting::any_model(typed<api::Model>(object));
      if (name == test->job.spec.initial_model.name) world.initial.models.push_back(model);
      if (const auto& baseline = test->job.spec.eval_spec.initial_eval_model;
          baseline && name == baseline->name)
        world.baseline.models.push_back(model);
      if (name == test->job.spec.deploy_spec.model.name) world.outputs.push_back(model);
    }
    if (kind == "Dataset" && sedna) world.datasets[name].sedna = typed<api::SednaDataset>(object);
    if (kind == "Dataset" && !sedna) world.datasets[name].edgeai = typed<api::Dataset>(object);
    if (kind == "Looks") looks = object["number"].as_integer();
    if (kind == "LivePod") live_pod = object;
    if (kind == "LiveChild") live_child = object;
    if (kind == "Options") test->options.registry_url = object["registry"].as_string();
  }
  world.edge_node = [agents = &test->agents](const std::string& node) {
    const auto found = agents->find(node);
    return found == agents->end() ? nullptr : found->second;
  };
  // Workers report nothing before the look that counts.
  std::map<std::string, workers::EdgeNodePtr> quiet;
  for (const auto& [name, agent] : test->agents) {
    auto copy = std::make_shared<api::EdgeNode>(*agent);
    copy->status.workers.clear();
    quiet[name] = std::move(copy);
  }
  quiet.swap(test->agents);
  for (std::int64_t i = 0; i < looks; ++i) look(*test);
  const IncrementalPlan made = plan(test->job, world, test->options);
  quiet.swap(test->agents);
  for (const Json& object : made.objects) {
    const bool is_pod = object["kind"].as_string() == "Pod";
    const Json& state = is_pod ? live_pod : live_child;
    if (state.is_null()) continue;
    Json now = live(object, job, state["status"]);
    if (!is_pod) {
      world.children.push_back(typed<api::InferenceModel>(now));
      continue;
    }
    now.make("spec").set("nodeName", "edge0");
    world.pods.push_back(typed<api::Pod>(now));
  }
  EXPECT_TRUE(live_pod.is_null() || !world.pods.empty()) << "no pod was made";
  return test;
}

Json problem_of(const std::optional<hosting::Problem>& problem) {
  if (!problem) return {};
  return Json::object({{"reason", problem->reason}, {"message", problem->message}});
}

Json to_json(const IncrementalPlan& plan, const Case& test,
             const api::IncrementalLearningJob& job) {
  Json out = Json::object();
  const auto add = [&](const char* name, const std::optional<hosting::Problem>& problem) {
    if (problem) out.set(name, problem_of(problem));
  };
  add("problem", plan.problem);
  add("blocked", plan.blocked);
  add("waiting", plan.waiting);
  Json objects = Json::array();
  for (const Json& object : plan.objects) objects.push_back(object);
  out.set("objects", std::move(objects));
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

class IncrementalGolden : public ::testing::TestWithParam<std::string> {};

TEST_P(IncrementalGolden, PlanWorkAndStatusMatchGoldenFile) {
  const auto test = load(golden_cases("incrementallearning").at(GetParam()));
  const IncrementalPlan first = plan(test->job, test->world, test->options);
  const IncrementalObservation seen = observe(test->job, first, test->world, test->options, kNow);
  api::IncrementalLearningJob after = test->job;
  after.status = seen.status;
  const IncrementalPlan second = plan(after, test->world, test->options);
  Json found = to_json(second, *test, after);
  Json status = seen.status.to_json();
  status.erase("machine");  // room incremental has its own golden tables
  found.set("status", std::move(status));
  if (seen.output) found.set("output", seen.output->object);
  golden_cases("incrementallearning").check(GetParam(), found);

  // Written objects must be valid.
  const api::Property* schema = api::IncrementalLearningJob::kind().schema->find("status");
  ASSERT_NE(schema, nullptr);
  for (const auto& cause : api::validate(schema->schema, seen.status.to_json(), "status"))
    ADD_FAILURE() << cause.field << ": " << cause.message;
  for (const Json& object : second.objects) {
    if (object["kind"].as_string() != "InferenceModel") continue;
    for (const auto& cause : api::validate(api::InferenceModel::kind(), object))
      ADD_FAILURE() << cause.field << ": " << cause.message;
  }
  if (!seen.output) return;
  for (const auto& cause : api::validate(api::Model::kind(), seen.output->object))
    ADD_FAILURE() << cause.field << ": " << cause.message;
}

// The EdgeNode planner adds nothing to what the job asks for, and drops nothing.
TEST_P(IncrementalGolden, WorkListContainsExactlyTheJobsWork) {
  const GoldenCase& golden = golden_cases("incrementallearning").at(GetParam());
  const auto test = load(golden);
  api::IncrementalLearningJob after = test->job;
  const IncrementalPlan wanted = plan(test->job, test->world, test->options);
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

TEST(IncrementalServers, NodeThatDoesNotExistIsNotConnected) {
  IncrementalWorld world;
  world.edge_node = [](const std::string&) { return workers::EdgeNodePtr(); };
  IncrementalPlan plan;
  plan.servers.emplace_back().node = "edge9";
  const api::IncrementalLearningJob job;
  EXPECT_FALSE(look_at_servers(job, plan, world).at(0).report.connected);
  auto node = std::make_shared<api::Node>();
  node->metadata.name = "edge9";
  world.nodes.push_back(std::move(node));
  EXPECT_TRUE(look_at_servers(job, plan, world).at(0).report.connected);
}

class IncrementalLabelWay : public ::testing::Test {
 protected:
  IncrementalLabelWay() {
    job_.spec.dataset.name = "fresh";
    dataset_.metadata.name = "fresh";
    dataset_.spec.format = "imagefolder";
    dataset_.spec.url = "/data/fresh";
    dataset_.spec.node_name = "edge0";
  }
  void ask(const std::string& model) {
    job_.spec.deploy_spec.pseudo_labels =
        Json::object({{"model", Json::object({{"name", model}})}});
  }
  LabelWay way() const {
    return label_way(job_, {std::make_shared<const api::Dataset>(dataset_), nullptr},
                     [this](const std::string& name) {
                       return name == "big" ? std::make_shared<const api::InferenceModel>(big_)
                                            : nullptr;
                     });
  }
  std::string reason() const { return way().problem.value_or(hosting::Problem{}).reason; }

  api::IncrementalLearningJob job_;
  api::Dataset dataset_;
  api::InferenceModel big_;
};

TEST_F(IncrementalLabelWay, DatasetIsAFolderOfItsNode) {
  EXPECT_EQ(way().node, "edge0");
  EXPECT_EQ(way().folder, "/data/fresh");
  EXPECT_FALSE(way().problem);
  dataset_.spec.url = "file:///data/fresh";
  EXPECT_EQ(way().folder, "/data/fresh");
}

TEST_F(IncrementalLabelWay, DatasetThatTakesNoFilesIsAProblem) {
  dataset_.spec.format = "csv";
  EXPECT_EQ(way().folder, "");
  EXPECT_EQ(reason(), "DatasetUnusable");
  dataset_.spec.format = "imagefolder";
  dataset_.spec.url = "s3://bucket/fresh";
  EXPECT_EQ(reason(), "DatasetUnusable");
  job_.spec.dataset.group = "sedna.io";
  EXPECT_EQ(reason(), "DatasetNotFound");
}

TEST_F(IncrementalLabelWay, BiggerModelNeedsAServer) {
  ask("absent");
  EXPECT_EQ(reason(), "ModelNotFound");
  ask("big");
  EXPECT_EQ(reason(), "ModelPending");
  big_.spec.model_name = "digits-big";
  big_.status.url = "http://127.0.0.1:8080";
  EXPECT_EQ(reason(), "");
  EXPECT_EQ(way().url, "http://127.0.0.1:8080");
  EXPECT_EQ(way().model, "digits-big");
}

INSTANTIATE_TEST_SUITE_P(Case, IncrementalGolden,
                         ::testing::ValuesIn(golden_cases("incrementallearning").names()),
                         [](const auto& test) { return test.param; });

}  // namespace incremental_plan_test
}  // namespace varda::controllers::incrementallearning
