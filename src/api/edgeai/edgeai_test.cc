// Dataset and Model of both groups. The cases are in testdata/edgeai. Tests in src/controllers send
// the same cases to the API server.

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <set>
#include <utility>

#include "api/edgeai/dataset.h"
#include "api/edgeai/edge_node.h"
#include "api/edgeai/model.h"
#include "codec/yaml.h"
#include "meta/patch.h"

namespace varda::api {
namespace edgeai_test {

namespace fs = std::filesystem;

std::vector<Json> documents(const std::string& name) {
  std::ifstream in(fs::path(VARDA_TESTDATA) / "edgeai" / (name + ".yaml"));
  auto parsed = codec::parse_yaml_stream(std::string((std::istreambuf_iterator<char>(in)), {}));
  EXPECT_TRUE(parsed.ok()) << name << ": " << (parsed.ok() ? "" : parsed.error().message());
  return parsed.ok() ? std::move(parsed).value() : std::vector<Json>{Json::object()};
}

std::string print(const std::vector<meta::StatusCause>& causes) {
  std::string out;
  for (const auto& cause : causes)
    out += cause.field + " | " + cause.reason + " | " + cause.message + "\n";
  return out;
}

template <typename T>
class MetadataKind : public ::testing::Test {};
using Kinds = ::testing::Types<Dataset, SednaDataset, Model, SednaModel>;
TYPED_TEST_SUITE(MetadataKind, Kinds);

template <typename T>
std::string cases() {
  const meta::Resource& resource = T::resource();
  return std::string(resource.group == "sedna.io" ? "sedna_" : "") +
         (resource.kind == "Dataset" ? "dataset" : "model");
}

TYPED_TEST(MetadataKind, EveryCaseHasTheExpectedCauses) {
  const std::vector<Json> all = documents(cases<TypeParam>());
  ASSERT_GT(all.size(), 1u);
  EXPECT_EQ(print(validate(TypeParam::kind(), all.front())), "");
  for (std::size_t i = 1; i < all.size(); ++i) {
    std::string expected;
    for (const Json& cause : all[i]["causes"].as_array()) {
      expected += cause["field"].as_string() + " | " + cause["reason"].as_string() + " | " +
                  cause["message"].as_string() + "\n";
    }
    const Json object = meta::apply_merge_patch(all.front(), all[i]["change"]);
    EXPECT_EQ(print(validate(TypeParam::kind(), object)), expected) << all[i]["name"].as_string();
  }
}

// A round trip changes nothing: no defaults are added, and unknown members stay.
TYPED_TEST(MetadataKind, JsonRoundTripChangesNothing) {
  const std::vector<Json> all = documents(cases<TypeParam>());
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (i > 0 && all[i].contains("causes")) continue;
    Json object = i == 0 ? all.front() : meta::apply_merge_patch(all.front(), all[i]["change"]);
    if (std::as_const(object).at("spec/nodeName") == Json("")) object["spec"].erase("nodeName");
    object["spec"].set("ofALaterVersion", Json::array({1}));
    object.set("status", Json::object({{"ofALaterVersion", true}}));
    auto read = TypeParam::from_json(object);
    ASSERT_TRUE(read.ok()) << read.error();
    EXPECT_EQ(codec::write_yaml(read->to_json()), codec::write_yaml(object));
  }
}

TYPED_TEST(MetadataKind, ShortNamesAreUniqueAcrossKinds) {
  std::multiset<std::string> names{"ds", "deploy", "svc", "po", "no", "cm", "sa", "ns", "ev", "rs"};
  for (const Kind* kind : kinds()) names.insert(kind->short_names.begin(), kind->short_names.end());
  for (const std::string& name : TypeParam::kind().short_names)
    EXPECT_EQ(names.count(name), 1u) << name;
}

TEST(DatasetPeriod, RecountPeriodIsReadAsSeconds) {
  const auto seconds = [](Json period) {
    DatasetSpec spec;
    spec.recount_period = std::move(period);
    return spec.recount_seconds();
  };
  EXPECT_EQ(seconds(Json()), 0);
  EXPECT_EQ(seconds(3600), 3600);
  EXPECT_EQ(seconds("3600"), 3600);
  EXPECT_EQ(seconds("90m"), 5400);
  EXPECT_EQ(seconds("1d12h"), 129600);
  EXPECT_EQ(seconds("1h30m15s"), 5415);
}

// The form that clients of Sedna read and write.
TEST(ModelMetrics, MetricValuesAreStringsAsInSedna) {
  const char* text =
      R"({"apiVersion":"sedna.io/v1alpha1","kind":"Model","metadata":{"name":"m"},"spec":{"url":"/m","format":"pb"},
                         "status":{"updateTime":"2024-05-01T12:00:00Z","metrics":[{"key":"accuracy","value":"0.93"}]}})";
  const Json object = codec::parse_json(text).value();
  EXPECT_EQ(print(validate(SednaModel::kind(), object)), "");
  auto model = SednaModel::from_json(object);
  ASSERT_TRUE(model.ok());
  ASSERT_NE(model->status.find_metric("accuracy"), nullptr);
  EXPECT_EQ(model->status.find_metric("accuracy")->value, "0.93");
  EXPECT_EQ(model->to_json(), object);
}

TEST(PeerUrl, PeerUrlHasOnlyHttpsHostAndPort) {
  for (const char* url : {"https://10.1.2.3:10445", "https://line7.example:1",
                          "https://[fd00::7]:65535", "https://line7"})
    EXPECT_TRUE(is_peer_url(url)) << url;
  for (const char* url : {"",
                          "http://127.0.0.1:24500",
                          "http://127.0.0.1:24500/internal?x=",
                          "https://h:1/",
                          "https://h:1/internal",
                          "https://h:1?x=",
                          "https://h:1#x",
                          "https://user@h:1",
                          "https://user:1@h",
                          "https://",
                          "https://:1",
                          "https://h:",
                          "https://h:0",
                          "https://h:65536",
                          "https://h:123456",
                          "https://h:1:2",
                          "https://h:-1",
                          "https://h%2f:1",
                          "https://h\\x:1",
                          "https://h :1",
                          "https://[]:1",
                          "https://[fd00::7:1",
                          "https://[fd00::7]x:1",
                          "https://fd00::7",
                          "file:///etc/passwd"})
    EXPECT_FALSE(is_peer_url(url)) << url;
  EdgeNodeStatus status;
  status.peer_url = "http://127.0.0.1:24500/internal?x=";
  EXPECT_EQ(status.usable_peer_url(), "");
  status.peer_url = "https://10.1.2.3:10445";
  EXPECT_EQ(status.usable_peer_url(), status.peer_url);
}

TEST(EdgeNode, DatasetsAreAllowedBelowRootsOfEitherKind) {
  EdgeNodeStatus status;
  status.file_roots = {"/models/"};
  status.dataset_roots = {"/data"};
  EXPECT_TRUE(status.allows_dataset("/data"));
  EXPECT_TRUE(status.allows_dataset("/data/train.csv"));
  EXPECT_TRUE(status.allows_dataset("/models/samples"));
  EXPECT_FALSE(status.allows_dataset("/database"));
  EXPECT_FALSE(status.allows_path("/data/train.csv"));
}

}  // namespace edgeai_test
}  // namespace varda::api
