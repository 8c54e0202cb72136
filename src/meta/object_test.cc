#include "meta/object.h"

#include <gtest/gtest.h>

namespace varda::meta {
namespace {

using codec::parse_json;

TEST(Resource, PathsContainGroupNamespaceAndName) {
  const Resource pods{"", "v1", "Pod", "pods", true};
  const Resource deployments{"apps", "v1", "Deployment", "deployments", true};
  const Resource nodes{"", "v1", "Node", "nodes", false};
  EXPECT_EQ(pods.path("d", "p"), "/api/v1/namespaces/d/pods/p");
  EXPECT_EQ(pods.path(), "/api/v1/pods");
  EXPECT_EQ(deployments.path("d"), "/apis/apps/v1/namespaces/d/deployments");
  EXPECT_EQ(nodes.path("ignored", "n"), "/api/v1/nodes/n");
  EXPECT_EQ(deployments.api_version(), "apps/v1");
  EXPECT_EQ(deployments.group_resource(), "deployments.apps");
  EXPECT_EQ(pods.group_resource(), "pods");
}

TEST(ObjectMeta, EveryMemberSurvivesARoundTrip) {
  const Json json = parse_json(R"({
    "name": "a", "generateName": "a-", "namespace": "n", "uid": "u", "resourceVersion": "7", "generation": 3,
    "creationTimestamp": "2024-05-01T10:00:00Z", "deletionTimestamp": "2024-05-02T10:00:00Z", "deletionGracePeriodSeconds": 30,
    "labels": {"l": "1"}, "annotations": {"x/y": "z"}, "finalizers": ["f/g"],
    "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "o", "uid": "ou", "controller": true, "blockOwnerDeletion": true}],
    "managedFields": [{"manager": "m"}]})")
                        .value();
  const ObjectMeta meta = ObjectMeta::from_json(json).value();
  EXPECT_EQ(meta.key().str(), "n/a");
  EXPECT_TRUE(meta.deleting());
  ASSERT_NE(meta.controller(), nullptr);
  EXPECT_EQ(meta.controller()->uid, "ou");
  EXPECT_EQ(meta.to_json(), json);
}

TEST(ObjectMeta, NullMembersReadAsAbsentAndAreNotWritten) {
  const Json json =
      parse_json(
          R"({"name": "a", "creationTimestamp": null, "labels": null, "ownerReferences": null})")
          .value();
  EXPECT_EQ(ObjectMeta::from_json(json).value().to_json(), parse_json(R"({"name": "a"})").value());
  EXPECT_EQ(ObjectMeta::from_json(nullptr).value().to_json(), Json::object());
}

TEST(ObjectMeta, ErrorNamesTheFieldOfAWrongType) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"name": 1})", "metadata.name: must be a string"},
      {R"({"labels": {"x": 1}})", "metadata.labels.x: must be a string"},
      {R"({"annotations": []})", "metadata.annotations: must be an object of strings"},
      {R"({"generation": "1"})", "metadata.generation: must be an integer"},
      {R"({"finalizers": ["a", 2]})", "metadata.finalizers[1]: must be a string"},
      {R"({"ownerReferences": [{"uid": 3}]})", "metadata.ownerReferences[0].uid: must be a string"},
      {R"([])", "metadata: must be an object"},
  };
  for (const auto& [text, message] : cases) {
    const auto meta = ObjectMeta::from_json(parse_json(text).value());
    ASSERT_FALSE(meta.ok()) << text;
    EXPECT_EQ(meta.error().code(), Code::kInvalid);
    EXPECT_EQ(meta.error().message(), message);
  }
}

TEST(Condition, TransitionTimeChangesOnlyWithTheStatus) {
  std::vector<Condition> conditions;
  set_condition(conditions, {.type = "Ready", .status = "False", .reason = "A"}, "t1");
  set_condition(conditions, {.type = "Ready", .status = "False", .reason = "B", .message = "m"},
                "t2");
  ASSERT_EQ(conditions.size(), 1u);
  EXPECT_EQ(conditions[0].last_transition_time, "t1");
  EXPECT_EQ(conditions[0].reason, "B");
  set_condition(conditions, {.type = "Ready", .status = "True", .reason = "B"}, "t3");
  EXPECT_EQ(conditions[0].last_transition_time, "t3");
  set_condition(conditions, {.type = "Other", .status = "True"}, "t4");
  EXPECT_EQ(conditions.size(), 2u);
  EXPECT_EQ(find_condition(conditions, "Other")->last_transition_time, "t4");
  EXPECT_EQ(find_condition(conditions, "None"), nullptr);
}

TEST(Condition, ConditionSurvivesARoundTrip) {
  Condition condition{
      .type = "Ready", .status = "True", .reason = "R", .message = "m", .observed_generation = 4};
  condition.last_transition_time = "2024-05-01T10:00:00Z";
  EXPECT_EQ(Condition::from_json(condition.to_json()).value(), condition);
  EXPECT_EQ(Condition::from_json(parse_json(R"({"status": 1})").value()).error().message(),
            "status: must be a string");
}

