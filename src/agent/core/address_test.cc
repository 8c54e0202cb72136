#include "agent/core/address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "os/testing/memory_file_system.h"

namespace varda::agent::core {
namespace address_test {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(NodeAddress, OnlyAddressOfThisMachineIsAccepted) {
  EXPECT_TRUE(check_node_address("127.0.0.1", PodsListen::kOnThisNode).ok());
  EXPECT_TRUE(check_node_address("127.31.4.9", PodsListen::kOnThisNode).ok());
  EXPECT_TRUE(check_node_address("::1", PodsListen::kOnThisNode).ok());
  const std::pair<const char*, const char*> cases[] = {
      {"0.0.0.0", "is not an address that clients can connect to"},
      {"::", "is not an address that clients can connect to"},
      {"224.0.0.1", "is not an address that clients can connect to"},
      {"255.255.255.255", "is not an address that clients can connect to"},
      {"192.0.2.77", "is not an address of this machine"},  // documentation range (RFC 5737)
      {"169.254.1.1", "is not an address that clients can connect to"},
      {"fe80::1", "is not an address that clients can connect to"},
      {"ff02::1", "is not an address that clients can connect to"},
      {"2001:db8::77", "is not an address of this machine"},  // RFC 3849
      {"edge0", "is not an IP address"},
      {"", "is not an IP address"},
      {"[::1]", "is not an IP address"},
      {"127.0.0.1:80", "is not an IP address"},
  };
  for (const auto& [address, why] : cases) {
    const Status status = check_node_address(address, PodsListen::kOnThisNode);
    ASSERT_FALSE(status.ok()) << address;
    EXPECT_EQ(status.error().code(), Code::kInvalid);
    EXPECT_THAT(status.error().message(),
                StartsWith(std::string(address) + " " + why + "; this machine has "));
    EXPECT_THAT(status.error().message(), HasSubstr("127.0.0.0/8"));
  }
}

// A kubelet runs the pods there, perhaps at an address that its machine does not have.
TEST(NodeAddress, AnyConnectableAddressIsAcceptedForPodsElsewhere) {
  for (const char* address : {"192.0.2.77", "2001:db8::7", "edge0.example"})
    EXPECT_TRUE(check_node_address(address, PodsListen::kElsewhere).ok()) << address;
  for (const char* address : {"0.0.0.0", "::"})
    EXPECT_FALSE(check_node_address(address, PodsListen::kElsewhere).ok()) << address;
}

TEST(NodeAddress, DrawnAddressIsKeptAndReturnsAfterConfiguredAddress) {
  const auto state_store = StateStore::in_memory();
  const auto rng = seeded_rng(1);
  os::testing::MemoryFileSystem fs;
  const std::string drawn = *node_address("", *state_store, *rng, fs);
  EXPECT_THAT(drawn, StartsWith("127."));
  EXPECT_EQ(*node_address("192.0.2.77", *state_store, *rng, fs), "192.0.2.77");
  EXPECT_EQ(*node_address("", *state_store, *rng, fs), drawn);
  ASSERT_TRUE(state_store->put("address", codec::Json("192.0.2.77")).ok());
  EXPECT_THAT(*node_address("", *state_store, *rng, fs), StartsWith("127."));
}

TEST(AgentAddress, AddressInUseIsDetectedAndDrawnAddressIsKept) {
  constexpr std::string_view kTable =
      "  sl  local_address rem_address   st\n"
      "   0: 0302017F:1F90 00000000:0000 0A 00000000:00000000\n";
  EXPECT_TRUE(address_in_use(kTable, "127.1.2.3"));
  EXPECT_FALSE(address_in_use(kTable, "127.1.2.4"));
  os::testing::MemoryFileSystem fs;
  const auto state_store = StateStore::in_memory();
  const auto rng = seeded_rng(1);
  const auto drawn = node_address("", *state_store, *rng, fs);
  ASSERT_TRUE(drawn.ok()) << drawn.error();
  EXPECT_TRUE(drawn->starts_with("127."));
  EXPECT_EQ(*node_address("", *state_store, *rng, fs), *drawn);
  EXPECT_EQ(*node_address("127.7.7.7", *state_store, *rng, fs), "127.7.7.7");
  EXPECT_EQ(*node_address("", *state_store, *rng, fs), *drawn)
      << "a given address replaces the drawn one for this run only";
}

}  // namespace address_test
}  // namespace varda::agent::core
