#include "agent/core/link.h"

#include <gtest/gtest.h>

#include "meta/patch.h"

namespace varda::agent::core {
namespace link_test {

using codec::Json;

TEST(AgentStatus, PatchOmitsForeignMembersAndUnchangedStatus) {
  api::EdgeNodeStatus wanted;
  wanted.observed_generation = 7;
  wanted.agent_version = "1";
  wanted.address = "127.1.2.3";
  api::EdgeModelReport model;
  model.key = "default/digits";
  wanted.models.push_back(model);
  Json live = *codec::parse_json(
      R"({"metadata":{"name":"edge0"},"status":{"conditions":[{"type":"Connected","status":"True"}],"address":"127.9.9.9","other":1}})");
  const auto patch = status_patch(wanted, live);
  ASSERT_TRUE(patch);
  EXPECT_FALSE((*patch)["status"].contains("conditions"));
  EXPECT_FALSE((*patch)["status"].contains("other"));
  EXPECT_EQ((*patch)["status"]["address"].as_string(), "127.1.2.3");
  live = meta::apply_merge_patch(live, *patch);
  EXPECT_EQ(live["status"]["other"].as_integer(), 1);
  EXPECT_FALSE(status_patch(wanted, live));
  wanted.models.clear();
  const auto empty = status_patch(wanted, live);
  ASSERT_TRUE(empty);
  live = meta::apply_merge_patch(live, *empty);
  EXPECT_TRUE(live.at("status/models").empty());
  EXPECT_FALSE(status_patch(wanted, live));
}

}  // namespace link_test
}  // namespace varda::agent::core
