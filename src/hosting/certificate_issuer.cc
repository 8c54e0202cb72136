#include "hosting/certificate_issuer.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/mutex.h"
#include "codec/digest.h"
#include "meta/resources.h"
#include "net/validity.h"

namespace varda::hosting {
namespace {

using codec::Json;

constexpr std::chrono::minutes kTrustedFor{1};            // a Secret that was good
constexpr std::chrono::minutes kRecheckPeriod{10};        // finds Secrets that were changed by hand
constexpr std::chrono::minutes kProblemRecheckPeriod{2};  // rights and foreign Secrets change
constexpr const char* kAuthority = "varda-serving-ca";

class CertificateIssuerImpl final : public CertificateIssuer {
 public:
  CertificateIssuerImpl(const kube::Client& client, Options options)
      : client_(client),
        ns_(std::move(options.ns)),
        clock_(options.clock != nullptr ? *options.clock : system_clock()) {}

  Result<Outcome> ensure(const Context& ctx, const WantedCertificate& wanted) override {
    {
      MutexLock lock(mutex_);
      const auto known = known_.find(wanted.secret);
      if (known != known_.end() && known->second.uid == wanted.owner.uid &&
          known->second.hosts == wanted.hosts && clock_.now() < known->second.until)
        return Outcome{{}, recheck_in(known->second.renew_at)};
    }
    auto authority = this->authority(ctx);
    if (!authority.ok() && authority.error().code() == Code::kForbidden)
      return forbidden({ns_, kAuthority}, authority.error());
    TRY(const net::KeyPair ca, std::move(authority));
    auto ensured = ensure_secret(ctx, wanted, ca);
    if (!ensured.ok() && ensured.error().code() == Code::kForbidden)
      return forbidden(wanted.secret, ensured.error());
    TRY(const CertificateCheck check, std::move(ensured));
    if (check.verdict == CertificateCheck::Verdict::kForeign) {
      return Outcome{
          Problem{"CertificateNameInUse",
                  "Secret " + wanted.secret.str() + " is not of " + wanted.owner.resource->kind +
                      " " + wanted.owner.key.name +
                      "; Varda does not change the Secret: rename it, or name it in tlsSecretName"},
          kProblemRecheckPeriod};
    }
    // The garbage collector removes the Secret, and no watch reports when.
    if (check.verdict == CertificateCheck::Verdict::kLeftOver)
      return Error(Code::kConflict,
                   "Secret " + wanted.secret.str() + " is left from an earlier owner of the name");
    MutexLock lock(mutex_);
    known_[wanted.secret] = {wanted.owner.uid, wanted.hosts, check.renew_at,
                             clock_.now() + kTrustedFor};
    return Outcome{{}, recheck_in(check.renew_at)};
  }

  void forget(const meta::ObjectKey& secret) override {
    MutexLock lock(mutex_);
    known_.erase(secret);
  }

 private:
  struct Known {
    std::string uid;
    std::vector<std::string> hosts;
    WallTime renew_at;
    SteadyTime until;
  };

  Duration recheck_in(WallTime renew_at) const {
    const auto left = std::chrono::duration_cast<Duration>(renew_at - clock_.wall());
    return std::clamp<Duration>(left, std::chrono::seconds(1), kRecheckPeriod);
  }

  static Outcome forbidden(const meta::ObjectKey& secret, const Error& error) {
    return {
        Problem{"CertificateForbidden",
                "the operator has no permission to write Secret " + secret.str() + " (" +
                    error.message() + "): bind the ClusterRole varda-certificates in namespace " +
                    secret.ns + ", or set tlsSecretName to your own Secret"},
        kProblemRecheckPeriod};
  }

  Status make_namespace(const Context& ctx) const {
    auto made = client_.create(ctx, meta::core::namespaces(),
                               Json::object({{"apiVersion", "v1"},
                                             {"kind", "Namespace"},
                                             {"metadata", Json::object({{"name", ns_}})}}));
    if (!made.ok() && made.error().code() != Code::kAlreadyExists) return std::move(made).error();
    return {};
  }

