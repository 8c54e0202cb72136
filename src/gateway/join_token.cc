#include "gateway/join_token.h"

#include <algorithm>
#include <sstream>

#include "base/text.h"
#include "codec/digest.h"
#include "gateway/authority.h"
#include "gateway/caller.h"
#include "meta/object.h"

namespace varda::gateway {
namespace {

using codec::Json;

constexpr std::string_view kPrefix = "varda-join.";
constexpr std::string_view kType = "edgeai.io/join-token";
constexpr std::string_view kNamePrefix = "join-token-";
constexpr std::string_view kLabel = "edgeai.io/join-token";
constexpr std::size_t kIdDigits = 12, kDigestDigits = 64;

bool is_hex(std::string_view text, std::size_t digits) {
  return text.size() == digits && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

std::string random_hex(Rng& rng, std::size_t digits) {
  std::string out;
  while (out.size() < digits) {
    const std::uint64_t bits = rng.next();
    out += codec::hex(std::string_view(reinterpret_cast<const char*>(&bits), sizeof(bits)));
  }
  out.resize(digits);
  return out;
}

meta::ObjectKey key_of(const std::string& id) {
  return {std::string(kSystemNamespace), std::string(kNamePrefix) + id};
}

}  // namespace

Result<JoinToken> JoinToken::parse(std::string_view text) {
  const Error wrong(
      Code::kInvalid,
      "this is not a join token (varda-join.ID.SECRET.CAHASH, as `varda join-token` prints it)");
  text = trim(text);
  if (!text.starts_with(kPrefix)) return wrong;
  text.remove_prefix(kPrefix.size());
  if (text.size() != kIdDigits + 1 + kDigestDigits + 1 + kDigestDigits) return wrong;
  const std::string_view id = text.substr(0, kIdDigits);
  const std::string_view secret = text.substr(kIdDigits + 1, kDigestDigits);
  const std::string_view hash = text.substr(kIdDigits + 1 + kDigestDigits + 1);
  const bool dots = text[kIdDigits] == '.' && text[kIdDigits + 1 + kDigestDigits] == '.';
  if (!dots || !is_hex(id, kIdDigits) || !is_hex(secret, kDigestDigits) ||
      !is_hex(hash, kDigestDigits))
    return wrong;
  return JoinToken{std::string(id), std::string(secret), std::string(hash)};
}

JoinToken JoinToken::make(std::string ca_sha256, Rng& rng) {
  JoinToken token;
  token.id = random_hex(rng, kIdDigits);
  token.secret = random_hex(rng, kDigestDigits);
  token.ca_sha256 = std::move(ca_sha256);
  return token;
}

std::string JoinToken::text() const {
  return std::string(kPrefix) + id + "." + secret + "." + ca_sha256;
}

Json JoinTokenRecord::to_secret() const {
  Json data = Json::object({{"node", codec::base64(node)},
                            {"layer", codec::base64(to_string(layer))},
                            {"secret-sha256", codec::base64(secret_sha256)},
                            {"expires", codec::base64(meta::format_time(expires))}});
  if (!networks.empty()) data.set("from", codec::base64(text_of(networks)));
  if (!used_by.empty()) data.set("used-by", codec::base64(used_by));
  if (revoked) data.set("revoked", codec::base64("true"));
  const meta::ObjectKey key = key_of(id);
  return Json::object(
      {{"apiVersion", "v1"},
       {"kind", "Secret"},
       {"metadata", Json::object({{"name", key.name},
                                  {"namespace", key.ns},
                                  {"labels", Json::object({{std::string(kLabel), "true"}})}})},
       {"type", std::string(kType)},
       {"data", std::move(data)}});
}

Result<JoinTokenRecord> JoinTokenRecord::from_secret(const Json& secret) {
  const std::string& name = secret.at("metadata/name").as_string();
  const auto corrupt = [&](const std::string& what) {
    return Error(Code::kCorrupt, "Secret " + name + ": " + what);
  };
  // No gateway made a Secret of another type: a right to write only that Secret must not make
  // tokens.
  if (secret["type"].as_string() != kType) return corrupt("its type is not " + std::string(kType));
  if (!name.starts_with(kNamePrefix))
    return corrupt("its name does not begin with " + std::string(kNamePrefix));
  const auto text = [&](const char* member) -> std::string {
    auto bytes = codec::unbase64(secret["data"][member].as_string());
    return bytes.ok() ? std::move(*bytes) : std::string();
  };
  JoinTokenRecord record;
  record.id = name.substr(kNamePrefix.size());
  record.node = text("node");
  if (record.node.size() > kNodeNameBytesMax || !meta::check_dns_subdomain(record.node).empty()) {
    return corrupt("data.node is not a name of a node");
  }
  if (secret["data"].contains("layer")) {
    const auto layer = parse_layer(text("layer"));
    if (!layer) return corrupt("data.layer must be edge, device or cloud");
    record.layer = *layer;
  }
  if (secret["data"].contains("from")) {
    std::istringstream list(text("from"));
    for (std::string one; std::getline(list, one, ',');) {
      const auto block = net::parse_ip_block(one);
      if (!block) return corrupt("data.from is not a list of networks");
      record.networks.push_back(*block);
    }
    // An empty list must not mean any address.
    if (record.networks.empty()) return corrupt("data.from is not a list of networks");
  }
  record.secret_sha256 = text("secret-sha256");
  if (!is_hex(record.secret_sha256, kDigestDigits))
    return corrupt("data.secret-sha256 is not a digest");
  auto expires = meta::parse_time(text("expires"));
  if (!expires.ok()) return corrupt("data.expires is invalid");
  record.expires = *expires;
  record.used_by = text("used-by");
  record.revoked = join_token_is_revoked(secret);
  return record;
}

bool join_token_is_revoked(const Json& secret) {
  const auto bytes = codec::unbase64(secret["data"]["revoked"].as_string());
  if (!bytes.ok()) return true;
  const std::string_view revoked = trim(*bytes);
  return !revoked.empty() && revoked != "false";
}

std::string_view to_string(Verdict verdict) {
  switch (verdict) {
    case Verdict::kGood:
      return "good";
    case Verdict::kWrongSecret:
      return "wrong secret";
    case Verdict::kRevoked:
      return "revoked";
    case Verdict::kExpired:
      return "expired";
    case Verdict::kUsedByAnotherKey:
      return "used by another key";
    case Verdict::kOtherNetwork:
      return "from another network";
  }
  return "unknown";
}

std::string text_of(const std::vector<net::IpBlock>& networks) {
  return join(networks, ",", [](const auto& block) {
    return block.base.str() + "/" + std::to_string(block.prefix);
  });
}

bool is_from(std::string_view peer, const std::vector<net::IpBlock>& networks) {
  std::string_view host = peer.substr(0, peer.rfind(':'));
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  const net::Ip address =
      net::parse_ip(host.substr(0, host.find('%')));  // a link-local address names its interface
  const net::Ip plain = net::without_ipv6_wrapping(address);
  return std::any_of(networks.begin(), networks.end(), [&](const net::IpBlock& block) {
    return block.contains(address) || block.contains(plain);
  });
}

Verdict judge(const JoinTokenRecord& record, const JoinToken& token, std::string_view key_sha256,
              std::string_view peer, WallTime now) {
  if (!codec::same_secret(record.secret_sha256, codec::Sha256::of(token.secret).hex()))
    return Verdict::kWrongSecret;
  if (record.revoked) return Verdict::kRevoked;
  if (now >= record.expires) return Verdict::kExpired;
  if (!record.used_by.empty() && record.used_by != key_sha256) return Verdict::kUsedByAnotherKey;
  if (!record.networks.empty() && !is_from(peer, record.networks)) return Verdict::kOtherNetwork;
  return Verdict::kGood;
}

Status make_system_namespace(const Context& ctx, const kube::Client& client) {
  const Json object =
      Json::object({{"apiVersion", "v1"},
                    {"kind", "Namespace"},
                    {"metadata", Json::object({{"name", std::string(kSystemNamespace)}})}});
  // An installation brings the namespace, so its users need no right to make namespaces.
  TRY(const std::optional<Json> found,
      client.find(ctx, meta::core::namespaces(), {"", std::string(kSystemNamespace)}));
  if (found) return {};
  auto created = client.create(ctx, meta::core::namespaces(), object);
  if (!created.ok() && created.error().code() != Code::kAlreadyExists)
    return std::move(created).error();
  return {};
}

Result<JoinToken> create_join_token(const Context& ctx, const kube::Client& client,
                                    const NewJoinToken& wanted, WallTime now, Rng& rng) {
  if (const std::string why = meta::check_dns_subdomain(wanted.node); !why.empty()) {
    return Error(Code::kInvalid, "node \"" + wanted.node + "\": " + why);
  }
  if (wanted.node.size() > kNodeNameBytesMax) {
    return Error(Code::kInvalid, "node \"" + wanted.node +
                                     "\": the common name of a certificate has at most " +
                                     std::to_string(kNodeNameBytesMax) + " characters");
  }
  if (wanted.node == kGatewayName) {
    return Error(Code::kInvalid,
                 "node \"" + wanted.node + "\": this name is reserved for gateways");
  }
  if (wanted.networks.size() > kJoinNetworksMax) {
    return Error(Code::kInvalid,
                 "a join token takes at most " + std::to_string(kJoinNetworksMax) + " networks");
  }
  TRY_VOID(make_system_namespace(ctx, client));
  const JoinToken token = JoinToken::make(wanted.ca_sha256, rng);
  JoinTokenRecord record;
  record.id = token.id;
  record.node = wanted.node;
  record.layer = wanted.layer;
  record.networks = wanted.networks;
  record.secret_sha256 = codec::Sha256::of(token.secret).hex();
  record.expires = now + wanted.ttl;
  TRY_VOID(client.create(ctx, secrets(), record.to_secret()));
  return token;
}

Result<std::vector<JoinTokenRecord>> list_join_tokens(const Context& ctx,
                                                      const kube::Client& client) {
  kube::ListOptions options;
  options.ns = kSystemNamespace;
  options.label_selector = std::string(kLabel) + "=true";
  options.limit = 500;
  TRY(const kube::List list, client.list_all(ctx, secrets(), options));
  std::vector<JoinTokenRecord> out;
  for (const Json& item : list.items) {
    if (auto record = JoinTokenRecord::from_secret(item); record.ok())
      out.push_back(std::move(*record));
  }
  std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
  return out;
}

Status revoke_join_token(const Context& ctx, const kube::Client& client, const std::string& id) {
  if (!is_hex(id, kIdDigits))
    return Error(Code::kInvalid, "\"" + id + "\" is not an ID of a join token (12 digits of hex)");
  const Json patch = Json::object({{"data", Json::object({{"revoked", codec::base64("true")}})}});
  TRY_VOID(client.patch(ctx, secrets(), key_of(id), kube::PatchType::kMerge, patch));
  return {};
}

Result<int> remove_old_join_tokens(const Context& ctx, const kube::Client& client, WallTime now) {
  TRY(const std::vector<JoinTokenRecord> records, list_join_tokens(ctx, client));
  int removed = 0;
  for (const JoinTokenRecord& record : records) {
    if (record.expires + std::chrono::hours(24) > now) continue;
    auto answer = client.remove(ctx, secrets(), key_of(record.id));
    if (!answer.ok() && answer.error().code() != Code::kNotFound) return std::move(answer).error();
    ++removed;
  }
  return removed;
}

Result<std::optional<StoredJoinToken>> find_join_token(const Context& ctx,
                                                       const kube::Client& client,
                                                       const std::string& id) {
  TRY(std::optional<Json> secret, client.find(ctx, secrets(), key_of(id)));
  if (!secret) return std::optional<StoredJoinToken>();
  TRY(JoinTokenRecord record, JoinTokenRecord::from_secret(*secret));
  return std::optional(StoredJoinToken{std::move(*secret), std::move(record)});
}

Status use_join_token(const Context& ctx, const kube::Client& client, StoredJoinToken stored,
                      const std::string& key_sha256) {
  // The PUT has the resourceVersion that was read. If two gateways race with two keys, the second
  // gets a conflict, reads again, and finds the first key.
  stored.secret["data"].set("used-by", codec::base64(key_sha256));
  TRY_VOID(client.update(ctx, secrets(), stored.secret));
  return {};
}

}  // namespace varda::gateway
