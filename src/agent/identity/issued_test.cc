#include "agent/identity/issued.h"

#include <gtest/gtest.h>

#include "artifact/testing/manual_clock.h"
#include "codec/digest.h"
#include "os/testing/memory_file_system.h"

namespace varda::agent::identity {
namespace issued_test {

using artifact::testing::ManualClock;

class IssuedIdentityTest : public ::testing::Test {
 protected:
  Result<net::CertificateFacts> issue_for(const std::string& node) {
    return issue(fs_, "/data/identity", node,
                 {.ca_pem = ca_.certificate_pem, .sign = [this, node](const std::string& csr) {
                    return net::sign_csr(
                        ca_, csr,
                        {.common_name = node, .organizations = {}, .hosts = {}, .peer = true});
                  }});
  }
  std::function<std::optional<PeerCredentials>()> credentials_of(const std::string& node) {
    return issued_credentials("/data/identity", node, fs_, clock_);
  }

  const net::KeyPair ca_ = net::make_ca("edge", std::chrono::hours(24)).value();
  os::testing::MemoryFileSystem fs_;
  ManualClock clock_;
};

TEST_F(IssuedIdentityTest, NodeWithoutIdentityHasNoCredentialsAndCreatesNoFiles) {
  EXPECT_EQ(credentials_of("edge0")(), std::nullopt);
  EXPECT_FALSE(fs_.stat("/data/identity").value());
}

TEST_F(IssuedIdentityTest, RunningAgentUsesTheNewCertificateOfTheSameKey) {
  const auto first = issue_for("edge0");
  ASSERT_TRUE(first.ok()) << first.error();
  EXPECT_EQ(first->common_name, "edge0");
  const auto credentials = credentials_of("edge0");
  const auto before = credentials();
  ASSERT_TRUE(before);
  EXPECT_EQ(before->ca_pem, ca_.certificate_pem);
  EXPECT_EQ(net::key_sha256(before->key_pem).value(), first->key_sha256);
  const auto second = issue_for("edge0");
  ASSERT_TRUE(second.ok()) << second.error();
  EXPECT_EQ(second->key_sha256, first->key_sha256);
  EXPECT_EQ(credentials(), before);
  clock_.advance(std::chrono::seconds(11));
  const auto after = credentials();
  ASSERT_TRUE(after);
  EXPECT_NE(after->certificate_pem, before->certificate_pem);
}

TEST_F(IssuedIdentityTest, LastIdentityStaysWhileFilesAreUnreadable) {
  ASSERT_TRUE(issue_for("edge0").ok());
  const auto credentials = credentials_of("edge0");
  ASSERT_TRUE(credentials());
  ASSERT_TRUE(os::write_file_atomically(fs_, "/data/identity/cert.pem", "garbage").ok());
  clock_.advance(std::chrono::seconds(11));
  EXPECT_TRUE(credentials());
}

TEST_F(IssuedIdentityTest, IdentityOfAnotherNodeIsNotUsed) {
  ASSERT_TRUE(issue_for("edge0").ok());
  EXPECT_EQ(credentials_of("edge1")(), std::nullopt);
}

}  // namespace issued_test
}  // namespace varda::agent::identity
