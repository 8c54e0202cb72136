#include "net/internal/addresses.h"

#include <gtest/gtest.h>

namespace varda::net::internal {
namespace addresses_test {

TEST(HostOfPeer, HostIsTheIpv4AddressOrTheIpv6Network) {
  EXPECT_EQ(host_of_peer("192.0.2.7:4711"), "192.0.2.7");
  EXPECT_EQ(host_of_peer("[2001:db8::1]:4711"), host_of_peer("[2001:db8::ffff:2]:1")) << "one host";
  EXPECT_NE(host_of_peer("[2001:db8::1]:4711"), host_of_peer("[2001:db8:0:1::1]:4711"));
  EXPECT_NE(host_of_peer("[::ffff:192.0.2.7]:1"), host_of_peer("[::ffff:192.0.2.8]:1"));
  EXPECT_EQ(host_of_peer("[fe80::1%eth0]:1"), host_of_peer("[fe80::2]:1"));
  for (const char* text : {"", "unix:/run/x.sock", "localhost:80", "[::1:80", "[]:80"})
    EXPECT_EQ(host_of_peer(text), "") << text;
}

TEST(Addresses, ConnectionsPerAddressAreLimited) {
  Addresses addresses;
  addresses.limit(2);
  EXPECT_TRUE(addresses.add("192.0.2.7:1"));
  EXPECT_TRUE(addresses.add("192.0.2.7:2"));
  EXPECT_FALSE(addresses.add("192.0.2.7:3"));
  EXPECT_TRUE(addresses.add("192.0.2.8:1"));
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(addresses.add("unix:/run/x.sock"));
  addresses.remove("192.0.2.7:1");
  EXPECT_TRUE(addresses.add("192.0.2.7:3"));
}

}  // namespace addresses_test
}  // namespace varda::net::internal
