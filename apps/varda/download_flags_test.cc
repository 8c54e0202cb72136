#include "download_flags.h"

#include <cstdlib>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "os/testing/test_directory.h"
#include "testing/parse.h"

namespace varda::app {
namespace {

using os::testing::TestDirectory;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

/// Sets these variables of the environment and removes all other proxies. The destructor removes
/// all.
class ProxyVariables {
 public:
  ProxyVariables() : ProxyVariables(std::map<std::string, std::string>()) {}
  explicit ProxyVariables(const std::map<std::string, std::string>& variables) {
    clear();
    for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
  }
  ~ProxyVariables() { clear(); }
  ProxyVariables(const ProxyVariables&) = delete;
  ProxyVariables& operator=(const ProxyVariables&) = delete;

 private:
  static void clear() {
    for (const char* name : {"http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy",
                             "ALL_PROXY", "no_proxy", "NO_PROXY"})
      ::unsetenv(name);
  }
};

std::string parse_download(DownloadFlags& flags, const std::vector<std::string>& arguments) {
  return testing::parse([&](CLI::App& parser) { add_download_flags(parser, flags); }, arguments);
}

TEST(DownloadFlags, FlagsOverrideProxyEnvironmentVariables) {
  const ProxyVariables environment(
      {{"http_proxy", "http://one:1"}, {"https_proxy", "http://two:2"}, {"no_proxy", "three"}});
  const net::ClientOptions from_environment = download_client_options({}).value();
  EXPECT_EQ(from_environment.proxies.http, "http://one:1");
  EXPECT_EQ(from_environment.proxies.https, "http://two:2");
  EXPECT_EQ(from_environment.proxies.none, "three");
  EXPECT_EQ(from_environment.redirects_max, 10);
  DownloadFlags flags;
  ASSERT_EQ(
      parse_download(flags, {"--http-proxy", "given:4", "--https-proxy", "", "--no-proxy", ""}),
      "");
  const net::ClientOptions from_flags = download_client_options(flags).value();
  EXPECT_EQ(from_flags.proxies.http, "http://given:4");
  EXPECT_EQ(from_flags.proxies.https, "");  // "" means no proxy, despite the environment
  EXPECT_EQ(from_flags.proxies.none, "");
}

TEST(DownloadFlags, ArgumentsRoundTripToAnotherProcess) {
  DownloadFlags flags;
  ASSERT_EQ(
      parse_download(flags, {"--http-proxy", "", "--no-proxy", "a,b", "--ca-file", "some/../ca.pem",
                             "--allow-source", "127.0.0.1", "--allow-source", "fe80::/10"}),
      "");
  const std::vector<std::string> arguments = arguments_of(flags);
  // The other process has another working directory.
  EXPECT_THAT(arguments, ElementsAre("--http-proxy", "", "--no-proxy", "a,b", "--ca-file",
                                     std::filesystem::current_path() / "ca.pem", "--allow-source",
                                     "127.0.0.1", "--allow-source", "fe80::/10"));
  DownloadFlags parsed;
  ASSERT_EQ(parse_download(parsed, arguments), "");
  EXPECT_EQ(parsed.http_proxy, "");
  EXPECT_EQ(parsed.https_proxy, std::nullopt);
  EXPECT_EQ(parsed.no_proxy, "a,b");
  EXPECT_EQ(parsed.ca_file, std::filesystem::current_path() / "ca.pem");
  EXPECT_THAT(arguments_of(DownloadFlags()), ElementsAre());
}

TEST(DownloadFlags, LoopbackSourcesNeedAllowSource) {
  const net::Ip loopback = net::parse_ip("127.0.0.1");
  EXPECT_NE(download_client_options({})->destinations->refusal(loopback), "");
  DownloadFlags flags;
  flags.allow_sources = kLoopbackSources;
  EXPECT_EQ(download_client_options(flags)->destinations->refusal(loopback), "");
  flags.allow_sources = {"localhost"};
  EXPECT_THAT(download_client_options(flags).error().message(),
              AllOf(HasSubstr("--allow-source"), HasSubstr("localhost")));
  EXPECT_FALSE(allow_source_arguments({"localhost"}).ok());
  EXPECT_THAT(*allow_source_arguments({"10.0.0.1"}), ElementsAre("--allow-source", "10.0.0.1"));
}

TEST(DownloadFlags, ProxyEnvironmentContainsEveryProxyVariable) {
  const ProxyVariables environment({{"HTTPS_PROXY", "http://user:password@two:2"},
                                    {"all_proxy", "socks5://three:3"},
                                    {"NO_PROXY", ""}});
  EXPECT_THAT(proxy_environment(),
              ElementsAre(std::pair("HTTPS_PROXY", "http://user:password@two:2"),
                          std::pair("NO_PROXY", ""), std::pair("all_proxy", "socks5://three:3")));
}

TEST(DownloadFlags, ErrorAboutAProxyHidesThePassword) {
  const ProxyVariables none;
  const std::pair<DownloadFlags, const char*> cases[] = {
      {{.http_proxy = "socks5://user:secret@host:1"}, "--http-proxy"},
      {{.https_proxy = "http://user:secret@host:1"}, "--https-proxy"},
      {{.https_proxy = "http://host:1/secret"}, "--https-proxy"},
  };
  for (const auto& [flags, name] : cases) {
    const auto options = download_client_options(flags);
    ASSERT_FALSE(options.ok()) << name;
    EXPECT_EQ(options.error().code(), Code::kInvalid);
    EXPECT_THAT(options.error().message(), AllOf(HasSubstr(name), Not(HasSubstr("secret"))));
  }
  const ProxyVariables wrong(
      std::map<std::string, std::string>{{"http_proxy", "ftp://user:secret@host"}});
  const auto options = download_client_options({});
  ASSERT_FALSE(options.ok());
  EXPECT_THAT(options.error().message(), AllOf(HasSubstr("http_proxy"), Not(HasSubstr("secret"))));
}

TEST(DownloadFlags, ProxyCredentialsFileMustContainOneLineWithAColon) {
  const ProxyVariables none;
  const TestDirectory root;
  for (const char* text :
       {"user:password", "user:password\n", "user:password\r\n", "user:pass:word\n\n", ":"}) {
    const auto options =
        download_client_options({.proxy_credentials_file = root.write("file", text)});
    ASSERT_TRUE(options.ok()) << options.error();
    EXPECT_EQ(options->proxies.credentials,
              std::string(text).substr(0, std::string(text).find_first_of("\r\n")));
  }
  for (const char* text : {"", "\n", "secret", "secret:1\nsecret:2", "secret:1\n\nsecret"}) {
    const auto options =
        download_client_options({.proxy_credentials_file = root.write("file", text)});
    ASSERT_FALSE(options.ok()) << text;
    EXPECT_EQ(options.error().message(),
              "--proxy-credentials-file: must contain one line USER:PASSWORD");
  }
}

TEST(DownloadFlags, ErrorNamesTheFlagOfAnUnreadableFile) {
  const ProxyVariables none;
  const TestDirectory root;
  root.write("large", std::string((1 << 20) + 1, ':'));
  std::filesystem::create_symlink("loop", root / "loop");
  const std::pair<const char*, const char*> cases[] = {{"missing", "cannot be read"},
                                                       {".", "cannot be read"},
                                                       {"loop", "cannot be read"},
                                                       {"large", "larger than 1 MiB"}};
  for (const auto& [name, message] : cases) {
    for (const bool ca : {false, true}) {
      DownloadFlags flags;
      (ca ? flags.ca_file : flags.proxy_credentials_file) = root / name;
      const auto options = download_client_options(flags);
      ASSERT_FALSE(options.ok()) << name;
      EXPECT_EQ(options.error().code(), Code::kInvalid);
      EXPECT_THAT(
          options.error().message(),
          AllOf(HasSubstr(ca ? "--ca-file" : "--proxy-credentials-file"), HasSubstr(message)));
    }
  }
}

TEST(DownloadFlags, CertificatesAreReadThroughLinks) {
  const ProxyVariables none;
  const TestDirectory root;
  const std::string pem = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
  root.write("..data/ca.crt", pem);
  std::filesystem::create_symlink("..data/ca.crt", root / "ca.crt");  // as in a mounted Secret
  EXPECT_EQ(download_client_options({.ca_file = root / "ca.crt"})->extra_ca_pem, pem);
  root.write("key.pem", "-----BEGIN PRIVATE KEY-----\n");
  EXPECT_EQ(download_client_options({.ca_file = root / "key.pem"}).error().message(),
            "--ca-file: the file has no PEM certificate");
}

TEST(DirectoryCredentials, CredentialsAreReadFromAMountedSecret) {
  const TestDirectory root;
  root.write("secret/..2026/username", "me\n");
  root.write("secret/..2026/password", "secret");
  root.write("secret/..2026/hosts", "files.example\n");
  std::filesystem::create_symlink("..2026", root / "secret/..data");
  for (const char* name : {"username", "password", "hosts"})
    std::filesystem::create_symlink(std::string("..data/") + name, root / "secret" / name);
  std::filesystem::create_directory(root / "secret/token");  // not a file
  DirectoryCredentials reader;
  const auto credentials = reader.read(Context::background(), root / "secret");
  ASSERT_TRUE(credentials.ok()) << credentials.error().error;
  EXPECT_EQ(credentials->username, "me");
  EXPECT_EQ(credentials->password, "secret");
  EXPECT_EQ(credentials->token, "");
  EXPECT_THAT(*credentials->hosts, ElementsAre("files.example"));
  std::filesystem::remove(root / "secret/hosts");
  const auto unnamed = reader.read(Context::background(), root / "secret");
  ASSERT_FALSE(unnamed.ok());
  EXPECT_EQ(unnamed.error().reason, artifact::Reason::kCredentialsInvalid);
  EXPECT_THAT(unnamed.error().error.message(), HasSubstr("add a key hosts"));
}

// The order of the directory's entries does not matter.
TEST(DirectoryCredentials, DanglingLinksAreIgnored) {
  const TestDirectory root;
  for (int i = 0; i < 20; ++i)
    std::filesystem::create_symlink("nowhere", root / ("link" + std::to_string(i)));
  root.write("token", "secret");
  root.write("hosts", "files.example");
  for (int i = 20; i < 40; ++i)
    std::filesystem::create_symlink("nowhere", root / ("link" + std::to_string(i)));
  DirectoryCredentials reader;
  const auto credentials = reader.read(Context::background(), root.path());
  ASSERT_TRUE(credentials.ok()) << credentials.error().error;
  EXPECT_EQ(credentials->token, "secret");
}

TEST(DirectoryCredentials, ErrorNamesTheProblemWithoutSecretValues) {
  const TestDirectory root;
  DirectoryCredentials reader;
  root.write("half/username", "secret");
  root.write("empty/.hidden", "secret");
  root.write("large/token", std::string((1 << 20) + 1, 's'));
  root.write("file", "secret");
  const std::pair<const char*, const char*> cases[] = {{"missing", "No such file or directory"},
                                                       {"file", "Not a directory"},
                                                       {"half", "it has username and no password"},
                                                       {"empty", "there is no such Secret"},
                                                       {"large", "larger than 1 MiB"}};
  for (const auto& [name, message] : cases) {
    const auto credentials = reader.read(Context::background(), root / name);
    ASSERT_FALSE(credentials.ok()) << name;
    EXPECT_EQ(credentials.error().reason, artifact::Reason::kCredentialsMissing);
    EXPECT_THAT(credentials.error().error.message(),
                AllOf(HasSubstr(root / name), HasSubstr(message), Not(HasSubstr("secret"))));
  }
}

}  // namespace
}  // namespace varda::app
