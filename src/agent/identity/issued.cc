#include "agent/identity/issued.h"

#include <chrono>
#include <memory>
#include <utility>

#include "agent/identity/store.h"
#include "base/log.h"
#include "base/mutex.h"

namespace varda::agent::identity {
namespace {

constexpr std::chrono::seconds kRereadPeriod{10};

class IssuedIdentity {
 public:
  IssuedIdentity(os::Path directory, std::string node_name, os::FileSystem& fs, const Clock& clock)
      : directory_(std::move(directory)),
        node_name_(std::move(node_name)),
        fs_(fs),
        clock_(clock) {}

  std::optional<PeerCredentials> get() {
    const MutexLock lock(mutex_);
    const SteadyTime now = clock_.now();
    if (next_read_ && now < *next_read_) return last_;
    next_read_ = now + kRereadPeriod;
    auto present = read();
    if (present.ok()) {
      last_ = std::move(present).value();
      failed_ = false;
    } else if (!std::exchange(failed_, true)) {
      log::warn("identity for peers not read", {{"error", present.error()}});
    }
    return last_;
  }

 private:
  Result<std::optional<PeerCredentials>> read() const {
    const std::optional<PeerCredentials> none;
    // Store::key() creates a missing key, which only an issuer may do.
    TRY(const auto certified, fs_.stat(directory_ / "cert.pem"));
    if (!certified) return none;
    Store store(fs_, directory_);
    TRY(std::string key, store.key());
    TRY(auto certificate, store.certificate(key));
    if (!certificate || certificate->facts.common_name != node_name_) return none;
    return std::optional(PeerCredentials{.certificate_pem = std::move(certificate->certificate_pem),
                                         .key_pem = std::move(key),
                                         .ca_pem = std::move(certificate->ca_pem),
                                         .issued = certificate->facts.not_before});
  }

  const os::Path directory_;
  const std::string node_name_;
  os::FileSystem& fs_;
  const Clock& clock_;
  Mutex mutex_;
  std::optional<SteadyTime> next_read_ GUARDED_BY(mutex_);
  std::optional<PeerCredentials> last_ GUARDED_BY(mutex_);
  bool failed_ GUARDED_BY(mutex_) = false;
};

class IssuedOpener final : public net::TunnelOpener {
 public:
  explicit IssuedOpener(std::function<std::optional<PeerCredentials>()> credentials)
      : credentials_(std::move(credentials)) {}

  Result<net::TunnelAnswer> open(const Context& ctx, const net::TunnelRequest& request) override {
    const auto present = credentials_();
    if (!present) return Error(Code::kUnavailable, "this node has no certificate yet");
    return net::make_tunnel_opener({.tls = {.ca_pem = present->ca_pem,
                                            .certificate_pem = present->certificate_pem,
                                            .key_pem = present->key_pem,
                                            .verified_name = "varda-gateway",
                                            .not_earlier_than = present->issued}})
        ->open(ctx, request);
  }

 private:
  const std::function<std::optional<PeerCredentials>()> credentials_;
};

}  // namespace

Result<net::CertificateFacts> issue(os::FileSystem& fs, const os::Path& directory,
                                    const std::string& node_name, const Issuer& issuer) {
  Store store(fs, directory);
  TRY(const std::string key, store.key());
  TRY(const std::string csr, net::make_csr(key, node_name));
  NodeCertificate certificate;
  certificate.ca_pem = issuer.ca_pem;
  TRY(certificate.certificate_pem, issuer.sign(csr));
  TRY(certificate.facts, net::certificate_facts(certificate.certificate_pem));
  TRY_VOID(store.keep(certificate));
  return std::move(certificate.facts);
}

std::unique_ptr<net::TunnelOpener> issued_opener(
    std::function<std::optional<PeerCredentials>()> credentials) {
  return std::make_unique<IssuedOpener>(std::move(credentials));
}

std::function<std::optional<PeerCredentials>()> issued_credentials(os::Path directory,
                                                                   std::string node_name,
                                                                   os::FileSystem& fs,
                                                                   const Clock& clock) {
  const auto identity =
      std::make_shared<IssuedIdentity>(std::move(directory), std::move(node_name), fs, clock);
  return [identity] { return identity->get(); };
}

}  // namespace varda::agent::identity
