#include "apiserver/bootstrap.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "codec/yaml.h"
#include "meta/object.h"
#include "net/validity.h"

namespace varda::apiserver {
namespace {

using namespace std::chrono_literals;

class BootstrapClock final : public Clock {
 public:
  SteadyTime now() const override { return steady; }
  WallTime wall() const override { return shown; }
  SteadyTime steady{};
  WallTime shown = std::chrono::sys_days(std::chrono::year(2026) / 11 / 23);
};

class Bootstrap : public ::testing::Test {
 protected:
  Bootstrap() : dir_(::testing::TempDir() + "bootstrap-" + system_rng().uuid()) {}
  ~Bootstrap() override { (void)fs_.remove_all(dir_); }

  Credentials load(std::vector<std::string> nodes, std::vector<std::string> hosts = {}) {
    return load_or_create_credentials(
               fs_, {.data_dir = dir_, .nodes = std::move(nodes), .hosts = std::move(hosts)},
               system_rng(), clock_)
        .value();
  }
  static net::CertificateFacts facts(const std::string& pem) {
    return net::certificate_facts(pem).value();
  }
  static bool valid_at(const Credentials& credentials, WallTime time) {
    return !net::must_be_renewed(facts(credentials.ca_pem), 0h, time) &&
           !net::must_be_renewed(facts(credentials.tls.certificate_pem), 0h, time);
  }
  std::uint32_t mode(const os::Path& path) { return fs_.stat(path).value()->mode & 0777; }

