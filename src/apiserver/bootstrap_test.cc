#include "apiserver/bootstrap.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "codec/yaml.h"
#include "meta/object.h"

namespace varda::apiserver {
namespace {

class Bootstrap : public ::testing::Test {
 protected:
  Bootstrap() : dir_(::testing::TempDir() + "bootstrap-" + system_rng().uuid()) {}
  ~Bootstrap() override { (void)fs_.remove_all(dir_); }

  Credentials load(std::vector<std::string> nodes, std::vector<std::string> hosts = {}) {
    return load_or_create_credentials(fs_, {.data_dir = dir_, .nodes = std::move(nodes), .hosts = std::move(hosts)}, system_rng())
        .value();
  }
  std::uint32_t mode(const os::Path& path) { return fs_.stat(path).value()->mode & 0777; }

  os::FileSystem& fs_ = os::real_file_system();
  const os::Path dir_;
};

TEST_F(Bootstrap, CredentialsSurviveARestartAndNewNodesJoin) {
  const Credentials first = load({"cloud"});
  const Credentials second = load({"cloud", "edge0"});
  EXPECT_EQ(first.ca_pem, second.ca_pem);
  EXPECT_EQ(first.tls.certificate_pem, second.tls.certificate_pem);
  EXPECT_EQ(first.token(kAdmin), second.token(kAdmin));
  EXPECT_EQ(first.token("system:node:cloud"), second.token("system:node:cloud"));
  EXPECT_EQ(first.token("system:node:edge0"), "");
  EXPECT_EQ(second.token("system:node:edge0").size(), 64u);
}

TEST_F(Bootstrap, SecretsAreTheOwnersAlone) {
  const Credentials credentials = load({"cloud"});
  ASSERT_TRUE(write_kubeconfig(fs_, dir_ / "kubeconfig", credentials, "https://127.0.0.1:1", kAdmin).ok());
  EXPECT_EQ(mode(dir_ / "pki"), 0700u);
  EXPECT_EQ(mode(dir_ / "pki" / "ca.key"), 0600u);
  EXPECT_EQ(mode(dir_ / "pki" / "server.key"), 0600u);
  EXPECT_EQ(mode(dir_ / "tokens.json"), 0600u);
  EXPECT_EQ(mode(dir_ / "kubeconfig"), 0600u);
}

TEST_F(Bootstrap, AnotherHostMakesAnotherCertificateOfTheSameCa) {
  const Credentials first = load({});
  const Credentials second = load({}, {"192.0.2.7"});
  EXPECT_EQ(first.ca_pem, second.ca_pem);
  EXPECT_NE(first.tls.certificate_pem, second.tls.certificate_pem);
}

TEST_F(Bootstrap, BrokenTokensFileSaysWhichFileAndWhatToDo) {
  load({});
  ASSERT_TRUE(os::write_file_atomically(fs_, dir_ / "tokens.json", "{").ok());
  const auto broken = load_or_create_credentials(fs_, {.data_dir = dir_, .nodes = {}, .hosts = {}}, system_rng());
  ASSERT_FALSE(broken.ok());
  EXPECT_EQ(broken.error().code(), Code::kCorrupt);
  EXPECT_THAT(broken.error().message(), ::testing::HasSubstr("tokens.json"));
}

/// Stands still unless it is moved.
class HandClock final : public Clock {
 public:
  SteadyTime now() const override { return SteadyTime(passed_); }
  WallTime wall() const override { return *meta::parse_time("2024-05-01T10:00:00Z") + passed_; }
  void pass(std::chrono::seconds time) { passed_ += time; }

