#include <gtest/gtest.h>

#include "incremental/round_machine.h"

namespace varda::incremental {
TEST(RoundMachine, BeginsInTheWaitingPhase) { EXPECT_EQ(State{}.phase, Phase::kWaiting); }
}  // namespace varda::incremental
