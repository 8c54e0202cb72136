#include "net/local_address.h"

#include <gtest/gtest.h>

namespace varda::net {
namespace local_address_test {

TEST(LocalAddress, LoopbackDestinationUsesALoopbackAddress) {
  EXPECT_EQ(local_address_to("127.0.0.1", 10443).value(), "127.0.0.1");
  EXPECT_EQ(local_address_to("127.9.1.2", 10443).value(), "127.0.0.1");
}

TEST(LocalAddress, UnresolvableNameIsUnavailable) {
  EXPECT_EQ(local_address_to("no host", 1).error().code(), Code::kUnavailable);
}

}  // namespace local_address_test
}  // namespace varda::net
