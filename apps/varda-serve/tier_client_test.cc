#include "tier_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "net/server.h"
#include "net/validity.h"
#include "os/testing/memory_file_system.h"

namespace varda::serve::tier_client_test {
namespace {

using ::testing::HasSubstr;

class HandClock final : public Clock {
 public:
  SteadyTime now() const override { return now_; }
  WallTime wall() const override { return {}; }
  void advance(Duration by) { now_ += by; }

 private:
  SteadyTime now_{};
};

struct Authority {
  net::KeyPair ca = net::make_ca("ca", std::chrono::hours(1)).value();
  net::KeyPair certificate(WallTime end = std::chrono::system_clock::now() +
                                          std::chrono::hours(1)) const {
    return net::make_certificate(ca, {.common_name = "tier", .hosts = {"127.0.0.1"}, .peer = true},
                                 {.not_before = net::kClocksBegin, .not_after = end})
        .value();
  }
};

class TierClientTest : public ::testing::Test {
 protected:
  void write(const char* path, const std::string& text) {
    ASSERT_TRUE(os::write_file_atomically(fs_, path, text).ok());
  }
  /// A later tier that answers with the client's token and name.
  std::unique_ptr<net::Server> serve(std::optional<net::TlsServer> tls) {
    return net::Server::create(
               {.tls = std::move(tls)}, net::inline_handler([](const net::Request& request) {
                 const std::string token(request.headers.find("Authorization").value_or("none"));
                 return net::Response{
                     200, {}, token + " of " + request.peer.certificate_common_name, nullptr};
               }))
        .value();
  }
  std::string answer_of(net::HttpClient& client, const net::Server& server,
                        const char* scheme = "https") {
    const auto answer = client.call(Context::background().with_timeout(std::chrono::seconds(60)),
                                    {.url = scheme + ("://" + server.address()) + "/"});
    return answer.ok() ? answer->body : answer.error().message();
  }

  const Authority authority_{};
  os::testing::MemoryFileSystem fs_;
  const ReadFile read_ = read_from(fs_);
  HandClock clock_;
  const TierFiles files_{
      .ca = "/ca.crt", .certificate = "/tls.crt", .key = "/tls.key", .tokens = "/token"};
};

TEST_F(TierClientTest, ClientSendsTokenAndCertificateToTrustedTiersOnly) {
  const net::KeyPair own = authority_.certificate(), remote = authority_.certificate();
  write("/ca.crt", authority_.ca.certificate_pem);
  write("/tls.crt", own.certificate_pem);
  write("/tls.key", own.key_pem);
  write("/token", "first\nsecond\n");
  const auto client = make_tier_client({}, files_, read_, clock_);
  const auto closed = serve(net::TlsServer{.certificate_pem = remote.certificate_pem,
                                           .key_pem = remote.key_pem,
                                           .client_ca_pem = authority_.ca.certificate_pem});
  EXPECT_EQ(answer_of(*client, *closed), "Bearer first of tier");
  EXPECT_EQ(answer_of(*client, *serve(std::nullopt), "http"), "none of ") << "no token in the open";
  // The client uses the changed token after the next reading.
  write("/token", "next");
  EXPECT_EQ(answer_of(*client, *closed), "Bearer first of tier");
  clock_.advance(std::chrono::seconds(1));
  EXPECT_EQ(answer_of(*client, *closed), "Bearer next of tier");
}

TEST_F(TierClientTest, ErrorNamesWhyATierIsNotTrusted) {
  const auto client = make_tier_client({}, {.ca = "/ca.crt"}, read_, clock_);
  const net::KeyPair good = authority_.certificate();
  const auto server =
      serve(net::TlsServer{.certificate_pem = good.certificate_pem, .key_pem = good.key_pem});
  EXPECT_THAT(answer_of(*client, *server), HasSubstr("/ca.crt")) << "the file is missing";
  write("/ca.crt", Authority().ca.certificate_pem);
  clock_.advance(std::chrono::seconds(1));
  EXPECT_THAT(answer_of(*client, *server), HasSubstr("certificate verify failed"));
  write("/ca.crt", authority_.ca.certificate_pem);
  clock_.advance(std::chrono::seconds(1));
  EXPECT_EQ(answer_of(*client, *server), "none of ");
  const net::KeyPair ended =
      authority_.certificate(std::chrono::system_clock::now() - std::chrono::hours(1));
  const auto late =
      serve(net::TlsServer{.certificate_pem = ended.certificate_pem, .key_pem = ended.key_pem});
  EXPECT_THAT(answer_of(*client, *late), HasSubstr("certificate has expired"));
  // The last authority stays in force while the file is torn.
  write("/ca.crt", "-----BEGIN");
  clock_.advance(std::chrono::seconds(1));
  EXPECT_EQ(answer_of(*client, *server), "none of ");
}

TEST_F(TierClientTest, ClientWithoutTlsSendsTheTokenOverPlainHttp) {
  write("/token", "first");
  const auto client = make_tier_client({}, {.tokens = "/token"}, read_, clock_);
  EXPECT_EQ(answer_of(*client, *serve(std::nullopt), "http"), "Bearer first of ");
}

}  // namespace
}  // namespace varda::serve::tier_client_test
