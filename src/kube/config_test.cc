#include "kube/config.h"

#include <cstdlib>
#include <fstream>
#include <gtest/gtest.h>

#include "codec/digest.h"
#include "net/server.h"

namespace varda::kube {
namespace {

namespace fs = std::filesystem;

/// A directory that the test removes.
class ConfigTest : public ::testing::Test {
 protected:
  ConfigTest() {
    std::string pattern = (fs::temp_directory_path() / "varda-kube-XXXXXX").string();
    CHECK(::mkdtemp(pattern.data()) != nullptr);
    dir_ = pattern;
    ::unsetenv("KUBECONFIG");
    ::unsetenv("KUBERNETES_SERVICE_HOST");
    ::unsetenv("KUBERNETES_SERVICE_PORT");
    for (const char* name : {"http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy",
                             "ALL_PROXY", "no_proxy", "NO_PROXY"})
      ::unsetenv(name);
  }
  ~ConfigTest() override { fs::remove_all(dir_); }
  fs::path write(const std::string& name, const std::string& text) {
    std::ofstream(dir_ / name) << text;
    return dir_ / name;
  }
  fs::path dir_;
};

constexpr const char* kFile = R"(
apiVersion: v1
kind: Config
current-context: one
clusters:
- name: c1
  cluster: {server: "https://h:6443/", certificate-authority: ca.pem}
- name: c2
  cluster: {server: "https://[::1]:1", certificate-authority-data: Q0E=, insecure-skip-tls-verify: true, tls-server-name: x}
users:
- name: u1
  user: {token: secret}
- name: u2
  user: {client-certificate-data: Q0VSVA==, client-key-data: S0VZ, tokenFile: token}
- name: plugin
  user: {exec: {command: aws}}
- name: half
  user: {client-certificate-data: Q0VSVA==}
contexts:
- name: one
  context: {cluster: c1, user: u1, namespace: ns}
- name: two
  context: {cluster: c2, user: u2}
- name: three
  context: {cluster: c1, user: plugin}
- name: four
  context: {cluster: c1, user: half}
- name: five
  context: {cluster: nowhere, user: u1}
)";

TEST_F(ConfigTest, ContextSelectsServerAndCredentials) {
  write("ca.pem", "CA-FILE");
  const fs::path path = write("config", kFile);
  const Config one = load_kubeconfig(path).value();
  EXPECT_EQ(one.server, "https://h:6443");
  EXPECT_EQ(one.tls.ca_pem, "CA-FILE");
  EXPECT_EQ(one.token, "secret");
  EXPECT_EQ(one.ns, "ns");
  EXPECT_TRUE(one.tls.verify);
  const Config two = load_kubeconfig(path, "two").value();
  EXPECT_EQ(two.tls.ca_pem, "CA");
  EXPECT_EQ(two.tls.certificate_pem, "CERT");
  EXPECT_EQ(two.tls.key_pem, "KEY");
  EXPECT_EQ(two.token_file, dir_ / "token");
  EXPECT_EQ(two.ns, "default");
  EXPECT_FALSE(two.tls.verify);
  EXPECT_EQ(two.tls.server_name, "x");
}

TEST_F(ConfigTest, UnsupportedUserMembersAreRefused) {
  const auto parsed = [&](const std::string& user) {
    return parse_kubeconfig(
        "{current-context: c, clusters: [{name: k, cluster: {server: 'https://h'}}], users: "
        "[{name: u, user: " +
            user + "}], contexts: [{name: c, context: {cluster: k, user: u}}]}",
        dir_);
  };
  for (const char* member : {"as: root", "as-groups: [g]", "as-uid: '1'", "as-user-extra: {a: [b]}",
                             "username: x", "password: x"}) {
    const auto config = parsed(std::string("{token: t, ") + member + "}");
    ASSERT_FALSE(config.ok()) << member;
    EXPECT_EQ(config.error().code(), Code::kUnsupported) << member;
    const std::string name(member, std::string_view(member).find(':'));
    EXPECT_NE(config.error().message().find("\"" + name + "\""), std::string::npos)
        << config.error();
  }
  for (const char* nothing :
       {"as: ''", "as-groups: null", "extensions: [{name: e, extension: {}}]"}) {
    EXPECT_TRUE(parsed(std::string("{token: t, ") + nothing + "}").ok()) << nothing;
  }
}

TEST_F(ConfigTest, ErrorsNameTheProblem) {
  const fs::path path = write("config", kFile);
  EXPECT_NE(load_kubeconfig(path).error().message().find("certificate-authority: cannot read"),
            std::string::npos);
  EXPECT_EQ(load_kubeconfig(path, "three").error().code(), Code::kNotFound)
      << "its CA file is missing";
  write("ca.pem", "CA");
  EXPECT_EQ(load_kubeconfig(path, "three").error().code(), Code::kUnsupported);
  EXPECT_NE(load_kubeconfig(path, "four").error().message().find("must come together"),
            std::string::npos);
  EXPECT_EQ(load_kubeconfig(path, "five").error().message(),
            path.string() + ": no cluster \"nowhere\" in clusters");
  EXPECT_EQ(load_kubeconfig(path, "six").error().code(), Code::kNotFound);
  EXPECT_EQ(load_kubeconfig(dir_ / "none").error().code(), Code::kNotFound);
  EXPECT_EQ(parse_kubeconfig("a: [", dir_).error().code(), Code::kInvalid);
  EXPECT_EQ(parse_kubeconfig("{}", dir_).error().message(),
            "current-context: is not set; name a context");
}

TEST_F(ConfigTest, ServerMustBeAnHttpUrl) {
  const auto read = [&](const std::string& server) {
    return parse_kubeconfig("current-context: a\nclusters: [{name: c, cluster: {server: \"" +
                                server + "\"}}]\ncontexts: [{name: a, context: {cluster: c}}]\n",
                            dir_);
  };
  for (const auto& [server, expected] :
       {std::pair("https://h:6443/", "https://h:6443"), std::pair("http://h", "http://h"),
        std::pair("https://h/proxy//", "https://h/proxy"), std::pair("HTTPS://h", "HTTPS://h")}) {
    const auto config = read(server);
    ASSERT_TRUE(config.ok()) << config.error().message();
    EXPECT_EQ(config->server, expected);
    const auto again = parse_kubeconfig(write_kubeconfig(*config), dir_);
    ASSERT_TRUE(again.ok()) << again.error().message();
    EXPECT_EQ(again->server, expected);
  }
  EXPECT_EQ(read("ftp://h").error().message(),
            "cluster.server: must begin with https:// or http://, not ftp://");
  for (const char* server :
       {"h:///", "unix:///run/socket", "https://", "https:///", "//h", "h:6443", ""})
    EXPECT_EQ(read(server).error().code(), Code::kInvalid) << server;
}

TEST_F(ConfigTest, WrittenConfigReadsBackTheSame) {
  Config config;
  config.server = "https://127.0.0.1:6443";
  config.token = "yes";  // must stay a string
  config.tls.ca_pem = "-----BEGIN\nline\n";
  config.ns = "n";
  const Config again = parse_kubeconfig(write_kubeconfig(config), dir_).value();
  EXPECT_EQ(again.server, config.server);
  EXPECT_EQ(again.token, config.token);
  EXPECT_EQ(again.tls.ca_pem, config.tls.ca_pem);
  EXPECT_EQ(again.ns, "n");
  EXPECT_TRUE(again.tls.verify);
}

TEST_F(ConfigTest, FirstLocationWithAFileWins) {
  write("ca.pem", "CA");
  const fs::path flag = write("flag", kFile);
  std::string other = kFile;
  other.replace(other.find("https://h"), 9, "https://o");
  const fs::path env = write("env", other);
  EXPECT_EQ(find_config(flag, "").value().server, "https://h:6443");
  const Error none = find_config("", dir_ / "fallback").error();
  EXPECT_EQ(none.code(), Code::kNotFound);
  EXPECT_NE(none.message().find("fallback"), std::string::npos);
  EXPECT_EQ(find_config("", flag).value().server, "https://h:6443");
  ::setenv("KUBECONFIG", ((dir_ / "missing").string() + ":" + env.string()).c_str(), 1);
  EXPECT_EQ(find_config("", flag).value().server, "https://o:6443");
  EXPECT_EQ(find_config(flag, "").value().server, "https://h:6443");
}

TEST_F(ConfigTest, KubeconfigListsAreMergedAsInKubectl) {
  fs::create_directories(dir_ / "a");
  fs::create_directories(dir_ / "b");
  const auto place = [&](const char* name, const char* text) { return write(name, text).string(); };
  write("b/ca.pem", "CA of b");
  write("a/token", "token of a");
  // No file works alone: context, cluster and user are in different files.
  const std::string contexts = place("a/contexts", R"(
contexts:
- {name: work, context: {cluster: east, user: me, namespace: shop}}
- {name: other, context: {cluster: west, user: me}}
users:
- {name: me, user: {tokenFile: token}}
)");
  const std::string clusters = place("b/clusters", R"(
current-context: work
clusters:
- {name: east, cluster: {server: "https://east:6443", certificate-authority: ca.pem}}
users:
- {name: me, user: {token: hidden by the first file}}
)");
  const std::string last = place("last", R"(
current-context: other
contexts:
- {name: work, context: {cluster: west, user: me}}
clusters:
- {name: east, cluster: {server: "https://hidden:1", insecure-skip-tls-verify: true}}
- {name: west, cluster: {server: "https://west:6443"}}
)");
  const std::string missing = (dir_ / "missing").string();
  ::setenv(
      "KUBECONFIG",
      (missing + ":" + contexts + "::" + clusters + ":" + last + ":" + place("empty", "")).c_str(),
      1);
  const auto found = find_config("", dir_ / "fallback");
  ASSERT_TRUE(found.ok()) << found.error();
  EXPECT_EQ(found->server, "https://east:6443");
  EXPECT_EQ(found->tls.ca_pem, "CA of b");
  EXPECT_TRUE(found->tls.verify);
  EXPECT_EQ(found->ns, "shop");
  EXPECT_EQ(found->token, "");
  EXPECT_EQ(found->token_file, dir_ / "a/token");

  ::setenv("KUBECONFIG", (last + ":" + contexts + ":" + clusters).c_str(), 1);
  EXPECT_EQ(find_config("", "").value().server, "https://west:6443")
      << "the first current-context counts";
  ::setenv("KUBECONFIG", (contexts + ":" + place("broken", "clusters: [")).c_str(), 1);
  const Error broken = find_config("", "").error();
  EXPECT_NE(broken.message().find((dir_ / "broken").string()), std::string::npos) << broken;
  ::setenv("KUBECONFIG", (contexts + ":" + last).c_str(), 1);
  EXPECT_EQ(find_config(contexts + ":" + last, "").error().code(), Code::kNotFound)
      << "--kubeconfig is one path";
}

// A typing error must not send requests to another server.
TEST_F(ConfigTest, NamedFileThatDoesNotExistIsAnError) {
  write("ca.pem", "CA");
  const fs::path fallback = write("fallback", kFile);
  EXPECT_EQ(find_config(dir_ / "missing", fallback).error().code(), Code::kNotFound);
  const std::string both = (dir_ / "missing").string() + ":" + (dir_ / "gone").string();
  for (const std::string& list : {(dir_ / "missing").string(), both}) {
    ::setenv("KUBECONFIG", list.c_str(), 1);
    const auto found = find_config("", fallback);
    ASSERT_FALSE(found.ok());
    EXPECT_EQ(found.error().code(), Code::kNotFound);
    EXPECT_NE(found.error().message().find("$KUBECONFIG names no file that exists: " + list),
              std::string::npos);
  }
  ::setenv("KUBECONFIG", ":", 1);  // contains no file name
  EXPECT_EQ(find_config("", fallback).value().server, "https://h:6443");
}

TEST_F(ConfigTest, PodUsesItsServiceAccount) {
  EXPECT_EQ(in_cluster(dir_).error().code(), Code::kNotFound);
  ::setenv("KUBERNETES_SERVICE_HOST", "fd00::1", 1);
  ::setenv("KUBERNETES_SERVICE_PORT", "443", 1);
  write("token", "tok\n");
  write("ca.crt", "CA");
  write("namespace", "ns\n");
  const Config config = in_cluster(dir_).value();
  EXPECT_EQ(config.server, "https://[fd00::1]:443");
  EXPECT_EQ(config.token_file, dir_ / "token");
  EXPECT_EQ(config.tls.ca_pem, "CA");
  EXPECT_EQ(config.ns, "ns");
  EXPECT_EQ(config.proxies.https, "");
  ::setenv("HTTPS_PROXY", "http://proxy:3128", 1);
  ::setenv("NO_PROXY", "10.0.0.0/8,fd00::/8", 1);
  const Config behind = in_cluster(dir_).value();
  EXPECT_EQ(behind.proxies.https, "http://proxy:3128");
  EXPECT_FALSE(net::proxy_for(behind.proxies, "https", "fd00::1", 443))
      << "the cluster's own address is excepted";
  EXPECT_TRUE(net::proxy_for(behind.proxies, "https", "fe00::1", 443));
}

TEST_F(ConfigTest, ProxyOfTheFileOverridesTheEnvironment) {
  write("ca.pem", "CA");
  const fs::path plain = write("plain", kFile);
  std::string text = kFile;
  text.replace(text.find("certificate-authority: ca.pem"), 0, "proxy-url: \"http://own:8080\", ");
  const fs::path own = write("own", text);
  EXPECT_EQ(load_kubeconfig(own).value().proxies.https, "http://own:8080");
  ::setenv("HTTPS_PROXY", "http://proxy:3128", 1);
  ::setenv("NO_PROXY", "h", 1);
  EXPECT_EQ(load_kubeconfig(plain).value().proxies.https, "http://proxy:3128");
  EXPECT_EQ(load_kubeconfig(plain).value().proxies.none, "h");
  EXPECT_EQ(load_kubeconfig(own).value().proxies.https, "http://own:8080");
  EXPECT_EQ(load_kubeconfig(own).value().proxies.none, "")
      << "a proxy of the cluster's own is for all of it";
  EXPECT_EQ(
      parse_kubeconfig(write_kubeconfig(load_kubeconfig(own).value()), dir_).value().proxies.https,
      "http://own:8080");
  ::setenv("HTTPS_PROXY", "socks5://proxy", 1);
  EXPECT_EQ(load_kubeconfig(plain).error().code(), Code::kInvalid);
}

TEST_F(ConfigTest, RequestsGoThroughTheProxy) {
  std::vector<std::string> seen;
  auto proxy =
      net::Server::create({}, net::inline_handler([&](const net::Request& request) {
                            seen.push_back(std::string(request.headers.find("Host").value_or("")) +
                                           " " + request.target);
                            return net::Response{.status = 200, .headers = {}, .body = "{}"};
                          }));
  ASSERT_TRUE(proxy.ok());
  Config config;
  config.server = "http://api.test:6443";  // a name that does not resolve
  config.proxies.http = "http://" + (*proxy)->address();
  const Context ctx = Context().with_timeout(std::chrono::seconds(60));
  const auto answer = connect(config)->text(ctx, "/version");
  ASSERT_TRUE(answer.ok()) << answer.error();
  EXPECT_EQ(seen, std::vector<std::string>{"api.test:6443 /version"});
}

/// Tokens as the server gets them. Its answers accept or refuse them.
TEST_F(ConfigTest, RefusedTokenIsReadAgainFromItsFile) {
  const fs::path file = write("token", "one\n");
  std::string valid = "one";
  std::vector<std::string> seen;
  auto server = net::Server::create(
      {}, net::inline_handler([&](const net::Request& request) {
        seen.emplace_back(request.headers.find("Authorization").value_or(""));
        return net::Response{
            .status = seen.back() == "Bearer " + valid ? 200 : 401, .headers = {}, .body = "{}"};
      }));
  ASSERT_TRUE(server.ok());
  Config config;
  config.server = "http://" + (*server)->address();
  config.token_file = file;
  const auto client = connect(config);
  const Context ctx = Context().with_timeout(std::chrono::seconds(60));
  EXPECT_TRUE(client->text(ctx, "/version").ok());
  valid = "two";
  write("token", "two\n");
  EXPECT_TRUE(client->text(ctx, "/version").ok());
  EXPECT_EQ(seen, (std::vector<std::string>{"Bearer one", "Bearer one", "Bearer two"}));
  valid = "three";
  EXPECT_EQ(client->text(ctx, "/version").error().code(), Code::kUnauthenticated);
  EXPECT_EQ(seen.size(), 4u) << "the file holds the refused one: asking again would be no use";
  fs::remove(file);
  EXPECT_EQ(client->text(ctx, "/version").error().code(), Code::kUnauthenticated)
      << "no file is no reason to ask without a token";
  EXPECT_EQ(seen.back(), "Bearer two");
}

}  // namespace
}  // namespace varda::kube
