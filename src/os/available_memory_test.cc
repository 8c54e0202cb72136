#include "os/available_memory.h"

#include <gtest/gtest.h>

namespace varda::os {
namespace {

TEST(AvailableMemory, TakesMemAvailableFromMeminfo) {
  EXPECT_EQ(parse_available_memory("MemTotal:  16 kB\nMemAvailable:   8 kB\n"), 8192u);
  EXPECT_EQ(parse_available_memory("MemAvailable:"), std::nullopt);
  EXPECT_EQ(parse_available_memory("MemTotal: 16 kB\n"), std::nullopt);
}

TEST(AvailableMemory, MachineHasSome) { EXPECT_GT(available_memory().value_or(0), 0u); }

}  // namespace
}  // namespace varda::os
