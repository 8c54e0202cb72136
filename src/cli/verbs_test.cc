#include "cli/verbs.h"

#include <gtest/gtest.h>

#include "apiserver/testing/in_memory.h"
#include "base/testing/eventually.h"
#include "os/testing/memory_file_system.h"

namespace varda::cli {
namespace {

const meta::Resource kMaps{"", "v1", "ConfigMap", "configmaps", true};

class VerbsTest : public ::testing::Test {
 protected:
  /// Applies a manifest from standard input.
  Status apply(std::string text) {
    input_ = std::move(text);
    return cli::apply(ctx_, session_, {"-"});
  }

  apiserver::InMemoryApiServer api_;
  kube::Client client_{api_.transport(), {}};
  os::testing::MemoryFileSystem files_;
  std::string input_, out_, error_;
  Session session_{client_, files_, [this](std::string_view text) { out_ += text; },
                   [this](std::string_view text) { error_ += text; },
                   [this]() -> Result<std::string> { return input_; }};
  Context ctx_ = Context().with_timeout(std::chrono::seconds(60));
};

TEST_F(VerbsTest, NonObjectsAreRefusedWithAMessage) {
  for (const char* text :
       {"just text", "[1, 2]", "7", "{}", "kind: Pod", "- apiVersion: v1",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: text",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, annotations: text}",
        "{kind: List, items: [text]}"}) {
    const Status status = apply(text);
    ASSERT_FALSE(status.ok()) << text;
    EXPECT_FALSE(status.error().message().empty()) << text;
  }
}

TEST_F(VerbsTest, ApplyStoresTheManifestInTheAnnotation) {
  ASSERT_TRUE(apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {k: v}}").ok());
  EXPECT_EQ(out_, "configmap/a created\n");
  const Json live = client_.get(ctx_, kMaps, {"default", "a"}).value();
  const Json last =
      codec::parse_json(
          live["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"]
              .as_string())
          .value();
  EXPECT_FALSE(last.contains("items"));
  EXPECT_EQ(last.at("data/k").as_string(), "v");
  ASSERT_TRUE(apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {k: v}}").ok());
  EXPECT_EQ(out_, "configmap/a created\nconfigmap/a unchanged\n");
}

// The annotation as written by kubectl 1.30: sorted members, and an empty annotations map.
TEST_F(VerbsTest, ApplyAfterKubectlReportsUnchanged) {
  const char* const manifest =
      "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {z: v, b: w}}";
  ASSERT_TRUE(apply(manifest).ok());
  const Json annotation = Json::object(
      {{"kubectl.kubernetes.io/last-applied-configuration",
        R"({"apiVersion":"v1","data":{"b":"w","z":"v"},"kind":"ConfigMap","metadata":{"annotations":{},"name":"a","namespace":"default"}}
)"}});
  const Json patch = Json::object({{"metadata", Json::object({{"annotations", annotation}})}});
  ASSERT_TRUE(client_.patch(ctx_, kMaps, {"default", "a"}, kube::PatchType::kMerge, patch).ok());
  const Json before = client_.get(ctx_, kMaps, {"default", "a"}).value();
  out_.clear();
  ASSERT_TRUE(apply(manifest).ok());
  EXPECT_EQ(out_, "configmap/a unchanged\n");
  EXPECT_EQ(client_.get(ctx_, kMaps, {"default", "a"}).value(), before);
  ASSERT_TRUE(apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {z: v}}").ok());
  EXPECT_EQ(out_, "configmap/a unchanged\nconfigmap/a configured\n");
  EXPECT_FALSE(client_.get(ctx_, kMaps, {"default", "a"}).value()["data"].contains("b"));
}

TEST_F(VerbsTest, EventsOfOneSecondAreSortedByWriteOrder) {
  const meta::Resource events{"", "v1", "Event", "events", true};
  for (const char* reason : {"Third", "Scheduled", "Unhealthy"}) {
    const Json event = Json::object(
        {{"apiVersion", "v1"},
         {"kind", "Event"},
         {"metadata",
          Json::object(
              {{"name", std::string(reason) == "Scheduled" ? "z" : "a" + std::to_string(reason[0])},
               {"namespace", "default"}})},
         {"involvedObject",
          Json::object({{"kind", "Pod"}, {"name", "p"}, {"namespace", "default"}})},
         {"reason", reason},
         {"lastTimestamp", std::string("2024-01-01T00:00:0") + (reason[0] == 'T' ? "2Z" : "1Z")}});
    const auto created = client_.create(ctx_, events, event);
    ASSERT_TRUE(created.ok()) << created.error();
  }
  ASSERT_TRUE(cli::events(ctx_, session_, {}).ok());
  EXPECT_LT(out_.find("Scheduled"), out_.find("Unhealthy")) << out_;
  EXPECT_LT(out_.find("Unhealthy"), out_.find("Third")) << out_;
}

TEST_F(VerbsTest, UnknownFieldsAreNamedAndTheWriteIsRefused) {
  const Status applied =
      apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, dtaa: {k: v}}");
  ASSERT_FALSE(applied.ok());
  EXPECT_NE(applied.error().message().find("dtaa"), std::string::npos) << applied.error();
  EXPECT_FALSE(client_.find(ctx_, kMaps, {"default", "a"}).value());

  ASSERT_TRUE(apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}").ok());
  const Status patched =
      patch(ctx_, session_, {.arguments = {"cm", "a"}, .patch = "{dtaa: {k: v}}"});
  ASSERT_FALSE(patched.ok());
  EXPECT_NE(patched.error().message().find("dtaa"), std::string::npos) << patched.error();
}

TEST_F(VerbsTest, WaitWithZeroTimeoutChecksOnce) {
  ASSERT_TRUE(apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {k: v}}").ok());
  WaitOptions options{.arguments = {"configmap/a"},
                      .condition = "jsonpath={.data.k}=v",
                      .timeout = std::chrono::milliseconds(0)};
  EXPECT_TRUE(wait(ctx_, session_, options).ok());
  options.condition = "jsonpath={.data.k}=w";
  EXPECT_EQ(wait(ctx_, session_, options).error().code(), Code::kTimeout);
}

TEST_F(VerbsTest, WaitOnATerminalPrintsConditionMessages) {
  ASSERT_TRUE(apply("{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: "
                    "c, image: i}]}}")
                  .ok());
  const auto set = [this](const char* status, const char* message) {
    const Json condition =
        Json::object({{"type", "Ready"}, {"status", status}, {"message", message}});
    const Json patch =
        Json::object({{"status", Json::object({{"conditions", Json::array({condition})}})}});
    return client_
        .patch(ctx_, {"", "v1", "Pod", "pods", true}, {"default", "a"}, kube::PatchType::kMerge,
               patch, "status")
        .ok();
  };
  ASSERT_TRUE(set("False", "120 MiB of 1.0 GiB"));
  WaitOptions options{.arguments = {"pod/a"},
                      .condition = "condition=Ready",
                      .timeout = std::chrono::milliseconds(0)};
  EXPECT_EQ(wait(ctx_, session_, options).error().code(), Code::kTimeout);
  EXPECT_EQ(error_, "") << "no terminal";

  // Each message triggers the next change, so that no change is missed.
  const auto note = session_.error;
  session_.terminal = true;
  session_.error = [&](std::string_view text) {
    note(text);
    EXPECT_TRUE(text.find("120") != text.npos ? set("False", "240 MiB of 1.0 GiB")
                                              : set("True", ""));
  };
  options.timeout = std::chrono::seconds(60);
  EXPECT_TRUE(wait(ctx_, session_, options).ok());
  EXPECT_EQ(error_, "pod/a: 120 MiB of 1.0 GiB\npod/a: 240 MiB of 1.0 GiB\n");
}

TEST_F(VerbsTest, DeleteErrorNamesTheFinalizers) {
  ASSERT_TRUE(
      apply(
          "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, finalizers: [example.com/hold]}}")
          .ok());
  const Status status =
      remove(ctx_, session_, {.arguments = {"cm", "a"}, .timeout = std::chrono::milliseconds(0)});
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().message().find("example.com/hold"), std::string::npos) << status.error();
}

TEST_F(VerbsTest, DeletingAJobDeletesItsPods) {
  const meta::Resource jobs{"batch", "v1", "Job", "jobs", true},
      pods{"", "v1", "Pod", "pods", true};
  const std::string containers = "{containers: [{name: c, image: i}], restartPolicy: Never}";
  ASSERT_TRUE(
      apply("{apiVersion: batch/v1, kind: Job, metadata: {name: j}, spec: {template: {spec: " +
            containers + "}}}")
          .ok());
  const std::string uid =
      client_.get(ctx_, jobs, {"default", "j"}).value().at("metadata/uid").as_string();
  ASSERT_TRUE(apply("{apiVersion: v1, kind: Pod, metadata: {name: p, ownerReferences: "
                    "[{apiVersion: batch/v1, kind: Job, name: j, "
                    "uid: " +
                    uid + ", controller: true}]}, spec: " + containers + "}")
                  .ok());
  ASSERT_TRUE(remove(ctx_, session_, {.arguments = {"job", "j"}}).ok());
  EXPECT_TRUE(eventually([&] {
    const auto pod = client_.find(ctx_, pods, {"default", "p"}).value();
    return !pod || pod->at("metadata").contains("deletionTimestamp");
  }));
}

TEST_F(VerbsTest, DeleteRefusesTwoWaysToSelectObjects) {
  ASSERT_TRUE(apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}").ok());
  EXPECT_EQ(remove(ctx_, session_, {.arguments = {"cm", "a"}, .files = {"-"}}).error().code(),
            Code::kInvalid);
  EXPECT_EQ(remove(ctx_, session_, {.arguments = {"cm"}, .label_selector = "x=y", .all = true})
                .error()
                .code(),
            Code::kInvalid);
  EXPECT_TRUE(client_.find(ctx_, kMaps, {"default", "a"}).value());
}

TEST_F(VerbsTest, NamesAreEscapedInRequestPaths) {
  EXPECT_EQ(get(ctx_, session_, {.arguments = {"cm", "../../nodes"}}).error().code(),
            Code::kNotFound);
  EXPECT_EQ(get(ctx_, session_, {.arguments = {"cm", "a?watch=true"}}).error().code(),
            Code::kNotFound);
}

TEST_F(VerbsTest, ApiResourcesListsPluralAndShortNames) {
  ASSERT_TRUE(api_resources(ctx_, session_).ok());
  EXPECT_NE(out_.find("configmaps"), std::string::npos);
  EXPECT_NE(out_.find("cm"), std::string::npos);
}

}  // namespace
}  // namespace varda::cli
