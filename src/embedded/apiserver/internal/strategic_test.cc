#include "apiserver/internal/strategic.h"

#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sstream>

#include "apiserver/internal/request_info.h"
#include "apiserver/kinds/core.h"
#include "codec/yaml.h"

namespace varda::apiserver {
namespace {

TEST(StrategicMerge, PatchResultsMatchCaseFile) {
  std::ifstream file(VARDA_TESTDATA "/strategic/cases.yaml");
  std::stringstream text;
  text << file.rdbuf();
  const auto cases = codec::parse_yaml_stream(text.str()).value();
  ASSERT_GT(cases.size(), 10u);
  const std::vector<KindPtr> kinds = core_kinds();
  for (const Json& one : cases) {
    SCOPED_TRACE(one["name"].as_string());
    const auto kind = std::find_if(kinds.begin(), kinds.end(), [&](const KindPtr& k) {
      return k->resource().plural == one["kind"].as_string();
    });
    ASSERT_NE(kind, kinds.end());
    const auto patched = apply_strategic_patch(one["object"], one["patch"], **kind);
    if (one.contains("error")) {
      ASSERT_FALSE(patched.ok());
      EXPECT_EQ(patched.error().code, 500);
      EXPECT_THAT(patched.error().message, ::testing::HasSubstr(one["error"].as_string()));
    } else {
      ASSERT_TRUE(patched.ok()) << patched.error().message;
      EXPECT_EQ(codec::write_json(patched.value()), codec::write_json(one["result"]));
    }
  }
}

TEST(RequestPath, PathIsParsedLikeKubernetes) {
  struct Case {
    const char* path;
    RequestInfo::Area area;
    const char *group, *version, *ns, *resource, *name, *sub;
  };
  using Area = RequestInfo::Area;
  for (const Case& c : {
           Case{"/api/v1/namespaces/default/pods/p/log", Area::kResource, "", "v1", "default",
                "pods", "p", "log"},
           Case{"/api/v1/namespaces/default", Area::kResource, "", "v1", "", "namespaces",
                "default", ""},
           Case{"/api/v1/namespaces/default/status", Area::kResource, "", "v1", "", "namespaces",
                "default", "status"},
           Case{"/api/v1/namespaces/default/pods/", Area::kResource, "", "v1", "default", "pods",
                "", ""},
           Case{"/apis/apps/v1/deployments", Area::kResource, "apps", "v1", "", "deployments", "",
                ""},
           Case{"/apis/apps/v1", Area::kRoots, "apps", "v1", "", "", "", ""},
           Case{"/apis", Area::kRoots, "", "", "", "", "", ""},
           Case{"/api/v1//pods", Area::kUnknown, "", "", "", "", "", ""},
           Case{"/healthz", Area::kOther, "", "", "", "", "", ""},
           Case{"/api/v1/namespaces/a%2Fb/pods", Area::kResource, "", "v1", "a/b", "pods", "", ""},
       }) {
    SCOPED_TRACE(c.path);
    const RequestInfo info = parse_path(c.path);
    EXPECT_EQ(info.area, c.area);
    EXPECT_EQ(info.group, c.group);
    EXPECT_EQ(info.version, c.version);
    EXPECT_EQ(info.ns, c.ns);
    EXPECT_EQ(info.resource, c.resource);
    EXPECT_EQ(info.name, c.name);
    EXPECT_EQ(info.subresource.empty() ? "" : info.subresource[0], c.sub);
  }
  EXPECT_TRUE(parse_path("/api/v1/watch/namespaces/default/pods").legacy_watch);
}

}  // namespace
}  // namespace varda::apiserver
