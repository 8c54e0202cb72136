#include "hosting/pod_problem.h"

#include <gtest/gtest.h>

#include "codec/yaml.h"

namespace varda::hosting {
namespace pod_problem_test {

std::string reason_of(const std::string& fetch_state) {
  const auto pod = codec::parse_yaml(
      "{apiVersion: v1, kind: Pod, metadata: {name: p}, status: {phase: Pending, "
      "initContainerStatuses: [{name: fetch, " +
      fetch_state + "}]}}");
  EXPECT_TRUE(pod.ok());
  const auto problem = pod_problem(api::Pod::from_json(*pod).value());
  return problem ? problem->reason : "";
}

TEST(PodProblem, FailedFetchIsAProblem) {
  EXPECT_EQ(reason_of("state: {terminated: {exitCode: 137, reason: Error}}"), "FetchFailed");
  EXPECT_EQ(
      reason_of("state: {running: {}}, lastState: {terminated: {exitCode: 1, reason: Error}}"),
      "FetchFailed");
}

TEST(PodProblem, UnobservedContainerEndIsNoProblem) {
  EXPECT_EQ(reason_of("state: {terminated: {exitCode: 137, reason: ContainerStatusUnknown}}"), "");
  EXPECT_EQ(reason_of("state: {running: {}}, lastState: {terminated: {exitCode: 137, reason: "
                      "ContainerStatusUnknown}}"),
            "");
}

}  // namespace pod_problem_test
}  // namespace varda::hosting
