#include "hosting/port_claims.h"

#include <gtest/gtest.h>

namespace varda::hosting {
namespace {

PortClaim claim(const std::string& owner, const std::string& since, std::int64_t port = 18080,
                bool held = false) {
  return {
      .node = "edge0", .port = port, .owner = owner, .uid = owner, .since = since, .held = held};
}

struct Rivals {
  const char* what;
  PortClaim wanted;
  std::vector<PortClaim> others;
  std::string holder;     // "": the claim wins
  std::int64_t port = 0;  // chosen from 18080 to 18082
};

TEST(PortClaims, HolderKeepsPortThenOlderClaimWins) {
  PortClaim elsewhere = claim("other", "2026-01-01"), datagrams = elsewhere;
  elsewhere.node = "edge1";
  datagrams.protocol = "UDP";
  const Rivals table[] = {
      {"alone", claim("me", "2026-02-01"), {}, "", 18080},
      {"an older one", claim("me", "2026-02-01"), {claim("other", "2026-01-01")}, "other", 18081},
      {"a younger one", claim("me", "2026-02-01"), {claim("other", "2026-03-01")}, "", 18080},
      {"of one age the first by name",
       claim("me", "2026-02-01"),
       {claim("a", "2026-02-01")},
       "a",
       18081},
      {"an older one that comes later",
       claim("me", "2026-02-01", 18080, true),
       {claim("other", "2026-01-01")},
       "",
       18080},
      {"a younger one that is there",
       claim("me", "2026-02-01"),
       {claim("other", "2026-03-01", 18080, true)},
       "other",
       18081},
      {"both are there",
       claim("me", "2026-02-01", 18080, true),
       {claim("other", "2026-01-01", 18080, true)},
       "other",
       18081},
      {"its own", claim("me", "2026-02-01"), {claim("me", "2026-01-01")}, "", 18080},
      {"another node", claim("me", "2026-02-01"), {elsewhere}, "", 18080},
      {"another protocol", claim("me", "2026-02-01"), {datagrams}, "", 18080},
      {"none yet", claim("me", "2026-02-01", 0), {claim("other", "2026-03-01")}, "", 18081},
      {"the oldest of several",
       claim("me", "2026-02-01"),
       {claim("b", "2026-01-02"), claim("a", "2026-01-01"), claim("b", "2026-01-02", 18081)},
       "a",
       18082},
      {"none is free",
       claim("me", "2026-02-01"),
       {claim("a", "2026-01-01"), claim("a", "2026-01-01", 18081), claim("a", "2026-03-01", 18082)},
       "a",
       0},
  };
  for (const Rivals& rivals : table) {
    const PortClaim* holder = port_holder(rivals.wanted, rivals.others);
    EXPECT_EQ(holder == nullptr ? "" : holder->owner, rivals.holder) << rivals.what;
    EXPECT_EQ(choose_port(rivals.wanted, rivals.others, 18080, 18082), rivals.port) << rivals.what;
  }
}

TEST(PortClaims, MessageShowsWhetherPortIsInUse) {
  EXPECT_EQ(holder_text(claim("InferenceModel a/b", "2026-01-01")),
            "belongs to the older InferenceModel a/b");
  EXPECT_EQ(holder_text(claim("InferenceModel a/b", "2026-01-01", 18080, true)),
            "is in use by InferenceModel a/b");
}

}  // namespace
}  // namespace varda::hosting