  os::FileSystem& fs_ = os::real_file_system();
  const os::Path dir_;
  BootstrapClock clock_;
};

TEST_F(Bootstrap, CredentialsSurviveRestartAndNewNodeGetsToken) {
  const Credentials first = load({"cloud"});
  const Credentials second = load({"cloud", "edge0"});
  EXPECT_EQ(first.ca_pem, second.ca_pem);
  EXPECT_EQ(first.tls.certificate_pem, second.tls.certificate_pem);
  EXPECT_EQ(first.token(kAdmin), second.token(kAdmin));
  EXPECT_EQ(first.token("system:node:cloud"), second.token("system:node:cloud"));
  EXPECT_EQ(first.token("system:node:edge0"), "");
  EXPECT_EQ(second.token("system:node:edge0").size(), 64u);
}

TEST_F(Bootstrap, DataDirectoryIsNotWritableForOthers) {
  ASSERT_TRUE(fs_.make_directories(dir_, 0755).ok());
  ASSERT_TRUE(fs_.set_mode(dir_, 0777).ok());
  load({"cloud"});
  EXPECT_EQ(mode(dir_), 0755u) << "they could put another tokens.json there";
}

TEST_F(Bootstrap, SecretFilesAreReadableByOwnerOnly) {
  const Credentials credentials = load({"cloud"});
  ASSERT_TRUE(
      write_kubeconfig(fs_, dir_ / "kubeconfig", credentials, "https://127.0.0.1:1", kAdmin).ok());
  EXPECT_EQ(mode(dir_ / "pki"), 0700u);
  EXPECT_EQ(mode(dir_ / "pki" / "ca.key"), 0600u);
  EXPECT_EQ(mode(dir_ / "pki" / "server.key"), 0600u);
  EXPECT_EQ(mode(dir_ / "tokens.json"), 0600u);
  EXPECT_EQ(mode(dir_ / "kubeconfig"), 0600u);
}

TEST_F(Bootstrap, NewHostGetsNewCertificateOfTheSameCa) {
  const Credentials first = load({});
  const Credentials second = load({}, {"192.0.2.7"});
  EXPECT_EQ(first.ca_pem, second.ca_pem);
  EXPECT_NE(first.tls.certificate_pem, second.tls.certificate_pem);
}

// The age of the file is irrelevant: `cp -r` resets it.
TEST_F(Bootstrap, ServerCertificateIsRenewedByItsDates) {
  const Credentials first = load({});
  clock_.shown += 24h * 240;
  EXPECT_EQ(load({}).tls.certificate_pem, first.tls.certificate_pem);
  clock_.shown += 24h * 60;
  const Credentials renewed = load({});
  EXPECT_NE(renewed.tls.certificate_pem, first.tls.certificate_pem);
  EXPECT_EQ(renewed.ca_pem, first.ca_pem);
  EXPECT_GT(facts(renewed.tls.certificate_pem).not_after, clock_.shown + 24h * 300);
  EXPECT_EQ(load({}).tls.certificate_pem, renewed.tls.certificate_pem);
}

TEST_F(Bootstrap, FirstStartWithWrongClockIsRepaired) {
  const WallTime right = clock_.shown;
  for (const WallTime wrong : {WallTime(10s), right + 24h, right + 24h * 365 * 100}) {
    ASSERT_TRUE(fs_.remove_all(dir_).ok());
    clock_.shown = wrong;
    const Credentials first = load({});
    EXPECT_TRUE(valid_at(first, wrong));
    clock_.shown = right;
    const Credentials second = load({});
    EXPECT_EQ(second.ca_pem, first.ca_pem) << "the kubeconfig of clients stays good";
    EXPECT_TRUE(valid_at(second, right));
    EXPECT_TRUE(valid_at(second, right + 24h * 200));
  }
}

// CAs made under a wrong clock, or simply old.
TEST_F(Bootstrap, InvalidCaGetsNewDatesAndKeepsItsKey) {
  const WallTime now = clock_.shown;
  for (const net::Validity& dates :
       {net::Validity{now - 48h, now - 24h}, net::Validity{now + 24h, now + 24h * 3650},
        net::Validity{now - 24h * 3000, now + 24h * 650}}) {
    ASSERT_TRUE(fs_.remove_all(dir_).ok());
    const Credentials first = load({});
    const net::KeyPair made = *net::make_ca("varda-ca", dates);
    ASSERT_TRUE(os::write_file_atomically(fs_, dir_ / "pki/ca.crt", made.certificate_pem).ok());
    ASSERT_TRUE(os::write_file_atomically(fs_, dir_ / "pki/ca.key", made.key_pem, 0600).ok());
    ASSERT_TRUE(fs_.remove(dir_ / "pki/server.crt").ok());
    const Credentials renewed = load({});
    EXPECT_TRUE(valid_at(renewed, now));
    EXPECT_GE(facts(renewed.ca_pem).not_after, now + 24h * 365 * 20);
    EXPECT_EQ(facts(renewed.ca_pem).key_sha256, facts(made.certificate_pem).key_sha256);
    EXPECT_EQ(load({}).ca_pem, renewed.ca_pem);
    EXPECT_EQ(mode(dir_ / "pki/ca.key"), 0600u);
  }
}

TEST_F(Bootstrap, UnreadableOrMismatchedCertificateIsReplaced) {
  const Credentials first = load({});
  for (const std::string& pem : {std::string("nonsense"), first.ca_pem}) {
    ASSERT_TRUE(os::write_file_atomically(fs_, dir_ / "pki/server.crt", pem).ok());
    const Credentials next = load({});
    EXPECT_TRUE(valid_at(next, clock_.shown));
    EXPECT_NE(next.tls.certificate_pem, pem);
  }
  ASSERT_TRUE(os::write_file_atomically(fs_, dir_ / "pki/ca.crt", "nonsense").ok());
  const auto broken = load_or_create_credentials(fs_, {.data_dir = dir_, .nodes = {}, .hosts = {}},
                                                 system_rng(), clock_);
  ASSERT_FALSE(broken.ok());
  EXPECT_THAT(broken.error().message(), ::testing::HasSubstr((dir_ / "pki/ca.crt").string()));
}

TEST_F(Bootstrap, RunningServerGetsRenewedCertificate) {
  const Credentials first = load({"cloud"});
  std::vector<std::string> used;
  Status answer;
  CertificateRenewal renewal(
      fs_, {.data_dir = dir_, .nodes = {"cloud"}, .hosts = {}}, first,
      [&](const Credentials& credentials) {
        used.push_back(credentials.tls.certificate_pem);
        return answer;
      },
      system_rng(), clock_);
  renewal.step();
  clock_.shown += 24h * 240;
  renewal.step();
  EXPECT_EQ(used.size(), 0u);
  clock_.shown += 24h * 10;
  answer = Error(Code::kInternal, "the server says no");
  renewal.step();
  renewal.step();
  ASSERT_EQ(used.size(), 1u) << "not at once again";
  answer = {};
  clock_.steady += 10min;
  renewal.step();
  ASSERT_EQ(used.size(), 2u);
  EXPECT_GT(facts(used.back()).not_after, clock_.shown + 24h * 300);
  renewal.step();
  EXPECT_EQ(used.size(), 2u);
  clock_.shown += 24h * 365 * 10;  // the clock jumps, as when it is first set
  renewal.step();
  ASSERT_EQ(used.size(), 3u);
  EXPECT_GT(facts(used.back()).not_after, clock_.shown);
}

TEST_F(Bootstrap, BrokenTokensFileIsNamedInError) {
  load({});
  ASSERT_TRUE(os::write_file_atomically(fs_, dir_ / "tokens.json", "{").ok());
  const auto broken = load_or_create_credentials(fs_, {.data_dir = dir_, .nodes = {}, .hosts = {}},
                                                 system_rng(), clock_);
  ASSERT_FALSE(broken.ok());
  EXPECT_EQ(broken.error().code(), Code::kCorrupt);
  EXPECT_THAT(broken.error().message(), ::testing::HasSubstr("tokens.json"));
}

/// A clock that moves only in pass().
class HandClock final : public Clock {
 public:
  SteadyTime now() const override { return SteadyTime(passed_); }
  WallTime wall() const override { return *meta::parse_time("2024-05-01T10:00:00Z") + passed_; }
  void pass(std::chrono::milliseconds time) { passed_ += time; }