  Result<Json> create_authority(const Context& ctx) const {
    TRY(const net::KeyPair pair, net::make_ca(kAuthority, net::authority_validity(clock_.wall())));
    const Json wanted =
        Json::object({{"apiVersion", "v1"},
                      {"kind", "Secret"},
                      {"metadata", Json::object({{"name", kAuthority}, {"namespace", ns_}})},
                      {"type", "kubernetes.io/tls"},
                      {"data", Json::object({{"tls.crt", codec::base64(pair.certificate_pem)},
                                             {"tls.key", codec::base64(pair.key_pem)}})}});
    auto made = client_.create(ctx, meta::core::secrets(), wanted);
    if (!made.ok() && made.error().code() == Code::kNotFound) {  // the namespace
      TRY_VOID(make_namespace(ctx));
      made = client_.create(ctx, meta::core::secrets(), wanted);
    }
    if (!made.ok() && made.error().code() == Code::kAlreadyExists)
      return client_.get(ctx, meta::core::secrets(), {ns_, kAuthority});
    if (made.ok())
      log::info("made the authority of servers", {{"secret_name", ns_ + "/" + kAuthority}});
    return made;
  }

  /// Reads the Secret once. A replaced authority counts after a restart of the operator.
  Result<net::KeyPair> authority(const Context& ctx) {
    {
      MutexLock lock(mutex_);
      if (ca_) return *ca_;
    }
    TRY(std::optional<Json> secret, client_.find(ctx, meta::core::secrets(), {ns_, kAuthority}));
    if (!secret) {
      TRY(secret, create_authority(ctx));
    }
    net::KeyPair ca;
    TRY(ca.certificate_pem, codec::unbase64(std::as_const(*secret)["data"]["tls.crt"].as_string()));
    TRY(ca.key_pem, codec::unbase64(std::as_const(*secret)["data"]["tls.key"].as_string()));
    const auto facts = net::certificate_facts(ca.certificate_pem);
    const auto key = net::key_sha256(ca.key_pem);
    if (!facts.ok() || !key.ok() || *key != facts->key_sha256)
      return Error(
          Code::kInvalid,
          "Secret " + ns_ + "/" + kAuthority +
              " does not contain a certificate authority: tls.crt and tls.key must be a pair");
    MutexLock lock(mutex_);
    ca_ = ca;
    return ca;
  }

  Result<CertificateCheck> ensure_secret(const Context& ctx, const WantedCertificate& wanted,
                                         const net::KeyPair& ca) const {
    using Verdict = CertificateCheck::Verdict;
    const WallTime now = clock_.wall();
    TRY(const std::optional<Json> existing,
        client_.find(ctx, meta::core::secrets(), wanted.secret));
    const CertificateCheck check = check_certificate(wanted, existing, ca.certificate_pem, now);
    if (check.verdict != Verdict::kIssue) return check;
    TRY(const Json secret, make_certificate_secret(wanted, existing, ca, now));
    TRY_VOID(existing ? client_.update(ctx, meta::core::secrets(), secret)
                      : client_.create(ctx, meta::core::secrets(), secret));
    log::info("issued a certificate", {{"secret_name", wanted.secret.str()},
                                       {"end", meta::format_time(now + kServerCertificateValid)}});
    return check_certificate(wanted, secret, ca.certificate_pem, now);
  }

  const kube::Client& client_;
  const std::string ns_;
  const Clock& clock_;
  Mutex mutex_;
  std::optional<net::KeyPair> ca_ GUARDED_BY(mutex_);
  std::map<meta::ObjectKey, Known> known_ GUARDED_BY(mutex_);
};

}  // namespace

std::unique_ptr<CertificateIssuer> CertificateIssuer::create(const kube::Client& client,
                                                             Options options) {
  return std::make_unique<CertificateIssuerImpl>(client, std::move(options));
}

}  // namespace varda::hosting
