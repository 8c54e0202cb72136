#include "hosting/certificate.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "codec/digest.h"
#include "net/validity.h"

namespace varda::hosting {
namespace {

using codec::Json;

constexpr const char* kHostsAnnotation = "edgeai.io/certificate-hosts";
constexpr std::size_t kCommonNameMax = 64;  // RFC 5280

std::string member(const Json& secret, const char* name) {
  auto text = codec::unbase64(secret["data"][name].as_string());
  return text.ok() ? std::move(*text) : std::string();
}

const Json& controller_of(const Json& secret) {
  static const Json none;
  for (const Json& owner : secret.at("metadata/ownerReferences").as_array()) {
    if (owner["controller"].as_bool()) return owner;
  }
  return none;
}

bool is_whole(const Json& secret, const std::string& ca_pem, const net::CertificateFacts& facts) {
  const auto key = net::key_sha256(member(secret, "tls.key"));
  return key.ok() && *key == facts.key_sha256 && member(secret, "ca.crt") == ca_pem;
}

}  // namespace

WantedCertificate wanted_certificate(const runtime::ObjectRef& owner, const std::string& secret,
                                     std::vector<std::string> hosts) {
  std::erase(hosts, "");
  std::sort(hosts.begin(), hosts.end());
  hosts.erase(std::unique(hosts.begin(), hosts.end()), hosts.end());
  return {.secret = {owner.key.ns, secret}, .owner = owner, .hosts = std::move(hosts)};
}

CertificateCheck check_certificate(const WantedCertificate& wanted,
                                   const std::optional<Json>& secret, const std::string& ca_pem,
                                   WallTime now) {
  using Verdict = CertificateCheck::Verdict;
  if (!secret) return {Verdict::kIssue, {}};
  const Json& controller = controller_of(*secret);
  if (controller["uid"].as_string() != wanted.owner.uid) {
    const bool same_name = controller["kind"].as_string() == wanted.owner.resource->kind &&
                           controller["name"].as_string() == wanted.owner.key.name;
    return {same_name ? Verdict::kLeftOver : Verdict::kForeign, {}};
  }
  const auto facts = net::certificate_facts(member(*secret, "tls.crt"));
  if (!facts.ok() || !is_whole(*secret, ca_pem, *facts)) return {Verdict::kIssue, {}};
  if (secret->at("metadata/annotations")[kHostsAnnotation].as_string() != join(wanted.hosts, ","))
    return {Verdict::kIssue, {}};
  if (net::must_be_renewed(*facts, kServerCertificateLeft, now)) return {Verdict::kIssue, {}};
  return {Verdict::kGood, facts->not_after - kServerCertificateLeft};
}

Result<Json> make_certificate_secret(const WantedCertificate& wanted,
                                     const std::optional<Json>& before, const net::KeyPair& ca,
                                     WallTime now) {
  net::CertificateRequest request;
  request.common_name = wanted.owner.key.name.substr(0, kCommonNameMax);
  request.hosts = wanted.hosts;
  request.peer = true;
  TRY(const net::KeyPair pair,
      net::make_certificate(ca, request, net::validity_for(kServerCertificateValid, now)));
  Json secret = before.value_or(Json());
  if (!before) {
    const Json owner = Json::object({{"apiVersion", wanted.owner.resource->api_version()},
                                     {"kind", wanted.owner.resource->kind},
                                     {"name", wanted.owner.key.name},
                                     {"uid", wanted.owner.uid},
                                     {"controller", true}});
    secret = Json::object({{"apiVersion", "v1"},
                           {"kind", "Secret"},
                           {"metadata", Json::object({{"name", wanted.secret.name},
                                                      {"namespace", wanted.secret.ns},
                                                      {"ownerReferences", Json::array({owner})}})},
                           {"type", "kubernetes.io/tls"}});
  }
  secret.make("metadata/annotations").set(kHostsAnnotation, join(wanted.hosts, ","));
  secret.set("data", Json::object({{"tls.crt", codec::base64(pair.certificate_pem)},
                                   {"tls.key", codec::base64(pair.key_pem)},
                                   {"ca.crt", codec::base64(ca.certificate_pem)}}));
  return secret;
}

}  // namespace varda::hosting
