// JointInferenceServices of users, in testdata/sedna. tests/conformance/validation has the refused
// ones.

#include "api/sedna/joint_inference_service.h"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>

#include "codec/yaml.h"

namespace varda::api {
namespace {

using std::chrono::milliseconds;
namespace fs = std::filesystem;

Json object_of(const std::string& name) {
  std::ifstream in(fs::path(VARDA_TESTDATA) / "sedna" / (name + ".yaml"));
  auto parsed = codec::parse_yaml(std::string((std::istreambuf_iterator<char>(in)), {}));
  EXPECT_TRUE(parsed.ok()) << name << ": " << (parsed.ok() ? "" : parsed.error().message());
  return parsed.ok() ? std::move(parsed).value() : Json::object();
}

JointInferenceService service_of(const std::string& name) {
  auto service = JointInferenceService::from_json(object_of(name));
  EXPECT_TRUE(service.ok()) << name << ": " << (service.ok() ? "" : service.error().message());
  return service.ok() ? std::move(service).value() : JointInferenceService{};
}

TEST(JointInferenceService, SampleServicesAreValid) {
  std::size_t files = 0;
  for (const auto& entry : fs::directory_iterator(fs::path(VARDA_TESTDATA) / "sedna")) {
    ++files;
    for (const auto& cause :
         validate(JointInferenceService::kind(), object_of(entry.path().stem())))
      ADD_FAILURE() << entry.path() << ": " << cause.field << ": " << cause.message;
  }
  EXPECT_EQ(files, 5u);
}

TEST(JointInferenceService, WorkerSpecUsesNodeNameOfTheWorker) {
  const JointInferenceService service = service_of("worker_spec");
  ASSERT_TRUE(service.spec.edge_worker && service.spec.cloud_worker);
  const JointEdgeWorker& edge = *service.spec.edge_worker;
  EXPECT_EQ(edge.model.name, "small-model");
  EXPECT_EQ(edge.model.kind, "");
  EXPECT_EQ(edge.node(), "edge0");
  EXPECT_FALSE(edge.replicas);
  EXPECT_FALSE(edge.selector);
  ASSERT_TRUE(edge.has_template());
  EXPECT_EQ(edge.pod_spec().at("containers/0/image"), Json("edge-inference-worker:latest"));
  EXPECT_EQ(edge.pod_spec().at("containers/0/resources/limits/memory"), Json("512Mi"));
  EXPECT_EQ(edge.pod_spec().at("volumes/0"),
            Json::object({{"name", "localvideo"}, {"emptyDir", Json::object()}}));
  EXPECT_TRUE(edge.pod_metadata().is_null());
  EXPECT_EQ(edge.declared_port(), 80);
  ASSERT_TRUE(edge.hard_example_mining);
  EXPECT_EQ(edge.hard_example_mining->name, "IBT");
  const std::vector<tiers::PolicyParameter> parameters{{"threshold_img", "0.9"},
                                                       {"threshold_box", "0.9"}};
  EXPECT_EQ(edge.hard_example_mining->policy_parameters(), parameters);
  EXPECT_EQ(codec::write_json(edge.hard_example_mining->parameters_to_json()),
            R"([{"key":"threshold_img","value":"0.9"},{"key":"threshold_box","value":"0.9"}])");
  const JointCloudWorker& cloud = *service.spec.cloud_worker;
  EXPECT_EQ(cloud.node(), "solar-corona-cloud");
  EXPECT_EQ(cloud.service_port(), 5000);
  EXPECT_EQ(cloud.service_type(), "NodePort");
  EXPECT_EQ(service.model_name(), "example");
  EXPECT_FALSE(service.spec.has_tiers());
}

TEST(JointInferenceService, TemplateUsesNodeNameOfThePod) {
  const JointInferenceService service = service_of("template");
  ASSERT_TRUE(service.spec.edge_worker && service.spec.cloud_worker);
  const JointEdgeWorker& edge = *service.spec.edge_worker;
  EXPECT_EQ(edge.node_name, "");
  EXPECT_EQ(edge.node(), "line7");
  EXPECT_EQ(edge.pod_metadata().at("labels/team"), Json("safety"));
  EXPECT_EQ(edge.pod_spec().at("containers/0/name"), Json("little-model"));
  EXPECT_EQ(edge.pod_spec().at("volumes/0/hostPath/type"), Json("Directory"));
  EXPECT_EQ(edge.declared_port(), 0);
  const JointCloudWorker& cloud = *service.spec.cloud_worker;
  EXPECT_EQ(cloud.node(), "gpu0");
  EXPECT_EQ(cloud.pod_spec()["dnsPolicy"], Json("ClusterFirstWithHostNet"));
  EXPECT_EQ(cloud.service_port(), 5100);
  JointCloudWorker with_port = cloud;
  with_port.port = 80;
  EXPECT_EQ(with_port.service_port(), 80);
}

TEST(JointInferenceService, WorkerWithoutPodHasNoTemplate) {
  const JointInferenceService service = service_of("models");
  ASSERT_TRUE(service.spec.edge_worker && service.spec.cloud_worker);
  const JointEdgeWorker& edge = *service.spec.edge_worker;
  EXPECT_FALSE(edge.has_template());
  EXPECT_TRUE(edge.pod_spec().is_null());
  EXPECT_EQ(edge.node(), "");
  EXPECT_EQ(service.spec.cloud_worker->model.kind, ModelReference::kInferenceModel);
  EXPECT_EQ(service.model_name(), "numerals");
  ASSERT_TRUE(edge.selector);
  const auto selector = edge.selector->compiled();
  ASSERT_TRUE(selector.ok()) << selector.error();
  EXPECT_TRUE(selector->matches({{"edgeai.io/layer", "edge"}, {"line", "7"}}));
  EXPECT_FALSE(selector->matches({{"edgeai.io/layer", "edge"}, {"line", "9"}}));
  EXPECT_FALSE(selector->matches({{"line", "7"}}));
}

TEST(JointInferenceService, TiersHaveNodesOrLayers) {
  const JointInferenceService service = service_of("tiers");
  ASSERT_TRUE(service.spec.has_tiers());
  ASSERT_EQ(service.spec.tiers.size(), 3u);
  EXPECT_EQ(service.spec.tiers[0].layer, JointTier::kDevice);
  EXPECT_EQ(service.spec.tiers[1].node_name, "edge0");
  EXPECT_EQ(service.spec.tiers[1].model.kind, ModelReference::kModel);
  ASSERT_TRUE(service.spec.tiers[0].policy);
  EXPECT_EQ(service.spec.tiers[0].policy->parameters.at(0).value, "0.3");
  EXPECT_FALSE(service.spec.tiers[2].policy);
}

TEST(JointInferenceService, WorkerSpecMayBeAPodTemplate) {
  const JointInferenceService service = service_of("worker_spec_template");
  ASSERT_TRUE(service.spec.edge_worker && service.spec.cloud_worker);
  const JointEdgeWorker& edge = *service.spec.edge_worker;
  ASSERT_TRUE(edge.has_template());
  EXPECT_EQ(edge.node(), "edge0");
  EXPECT_EQ(edge.pod_spec().at("containers/0/image"), Json("edge-inference-worker:latest"));
  EXPECT_EQ(edge.pod_metadata().at("labels/team"), Json("safety"));
  EXPECT_EQ(service.spec.cloud_worker->declared_port(), 80);
  struct Case {
    const char* worker_spec;
    const char* message;
  };
  for (const Case& c : {Case{"{}", "the containers of a PodSpec, or {metadata, spec}"},
                        Case{"{spec: {containers: [{image: a}]}, containers: [{image: a}]}",
                             "may not be set together with containers"},
                        Case{"{spec: {nodeName: edge7, containers: [{image: a}]}}",
                             "must be the nodeName of the worker"},
                        Case{"{spec: {}}", "Required value"}}) {
    Json object = object_of("worker_spec_template");
    object["spec"]["edgeWorker"].set("workerSpec", codec::parse_yaml(c.worker_spec).value());
    const auto causes = validate(JointInferenceService::kind(), object);
    ASSERT_EQ(causes.size(), 1u) << c.worker_spec;
    EXPECT_NE(causes.front().message.find(c.message), std::string::npos) << causes.front().message;
  }
}

TEST(JointInferenceService, TiersHaveSettingsForPodsOfOurServer) {
  const JointTier cloud = service_of("tiers").spec.tiers.at(2);
  EXPECT_EQ(cloud.resources.limits.values.at("nvidia.com/gpu"), "1");
  ASSERT_EQ(cloud.env.size(), 1u);
  EXPECT_EQ(cloud.env[0].value_from.at("secretKeyRef/name"), Json("vendor"));
  ASSERT_EQ(cloud.image_pull_secrets.size(), 1u);
  EXPECT_EQ(cloud.image_pull_secrets[0].name, "registry");
  ASSERT_EQ(cloud.tolerations.size(), 1u);
  EXPECT_EQ(cloud.tolerations[0].op, "Exists");
  EXPECT_EQ(cloud.priority_class_name, "serving");
}

TEST(JointInferenceService, PodSettingsNeedOurServerAndOtherVariablesThanOurs) {
  const Json settings =
      Json::object({{"resources", Json::object({{"limits", Json::object({{"cpu", 1}})}})},
                    {"env", Json::array({Json::object({{"name", "A"}, {"value", "b"}})})},
                    {"imagePullSecrets", Json::array({Json::object({{"name", "registry"}})})},
                    {"tolerations", Json::array({Json::object({{"operator", "Exists"}})})},
                    {"priorityClassName", "serving"}});
  const auto fields = [](const Json& object) {
    std::string out;
    for (const auto& cause : validate(JointInferenceService::kind(), object))
      out += cause.field + " " + cause.reason + "\n";
    return out;
  };
  for (const char* worker : {"edgeWorker", "cloudWorker"}) {
    for (const auto& [member, value] : settings.as_object()) {
      Json ours = object_of("models"), users = object_of("worker_spec");
      ours["spec"][worker].set(member, value);
      users["spec"][worker].set(member, value);
      EXPECT_EQ(fields(ours), "") << worker << "." << member;
      EXPECT_EQ(fields(users), "spec." + std::string(worker) + ".workerSpec FieldValueForbidden\n")
          << member;
    }
    Json reserved = object_of("models");
    reserved["spec"][worker].set("env",
                                 Json::array({Json::object({{"name", "POD_IP"}, {"value", "b"}})}));
    EXPECT_EQ(fields(reserved), "spec." + std::string(worker) + ".env[0].name FieldValueInvalid\n");
  }
  Json tiers = object_of("tiers");
  tiers["spec"]["tiers"].array_items()[2]["env"].array_items()[0].set("name", "POD_IP");
  EXPECT_EQ(fields(tiers), "spec.tiers[2].env[0].name FieldValueInvalid\n");
}

TEST(NodeSelection, EmptySelectorMatchesEveryNodeAndBrokenOneFails) {
  EXPECT_TRUE(NodeSelection{}.compiled().value().matches({}));
  NodeSelection broken;
  broken.match_expressions.push_back({.key = "a", .op = "Near", .values = {}, .unknown = {}});
  EXPECT_FALSE(broken.compiled().ok());
}

// Unknown members survive, such as members of later versions and undescribed members of a pod.
TEST(JointInferenceService, JsonRoundTripKeepsAllMembers) {
  for (const char* name : {"worker_spec", "worker_spec_template", "template", "models", "tiers"}) {
    Json object = object_of(name);
    Json& spec = object["spec"];
    spec.set("ofALaterVersion", Json::array({1}));
    for (const char* worker : {"edgeWorker", "cloudWorker"}) {
      if (!std::as_const(spec).contains(worker)) continue;
      spec[worker].set("replicas", 1);
      spec[worker].set("hpa", Json::object({{"maxReplicas", 5}}));
      spec[worker]["model"].set("revision", "main");
      for (Json* pod : {spec[worker].find("workerSpec"), spec[worker].find("template")}) {
        if (pod != nullptr) pod->set("shareProcessNamespace", true);
      }
    }
    if (Json* tiers = spec.find("tiers")) tiers->array_items()[0].set("weight", 2);
    object.set("status", codec::parse_yaml(R"(
      conditions: [{type: Ready, status: "True", reason: Serving, message: "", lastTransitionTime: "2026-01-31T12:00:00Z"}]
      url: http://203.0.113.7:31080/v2/models/digits
      endpoints: [{node: edge0, url: "http://203.0.113.7:31080", ready: true, version: "3", ofALaterVersion: 1}]
      active: 2
      failed: 0
      inferenceNumber: 41
      hardExampleNumber: 12
      uploadCloudRatio: "0.27"
      bytesSent: 40960
      tiers: [{name: edge, ready: true, answered: 30, called: 41, p50Ms: "0.08"}, {name: cloud, ready: false, answered: 11, called: 12, errors: {Timeout: 1}}]
      counters: [{node: edge0, epoch: 9f, counters: {inferences: 41, errors: {cloud: {Timeout: 1}}}}]
      ofALaterVersion: {deep: [true]}
    )")
                             .value());
    auto read = JointInferenceService::from_json(object);
    ASSERT_TRUE(read.ok()) << read.error();
    EXPECT_EQ(read->status.tiers.at(1).errors.at("Timeout"), 1);
    EXPECT_EQ(read->status.counters.at(0).counters.at("errors/cloud/Timeout"), Json(1));
    const Json written = read->to_json();
    const auto again = JointInferenceService::from_json(written);
    ASSERT_TRUE(again.ok());
    EXPECT_EQ(codec::write_json_pretty(again->to_json()), codec::write_json_pretty(written))
        << name;
    // The order of members may change, and empty members of a condition are dropped. Everything
    // else stays.
    const std::function<void(const Json&, const Json&, const std::string&)> holds =
        [&](const Json& all, const Json& part, const std::string& path) {
          if (part.is_object()) {
            for (const auto& [member, value] : part.as_object()) {
              if (value.is_string() && value.as_string().empty()) continue;
              holds(all[member], value, path + "." + member);
            }
          } else if (part.is_array() && part.size() == all.size()) {
            for (std::size_t i = 0; i < part.size(); ++i)
              holds(all.as_array()[i], part.as_array()[i], path + "[" + std::to_string(i) + "]");
          } else {
            EXPECT_EQ(all, part) << name << path;
          }
        };
    holds(written, object, "");
  }
}

TEST(Deadline, DeadlineIsAWholeNumberWithUnit) {
  for (const auto& [text, wanted] :
       std::map<std::string, milliseconds>{{"1ms", milliseconds{1}},
                                           {"300ms", milliseconds{300}},
                                           {"600000ms", milliseconds{600000}},
                                           {"2s", milliseconds{2000}},
                                           {"600s", milliseconds{600000}},
                                           {"10m", milliseconds{600000}}})
    EXPECT_EQ(parse_deadline(text), wanted) << text;
  for (const char* text : {"",        "0ms",       "0s",
                           "601s",    "11m",       "600001ms",
                           "999999s", "1000000ms", "99999999999999999999s",
                           "300",     "1h",        "1us",
                           "1m1s",    "1.5s",      "-1s",
                           "+1s",     "01s",       "1 s",
                           " 1s",     "1S",        "soon",
                           "ms"})
    EXPECT_EQ(parse_deadline(text), std::nullopt) << text;
}

TEST(Deadline, RequestDeadlineIsTwoSecondsOrLongestTierDeadline) {
  JointInferenceServiceSpec spec;
  EXPECT_EQ(spec.total_deadline(), milliseconds{2000});
  spec.cloud_worker.emplace().deadline = "1s";
  EXPECT_EQ(spec.total_deadline(), milliseconds{2000});
  spec.cloud_worker->deadline = "3s";
  EXPECT_EQ(spec.total_deadline(), milliseconds{3000});
  spec.deadline = "5s";
  EXPECT_EQ(spec.total_deadline(), milliseconds{5000});
  EXPECT_EQ(service_of("tiers").spec.total_deadline(), milliseconds{4000});
  EXPECT_EQ(service_of("models").spec.total_deadline(), milliseconds{3000});
}

// The schema rules accept exactly the parameters from which a policy can be made.
TEST(HardExampleMining, ValidationAcceptsExactlyTheUsablePolicies) {
  const std::vector<std::string> values{
      "0",    "1",    "0.5",     ".5",     "1.",  "1e-3",     "1e1",      "-0.1",   "+0.5",
      "1.5",  "NaN",  "Inf",     "abc",    "",    " ",        "0,5",      "1e999",  "1e-9",
      "a, b", "a,,b", "[\"a\"]", "[\"a\"", "[]",  "[1]",      "猫,a",     "[\"\"]", ",",
      "a,",   "[a]",  "a[0]",    "0x1",    "1_0", "[\"a\",]", "[\" b\"]", "\" \"",  "\t\n"};
  std::vector<std::string> names{"MyOwn", "ibt", ""}, keys{"unknown"};
  for (const tiers::PolicyRow& row : tiers::policy_table()) {
    names.emplace_back(row.name);
    for (const std::string_view alias : row.aliases) names.emplace_back(alias);
    for (const tiers::ParameterRow& parameter : row.parameters) keys.emplace_back(parameter.key);
  }
  Json object = object_of("models");
  std::size_t taken = 0, refused = 0;
  const auto check = [&](const std::string& name,
                         const std::vector<tiers::PolicyParameter>& parameters) {
    Json list = Json::array();
    for (const auto& [key, value] : parameters)
      list.push_back(Json::object({{"key", key}, {"value", value}}));
    object["spec"]["edgeWorker"].set("hardExampleMining",
                                     Json::object({{"name", name}, {"parameters", list}}));
    const bool valid = validate(JointInferenceService::kind(), object).empty();
    EXPECT_EQ(valid, tiers::check_policy(name, parameters).empty())
        << codec::write_json(std::as_const(object).at("spec/edgeWorker/hardExampleMining"));
    ++(valid ? taken : refused);
  };
  for (const std::string& name : names) {
    check(name, {});
    for (const std::string& key : keys) {
      for (const std::string& value : values) check(name, {{key, value}});
      check(name, {{key, "0.5"}, {"labels", "a"}});
      check(name, {{key, "0.5"}, {key, "0.5"}});
    }
  }
  EXPECT_GT(taken, 100u);
  EXPECT_GT(refused, 100u);
}

}  // namespace
}  // namespace varda::api