TEST(Time, FormatsAndParsesRfc3339) {
  const WallTime time = parse_time("2024-02-29T23:59:58.125Z").value();
  EXPECT_EQ(format_time(time), "2024-02-29T23:59:58Z");
  EXPECT_EQ(format_micro_time(time), "2024-02-29T23:59:58.125000Z");
  EXPECT_EQ(format_time(parse_time("2024-03-01T01:30:00+01:30").value()), "2024-03-01T00:00:00Z");
  EXPECT_EQ(format_time(parse_time("2023-12-31T22:00:00-02:00").value()), "2024-01-01T00:00:00Z");
  EXPECT_EQ(format_time(WallTime(std::chrono::microseconds(-1))), "1969-12-31T23:59:59Z");
  EXPECT_EQ(format_micro_time(parse_time("2024-01-01T00:00:00.1234567Z").value()),
            "2024-01-01T00:00:00.123456Z");
  // Times beyond 64 bits of nanoseconds become the nearest valid time, without wrapping.
  EXPECT_EQ(format_time(parse_time("9999-12-31T23:59:59Z").value()).substr(0, 4), "2262");
  EXPECT_EQ(format_time(parse_time("0001-01-01T00:00:00Z").value()).substr(0, 4), "1677");
  for (const char* bad :
       {"", "2024", "2024-02-30T00:00:00Z", "2024-01-01T24:00:00Z", "2024-01-01 00:00:00Z",
        "2024-01-01T00:00:00", "2024-01-01T00:00:00.Z", "2024-01-01T00:00:00Zx",
        "2024-01-01T00:00:00+1:00", "2024-13-01T00:00:00Z"}) {
    EXPECT_EQ(parse_time(bad).error().code(), Code::kInvalid) << bad;
  }
}

TEST(Time, AgesAreFormattedAsInKubectl) {
  using std::chrono::hours, std::chrono::minutes, std::chrono::seconds;
  const std::pair<seconds, const char*> cases[] = {
      {seconds(-5), "<invalid>"},
      {seconds(0), "0s"},
      {seconds(119), "119s"},
      {seconds(120), "2m"},
      {seconds(200), "3m20s"},
      {minutes(10), "10m"},
      {minutes(179), "179m"},
      {hours(3), "3h"},
      {minutes(3 * 60 + 5), "3h5m"},
      {hours(9), "9h"},
      {hours(47), "47h"},
      {hours(48), "2d"},
      {hours(50), "2d2h"},
      {hours(24 * 8 + 3), "8d"},
      {hours(24 * 400), "400d"},
      {hours(24 * 365 * 2), "2y"},
      {hours(24 * (365 * 3 + 10)), "3y10d"},
      {hours(24 * 365 * 9), "9y"},
  };
  for (const auto& [age, text] : cases) EXPECT_EQ(format_age(age), text);
}

TEST(Names, InvalidNamesAreRefusedWithKubernetesMessages) {
  EXPECT_EQ(check_dns_subdomain("a.b-1.c"), "");
  EXPECT_EQ(check_dns_subdomain(std::string(253, 'a')), "");
  EXPECT_EQ(check_dns_subdomain(std::string(254, 'a')), "must be no more than 253 characters");
  for (const char* bad : {"", "UPPER", "a/b", "..", "a..b", "-a", "a-", "a_b", ".a"}) {
    EXPECT_TRUE(
        check_dns_subdomain(bad).starts_with("a lowercase RFC 1123 subdomain must consist of"))
        << bad;
  }
  EXPECT_EQ(check_dns_label("a-1"), "");
  EXPECT_EQ(check_dns_label("a.b"), "must not contain dots");
  EXPECT_EQ(check_dns_label(std::string(64, 'a')), "must be no more than 63 characters");
  EXPECT_TRUE(check_dns_label("A").starts_with("a lowercase RFC 1123 label must consist of"));
  EXPECT_EQ(check_dns1035_label("abc"), "");
  for (const char* bad : {"1abc", "a.b", "", "a-"})
    EXPECT_TRUE(check_dns1035_label(bad).starts_with("a DNS-1035 label")) << bad;

  for (const char* good : {"app", "App_1.x", "example.com/Name", "a/b"})
    EXPECT_EQ(check_label_key(good), "") << good;
  EXPECT_TRUE(
      check_label_key("bad key!").starts_with("name part must consist of alphanumeric characters"));
  EXPECT_TRUE(
      check_label_key("").starts_with("name part must be non-empty; name part must consist of"));
  EXPECT_TRUE(check_label_key("/a").starts_with("prefix part must be non-empty"));
  EXPECT_TRUE(check_label_key("A_/a").starts_with("prefix part a lowercase RFC 1123 subdomain"));
  EXPECT_TRUE(check_label_key("a/b/c").starts_with("a qualified name must consist of"));
  EXPECT_EQ(check_label_key(std::string(64, 'a')), "name part must be no more than 63 characters");

  EXPECT_EQ(check_label_value(""), "");
  EXPECT_EQ(check_label_value("My_value.1"), "");
  EXPECT_EQ(check_label_value(std::string(64, 'x')), "must be no more than 63 characters");
  EXPECT_TRUE(check_label_value("bad value!")
                  .starts_with("a valid label must be an empty string or consist of"));
}

TEST(Describe, DescribeNamesKindNamespaceAndName) {
  EXPECT_EQ(
      describe(
          parse_json(R"({"kind": "Pod", "metadata": {"namespace": "d", "name": "w"}})").value()),
      "Pod d/w");
  EXPECT_EQ(describe(parse_json(R"({"kind": "Node", "metadata": {"name": "n"}})").value()),
            "Node n");
  EXPECT_EQ(describe(Json()), "object");
}

}  // namespace
}  // namespace varda::meta
