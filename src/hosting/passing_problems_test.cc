#include "hosting/passing_problems.h"

#include <gtest/gtest.h>

namespace varda::hosting {
namespace passing_problems_test {

using std::chrono::seconds;

meta::Condition condition(std::string reason, std::string message = "") {
  meta::Condition out;
  out.type = "Ready";
  out.status = "False";
  out.reason = std::move(reason);
  out.message = std::move(message);
  return out;
}

const meta::ObjectKey kModel{"default", "digits"};
SteadyTime at(int second) { return SteadyTime{seconds(1000 + second)}; }

TEST(PassingProblems, LastingProblemIsReportedOnce) {
  PassingProblems problems;
  const meta::Condition now = condition("Unschedulable");
  EXPECT_FALSE(problems.due(kModel, nullptr, now, at(0)));
  EXPECT_EQ(problems.wait(kModel, at(5)), seconds(15));
  EXPECT_FALSE(problems.due(kModel, &now, now, at(5)));
  EXPECT_TRUE(problems.due(kModel, &now, now, at(20)));
  EXPECT_FALSE(problems.due(kModel, &now, now, at(40)));
  EXPECT_EQ(problems.wait(kModel, at(40)), std::nullopt);
}

TEST(PassingProblems, ClearedProblemIsNotReported) {
  PassingProblems problems;
  const meta::Condition now = condition("ServerUnreachable");
  EXPECT_FALSE(problems.due(kModel, nullptr, now, at(0)));
  problems.clear(kModel, "Ready");
  EXPECT_EQ(problems.wait(kModel, at(1)), std::nullopt);
  EXPECT_FALSE(problems.due(kModel, nullptr, now, at(30))) << "it is another one";
}

TEST(PassingProblems, ProblemOfFormerOperatorIsNotReportedAgain) {
  PassingProblems problems;
  const meta::Condition now = condition("AgentMissing");
  EXPECT_FALSE(problems.due(kModel, &now, now, at(0)));
  EXPECT_EQ(problems.wait(kModel, at(0)), std::nullopt);
  EXPECT_FALSE(problems.due(kModel, &now, now, at(60)));
}

TEST(PassingProblems, OtherProblemsAreReportedAtOnceOnChange) {
  PassingProblems problems;
  const meta::Condition first = condition("DigestMismatch", "a"),
                        second = condition("DigestMismatch", "b");
  EXPECT_TRUE(problems.due(kModel, nullptr, first, at(0)));
  EXPECT_FALSE(problems.due(kModel, &first, first, at(1)));
  EXPECT_TRUE(problems.due(kModel, &first, second, at(2)));
}

}  // namespace passing_problems_test
}  // namespace varda::hosting
