#include "registry_server.h"

#include <gtest/gtest.h>

#include "net/client.h"
#include "os/testing/test_directory.h"
#include "registry/client.h"

namespace varda::app {
namespace registry_server_test {

using os::testing::TestDirectory;

TEST(RegistryServer, TokenIsMadeOnceForItsOwner) {
  const TestDirectory root;
  const auto first = registry_token(os::real_file_system(), root.path());
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(first->size(), 64u);
  EXPECT_EQ(root.mode("registry.token"), 0600u);
  EXPECT_EQ(registry_token(os::real_file_system(), root.path()).value(), *first);
}

TEST(RegistryServer, TakenAddressIsReplacedOnlyIfAllowed) {
  const TestDirectory root;
  const auto start = [&](const char* name, std::string listen, bool any) {
    return RegistryServer::start({.storage = {.root = root.path() / name},
                                  .listen = std::move(listen),
                                  .listen_any_if_taken = any,
                                  .tls = std::nullopt,
                                  .service = {},
                                  .named = nullptr});
  };
  const auto first = start("one", "127.0.0.1:0", false);
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(start("two", (*first)->address(), false).error().code(), Code::kUnavailable);
  const auto third = start("three", (*first)->address(), true);
  ASSERT_TRUE(third.ok());
  EXPECT_NE((*third)->url(), (*first)->url());
  EXPECT_EQ(start("one", "127.0.0.1:0", false).error().code(), Code::kUnavailable)
      << "one process owns the directory";
}

}  // namespace registry_server_test
}  // namespace varda::app
