// Golden cases of testdata/inferencemodel: a model and the world around it. Expected are the plan,
// the work list of every EdgeNode and the status.

#include "controllers/inferencemodel/plan.h"

#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "codec/yaml.h"
#include "controllers/edgenode/plan.h"
#include "controllers/testing/golden.h"
#include "hosting/chosen_model.h"

namespace varda::controllers::inferencemodel {
namespace inferencemodel_plan_test {

using testing::golden_cases;
using testing::GoldenCase;
using testing::typed;

struct Case {
  api::InferenceModel model;
  World world;
  edgenode::EdgeNodeWorld nodes;
  std::vector<std::shared_ptr<const api::EdgeNode>> edge_nodes;
  hosting::Options options;
};

Case load(const GoldenCase& golden) {
  Case test;
  test.model = *typed<api::InferenceModel>(golden.given["model"]);
  for (const Json& object : testing::world_of(golden, "model")) {
    const std::string kind = object["kind"].as_string();
    if (kind == "Node") test.world.nodes.push_back(typed<api::Node>(object));
    if (kind == "EdgeNode") test.edge_nodes.push_back(typed<api::EdgeNode>(object));
    if (kind == "InferenceModel") test.world.models.push_back(typed<api::InferenceModel>(object));
    if (kind == "Model") {
      const bool sedna = object["apiVersion"].as_string().starts_with("sedna.io/");
      test.world.referred.push_back(sedna ? hosting::any_model(typed<api::SednaModel>(object))
                                          : hosting::any_model(typed<api::Model>(object)));
    }
    if (kind == "Pod") test.world.pods.push_back(typed<api::Pod>(object));
    if (kind == "Service") test.world.service = typed<api::Service>(object);
    if (kind == "Deployment") test.world.deployment = typed<api::Deployment>(object);
    if (kind == "EndpointSlice") test.world.slices.push_back(typed<api::EndpointSlice>(object));
    if (kind == "PortClaim") {
      test.world.claims.push_back({object["node"].as_string(), object["port"].as_integer(), "TCP",
                                   object["owner"].as_string(), object["uid"].as_string(),
                                   object["since"].as_string()});
    }
    if (kind == "CertificateProblem")
      test.world.certificate =
          hosting::Problem{object["reason"].as_string(), object["message"].as_string()};
    if (kind == "ModelKeys")
      test.world.keys = test.nodes.keys =
          hosting::ModelKeys::parse(object["keys"].as_string()).value();
    if (kind == "Options") {
      test.options.node_port_host = object["nodePortHost"].as_string();
      for (const Json& argument : object["fetchArguments"].as_array())
        test.options.fetch_arguments.push_back(argument.as_string());
      test.options.servers = hosting::servers_from_json(object["servers"]).value();
      if (object.contains("edgeNetwork"))
        test.options.edge_network = object["edgeNetwork"].as_string();
    }
  }
  const std::string node =
      test.model.spec.on_edge() ? hosting::place(test.model, test.world.nodes).node : "";
  for (const auto& edge_node : test.edge_nodes) {
    if (edge_node->metadata.name == node) test.world.edge_node = edge_node;
  }
  test.nodes.nodes = test.world.nodes;
  test.nodes.models = test.world.models;
  test.nodes.models.push_back(std::make_shared<const api::InferenceModel>(test.model));
  test.nodes.pods = test.world.pods;
  return test;
}

Json to_json(const Plan& plan, const Case& test) {
  Json out = Json::object();
  if (plan.problem)
    out.set("problem",
            Json::object({{"reason", plan.problem->reason}, {"message", plan.problem->message}}));
  out.set("children", plan.children == Plan::Children::kConverge ? "converge" : "leave");
  Json objects = Json::array();
  for (const Json& object : plan.objects) objects.push_back(object);
  out.set("objects", std::move(objects));
  edgenode::EdgeNodeWorld nodes = test.nodes;
  nodes.servers = &test.options.servers;
  for (const auto& node : test.edge_nodes)
    out["work"].set(node->metadata.name, edgenode::plan_edge_node(*node, nodes).to_json());
  return out;
}

constexpr const char* kNow = "2024-05-01T12:00:00Z";

class InferenceModelGolden : public ::testing::TestWithParam<std::string> {};

TEST_P(InferenceModelGolden, PlanWorkAndStatusMatchGoldenFile) {
  const Case test = load(golden_cases("inferencemodel").at(GetParam()));
  const Plan wanted = plan(test.model, test.world, test.options);
  const api::InferenceModelStatus status =
      observe(test.model, wanted, test.world, test.options, kNow);
  Json found = to_json(wanted, test);
  found.set("status", status.to_json());
  golden_cases("inferencemodel").check(GetParam(), found);

  // Written objects must be valid, and a second look must find nothing new.
  api::InferenceModel after = test.model;
  after.status = status;
  const api::Property* schema = api::InferenceModel::kind().schema->find("status");
  ASSERT_NE(schema, nullptr);
  for (const auto& cause : api::validate(schema->schema, status.to_json(), "status")) {
    ADD_FAILURE() << cause.field << ": " << cause.message;
  }
  World again = test.world;
  const Plan second = plan(after, again, test.options);
  EXPECT_EQ(observe(after, second, again, test.options, "2030-01-01T00:00:00Z").to_json(),
            status.to_json());
  EXPECT_EQ(second.objects, wanted.objects);
}

// The EdgeNode planner adds nothing to what the models ask for, and drops nothing.
TEST_P(InferenceModelGolden, WorkListContainsExactlyTheModelWork) {
  const GoldenCase& golden = golden_cases("inferencemodel").at(GetParam());
  const Case test = load(golden);
  for (const auto& node : test.edge_nodes) {
    api::EdgeNodeSpec assigned;
    for (const auto& model : test.nodes.models) {
      if (!model->spec.on_edge() ||
          hosting::place(*model, test.world.nodes).node != node->metadata.name)
        continue;
      const api::Pod* pod = edge_pod(*model, test.world.pods);
      const auto server = test.options.servers.find(served_framework(*model, node.get(), pod));
      if (auto work = work_for(*model, *node, pod,
                               server == test.options.servers.end() ? nullptr : &server->second,
                               test.world.keys.get()))
        assigned.models.push_back(std::move(*work));
    }
    std::sort(assigned.models.begin(), assigned.models.end(),
              [](const auto& a, const auto& b) { return a.key < b.key; });
    EXPECT_EQ(golden.expect["work"][node->metadata.name], assigned.to_json());
  }
}

INSTANTIATE_TEST_SUITE_P(Case, InferenceModelGolden,
                         ::testing::ValuesIn(golden_cases("inferencemodel").names()),
                         [](const auto& test) { return test.param; });

TEST(CertificateHosts, HostsMatchAddressesAndServiceNames) {
  using ::testing::UnorderedElementsAre;
  const auto hosts_of = [](const char* name) {
    const Case test = load(golden_cases("inferencemodel").at(name));
    std::vector<std::string> hosts = certificate_hosts(test.model, test.world, test.options);
    std::erase(hosts, "");
    return hosts;
  };
  EXPECT_THAT(hosts_of("edge_closed_port"),
              UnorderedElementsAre("localhost", "127.0.0.1", "edge0", "127.9.1.1"));
  EXPECT_THAT(
      hosts_of("cloud_closed_port"),
      UnorderedElementsAre("localhost", "127.0.0.1", "digits", "digits.default",
                           "digits.default.svc", "digits.default.svc.cluster.local", "127.0.0.1"));
  EXPECT_THAT(hosts_of("cloud_load_balancer_with_a_name"), ::testing::Contains("lb.example"));
}

TEST(ServerTable, OperatorEntryReplacesBuiltInEntry) {
  auto table = hosting::servers_from_json(
      codec::parse_yaml("{tensorflow: {image: tf, args: [a], readyPath: /x}, onnx: {image: other}}")
          .value());
  ASSERT_TRUE(table.ok()) << table.error().message();
  EXPECT_EQ(table->at("tensorflow").image, "tf");
  EXPECT_EQ(table->at("onnx").image, "other");
  EXPECT_EQ(table->at("tensorflow").layout, "target");  // the built-in entry is replaced as a whole
  EXPECT_TRUE(table->at("tensorflow").security_context.is_null());
  EXPECT_TRUE(table->at("onnx").args.empty());
}

TEST(ServerTable, ErrorsNameTheEntryAndTheField) {
  const auto message = [](const char* text) {
    return hosting::servers_from_json(codec::parse_yaml(text).value()).error().message();
  };
  EXPECT_EQ(message("{abacus: {image: x}}"),
            "servers.abacus: is not a valid frameworkType of an InferenceModel");
  EXPECT_EQ(message("{onnx: {args: []}}"), "servers.onnx.image: is required");
  EXPECT_EQ(message("{onnx: {image: x, args: [1]}}"),
            "servers.onnx.args: must be a list of strings");
  EXPECT_EQ(message("{onnx: {image: x, color: red}}"),
            "servers.onnx.color: is unknown: must be image, command, args, env, mountPath, "
            "readyPath, layout, extraFiles, status, "
            "closable or securityContext");
  EXPECT_EQ(message("{onnx: {image: x, layout: heap}}"),
            "servers.onnx.layout: must be target or numbered");
  EXPECT_EQ(
      message("{onnx: {image: x, layout: numbered, extraFiles: [a/b]}}"),
      "servers.onnx.extraFiles: must be file names that have no / and do not begin with a dot");
  EXPECT_EQ(message("{onnx: {image: x, extraFiles: [a]}}"),
            "servers.onnx.extraFiles: may be set only with layout: numbered");
  EXPECT_EQ(message("{onnx: {image: x, securityContext: 1000}}"),
            "servers.onnx.securityContext: must be an object");
  EXPECT_EQ(message("{onnx: {image: x, status: {path: v1}}}"),
            "servers.onnx.status.path: must begin with /");
  EXPECT_EQ(message("{onnx: {image: x, status: {path: /v1, version: v}}}"),
            "servers.onnx.status.version: must begin with /");
  EXPECT_EQ(message("{onnx: {image: x, status: {path: /v1, state: /s}}}"),
            "servers.onnx.status.ready: is required if state is set");
  EXPECT_EQ(message("{onnx: {image: x, status: {path: /v1, method: PUT}}}"),
            "servers.onnx.status.method: must be GET or POST");
  EXPECT_EQ(message("{onnx: {image: x, status: {colour: red}}}"),
            "servers.onnx.status.colour: is unknown: must be path, method, list, name, version, "
            "state, ready, loading, code, "
            "message or ignoredMessages");
  EXPECT_EQ(message("{onnx: {image: x, mountPath: models}}"),
            "servers.onnx.mountPath: must be an absolute path");
  EXPECT_EQ(message("[1]"), "servers: must be an object");
}

// An EdgeNode has limits. A refused EdgeNode blocks changes of all models on its node.
TEST(ServerTable, EntryBeyondEdgeNodeLimitsIsRefused) {
  const auto text_of = [](std::size_t length) { return std::string(length, 'w'); };
  const auto pointer = [](std::size_t length) { return "/" + std::string(length - 1, 'p'); };
  const auto list = [](std::size_t items) {
    Json::Array out;
    for (std::size_t i = 0; i < items; ++i) out.emplace_back("w" + std::to_string(i));
    return Json(std::move(out));
  };
  struct Limit {
    std::string field;  // of the error
    Json just, beyond;
  };
  std::vector<Limit> limits = {
      {"status.path", pointer(1024), pointer(1025)},
      // With the longest name of 63 characters, 961 become 1024, and 962
      // are too many.
      {"status.path", pointer(961) + "{modelName}", pointer(962) + "{modelName}"},
      {"status.ready", list(16), list(17)},
      {"status.loading", list(16), list(17)},
      {"status.ignoredMessages", list(16), list(17)},
      {"status.ready[0]", Json::array({text_of(63)}), Json::array({text_of(64)})},
      {"status.ready[0]", Json::array({text_of(1)}), Json::array({""})},
      {"status.loading[0]", Json::array({text_of(63)}), Json::array({text_of(64)})},
      {"status.ignoredMessages[0]", Json::array({text_of(253)}), Json::array({text_of(254)})},
      {"extraFiles", list(16), list(17)},
      {"extraFiles[0]", Json::array({text_of(253)}), Json::array({text_of(254)})}};
  for (const char* member : {"list", "name", "version", "state", "code", "message"})
    limits.push_back({std::string("status.") + member, pointer(253), pointer(254)});
  for (const Limit& limit : limits) {
    const auto read = [&](const Json& value) {
      Json entry = Json::object({{"image", "x"},
                                 {"layout", "numbered"},
                                 {"status", Json::object({{"ready", Json::array({"UP"})}})}});
      std::string path = limit.field.substr(0, limit.field.find('['));
      std::replace(path.begin(), path.end(), '.', '/');
      entry.make(path) = value;
      return hosting::servers_from_json(Json::object({{"triton", entry}}));
    };
    const auto just = read(limit.just), beyond = read(limit.beyond);
    EXPECT_TRUE(just.ok()) << limit.field << ": " << just.error().message();
    ASSERT_FALSE(beyond.ok()) << limit.field;
    EXPECT_TRUE(beyond.error().message().starts_with("servers.triton." + limit.field + ": "))
        << beyond.error().message();
  }
}

}  // namespace inferencemodel_plan_test
}  // namespace varda::controllers::inferencemodel
