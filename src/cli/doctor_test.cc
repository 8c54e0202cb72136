// Findings of doctor. The golden cases of testdata/doctor hold examined facts and findings.
#include "cli/doctor.h"

#include <algorithm>
#include <gtest/gtest.h>

#include "apiserver/testing/in_memory.h"
#include "codec/testing/golden_cases.h"
#include "codec/yaml.h"
#include "meta/object.h"
#include "os/testing/memory_file_system.h"

namespace varda::cli {
namespace doctor_test {

// An example kind that the program expects.
const char* const kCrd =
    R"({apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: things.example.com},
  spec: {group: example.com, scope: Namespaced, names: {kind: Thing, listKind: ThingList, plural: things, singular: thing},
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object,
  properties: {size: {type: integer, maximum: 1152921504606846976}}, x-kubernetes-validations: [{rule: self.size < 9}]}}}}}]}})";

Json yaml(std::string_view text) {
  auto parsed = codec::parse_yaml(text);
  EXPECT_TRUE(parsed.ok()) << text << (parsed.ok() ? "" : parsed.error().message());
  return parsed.ok() ? std::move(parsed).value() : Json();
}

DoctorOptions options() {
  DoctorOptions out;
  out.version = "1.0.0";
  out.crds = {yaml(kCrd)};
  out.now = meta::parse_time("2026-01-01T00:01:00Z").value();
  return out;
}

// {object: …} or {error: …} of a file; absent: the object does not exist.
Seen seen(const Json& json) {
  Seen out;
  if (json.contains("object")) out.object = json["object"];
  out.error = json["error"].as_string();
  return out;
}
SeenList seen_list(const Json& json) {
  if (json.contains("error")) return {{}, json["error"].as_string()};
  SeenList out;
  for (const Json& item : json.as_array()) out.items.push_back(item);
  return out;
}

Examined examined(const Json& json) {
  Examined out;
  out.now = options().now;
  out.version = seen(json["version"]);
  out.refused = json["refused"].as_string();
  out.unready = json["unready"].as_string();
  Json crd = yaml(kCrd);
  crd.set("status", yaml("{conditions: [{type: Established, status: 'True'}]}"));
  out.crds = {json.contains("crd") ? seen(json["crd"]) : Seen{crd, ""}};
  for (const Json& one : json["permissions"].as_array()) {
    out.permissions.push_back(
        {one["verb"].as_string(), one["group"].as_string(), one["resource"].as_string(),
         one.contains("allowed") ? std::optional<bool>(one["allowed"].as_bool()) : std::nullopt});
  }
  if (json.contains("operatorNamespace"))
    out.operator_namespace = json["operatorNamespace"].as_string();
  out.lease = seen(json["lease"]);
  out.operator_deployment = seen(json["operator"]);
  out.gateway_deployment = seen(json["gateway"]);
  out.gateway_service = seen(json["service"]);
  out.gateway_config = seen(json["config"]);
  out.nodes = seen_list(json["nodes"]);
  out.edge_nodes = seen_list(json["edgeNodes"]);
  out.models = seen_list(json["models"]);
  out.joint_services = seen_list(json["jointServices"]);
  out.gateway_url = json["gatewayUrl"].as_string();
  if (json.contains("gatewayTrouble")) out.gateway_trouble = json["gatewayTrouble"].as_string();
  return out;
}

Json print(const std::vector<Finding>& findings) {
  Json out = Json::array();
  for (const Finding& one : findings) {
    out.push_back(std::string(one.level == Finding::Level::kGood      ? "ok"
                              : one.level == Finding::Level::kNote    ? "note"
                              : one.level == Finding::Level::kUnknown ? "unknown"
                                                                      : "BAD") +
                  " | " + one.where + " | " + one.what + " | " + one.advice);
  }
  return out;
}

codec::testing::GoldenCases& doctor_cases() {
  static codec::testing::GoldenCases cases(VARDA_TESTDATA "/doctor");
  return cases;
}

class Diagnosis : public ::testing::TestWithParam<std::string> {};

TEST_P(Diagnosis, FindingsMatchTheGoldenCase) {
  const auto found = diagnose(examined(doctor_cases().at(GetParam()).given), options());
  doctor_cases().check(GetParam(), Json::object({{"findings", print(found)}}));
}

TEST_P(Diagnosis, EveryBadFindingHasAdvice) {
  for (const Finding& one : diagnose(examined(doctor_cases().at(GetParam()).given), options())) {
    EXPECT_FALSE(one.where.empty() || one.what.empty());
    EXPECT_EQ(one.advice.empty(), one.level == Finding::Level::kGood) << one.where << one.what;
  }
}

INSTANTIATE_TEST_SUITE_P(Case, Diagnosis, ::testing::ValuesIn(doctor_cases().names()),
                         [](const auto& test) { return test.param; });

