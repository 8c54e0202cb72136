#include "gateway/authority.h"

#include <algorithm>
#include <optional>

#include "api/edgeai/edge_node.h"
#include "base/log.h"
#include "codec/digest.h"
#include "gateway/caller.h"
#include "gateway/join_token.h"
#include "meta/object.h"
#include "net/validity.h"

namespace varda::gateway {
namespace {

using codec::Json;

constexpr std::chrono::hours kCaLeft{24 * 3 * 365};  // a CA with less time left gets new dates
const meta::ObjectKey kCaSecret{std::string(kSystemNamespace), "varda-gateway-ca"};
const meta::ObjectKey kPublished{std::string(kSystemNamespace), "varda-gateway"};

Json object_of(const meta::Resource& resource, const meta::ObjectKey& key) {
  return Json::object({{"apiVersion", resource.api_version()},
                       {"kind", resource.kind},
                       {"metadata", Json::object({{"name", key.name}, {"namespace", key.ns}})}});
}

Result<Authority> from_secret(const Json& secret) {
  net::KeyPair pair;
  auto certificate = codec::unbase64(secret["data"]["tls.crt"].as_string());
  auto key = codec::unbase64(secret["data"]["tls.key"].as_string());
  if (certificate.ok()) pair.certificate_pem = std::move(*certificate);
  if (key.ok()) pair.key_pem = std::move(*key);
  return Authority::of(std::move(pair)).context("Secret " + kCaSecret.str());
}

/// Facts of the published CA. Nothing: it is missing, unreadable or has ended.
std::optional<net::CertificateFacts> standing(const std::optional<Json>& map, WallTime now) {
  if (!map) return std::nullopt;
  auto facts = net::certificate_facts((*map)["data"]["ca.crt"].as_string());
  if (!facts.ok() || facts->not_after <= now) return std::nullopt;
  return std::move(facts).value();
}

/// Renews the CA in the Secret if its dates are not good for years; the key stays. If another
/// gateway writes first, returns the Secret of that gateway.
Result<Json> with_good_dates(const Context& ctx, const kube::Client& client, Json secret,
                             WallTime now) {
  auto certificate = codec::unbase64(std::as_const(secret)["data"]["tls.crt"].as_string());
  auto key = codec::unbase64(std::as_const(secret)["data"]["tls.key"].as_string());
  if (!certificate.ok() || !key.ok()) return secret;  // from_secret() reports the error
  const auto facts = net::certificate_facts(*certificate);
  if (!facts.ok() || !net::must_be_renewed(*facts, kCaLeft, now)) return secret;
  const auto renewed =
      net::renew_ca({std::move(*certificate), std::move(*key)}, net::authority_validity(now));
  if (!renewed.ok()) return secret;
  secret["data"].set("tls.crt", codec::base64(renewed->certificate_pem));
  auto written = client.update(ctx, secrets(), secret);
  if (!written.ok() && written.error().code() == Code::kConflict)
    return client.get(ctx, secrets(), kCaSecret);
  if (written.ok())
    log::warn(
        "renewed the edge CA with the same key; earlier join tokens are invalid",
        {{"secret_name", kCaSecret.str()}, {"former_end", meta::format_time(facts->not_after)}});
  return written;
}

Error foreign_authority(const std::string& sha256) {
  return Error(Code::kConflict, "ConfigMap " + kPublished.str() +
                                    " has another authority of the edge (SHA-256 " +
                                    sha256.substr(0, 12) +
                                    "...), which nodes and join tokens trust. If another gateway "
                                    "runs, such as that of `varda up "
                                    "--gateway`, stop one of them, or use the same authority: "
                                    "--ca-cert and --ca-key (of `varda "
                                    "up`: pki/ca.crt and pki/ca.key in its data directory). If the "
                                    "authority was in the Secret " +
                                    kCaSecret.str() +
                                    ", restore that Secret. If the Secret is lost or must be "
                                    "replaced, delete the ConfigMap; then "
                                    "every node must join again");
}

}  // namespace

Authority::Authority(net::KeyPair ca, net::CertificateFacts facts)
    : ca_(std::move(ca)),
      sha256_(std::move(facts.sha256)),
      key_sha256_(std::move(facts.key_sha256)),
      not_after_(facts.not_after) {}

Result<Authority> Authority::of(net::KeyPair ca) {
  TRY(net::CertificateFacts facts,
      net::certificate_facts(ca.certificate_pem).context("the authority of the edge"));
  TRY(const std::string key, net::key_sha256(ca.key_pem).context("the authority of the edge"));
  if (key != facts.key_sha256) {
    return Error(Code::kInvalid,
                 "the authority of the edge: the key does not belong to the certificate");
  }
  return Authority(std::move(ca), std::move(facts));
}

Result<Authority> Authority::open(const Context& ctx, const kube::Client& client, WallTime now) {
  TRY(std::optional<Json> secret, client.find(ctx, secrets(), kCaSecret));
  if (!secret) {
    TRY(const std::optional<Json> published, client.find(ctx, config_maps(), kPublished));
    if (const auto other = standing(published, now)) {
      // A gateway that started at the same time makes the Secret before it publishes, so look
      // again.
      TRY(secret, client.find(ctx, secrets(), kCaSecret));
      if (!secret) return foreign_authority(other->sha256);
    }
  }
  if (!secret) {
    TRY_VOID(make_system_namespace(ctx, client));
    TRY(const net::KeyPair pair, net::make_ca("varda-gateway-ca", net::authority_validity(now)));
    Json wanted = object_of(secrets(), kCaSecret);
    wanted.set("type", "kubernetes.io/tls");
    wanted.set("data", Json::object({{"tls.crt", codec::base64(pair.certificate_pem)},
                                     {"tls.key", codec::base64(pair.key_pem)}}));
    auto created = client.create(ctx, secrets(), wanted);
    if (created.ok()) {
      log::info("made the CA of the edge", {{"secret_name", kCaSecret.str()}});
      secret = std::move(*created);
    } else if (created.error().code() == Code::kAlreadyExists) {
      TRY(secret, client.get(ctx, secrets(), kCaSecret));
    } else {
      return std::move(created).error();
    }
  }
  TRY(const Json good, with_good_dates(ctx, client, std::move(*secret), now));
  return from_secret(good);
}

Status Authority::publish(const Context& ctx, const kube::Client& client, WallTime now,
                          Other other) const {
  constexpr int kAttempts = 5;
  for (int attempt = 1;; ++attempt) {
    TRY(std::optional<Json> present, client.find(ctx, config_maps(), kPublished));
    if (present && std::as_const(*present)["data"]["ca.crt"].as_string() == ca_.certificate_pem)
      return {};
    const auto before = standing(present, now);
    const bool replaces = before && before->key_sha256 != key_sha256_;  // else the CA has new dates
    if (replaces && other == Other::kStays) return foreign_authority(before->sha256);
    Json wanted = present ? std::move(*present) : object_of(config_maps(), kPublished);
    wanted["data"].set("ca.crt", ca_.certificate_pem);
    if (!present) TRY_VOID(make_system_namespace(ctx, client));
    auto written = present ? client.update(ctx, config_maps(), wanted)
                           : client.create(ctx, config_maps(), wanted);
    if (written.ok()) {
      if (replaces)
        log::warn("replaced the published CA of the edge; nodes of the former CA must enrol again",
                  {{"former", before->sha256}});
      return {};
    }
    const Code code = written.error().code();
    const bool other_was_faster =
        code == Code::kConflict || code == Code::kAlreadyExists || code == Code::kNotFound;
    if (!other_was_faster || attempt == kAttempts) return std::move(written).error();
  }
}

std::chrono::hours Authority::until_end(WallTime now) const {
  return std::max(std::chrono::hours(1),
                  std::chrono::duration_cast<std::chrono::hours>(not_after_ - now));
}

Result<net::TlsServer> Authority::server(const std::vector<std::string>& hosts) const {
  net::CertificateRequest request;
  request.common_name = kGatewayName;
  request.hosts = {std::string(kGatewayName), "localhost", "127.0.0.1", "::1"};
  for (const std::string& host : hosts) {
    if (!host.empty() &&
        std::find(request.hosts.begin(), request.hosts.end(), host) == request.hosts.end()) {
      request.hosts.push_back(host);
    }
  }
  request.server = true;
  TRY(const net::KeyPair pair,
      net::make_certificate(ca_, request,
                            {.not_before = net::kClocksBegin, .not_after = not_after_}));
  net::TlsServer out;
  out.certificate_pem = pair.certificate_pem + ca_.certificate_pem;
  out.key_pem = pair.key_pem;
  out.client_ca_pem = ca_.certificate_pem;
  out.expired_clients = net::TlsServer::Expired::kAccept;
  return out;
}

Result<std::string> Authority::issue(const std::string& node, Layer layer, std::string_view csr_pem,
                                     WallTime now) const {
  net::CertificateRequest request;
  request.common_name = node;
  request.organizations = {std::string(kNodesOrganization)};
  request.organizational_units = {std::string(to_string(layer))};
  request.hosts = {api::peer_name(node)};
  request.peer = true;
  request.valid = std::min(kNodeCertificateValid, until_end(now));
  request.issued = now;
  return net::sign_csr(ca_, csr_pem, request);
}

Status Authority::sign(net::ProxyHeader& header, WallTime now) const {
  return net::sign_identity(header, ca_.key_pem, now);
}

Result<std::string> published_ca(const Context& ctx, const kube::Client& client) {
  TRY(const std::optional<Json> map, client.find(ctx, config_maps(), kPublished));
  const std::string pem = map ? (*map)["data"]["ca.crt"].as_string() : std::string();
  if (pem.empty()) {
    return Error(Code::kNotFound,
                 "no gateway has started here yet (ConfigMap " + kPublished.str() +
                     " is missing); start `varda gateway`, or `varda up` with --gateway");
  }
  return pem;
}

}  // namespace varda::gateway
