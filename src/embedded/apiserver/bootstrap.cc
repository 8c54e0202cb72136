#include "apiserver/bootstrap.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/log.h"
#include "base/mutex.h"
#include "codec/digest.h"
#include "codec/json.h"
#include "codec/yaml.h"
#include "meta/object.h"
#include "net/validity.h"

namespace varda::apiserver {

using codec::Json;

namespace {

constexpr std::chrono::hours kServerValid{24 * 365};
constexpr std::chrono::hours kServerLeft = kServerValid / 3;  // renewed when less lifetime is left
constexpr std::chrono::hours kCaLeft{24 * 3 * 365};           // exceeds any server certificate
constexpr std::chrono::minutes kRenewalCheckPeriod{1};
constexpr std::chrono::minutes kRenewalRetry{10};

std::string random_token(Rng& rng) {
  std::string bytes;
  for (int i = 0; i < 4; ++i) {
    std::uint64_t bits = rng.next();
    for (int j = 0; j < 8; ++j, bits >>= 8) bytes += static_cast<char>(bits & 0xff);
  }
  return codec::hex(bytes);
}

Result<std::optional<std::string>> read_if_exists(os::FileSystem& fs, const os::Path& path) {
  TRY(const auto info, fs.stat(path));
  if (!info) return std::optional<std::string>();
  TRY(std::string text, os::read_file(fs, path, 1u << 20));
  return std::optional<std::string>(std::move(text));
}

Result<std::optional<net::KeyPair>> read_pair(os::FileSystem& fs, const os::Path& stem) {
  TRY(auto certificate, read_if_exists(fs, stem.string() + ".crt"));
  TRY(auto key, read_if_exists(fs, stem.string() + ".key"));
  if (!certificate || !key) return std::optional<net::KeyPair>();
  return std::optional<net::KeyPair>(net::KeyPair{std::move(*certificate), std::move(*key)});
}

// Writes the key first, so that a certificate is only ever beside its own key.
Status write_pair(os::FileSystem& fs, const os::Path& stem, const net::KeyPair& pair) {
  TRY_VOID(fs.remove(stem.string() + ".crt"));
  TRY_VOID(os::write_file_atomically(fs, stem.string() + ".key", pair.key_pem, 0600));
  return os::write_file_atomically(fs, stem.string() + ".crt", pair.certificate_pem, 0644);
}

void log_renewal(std::string_view event, const os::Path& file, const net::CertificateFacts& facts,
                 WallTime now) {
  const char* const reason = now < facts.not_before   ? "not valid yet"
                             : now >= facts.not_after ? "expired"
                                                      : "expires soon";
  log::write(
      now < facts.not_before || now >= facts.not_after ? log::Level::kWarn : log::Level::kInfo,
      event,
      {{"reason", reason},
       {"file", file.string()},
       {"valid_from", meta::format_time(facts.not_before)},
       {"valid_until", meta::format_time(facts.not_after)},
       {"clock", meta::format_time(now)}});
}

// A renewed CA keeps its key. Issued certificates, and clients that trust the old CA certificate,
// keep working.
Result<net::KeyPair> load_ca(os::FileSystem& fs, const os::Path& pki, WallTime now) {
  TRY(auto ca, read_pair(fs, pki / "ca"));
  if (!ca) {
    TRY(ca, net::make_ca("varda-ca", net::authority_validity(now)));
    TRY_VOID(write_pair(fs, pki / "ca", *ca));
    TRY_VOID(fs.remove(pki / "server.crt"));
    return *std::move(ca);
  }
  const auto facts = net::certificate_facts(ca->certificate_pem);
  if (!facts.ok()) {
    return Error(Code::kCorrupt, (pki / "ca.crt").string() + ": " + facts.error().message() +
                                     "; restore it from a backup, or remove it; after a removal "
                                     "every client needs the new kubeconfig");
  }
  if (!net::must_be_renewed(*facts, kCaLeft, now)) return *std::move(ca);
  log_renewal("renewing the certificate authority, which keeps its key", pki / "ca.crt", *facts,
              now);
  TRY(ca, net::renew_ca(*ca, net::authority_validity(now)).context((pki / "ca.crt").string()));
  TRY_VOID(os::write_file_atomically(fs, pki / "ca.crt", ca->certificate_pem, 0644));
  return *std::move(ca);
}

/// True if the pair is valid for a while; logs the reason otherwise.
bool serves_on(const os::Path& pki, const net::KeyPair& server, WallTime now) {
  const auto facts = net::certificate_facts(server.certificate_pem);
  const auto key = net::key_sha256(server.key_pem);
  if (!facts.ok() || !key.ok() || *key != facts->key_sha256) {
    log::warn("API server certificate unreadable or key mismatch, issuing a new one",
              {{"file", (pki / "server.crt").string()}});
    return false;
  }
  if (!net::must_be_renewed(*facts, kServerLeft, now)) return true;
  log_renewal("renewing API server certificate", pki / "server.crt", *facts, now);
  return false;
}

Result<net::KeyPair> make_server_pair(os::FileSystem& fs, const os::Path& pki,
                                      const net::KeyPair& ca, const std::vector<std::string>& hosts,
                                      const std::string& hosts_text, WallTime now) {
  TRY(const net::CertificateFacts authority, net::certificate_facts(ca.certificate_pem));
  net::Validity validity = net::validity_for(kServerValid, now);
  validity.not_after = std::min(validity.not_after, authority.not_after);
  TRY(net::KeyPair server,
      net::make_certificate(
          ca,
          {.common_name = "varda-apiserver", .organizations = {}, .hosts = hosts, .server = true},
          validity));
  const auto persist = [&]() -> Status {
    TRY_VOID(write_pair(fs, pki / "server", server));
    return os::write_file_atomically(fs, pki / "server.hosts", hosts_text, 0644);
  };
  // A full disk must not stop the server; the next start issues another certificate.
  if (const Status persisted = persist(); !persisted.ok()) {
    log::warn("API server certificate not persisted, in use until this process exits",
              {{"error", persisted.error()}});
  }
  return server;
}

Result<std::vector<Token>> read_tokens(os::FileSystem& fs, const os::Path& file) {
  TRY(const auto text, read_if_exists(fs, file));
  std::vector<Token> tokens;
  if (!text) return tokens;
  auto parsed = codec::parse_json(*text);
  if (!parsed.ok() || !parsed->is_array()) {
    return Error(Code::kCorrupt,
                 file.string() + " is not a list of tokens; remove it, and new tokens are created");
  }
  for (const Json& item : parsed->as_array()) {
    Token token{.token = item["token"].as_string(),
                .identity = {.name = item["user"].as_string(), .groups = {}}};
    for (const Json& group : item["groups"].as_array())
      token.identity.groups.push_back(group.as_string());
    if (item.contains("expires")) {
      const auto expires = meta::parse_time(item["expires"].as_string());
      if (!expires.ok())
        return Error(Code::kCorrupt,
                     file.string() + ": the expiry time of " + token.identity.name + " is invalid");
      token.expires = *expires;
    }
    if (token.token.empty() || token.identity.name.empty()) {
      return Error(
          Code::kCorrupt,
          file.string() +
              " has an entry without token or user; remove it, and new tokens are created");
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
    Json item = Json::object(
        {{"token", token.token}, {"user", token.identity.name}, {"groups", std::move(groups)}});
    if (token.expires) item.set("expires", meta::format_time(*token.expires));
    list.push_back(std::move(item));
  }
  return os::write_file_atomically(fs, file, codec::write_json_pretty(list) + "\n", 0600);
}

constexpr const char* kTokensFile = "tokens.json";
constexpr Duration kTokensReadPeriod = std::chrono::seconds(1);
constexpr Duration kUnknownTokenReadPeriod = std::chrono::milliseconds(100);

/// One version of tokens.json.
struct KnownTokens {
  std::uint64_t inode = 0, size_bytes = 0;
  std::chrono::system_clock::time_point modified;
  std::shared_ptr<const Authenticator> authenticator;  // null: not read yet
};

class TokenFileAuthenticator final : public Authenticator {
 public:
  TokenFileAuthenticator(os::FileSystem& fs, os::Path file, const Clock& clock)
      : fs_(fs), file_(std::move(file)), clock_(clock) {}

  /// Called before the first authenticate().
  Status open() EXCLUDES(mutex_) {
    TRY(KnownTokens first, read({}));
    const MutexLock lock(mutex_);
    known_ = std::move(first);
    looked_at_ = clock_.now();
    return {};
  }

  std::optional<Identity> authenticate(const net::Request& request) const override {
    if (auto known = current(kTokensReadPeriod)->authenticate(request)) return known;
    return current(kUnknownTokenReadPeriod)->authenticate(request);  // the token may be a new one
  }

 private:
  /// The tokens as they were at most `period` ago.
  std::shared_ptr<const Authenticator> current(Duration period) const EXCLUDES(mutex_) {
    KnownTokens before;
    {
      const MutexLock lock(mutex_);
      if (clock_.now() < looked_at_ + period) return known_.authenticator;
      looked_at_ = clock_.now();  // this thread checks the file; others use known_
      before = known_;
    }
    auto now = read(std::move(before));
    const MutexLock lock(mutex_);
    if (now.ok()) {
      known_ = std::move(*now);
      complained_ = false;
    } else if (!complained_) {
      complained_ = true;
      log::error("token file unreadable, keeping the last tokens",
                 {{"file", file_.string()}, {"error", now.error()}});
    }
    return known_.authenticator;
  }

  /// Reads the file; returns `before` if the file did not change.
  Result<KnownTokens> read(KnownTokens before) const {
    TRY(const auto info, fs_.stat(file_));
    if (!info) return Error(Code::kNotFound, file_.string() + " is missing");
    const bool same = before.authenticator && info->inode == before.inode &&
                      info->size_bytes == before.size_bytes && info->modified == before.modified;
    if (same) return before;
    TRY(const std::vector<Token> tokens, read_tokens(fs_, file_));
    if (before.authenticator)
      log::info("token file reloaded", {{"file", file_.string()}, {"count", tokens.size()}});
    return KnownTokens{info->inode, info->size_bytes, info->modified,
                       token_authenticator(tokens, clock_)};
  }

  os::FileSystem& fs_;
  const os::Path file_;
  const Clock& clock_;
  mutable Mutex mutex_;
  mutable KnownTokens known_ GUARDED_BY(mutex_);
  mutable SteadyTime looked_at_ GUARDED_BY(mutex_);
  mutable bool complained_ GUARDED_BY(mutex_) = false;
};

}  // namespace

Result<std::unique_ptr<Authenticator>> token_file_authenticator(os::FileSystem& fs,
                                                                const os::Path& data_dir,
                                                                const Clock& clock) {
  auto made = std::make_unique<TokenFileAuthenticator>(fs, data_dir / kTokensFile, clock);
  TRY_VOID(made->open());
  return std::unique_ptr<Authenticator>(std::move(made));
}

Result<std::vector<Token>> list_tokens(os::FileSystem& fs, const os::Path& data_dir) {
  const os::Path file = data_dir / kTokensFile;
  TRY(const auto info, fs.stat(file));
  if (!info)
    return Error(Code::kNotFound,
                 file.string() + " is missing: `varda up` has not run in that directory");
  return read_tokens(fs, file);
}

Result<Token> rotate_token(os::FileSystem& fs, const os::Path& data_dir, std::string_view user,
                           std::optional<WallTime> expires, Rng& rng) {
  TRY(std::vector<Token> tokens, list_tokens(fs, data_dir));
  const auto is_users = [&](const Token& token) { return token.identity.name == user; };
  const auto first = std::find_if(tokens.begin(), tokens.end(), is_users);
  if (first == tokens.end())
    return Error(Code::kNotFound, "user \"" + std::string(user) + "\" has no token");
  Token made{.token = random_token(rng), .identity = first->identity, .expires = expires};
  *first = made;
  tokens.erase(std::remove_if(std::next(first), tokens.end(), is_users), tokens.end());
  TRY_VOID(write_tokens(fs, data_dir / kTokensFile, tokens));
  return made;
}

std::string Credentials::token(std::string_view user) const {
  for (const Token& token : tokens) {
    if (token.identity.name == user) return token.token;
  }
  return "";
}

Result<Credentials> load_or_create_credentials(os::FileSystem& fs, const CredentialOptions& options,
                                               Rng& rng, const Clock& clock) {
  const os::Path pki = options.data_dir / "pki";
  TRY_VOID(fs.make_directories(options.data_dir, 0755));
  // A user who may write there could replace tokens.json.
  TRY(const auto directory, fs.stat(options.data_dir));
  if (directory && (directory->mode & 0022) != 0) {
    log::warn("data directory was writable for others", {{"directory", options.data_dir.string()}});
    TRY_VOID(fs.set_mode(options.data_dir, directory->mode & 0755));
  }
  TRY_VOID(fs.make_directories(pki, 0700));
  TRY_VOID(fs.set_mode(pki, 0700));

  const WallTime now = clock.wall();
  TRY(const net::KeyPair ca, load_ca(fs, pki, now));
  std::vector<std::string> hosts = {"localhost",  "127.0.0.1",          "::1",
                                    "kubernetes", "kubernetes.default", "kubernetes.default.svc"};
  for (const std::string& host : options.hosts) {
    if (!host.empty() && std::find(hosts.begin(), hosts.end(), host) == hosts.end())
      hosts.push_back(host);
  }
  // server.hosts stores the names, so that a change of hosts makes a new certificate.
  std::string wanted_hosts;
  for (const std::string& host : hosts) wanted_hosts += host + "\n";
  TRY(const auto known_hosts, read_if_exists(fs, pki / "server.hosts"));
  TRY(auto server, read_pair(fs, pki / "server"));
  if (!server || known_hosts.value_or("") != wanted_hosts || !serves_on(pki, *server, now)) {
    TRY(server, make_server_pair(fs, pki, ca, hosts, wanted_hosts, now));
  }

  const os::Path tokens_file = options.data_dir / kTokensFile;
  TRY(std::vector<Token> tokens, read_tokens(fs, tokens_file));
  std::erase_if(tokens, [now](const Token& token) { return token.expired(now); });
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

  return Credentials{.ca_pem = ca.certificate_pem,
                     .tls = {.certificate_pem = server->certificate_pem,
                             .key_pem = server->key_pem,
                             .client_ca_pem = ""},
                     .tokens = std::move(tokens)};
}

CertificateRenewal::CertificateRenewal(os::FileSystem& fs, CredentialOptions options,
                                       const Credentials& present, Use use, Rng& rng,
                                       const Clock& clock)
    : fs_(fs),
      options_(std::move(options)),
      use_(std::move(use)),
      rng_(rng),
      clock_(clock),
      certificate_pem_(present.tls.certificate_pem) {}

void CertificateRenewal::run(const Context& ctx) {
  do {
    step();
  } while (ctx.sleep_for(kRenewalCheckPeriod).ok());
}

void CertificateRenewal::step() {
  const auto facts = net::certificate_facts(certificate_pem_);
  if (!facts.ok() || !net::must_be_renewed(*facts, kServerLeft, clock_.wall()) ||
      clock_.now() < retry_)
    return;
  auto renewed = load_or_create_credentials(fs_, options_, rng_, clock_);
  const Status used = renewed.ok() ? use_(*renewed) : Status(renewed.error());
  if (!used.ok()) {
    retry_ = clock_.now() + kRenewalRetry;
    log::error("API server certificate renewal failed, retrying",
               {{"error", used.error()}, {"valid_until", meta::format_time(facts->not_after)}});
    return;
  }
  certificate_pem_ = renewed->tls.certificate_pem;
  const auto next = net::certificate_facts(certificate_pem_);
  if (next.ok())
    log::info("API server certificate renewed",
              {{"valid_until", meta::format_time(next->not_after)}});
}

namespace {

Json kubeconfig_of(const Credentials& credentials, std::string_view server, std::string_view user) {
  const Json cluster = Json::object(
      {{"server", server}, {"certificate-authority-data", codec::base64(credentials.ca_pem)}});
  return Json::object(
      {{"apiVersion", "v1"},
       {"kind", "Config"},
       {"clusters", Json::array({Json::object({{"name", "varda"}, {"cluster", cluster}})})},
       {"users",
        Json::array({Json::object(
            {{"name", user}, {"user", Json::object({{"token", credentials.token(user)}})}})})},
       {"contexts", Json::array({Json::object(
                        {{"name", "varda"},
                         {"context", Json::object({{"cluster", "varda"}, {"user", user}})}})})},
       {"current-context", "varda"}});
}

/// Does not rewrite an unchanged file.
Status write_private(os::FileSystem& fs, const os::Path& file, const std::string& text) {
  TRY(const auto present, read_if_exists(fs, file));
  if (present && *present == text) return fs.set_mode(file, 0600);
  return os::write_file_atomically(fs, file, text, 0600);
}

constexpr const char* kAgentToken = "agent.token";

}  // namespace

std::string make_kubeconfig(const Credentials& credentials, std::string_view server,
                            std::string_view user) {
  return codec::write_yaml(kubeconfig_of(credentials, server, user));
}

Status write_kubeconfig(os::FileSystem& fs, const os::Path& file, const Credentials& credentials,
                        std::string_view server, std::string_view user) {
  return write_private(fs, file, make_kubeconfig(credentials, server, user));
}

Status write_agent_kubeconfig(os::FileSystem& fs, const os::Path& directory,
                              const Credentials& credentials, std::string_view server,
                              std::string_view user) {
  Json config = kubeconfig_of(credentials, server, user);
  config["users"].array_items().front()["user"].set("tokenFile", kAgentToken);
  TRY_VOID(write_private(fs, directory / kAgentToken, credentials.token(user) + "\n"));
  return write_private(fs, directory / "agent.kubeconfig", codec::write_yaml(config));
}

Result<bool> put_token(os::FileSystem& fs, const os::Path& file, const std::string& token) {
  TRY(const auto present, read_if_exists(fs, file));
  if (!present) return false;
  TRY(Json config, codec::parse_yaml(*present).context(file.string()));
  if (std::as_const(config)["users"].empty())
    return Error(Code::kCorrupt, file.string() + " has no user");
  Json& user = config["users"].array_items().front()["user"];
  user.set("token", token);
  const std::string token_file = std::as_const(user)["tokenFile"].as_string();
  TRY_VOID(write_private(fs, file, codec::write_yaml(config)));
  // Last, because running processes watch this file.
  if (token_file == kAgentToken)
    TRY_VOID(write_private(fs, file.parent_path() / kAgentToken, token + "\n"));
  return true;
}

}  // namespace varda::apiserver
