#include "agent/identity/identity.h"

#include <algorithm>
#include <charconv>

#include "agent/identity/store.h"
#include "base/log.h"
#include "base/mutex.h"
#include "codec/json.h"
#include "meta/object.h"
#include "meta/status.h"
#include "net/client.h"
#include "net/url.h"

namespace varda::agent::identity {
namespace {

using codec::Json;
using std::chrono::milliseconds;

constexpr std::string_view kGatewayName = "varda-gateway";  // in every gateway's certificate
constexpr std::string_view kNodesOrganization = "system:nodes";
constexpr std::uint64_t kAnswerBytesMax = 256 << 10;
constexpr milliseconds kPokePeriod{300000};                               // between renewals on 401
constexpr milliseconds kWrongClockFirst{30000}, kWrongClockLast{300000};  // delay after the start
constexpr std::chrono::hours kClockTolerance{24};                         // of the wall clock
constexpr milliseconds kRecheckPeriod{600000};  // the wall clock may be set meanwhile

/// The gateway's pin in a join token: the last part, the SHA-256 of the CA certificate. The other
/// parts are for the gateway.
Result<std::string> pin_of(std::string_view token) {
  const std::string_view hash = token.substr(std::min(token.size(), token.rfind('.') + 1));
  const bool hex = std::all_of(hash.begin(), hash.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
  });
  if (!token.starts_with("varda-join.") || hash.size() != 64 || !hex) {
    return Error(
        Code::kInvalid,
        "this is not a join token (varda-join.ID.SECRET.CAHASH, as `varda join-token` prints it)");
  }
  return std::string(hash);
}

std::string trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n";
  const auto begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  return std::string(text.substr(begin, text.find_last_not_of(kBlank) + 1 - begin));
}

Duration lifetime(const net::CertificateFacts& facts) {
  return std::chrono::duration_cast<Duration>(facts.not_after - facts.not_before);
}

constexpr std::chrono::seconds kTunnelDeadAfter{60};  // a pulled cable breaks the stream

/// Forwards requests with the current credentials, and notices when the gateway answers 401.
class Transport final : public net::HttpClient {
 public:
  explicit Transport(std::function<void()> unauthenticated)
      : unauthenticated_(std::move(unauthenticated)) {}

  void use(std::shared_ptr<net::HttpClient> client) EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    client_.swap(client);  // the old client is destroyed after the lock, or with its last request
  }
  Result<net::ClientResponse> send(const Context& ctx, net::ClientRequest request) override
      EXCLUDES(mutex_) {
    std::shared_ptr<net::HttpClient> client;
    {
      const MutexLock lock(mutex_);
      client = client_;
    }
    if (!client) return Error(Code::kUnavailable, "this node has not enrolled yet");
    auto response = client->send(ctx, std::move(request));
    if (response.ok() && response->status == 401) unauthenticated_();
    return response;
  }

 private:
  const std::function<void()> unauthenticated_;
  Mutex mutex_;
  std::shared_ptr<net::HttpClient> client_ GUARDED_BY(mutex_);
};

/// The same for tunnels.
class Opener final : public net::TunnelOpener {
 public:
  explicit Opener(std::function<void()> unauthenticated)
      : unauthenticated_(std::move(unauthenticated)) {}

  void use(std::shared_ptr<net::TunnelOpener> opener) EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    opener_.swap(opener);
  }
  Result<net::TunnelAnswer> open(const Context& ctx, const net::TunnelRequest& request) override
      EXCLUDES(mutex_) {
    std::shared_ptr<net::TunnelOpener> opener;
    {
      const MutexLock lock(mutex_);
      opener = opener_;
    }
    if (!opener) return Error(Code::kUnavailable, "this node has not enrolled yet");
    auto answer = opener->open(ctx, request);
    if (answer.ok() && answer->status == 401) unauthenticated_();
    return answer;
  }

 private:
  const std::function<void()> unauthenticated_;
  Mutex mutex_;
  std::shared_ptr<net::TunnelOpener> opener_ GUARDED_BY(mutex_);
};

class NodeIdentity final : public Identity {
 public:
  NodeIdentity(Options options, os::FileSystem& fs, const Clock& clock, Rng& rng)
      : options_(std::move(options)),
        clock_(clock),
        rng_(rng),
        store_(fs, options_.directory),
        transport_([this] { poke(); }),
        opener_([this] { poke(); }),
        backoff_(options_.backoff_first) {}

