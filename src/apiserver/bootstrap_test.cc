#include "apiserver/bootstrap.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "codec/yaml.h"

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

TEST_F(Bootstrap, KubeconfigNamesServerUserAndToken) {
  const Credentials credentials = load({});
  const codec::Json config = codec::parse_yaml(make_kubeconfig(credentials, "https://127.0.0.1:6443", kAdmin)).value();
  EXPECT_EQ(config.at("clusters/0/cluster/server").as_string(), "https://127.0.0.1:6443");
  EXPECT_EQ(config.at("users/0/user/token").as_string(), credentials.token(kAdmin));
  EXPECT_EQ(config.at("contexts/0/context/user").as_string(), kAdmin);
}

}  // namespace
}  // namespace varda::apiserver