 private:
  std::chrono::seconds passed_{1};
};

class TokenFile : public Bootstrap {
 protected:
  std::string who(const Authenticator& tokens, const std::string& token) {
    net::Request request;
    request.headers.add("Authorization", "Bearer " + token);
    const auto identity = tokens.authenticate(request);
    return identity ? identity->name : "";
  }
  HandClock clock_;
};

TEST_F(TokenFile, ARotatedTokenCountsAndTheFormerDoesNotWithoutARestart) {
  const Credentials credentials = load({"edge0"});
  const auto tokens = token_file_authenticator(fs_, dir_, clock_).value();
  const std::string old = credentials.token("system:node:edge0");
  EXPECT_EQ(who(*tokens, old), "system:node:edge0");
  const Token made = rotate_token(fs_, dir_, "system:node:edge0", std::nullopt, system_rng()).value();
  EXPECT_EQ(made.identity.groups, std::vector<std::string>{"system:nodes"});
  EXPECT_EQ(who(*tokens, old), "system:node:edge0") << "it looks once a second";
  clock_.pass(std::chrono::seconds(1));
  EXPECT_EQ(who(*tokens, old), "");
  EXPECT_EQ(who(*tokens, made.token), "system:node:edge0");
  EXPECT_EQ(who(*tokens, credentials.token(kAdmin)), kAdmin);
  EXPECT_EQ(mode(dir_ / "tokens.json"), 0600u);
  EXPECT_EQ(load({"edge0"}).token("system:node:edge0"), made.token);
  EXPECT_EQ(rotate_token(fs_, dir_, "nobody", std::nullopt, system_rng()).error().code(), Code::kNotFound);
}

TEST_F(TokenFile, ATokenEndsWhenItExpires) {
  load({"edge0"});
  const auto expires = clock_.wall() + std::chrono::seconds(10);
  const Token made = rotate_token(fs_, dir_, "system:node:edge0", expires, system_rng()).value();
  EXPECT_EQ(list_tokens(fs_, dir_)->back().expires, expires);
  const auto tokens = token_file_authenticator(fs_, dir_, clock_).value();
  clock_.pass(std::chrono::seconds(9));
  EXPECT_EQ(who(*tokens, made.token), "system:node:edge0");
  clock_.pass(std::chrono::seconds(1));
  EXPECT_EQ(who(*tokens, made.token), "");
  // The token ended long ago by the machine's clock. The next start makes another one.
  const std::string next = load({"edge0"}).token("system:node:edge0");
  EXPECT_NE(next, made.token);
  EXPECT_EQ(next.size(), 64u);
}

TEST_F(TokenFile, ABrokenFileLeavesTheTokensThatWereKnown) {
  const Credentials credentials = load({});
  const auto tokens = token_file_authenticator(fs_, dir_, clock_).value();
  for (const char* text : {"{", R"([{"token": "t", "user": "u", "expires": "soon"}])"}) {
    ASSERT_TRUE(os::write_file_atomically(fs_, dir_ / "tokens.json", text).ok());
    clock_.pass(std::chrono::seconds(1));
    EXPECT_EQ(who(*tokens, credentials.token(kAdmin)), kAdmin) << text;
  }
  ASSERT_TRUE(fs_.remove(dir_ / "tokens.json").ok());
  clock_.pass(std::chrono::seconds(1));
  EXPECT_EQ(who(*tokens, credentials.token(kAdmin)), kAdmin);
  ASSERT_TRUE(os::write_file_atomically(fs_, dir_ / "tokens.json", R"([{"token": "t", "user": "u"}])").ok());
  clock_.pass(std::chrono::seconds(1));
  EXPECT_EQ(who(*tokens, "t"), "u");
  EXPECT_EQ(who(*tokens, credentials.token(kAdmin)), "");
}

TEST_F(TokenFile, KubeconfigsGetTheNewToken) {
  const Credentials credentials = load({"edge0"});
  ASSERT_TRUE(write_kubeconfig(fs_, dir_ / "kubeconfig", credentials, "https://127.0.0.1:6443", kAdmin).ok());
  ASSERT_TRUE(write_agent_kubeconfig(fs_, dir_, credentials, "https://127.0.0.1:6443", "system:node:edge0").ok());
  EXPECT_EQ(mode(dir_ / "agent.token"), 0600u);
  EXPECT_EQ(mode(dir_ / "agent.kubeconfig"), 0600u);
  EXPECT_EQ(os::read_file(fs_, dir_ / "agent.token").value(), credentials.token("system:node:edge0") + "\n");
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
  const codec::Json config = codec::parse_yaml(make_kubeconfig(credentials, "https://127.0.0.1:6443", kAdmin)).value();
  EXPECT_EQ(config.at("clusters/0/cluster/server").as_string(), "https://127.0.0.1:6443");
  EXPECT_EQ(config.at("users/0/user/token").as_string(), credentials.token(kAdmin));
  EXPECT_EQ(config.at("contexts/0/context/user").as_string(), kAdmin);
}

}  // namespace
}  // namespace varda::apiserver
