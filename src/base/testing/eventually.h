// Bounded waits in tests for the work of another thread or process.
//
//   ASSERT_TRUE(eventually("the node is connected", [&] { return connected("edge0"); }));
#pragma once

#include <chrono>
#include <gtest/gtest.h>
#include <string>
#include <thread>
#include <utility>

#include "base/clock.h"

namespace varda {

/// A busy machine stays far below this limit. Only a hang reaches the limit.
inline constexpr std::chrono::seconds kTestPatience{60};

/// Polls `holds` every millisecond until it returns true. After `limit` the result is a failure
/// that names `what`.
template <typename Condition>
[[nodiscard]] ::testing::AssertionResult eventually(const std::string& what, Condition&& holds,
                                                    Duration limit = kTestPatience) {
  const SteadyTime end = system_clock().now() + limit;
  while (true) {
    const bool last =
        system_clock().now() >= end;  // read first, so that a suspended thread checks once more
    if (holds()) return ::testing::AssertionSuccess();
    if (last) {
      return ::testing::AssertionFailure()
             << "waited " << std::chrono::duration_cast<std::chrono::seconds>(limit).count()
             << " s in vain: " << what;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

/// For a self-explanatory condition: ASSERT_TRUE prints it.
template <typename Condition>
[[nodiscard]] ::testing::AssertionResult eventually(Condition&& holds) {
  return eventually("the condition holds", std::forward<Condition>(holds));
}

}  // namespace varda
