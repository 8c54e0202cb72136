#include "net/internal/lookups.h"

#include <atomic>
#include <future>
#include <gtest/gtest.h>
#include <latch>
#include <memory>

namespace varda::net::internal {
namespace {

using Found = Lookups::Found;

TEST(Lookups, AbandonedLookupsAreBoundedAndWaitersAreAnswered) {
  struct Resolver {
    std::latch release{1};
    std::atomic<unsigned> calls{0};
  };
  const auto resolver = std::make_shared<Resolver>();  // threads left behind outlive the test
  Lookups lookups([resolver](const std::string& host, int port) {
    ++resolver->calls;
    if (host == "silent") resolver->release.wait();
    return Found{.error = port, .addresses = {}};
  });
  std::stop_source hung_up;
  hung_up.request_stop();
  for (int i = 0; i < 1000; ++i) {
    EXPECT_EQ(lookups.find(Context(hung_up.get_token()), "silent", 1).error().code(),
              Code::kCancelled);
  }
  EXPECT_EQ(lookups.find(Context::background().with_timeout(Duration::zero()), "silent", 1)
                .error()
                .code(),
            Code::kTimeout);
  EXPECT_EQ(lookups.find(Context::background(), "another", 2)->error, 2)
      << "other names are looked up all the same";
  EXPECT_LE(resolver->calls, Lookups::kOneNameMax + 1);
  auto waits = std::async(std::launch::async,
                          [&] { return lookups.find(Context::background(), "silent", 1)->error; });
  resolver->release.count_down();
  EXPECT_EQ(waits.get(), 1);
  EXPECT_EQ(lookups.find(Context::background(), "silent", 3)->error, 3);
}

}  // namespace
}  // namespace varda::net::internal