  Status load() {
    TRY(key_, store_.key());
    TRY(std::optional<NodeCertificate> stored, store_.certificate(key_));
    if (!stored) return {};
    if (stored->facts.common_name != options_.node_name) {
      return Error(Code::kInvalid, options_.directory.string() + " is the identity of node \"" +
                                       stored->facts.common_name + "\", not of \"" +
                                       options_.node_name + "\"");
    }
    use(std::move(*stored), Origin::kDisk);
    return {};
  }

  Status enrol(const Context& ctx) override {
    while (!facts()) {
      const Status status = step(ctx);
      if (status.ok() || status.error().terminal()) return status;
      TRY_VOID(ctx.check());
      TRY_VOID(ctx.sleep_for(std::max(Duration(0), due() - clock_.now())));
    }
    return {};
  }

  void run(const Context& ctx) override {
    const std::stop_callback wake(ctx.stop_token(), [this] {
      const MutexLock lock(mutex_);
      woken_.notify_all();
    });
    while (!ctx.done()) {
      if (due() <= clock_.now()) {
        (void)step(ctx);  // step() logs errors
        continue;
      }
      const MutexLock lock(mutex_);
      if (ctx.done()) return;
      woken_.wait_until(mutex_, std::min(due_locked(), clock_.now() + kRecheckPeriod));
    }
  }

  net::HttpClient& transport() override { return transport_; }
  net::TunnelOpener& opener() override { return opener_; }

  std::optional<net::CertificateFacts> facts() const override {
    const MutexLock lock(mutex_);
    if (!certificate_) return std::nullopt;
    return certificate_->facts;
  }

  std::optional<PeerCredentials> credentials() const override {
    const MutexLock lock(mutex_);
    if (!certificate_) return std::nullopt;
    return PeerCredentials{.certificate_pem = certificate_->certificate_pem,
                           .key_pem = key_,
                           .ca_pem = certificate_->ca_pem,
                           .issued = certificate_->facts.not_before};
  }

  SteadyTime due() const override {
    const MutexLock lock(mutex_);
    return due_locked();
  }

  Status step(const Context& ctx) override {
    Status status = facts() ? renew(ctx) : join(ctx);
    const MutexLock lock(mutex_);
    poked_ = false;
    attempted_ = clock_.now();
    if (status.ok()) {
      retry_.reset();
      backoff_ = options_.backoff_first;
      return status;
    }
    if (ctx.done()) return status;
    milliseconds wait = options_.refused_retry;
    if (!certificate_ && no_token_yet_) {
      retry_ = clock_.now() + options_.token_retry;
      if (!std::exchange(wait_logged_, true)) {
        log::info("node not enrolled yet, waiting for a join token", {{"detail", status.error()}});
      }
      return status;
    }
    if (status.error().code() != Code::kForbidden) {
      wait = std::max(backoff_, retry_after_);
      backoff_ = std::min(options_.backoff_max, backoff_ * 2);
    }
    retry_after_ = milliseconds(0);
    // Jitter, so that the nodes of a site do not retry together.
    wait = milliseconds(
        static_cast<std::int64_t>(static_cast<double>(wait.count()) * (0.75 + 0.5 * rng_.unit())));
    retry_ = clock_.now() + wait;
    if (!certificate_ && status.error().terminal())
      return status;  // no retry: the caller reports it
    log::warn(
        certificate_ ? "cannot renew this node's certificate, retrying" : "cannot enrol, retrying",
        {{"gateway", options_.gateway}, {"error", status.error()}, {"next_ms", wait.count()}});
    return status;
  }