class DoctorTest : public ::testing::Test {
 protected:
  apiserver::InMemoryApiServer api_;
  kube::Client client_{api_.transport(), {}};
  os::testing::MemoryFileSystem files_;
  std::string out_;
  Session session_{client_, files_, [this](std::string_view text) { out_ += text; },
                   [](std::string_view) {}, []() -> Result<std::string> { return std::string(); }};
  Context ctx_ = Context().with_timeout(std::chrono::seconds(60));
};

TEST_F(DoctorTest, MissingCrdIsReported) {
  const Status status = doctor(ctx_, session_, options());
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code(), Code::kUnavailable);
  EXPECT_NE(out_.find("BAD   CRD things.example.com is not installed\n      -> "),
            std::string::npos)
      << out_;
  EXPECT_NE(out_.find("ok    permissions you may create"), std::string::npos) << out_;
}

TEST_F(DoctorTest, InstalledCrdIsRecognizedAndAnotherReleaseIsNoted) {
  api_.install_crds(kCrd);
  (void)doctor(ctx_, session_, options());
  EXPECT_NE(out_.find("ok    CRD things.example.com is installed"), std::string::npos) << out_;
  out_.clear();
  DoctorOptions newer = options();
  newer.crds[0] = yaml(std::string(kCrd).replace(std::string(kCrd).find("integer"), 7, "string"));
  (void)doctor(ctx_, session_, newer);
  EXPECT_NE(out_.find("note  CRD things.example.com is of another release"), std::string::npos)
      << out_;
}

TEST_F(DoctorTest, GatewayIsTriedWithThePublishedAuthority) {
  ASSERT_EQ(api_.post("/api/v1/namespaces",
                      yaml("{apiVersion: v1, kind: Namespace, metadata: {name: varda-system}}"))
                .status,
            201);
  ASSERT_EQ(api_.post("/api/v1/namespaces/varda-system/configmaps",
                      yaml("{apiVersion: v1, kind: ConfigMap, metadata: {name: varda-gateway}, "
                           "data: {ca.crt: PEM}}"))
                .status,
            201);
  DoctorOptions with_options = options();
  with_options.gateway_url = "https://gateway:30443";
  std::string tried;
  with_options.try_gateway = [&](const Context&, const std::string& url,
                                 const std::string& ca) -> Status {
    tried = url + " " + ca;
    return Error(Code::kUnavailable, "connection refused");
  };
  (void)doctor(ctx_, session_, with_options);
  EXPECT_EQ(tried, "https://gateway:30443 PEM");
  EXPECT_NE(out_.find("BAD   gateway https://gateway:30443 does not answer: connection refused"),
            std::string::npos)
      << out_;
}

TEST_F(DoctorTest, OperatorIsFoundInEitherNamespace) {
  const Examined nowhere = examine(ctx_, session_, options());
  EXPECT_EQ(nowhere.operator_namespace, "varda-operator");
  EXPECT_FALSE(nowhere.lease.object || nowhere.operator_deployment.object);
  // In this order: with both, the operator's own namespace wins.
  for (const std::string ns : {"varda-system", "varda-operator"}) {
    const Json space = Json::object(
        {{"apiVersion", "v1"}, {"kind", "Namespace"}, {"metadata", Json::object({{"name", ns}})}});
    ASSERT_EQ(api_.post("/api/v1/namespaces", space).status, 201);
    ASSERT_EQ(api_.post("/apis/coordination.k8s.io/v1/namespaces/" + ns + "/leases",
                        yaml("{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: "
                             "varda-operator}}"))
                  .status,
              201);
    const Examined seen = examine(ctx_, session_, options());
    EXPECT_EQ(seen.operator_namespace, ns);
    ASSERT_TRUE(seen.lease.object.has_value());
    EXPECT_EQ(seen.lease.object->at("metadata/namespace").as_string(), ns);
  }
}

TEST_F(DoctorTest, JsonOutputListsFindingsAndCountsProblems) {
  DoctorOptions with_options = options();
  with_options.output.form = Output::Form::kJson;
  const Status status = doctor(ctx_, session_, with_options);
  const auto parsed = codec::parse_json(out_);
  ASSERT_TRUE(parsed.ok()) << out_;
  std::int64_t problems = 0;
  for (const Json& one : (*parsed)["findings"].as_array())
    problems += one["level"].as_string() == "problem" ? 1 : 0;
  EXPECT_GT(problems, 0);
  EXPECT_EQ((*parsed)["problems"].as_integer(), problems);
  EXPECT_NE(status.error().message().find(std::to_string(problems) + " problem"),
            std::string::npos);
}

}  // namespace doctor_test
}  // namespace varda::cli