 private:
  std::chrono::milliseconds passed_{1000};
};

class TokenFile : public Bootstrap {
 protected:
  std::string caller(const Authenticator& tokens, const std::string& token) {
    net::Request request;
    request.headers.add("Authorization", "Bearer " + token);
    const auto identity = tokens.authenticate(request);
    return identity ? identity->name : "";
  }
  HandClock clock_;
};

TEST_F(TokenFile, RotatedTokenReplacesFormerTokenWithoutRestart) {
  const Credentials credentials = load({"edge0"});
  const auto tokens = token_file_authenticator(fs_, dir_, clock_).value();
  const std::string old = credentials.token("system:node:edge0");
  EXPECT_EQ(caller(*tokens, old), "system:node:edge0");
  const Token made =
      rotate_token(fs_, dir_, "system:node:edge0", std::nullopt, system_rng()).value();
  EXPECT_EQ(made.identity.groups, std::vector<std::string>{"system:nodes"});
  EXPECT_EQ(caller(*tokens, old), "system:node:edge0") << "it looks once a second";
  clock_.pass(std::chrono::milliseconds(100));
  EXPECT_EQ(caller(*tokens, made.token), "system:node:edge0")
      << "an unknown token is looked for at once";
  EXPECT_EQ(caller(*tokens, old), "");
  clock_.pass(std::chrono::seconds(1));
  EXPECT_EQ(caller(*tokens, old), "");
  EXPECT_EQ(caller(*tokens, made.token), "system:node:edge0");
  EXPECT_EQ(caller(*tokens, credentials.token(kAdmin)), kAdmin);
  EXPECT_EQ(mode(dir_ / "tokens.json"), 0600u);
  EXPECT_EQ(load({"edge0"}).token("system:node:edge0"), made.token);
  EXPECT_EQ(rotate_token(fs_, dir_, "nobody", std::nullopt, system_rng()).error().code(),
            Code::kNotFound);
}

TEST_F(TokenFile, TokenIsRefusedAfterExpiry) {
  load({"edge0"});
  const auto expires = clock_.wall() + std::chrono::seconds(10);
  const Token made = rotate_token(fs_, dir_, "system:node:edge0", expires, system_rng()).value();
  EXPECT_EQ(list_tokens(fs_, dir_)->back().expires, expires);
  const auto tokens = token_file_authenticator(fs_, dir_, clock_).value();
  clock_.pass(std::chrono::seconds(9));
  EXPECT_EQ(caller(*tokens, made.token), "system:node:edge0");
  clock_.pass(std::chrono::seconds(1));
  EXPECT_EQ(caller(*tokens, made.token), "");
  // The token expired long ago by the machine's clock, so the next start issues another one.
  const std::string next = load({"edge0"}).token("system:node:edge0");
  EXPECT_NE(next, made.token);
  EXPECT_EQ(next.size(), 64u);
}

TEST_F(TokenFile, BrokenFileKeepsKnownTokens) {
  const Credentials credentials = load({});
  const auto tokens = token_file_authenticator(fs_, dir_, clock_).value();
  for (const char* text : {"{", R"([{"token": "t", "user": "u", "expires": "soon"}])"}) {
    ASSERT_TRUE(os::write_file_atomically(fs_, dir_ / "tokens.json", text).ok());
    clock_.pass(std::chrono::seconds(1));
    EXPECT_EQ(caller(*tokens, credentials.token(kAdmin)), kAdmin) << text;
  }
  ASSERT_TRUE(fs_.remove(dir_ / "tokens.json").ok());
  clock_.pass(std::chrono::seconds(1));
  EXPECT_EQ(caller(*tokens, credentials.token(kAdmin)), kAdmin);
  ASSERT_TRUE(
      os::write_file_atomically(fs_, dir_ / "tokens.json", R"([{"token": "t", "user": "u"}])")
          .ok());
  clock_.pass(std::chrono::seconds(1));
  EXPECT_EQ(caller(*tokens, "t"), "u");
  EXPECT_EQ(caller(*tokens, credentials.token(kAdmin)), "");
}

TEST_F(TokenFile, NewTokenIsWrittenToKubeconfigs) {
  const Credentials credentials = load({"edge0"});
  ASSERT_TRUE(
      write_kubeconfig(fs_, dir_ / "kubeconfig", credentials, "https://127.0.0.1:6443", kAdmin)
          .ok());
  ASSERT_TRUE(
      write_agent_kubeconfig(fs_, dir_, credentials, "https://127.0.0.1:6443", "system:node:edge0")
          .ok());
  EXPECT_EQ(mode(dir_ / "agent.token"), 0600u);
  EXPECT_EQ(mode(dir_ / "agent.kubeconfig"), 0600u);
  EXPECT_EQ(os::read_file(fs_, dir_ / "agent.token").value(),
            credentials.token("system:node:edge0") + "\n");
  for (const char* name : {"kubeconfig", "agent.kubeconfig"}) {
    EXPECT_TRUE(put_token(fs_, dir_ / name, "another").value());
    const codec::Json config = codec::parse_yaml(os::read_file(fs_, dir_ / name).value()).value();
    EXPECT_EQ(config.at("users/0/user/token").as_string(), "another");
    EXPECT_EQ(config.at("clusters/0/cluster/server").as_string(), "https://127.0.0.1:6443");
    EXPECT_EQ(mode(dir_ / name), 0600u);
  }
  EXPECT_EQ(os::read_file(fs_, dir_ / "agent.token").value(), "another\n");
  EXPECT_FALSE(put_token(fs_, dir_ / "none", "another").value());
}

TEST_F(Bootstrap, KubeconfigNamesServerUserAndToken) {
  const Credentials credentials = load({});
  const codec::Json config =
      codec::parse_yaml(make_kubeconfig(credentials, "https://127.0.0.1:6443", kAdmin)).value();
  EXPECT_EQ(config.at("clusters/0/cluster/server").as_string(), "https://127.0.0.1:6443");
  EXPECT_EQ(config.at("users/0/user/token").as_string(), credentials.token(kAdmin));
  EXPECT_EQ(config.at("contexts/0/context/user").as_string(), kAdmin);
}

}  // namespace
}  // namespace varda::apiserver
