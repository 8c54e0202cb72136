#include "model_access.h"

#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "net/server.h"

namespace varda::app::model_access_test {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

class ModelAccessTest : public ::testing::Test {
 protected:
  void SetUp() override { fs::create_directories(root_); }
  void TearDown() override { fs::remove_all(root_); }
  std::string file(const char* name, const std::string& text) const {
    std::ofstream(root_ / name) << text;
    return root_ / name;
  }
  static std::string refusal(const ModelAccessFlags& flags) {
    const auto read = read_model_access(flags);
    return read.ok() ? "" : read.error().message();
  }
  const fs::path root_ =
      fs::path(::testing::TempDir()) / ("model-access-" + std::to_string(::getpid()));
  const net::KeyPair ca_ = net::make_ca("ca", std::chrono::hours(1)).value();
  const net::KeyPair own_ =
      net::make_certificate(ca_, {.common_name = "camera", .hosts = {}}).value();
};

TEST_F(ModelAccessTest, ClientSendsTokenAndCertificateToATrustedServer) {
  const net::KeyPair served =
      net::make_certificate(ca_, {.common_name = "m", .hosts = {"127.0.0.1"}, .server = true})
          .value();
  const auto server =
      net::Server::create(
          {.tls = net::TlsServer{.certificate_pem = served.certificate_pem,
                                 .key_pem = served.key_pem,
                                 .client_ca_pem = ca_.certificate_pem}},
          net::inline_handler([](const net::Request& request) {
            const std::string token(request.headers.find("Authorization").value_or("none"));
            return net::Response{
                200, {}, token + " of " + request.peer.certificate_common_name, nullptr};
          }))
          .value();
  const auto answer_for = [&](const ModelAccessFlags& flags) {
    const auto client = make_model_client(read_model_access(flags).value());
    const auto answer = client->call(Context::background().with_timeout(std::chrono::seconds(60)),
                                     {.url = "https://" + server->address() + "/"});
    return answer.ok() ? answer->body : answer.error().message();
  };
  const std::string ca = file("ca.crt", ca_.certificate_pem);
  EXPECT_EQ(answer_for({.ca_file = ca,
                        .token_file = file("token", "first\r\nsecond\n"),
                        .cert = file("tls.crt", own_.certificate_pem),
                        .key = file("tls.key", own_.key_pem)}),
            "Bearer first of camera");
  EXPECT_EQ(answer_for({.ca_file = ca}), "none of ");
  EXPECT_THAT(answer_for({}), HasSubstr("certificate verify failed"));
}

TEST_F(ModelAccessTest, ErrorNamesTheFlagOfAnInvalidFile) {
  EXPECT_THAT(refusal({.ca_file = root_ / "none"}), HasSubstr("--ca-file"));
  EXPECT_THAT(refusal({.ca_file = file("ca.crt", "text")}), HasSubstr("--ca-file"));
  EXPECT_THAT(refusal({.token_file = file("token", "\nsecond\n")}), HasSubstr("--token-file"));
  EXPECT_EQ(refusal({.key = root_ / "tls.key"}), "--cert and --key go together");
  const std::string cert = file("tls.crt", own_.certificate_pem);
  EXPECT_THAT(refusal({.cert = cert, .key = file("tls.key", "text")}), HasSubstr("--key"));
  EXPECT_EQ(refusal({.cert = cert, .key = file("tls.key", ca_.key_pem)}),
            "--key does not belong to the certificate of --cert");
}

}  // namespace
}  // namespace varda::app::model_access_test
