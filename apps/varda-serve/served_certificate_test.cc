#include "served_certificate.h"

#include <gtest/gtest.h>
#include <vector>

#include "net/certificates.h"
#include "os/testing/memory_file_system.h"

namespace varda::serve::served_certificate_test {
namespace {

class ServedCertificateTest : public ::testing::Test {
 protected:
  void write(const char* path, const std::string& text) {
    ASSERT_TRUE(os::write_file_atomically(fs_, path, text).ok());
  }
  net::KeyPair put(const char* name) {
    net::KeyPair pair = net::make_ca(name, std::chrono::hours(1)).value();
    write("/tls.crt", pair.certificate_pem);
    write("/tls.key", pair.key_pem);
    return pair;
  }
  void check(ServedCertificate& served) {
    served.check([&](const net::TlsServer& tls) {
      used_.push_back(tls);
      return Status();
    });
  }

  os::testing::MemoryFileSystem fs_;
  const ReadFile read_ = read_from(fs_);
  const ServedFiles files_{.certificate = "/tls.crt", .key = "/tls.key", .client_ca = "/ca.crt"};
  std::vector<net::TlsServer> used_;
};

TEST_F(ServedCertificateTest, ChangedFilesAreAppliedOnce) {
  put("first");
  write("/ca.crt", "authority");
  ServedCertificate served(files_, read_served(files_, read_).value(), read_);
  check(served);
  EXPECT_TRUE(used_.empty());
  const net::KeyPair second = put("second");
  check(served);
  check(served);
  ASSERT_EQ(used_.size(), 1u);
  EXPECT_EQ(used_.back().certificate_pem, second.certificate_pem);
  write("/ca.crt", "another authority");
  check(served);
  ASSERT_EQ(used_.size(), 2u);
  EXPECT_EQ(used_.back().client_ca_pem, "another authority");
}

TEST_F(ServedCertificateTest, TornKeyPairKeepsTheLastGoodPair) {
  put("first");
  write("/ca.crt", "authority");
  ServedCertificate served(files_, read_served(files_, read_).value(), read_);
  const net::KeyPair next = net::make_ca("second", std::chrono::hours(1)).value();
  write("/tls.crt", next.certificate_pem);
  check(served);
  write("/tls.crt", "-----BEGIN");
  check(served);
  ASSERT_TRUE(fs_.remove("/tls.crt").ok());
  check(served);
  EXPECT_TRUE(used_.empty());
  write("/tls.crt", next.certificate_pem);
  write("/tls.key", next.key_pem);
  check(served);
  EXPECT_EQ(used_.size(), 1u);
  EXPECT_EQ(read_served(files_, read_).value().key_pem, next.key_pem);
}

TEST_F(ServedCertificateTest, CertificateRefusedByTheServerIsOfferedAgain) {
  put("first");
  write("/ca.crt", "authority");
  ServedCertificate served(files_, read_served(files_, read_).value(), read_);
  put("second");
  served.check([](const net::TlsServer&) { return Status(Error(Code::kInvalid, "no")); });
  check(served);
  EXPECT_EQ(used_.size(), 1u);
}

}  // namespace
}  // namespace varda::serve::served_certificate_test
