#include "gateway/node_key.h"

#include <optional>

#include "codec/digest.h"
#include "gateway/caller.h"
#include "gateway/join_token.h"
#include "meta/object.h"

namespace varda::gateway {
namespace {

using codec::Json;

constexpr std::string_view kType = "edgeai.io/node-key";
constexpr std::string_view kLabel = "edgeai.io/node-key";
constexpr const char* kKey = "key-sha256";
constexpr int kAttempts = 8;  // against other writers

meta::ObjectKey key_of(const std::string& node) { return {std::string(kSystemNamespace), "node-key-" + node}; }

Json secret_of(const std::string& node, const std::string& key_sha256) {
  const meta::ObjectKey key = key_of(node);
  return Json::object(
      {{"apiVersion", "v1"},
       {"kind", "Secret"},
       {"metadata",
        Json::object({{"name", key.name}, {"namespace", key.ns}, {"labels", Json::object({{std::string(kLabel), "true"}})}})},
       {"type", std::string(kType)},
       {"data", Json::object({{"node", codec::base64(node)}, {kKey, codec::base64(key_sha256)}})}});
}

struct Remembered {
  Json secret;
  std::string key_sha256;
};

Result<std::optional<Remembered>> find(const Context& ctx, const kube::Client& client, const std::string& node) {
  TRY(std::optional<Json> secret, client.find(ctx, secrets(), key_of(node)));
  if (!secret) return std::optional<Remembered>();
  const auto corrupt = [&](const char* what) { return Error(Code::kCorrupt, "Secret " + key_of(node).str() + ": " + what); };
  // The type of a Secret never changes: what somebody else put there stays somebody else's.
  if (std::as_const(*secret)["type"].as_string() != kType) return corrupt("its type is not edgeai.io/node-key");
  auto text = codec::unbase64(std::as_const(*secret)["data"][kKey].as_string());
  if (!text.ok() || text->empty()) return corrupt("data.key-sha256 is no digest");
  return std::optional(Remembered{std::move(*secret), std::move(*text)});
}

bool changed_meanwhile(const Error& error) {
  return error.code() == Code::kAlreadyExists || error.code() == Code::kConflict || error.code() == Code::kNotFound;
}

}  // namespace

Result<KeyClaim> claim_node_key(const Context& ctx, const kube::Client& client, const std::string& node,
                                const std::string& key_sha256) {
  for (int attempt = 1;; ++attempt) {
    TRY(const std::optional<Remembered> known, find(ctx, client, node));
    if (known) return codec::same_secret(known->key_sha256, key_sha256) ? KeyClaim::kIsTheNodes : KeyClaim::kIsAnother;
    auto created = client.create(ctx, secrets(), secret_of(node, key_sha256));
    if (created.ok()) return KeyClaim::kIsTheNodes;
    if (created.error().code() != Code::kAlreadyExists || attempt == kAttempts) return std::move(created).error();
  }
}

Status set_node_key(const Context& ctx, const kube::Client& client, const std::string& node, const std::string& key_sha256) {
  for (int attempt = 1;; ++attempt) {
    TRY(std::optional<Remembered> known, find(ctx, client, node));
    if (known && known->key_sha256 == key_sha256) return {};
    if (known) known->secret["data"].set(kKey, codec::base64(key_sha256));
    const auto written =
        known ? client.update(ctx, secrets(), known->secret) : client.create(ctx, secrets(), secret_of(node, key_sha256));
    if (written.ok()) return {};
    if (!changed_meanwhile(written.error()) || attempt == kAttempts) return written.error();
  }
}

Status forget_node_key(const Context& ctx, const kube::Client& client, const std::string& node) {
  if (const std::string why = meta::check_dns_subdomain(node); !why.empty()) {
    return Error(Code::kInvalid, "node \"" + node + "\": " + why);
  }
  auto removed = client.remove(ctx, secrets(), key_of(node));
  if (!removed.ok() && removed.error().code() == Code::kNotFound) {
    return Error(Code::kNotFound, "no key of node \"" + node + "\" is remembered");
  }
  TRY_VOID(removed);
  return {};
}

}  // namespace varda::gateway