 private:
  /// The gateway answered 401: the certificate may have expired while this clock was wrong.
  void poke() EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    if (poked_) return;
    poked_ = true;
    woken_.notify_all();
  }

  SteadyTime due_locked() const REQUIRES(mutex_) {
    if (!certificate_) return retry_.value_or(SteadyTime::min());
    if (retry_) return *retry_;
    SteadyTime due = renew_at_;
    const WallTime now = clock_.wall();
    if (clock_holds_ && now >= certificate_->facts.not_before) {
      due = clock_.now() +
            std::chrono::duration_cast<Duration>(certificate_->facts.not_before - now) +
            age_to_renew_;
    }
    if (poked_) due = std::min(due, attempted_ ? *attempted_ + kPokePeriod : SteadyTime::min());
    return due;
  }

  enum class Origin { kDisk, kIssuedNow };
  /// Uses this certificate from now on.
  void use(NodeCertificate certificate, Origin origin) EXCLUDES(mutex_) {
    net::TlsClient tls;
    tls.ca_pem = certificate.ca_pem;
    tls.certificate_pem = certificate.certificate_pem;
    tls.key_pem = key_;
    tls.verified_name = kGatewayName;
    tls.not_earlier_than = certificate.facts.not_before;
    std::shared_ptr<net::HttpClient> client = connect(tls);
    std::shared_ptr<net::TunnelOpener> opener = net::make_tunnel_opener({.tls = tls, .dead_after = kTunnelDeadAfter});
    const WallTime wall = clock_.wall();
    const SteadyTime now = clock_.now();
    {
      const MutexLock lock(mutex_);
      tls_ = std::move(tls);
      // Renews after two thirds of the lifetime, with jitter against certificates of the same age.
      const double share = 2.0 / 3 + rng_.unit() / 12;
      const Duration life = lifetime(certificate.facts);
      age_to_renew_ =
          Duration(static_cast<Duration::rep>(static_cast<double>(life.count()) * share));
      renew_at_ = now + age_to_renew_;
      const WallTime issued = certificate.facts.not_before;
      if (origin == Origin::kIssuedNow) {
        clock_holds_ = wall > issued - kClockTolerance && wall < issued + kClockTolerance;
      } else {
        clock_holds_ = true;  // assumed; due() checks plausibility
        if (wall < issued) {
          renew_at_ = now + kWrongClockFirst +
                      milliseconds(rng_.below((kWrongClockLast - kWrongClockFirst).count()));
        }
      }
      certificate_ = std::move(certificate);
    }
    transport_.use(std::move(client));
    opener_.use(std::move(opener));
  }

  std::unique_ptr<net::HttpClient> connect(const net::TlsClient& tls) const {
    return options_.connect ? options_.connect(tls) : net::make_client({.tls = tls});
  }

  /// Gets the first certificate, with a token.
  Status join(const Context& ctx) {
    if (!options_.join_token) {
      return Error(Code::kInvalid,
                   "this node has no identity yet and needs a join token; an operator of the "
                   "gateway creates one with `varda "
                   "join-token --node " +
                       options_.node_name + "`");
    }
    const auto text = options_.join_token();
    no_token_yet_ = !text.ok() && text.error().code() == Code::kNotFound;
    TRY_VOID(text);
    const std::string token = trimmed(*text);
    TRY(const std::string pin, pin_of(token));
    net::TlsClient tls;
    tls.ca_sha256 = pin;
    tls.verified_name = kGatewayName;
    tls.not_earlier_than = WallTime();
    TRY(NodeCertificate certificate,
        request_certificate(ctx, tls, "/gateway/v1/enroll",
                            Json::object({{"token", token}, {"node", options_.node_name}})));
    TRY(const net::CertificateFacts ca, net::certificate_facts(certificate.ca_pem));
    if (ca.sha256 != pin)
      return Error(Code::kCorrupt,
                   "the gateway's authority differs from the authority in the join token");
    TRY_VOID(keep(std::move(certificate)));
    log::info("node enrolled; join token no longer needed",
              {{"gateway", options_.gateway}, {"ends", end()}});
    return {};
  }

  Status renew(const Context& ctx) {
    net::TlsClient tls;
    {
      const MutexLock lock(mutex_);
      tls = tls_;
    }
    auto certificate = request_certificate(ctx, tls, "/gateway/v1/renew", Json::object());
    if (!certificate.ok()) {
      // Expired or revoked: a new token admits the node again.
      if (certificate.error().code() != Code::kForbidden || !options_.join_token)
        return std::move(certificate).error();
      const Error refused = certificate.error();
      const Status joined = join(ctx);
      if (joined.ok()) return {};
      return joined.error().code() == Code::kUnavailable || joined.error().code() == Code::kTimeout
                 ? joined.error()
                 : refused;
    }
    TRY_VOID(keep(std::move(*certificate)));
    log::info("renewed this node's certificate", {{"gateway", options_.gateway}, {"ends", end()}});
    return {};
  }

  Status keep(NodeCertificate certificate) {
    TRY_VOID(store_.keep(certificate));
    use(std::move(certificate), Origin::kIssuedNow);
    return {};
  }

  std::string end() const { return meta::format_time(facts()->not_after); }

  Result<NodeCertificate> request_certificate(const Context& ctx, const net::TlsClient& tls,
                                              const std::string& path, Json body) {
    TRY(std::string csr, net::make_csr(key_, options_.node_name));
    body.set("csr", std::move(csr));
    net::ClientRequest request;
    request.method = "POST";
    request.url = options_.gateway + path;
    request.headers.add("Content-Type", "application/json");
    request.body = codec::write_json(body);
    request.max_response_bytes = kAnswerBytesMax;
    // Uses a fresh connection: a request that must not be repeated cannot use one that the gateway
    // may have closed.
    const std::unique_ptr<net::HttpClient> client = connect(tls);
    TRY(const net::HttpClient::Answer answer,
        client->call(ctx.with_timeout(options_.request_timeout), std::move(request)));
    if (answer.status != 200) return refusal(answer);
    return read(answer.body);
  }

  Error refusal(const net::HttpClient::Answer& answer) {
    std::string detail = "HTTP status " + std::to_string(answer.status);
    if (const auto json = codec::parse_json(answer.body);
        json.ok() && (*json)["kind"].as_string() == "Status") {
      detail += ": " + meta::ApiStatus::from_json(*json).message;
    }
    if (answer.status < 400 || answer.status >= 500 || answer.status == 408 ||
        answer.status == 429) {
      if (const auto after = answer.headers.find("Retry-After")) {
        int seconds = 0;
        std::from_chars(after->data(), after->data() + after->size(), seconds);
        retry_after_ = std::clamp(milliseconds(std::chrono::seconds(seconds)), milliseconds(0),
                                  options_.backoff_max);
      }
      return Error(Code::kUnavailable, "the gateway cannot serve this now (" + detail + ")");
    }
    return Error(Code::kForbidden, "the gateway refuses node \"" + options_.node_name + "\" (" +
                                       detail +
                                       "); create a new join token with `varda join-token --node " +
                                       options_.node_name + "`")
        .as_terminal();
  }

  Result<NodeCertificate> read(const std::string& text) const {
    const auto wrong = [](const std::string& what) {
      return Error(Code::kCorrupt, "the gateway's answer: " + what);
    };
    const auto json = codec::parse_json(text);
    if (!json.ok()) return wrong("no JSON");
    NodeCertificate out;
    out.certificate_pem = (*json)["certificate"].as_string();
    out.ca_pem = (*json)["ca"].as_string();
    auto facts = net::certificate_facts(out.certificate_pem);
    if (!facts.ok() || !net::certificate_facts(out.ca_pem).ok())
      return wrong("certificates are missing");
    TRY(const std::string key, net::key_sha256(key_));
    if (facts->key_sha256 != key) return wrong("the certificate belongs to another key");
    if (facts->common_name != options_.node_name) {
      return Error(Code::kInvalid, "the join token is for node \"" + facts->common_name +
                                       "\", and this is \"" + options_.node_name + "\"");
    }
    if (facts->organizations != std::vector<std::string>{std::string(kNodesOrganization)})
      return wrong("the certificate is not a node certificate");
    if (facts->not_after <= facts->not_before) return wrong("the certificate is never valid");
    out.facts = std::move(*facts);
    return out;
  }

  const Options options_;
  const Clock& clock_;
  Rng& rng_;
  Store store_;  // of the thread that enrols and renews
  Transport transport_;
  Opener opener_;
  std::string key_;              // constant after load()
  milliseconds retry_after_{0};  // of that thread: the gateway's last Retry-After
  bool no_token_yet_ = false, wait_logged_ = false;  // of that thread

  mutable Mutex mutex_;
  CondVar woken_;
  std::optional<NodeCertificate> certificate_ GUARDED_BY(mutex_);
  net::TlsClient tls_ GUARDED_BY(mutex_);
  Duration age_to_renew_ GUARDED_BY(mutex_){0};
  SteadyTime renew_at_ GUARDED_BY(mutex_);  // used if the wall clock is not trusted
  bool clock_holds_ GUARDED_BY(mutex_) =
      false;  // the wall clock plausibly agrees with the gateway's
  std::optional<SteadyTime> retry_ GUARDED_BY(mutex_), attempted_ GUARDED_BY(mutex_);
  milliseconds backoff_ GUARDED_BY(mutex_);
  bool poked_ GUARDED_BY(mutex_) = false;
};

}  // namespace

Result<std::unique_ptr<Identity>> Identity::open(Options options, os::FileSystem& fs,
                                                 const Clock& clock, Rng& rng) {
  TRY(const net::Url url, net::Url::parse(options.gateway).context("--gateway"));
  if (url.scheme != "https")
    return Error(Code::kInvalid, "--gateway " + options.gateway + ": https is needed");
  while (options.gateway.ends_with('/')) options.gateway.pop_back();
  if (options.node_name.empty()) return Error(Code::kInvalid, "an identity needs the node's name");
  auto identity = std::make_unique<NodeIdentity>(std::move(options), fs, clock, rng);
  TRY_VOID(identity->load());
  return std::unique_ptr<Identity>(std::move(identity));
}

}  // namespace varda::agent::identity
