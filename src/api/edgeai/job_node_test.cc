#include "api/edgeai/job_node.h"

#include <gtest/gtest.h>
#include <string>
#include <vector>

namespace varda::api {
namespace job_node_test {

TEST(JobNode, NameFollowsTheUidAndIsANodesName) {
  const std::string name = job_node_name("7c0e8bd6-1f6c-4c1c-9d58-9d0a4e1b8c11");
  EXPECT_TRUE(is_job_node(name));
  EXPECT_EQ(name.size(), kJobNodePrefix.size() + 16);
  EXPECT_EQ(meta::check_dns_subdomain(name), "");
  EXPECT_NE(name, job_node_name("another"));
  EXPECT_FALSE(is_job_node("edge0"));
}

TEST(JobNode, TokenIsReadFromTheAnnotationInOneFormOnly) {
  const JobToken token{std::string(12, 'a'), std::string(64, '0')};
  meta::ObjectMeta metadata;
  EXPECT_FALSE(job_token_of(metadata));
  metadata.annotations[std::string(kJobTokenAnnotation)] = token.text();
  ASSERT_TRUE(job_token_of(metadata));
  EXPECT_EQ(job_token_of(metadata)->id, token.id);
  EXPECT_EQ(job_token_of(metadata)->secret_sha256, token.secret_sha256);
  const std::string good = token.text();
  const std::vector<std::string> wrongs{"",
                                        ".",
                                        token.id,
                                        good + "0",
                                        "A" + good.substr(1),
                                        token.id + "-" + token.secret_sha256,
                                        good.substr(0, 76) + "g"};
  for (const std::string& wrong : wrongs) {
    metadata.annotations[std::string(kJobTokenAnnotation)] = wrong;
    EXPECT_FALSE(job_token_of(metadata)) << wrong;
  }
}

}  // namespace job_node_test
}  // namespace varda::api
