#include "apiserver/bootstrap.h"

#include <algorithm>

#include "codec/digest.h"
#include "codec/json.h"
#include "codec/yaml.h"

namespace varda::apiserver {

using codec::Json;

namespace {

constexpr auto kCaValid = std::chrono::hours(24 * 3650);
constexpr auto kServerValid = std::chrono::hours(24 * 365);

std::string random_token(Rng& rng) {
  std::string bytes;
  for (int i = 0; i < 4; ++i) {
    std::uint64_t word = rng.next();
    for (int j = 0; j < 8; ++j, word >>= 8) bytes += static_cast<char>(word & 0xff);
  }
  return codec::hex(bytes);
}

Result<std::optional<std::string>> read_if_there(os::FileSystem& fs, const os::Path& path) {
  TRY(const auto info, fs.stat(path));
  if (!info) return std::optional<std::string>();
  TRY(std::string text, os::read_file(fs, path, 1u << 20));
  return std::optional<std::string>(std::move(text));
}

Result<std::optional<net::KeyPair>> read_pair(os::FileSystem& fs, const os::Path& stem) {
  TRY(auto certificate, read_if_there(fs, stem.string() + ".crt"));
  TRY(auto key, read_if_there(fs, stem.string() + ".key"));
  if (!certificate || !key) return std::optional<net::KeyPair>();
  return std::optional<net::KeyPair>(net::KeyPair{std::move(*certificate), std::move(*key)});
}

// The key first: a certificate is only ever beside its own key.
Status write_pair(os::FileSystem& fs, const os::Path& stem, const net::KeyPair& pair) {
  TRY_VOID(fs.remove(stem.string() + ".crt"));
  TRY_VOID(os::write_file_atomically(fs, stem.string() + ".key", pair.key_pem, 0600));
  return os::write_file_atomically(fs, stem.string() + ".crt", pair.certificate_pem, 0644);
}

Result<std::vector<Token>> read_tokens(os::FileSystem& fs, const os::Path& file) {
  TRY(const auto text, read_if_there(fs, file));
  std::vector<Token> tokens;
  if (!text) return tokens;
  auto parsed = codec::parse_json(*text);
  if (!parsed.ok() || !parsed->is_array()) {
    return Error(Code::kCorrupt, file.string() + " is no list of tokens; remove it to have new ones made");
  }
  for (const Json& item : parsed->as_array()) {
    Token token{.token = item["token"].as_string(), .identity = {.name = item["user"].as_string(), .groups = {}}};
    for (const Json& group : item["groups"].as_array()) token.identity.groups.push_back(group.as_string());
    if (token.token.empty() || token.identity.name.empty()) {
      return Error(Code::kCorrupt, file.string() + " has an entry without token or user; remove it to have new ones made");
    }
    tokens.push_back(std::move(token));
  }
  return tokens;
}

Status write_tokens(os::FileSystem& fs, const os::Path& file, const std::vector<Token>& tokens) {
  Json list = Json::array();
  for (const Token& token : tokens) {
    Json groups = Json::array();
    for (const std::string& group : token.identity.groups) groups.push_back(group);
    list.push_back(Json::object({{"token", token.token}, {"user", token.identity.name}, {"groups", std::move(groups)}}));
  }
  return os::write_file_atomically(fs, file, codec::write_json_pretty(list) + "\n", 0600);
}

}  // namespace

std::string Credentials::token(std::string_view user) const {
  for (const Token& token : tokens) {
    if (token.identity.name == user) return token.token;
  }
  return "";
}

Result<Credentials> load_or_create_credentials(os::FileSystem& fs, const CredentialOptions& options, Rng& rng) {
  const os::Path pki = options.data_dir / "pki";
  TRY_VOID(fs.make_directories(options.data_dir, 0755));
  TRY_VOID(fs.make_directories(pki, 0700));
  TRY_VOID(fs.set_mode(pki, 0700));

  TRY(auto ca, read_pair(fs, pki / "ca"));
  if (!ca) {
    TRY(ca, net::make_ca("varda-ca", kCaValid));
    TRY_VOID(write_pair(fs, pki / "ca", *ca));
    TRY_VOID(fs.remove(pki / "server.crt"));
  }
  // The file's age stands for the certificate's: nothing here reads certificates.
  TRY(auto server, read_pair(fs, pki / "server"));
  if (server) {
    TRY(const auto info, fs.stat(pki / "server.crt"));
    const auto age = std::chrono::system_clock::now() - info->modified;
    if (age > kServerValid - std::chrono::hours(24 * 30)) server.reset();
  }
  std::vector<std::string> hosts = {"localhost", "127.0.0.1", "::1", "kubernetes", "kubernetes.default", "kubernetes.default.svc"};
  for (const std::string& host : options.hosts) {
    if (!host.empty() && std::find(hosts.begin(), hosts.end(), host) == hosts.end()) hosts.push_back(host);
  }
  // Further hosts are remembered, so that a change of them makes a new certificate.
  std::string wanted_hosts;
  for (const std::string& host : hosts) wanted_hosts += host + "\n";
  TRY(const auto known_hosts, read_if_there(fs, pki / "server.hosts"));
  if (!server || known_hosts.value_or("") != wanted_hosts) {
    TRY(server,
        net::make_certificate(*ca, {.common_name = "varda-apiserver", .hosts = hosts, .valid = kServerValid, .server = true}));
    TRY_VOID(write_pair(fs, pki / "server", *server));
    TRY_VOID(os::write_file_atomically(fs, pki / "server.hosts", wanted_hosts, 0644));
  }

  const os::Path tokens_file = options.data_dir / "tokens.json";
  TRY(std::vector<Token> tokens, read_tokens(fs, tokens_file));
  bool changed = false;
  const auto ensure = [&](const std::string& user, const std::string& group) {
    const auto same = [&](const Token& token) { return token.identity.name == user; };
    if (std::any_of(tokens.begin(), tokens.end(), same)) return;
    tokens.push_back({.token = random_token(rng), .identity = {.name = user, .groups = {group}}});
    changed = true;
  };
  ensure(std::string(kAdmin), "system:masters");
  for (const std::string& node : options.nodes) ensure("system:node:" + node, "system:nodes");
  if (changed) TRY_VOID(write_tokens(fs, tokens_file, tokens));
  TRY_VOID(fs.set_mode(tokens_file, 0600));

  return Credentials{.ca_pem = ca->certificate_pem,
                     .tls = {.certificate_pem = server->certificate_pem, .key_pem = server->key_pem, .client_ca_pem = ""},
                     .tokens = std::move(tokens)};
}

std::string make_kubeconfig(const Credentials& credentials, std::string_view server, std::string_view user) {
  const Json cluster = Json::object({{"server", server}, {"certificate-authority-data", codec::base64(credentials.ca_pem)}});
  return codec::write_yaml(Json::object(
      {{"apiVersion", "v1"},
       {"kind", "Config"},
       {"clusters", Json::array({Json::object({{"name", "varda"}, {"cluster", cluster}})})},
       {"users", Json::array({Json::object({{"name", user}, {"user", Json::object({{"token", credentials.token(user)}})}})})},
       {"contexts",
        Json::array({Json::object({{"name", "varda"}, {"context", Json::object({{"cluster", "varda"}, {"user", user}})}})})},
       {"current-context", "varda"}}));
}

Status write_kubeconfig(os::FileSystem& fs, const os::Path& file, const Credentials& credentials, std::string_view server,
                        std::string_view user) {
  const std::string text = make_kubeconfig(credentials, server, user);
  TRY(const auto present, read_if_there(fs, file));
  if (present && *present == text) return fs.set_mode(file, 0600);
  return os::write_file_atomically(fs, file, text, 0600);
}

}  // namespace varda::apiserver
