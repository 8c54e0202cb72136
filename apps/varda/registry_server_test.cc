#include "registry_server.h"

#include <gtest/gtest.h>

#include "net/client.h"
#include "os/testing/test_directory.h"
#include "registry/client.h"

namespace varda::app {
namespace registry_server_test {

using codec::Sha256;
using os::testing::TestDirectory;

TEST(RegistryServer, DigestsAreRunsOf64HexDigits) {
  const std::string a = Sha256::of("a").hex(), b = Sha256::of("b").hex();
  EXPECT_EQ(digests_in("{\"url\":\"http://x/sha256:" + a + "\",\"sha256\":\"" + b + "\"}"),
            (std::set<Sha256>{Sha256::of("a"), Sha256::of("b")}));
  EXPECT_EQ(digests_in(a), std::set<Sha256>{Sha256::of("a")});
  EXPECT_TRUE(digests_in(a + "0 " + a.substr(1) + " " + std::string(64, 'A')).empty());
  EXPECT_TRUE(digests_in("").empty());
}

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
