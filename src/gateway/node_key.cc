#include "gateway/node_key.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "api/edgeai/edge_node.h"
#include "codec/digest.h"
#include "gateway/caller.h"
#include "gateway/join_token.h"
#include "meta/object.h"

namespace varda::gateway {
namespace {

using codec::Json;

constexpr std::string_view kNodeKeyType = "edgeai.io/node-key";
constexpr std::string_view kNodeKeyLabel = "edgeai.io/node-key";
constexpr const char* kKey = "key-sha256";
constexpr const char* kRefused = "refused-sha256";
constexpr const char* kLayer = "layer";
constexpr std::size_t kNodeKeyDigits = 64;
constexpr int kNodeKeyAttempts = 8;  // if other writers change the Secret

meta::ObjectKey node_key_of(const std::string& node) {
  return {std::string(kSystemNamespace), "node-key-" + node};
}

bool is_digest(std::string_view text) {
  return text.size() == kNodeKeyDigits && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

struct Remembered {
  Json secret;
  std::string key_sha256;            // "": forgotten
  std::vector<std::string> refused;  // newest first
  Layer layer = Layer::kEdge;

  bool refuses(std::string_view key) const {
    return std::any_of(refused.begin(), refused.end(),
                       [&](const auto& one) { return codec::same_secret(one, key); });
  }
  /// The Secret with `key` as the node's key ("": none). The key before it is refused.
  Json with(const std::string& key) && {
    if (!key_sha256.empty()) refused.insert(refused.begin(), key_sha256);
    refused.erase(std::remove(refused.begin(), refused.end(), key), refused.end());
    if (refused.size() > kRefusedKeysMax) refused.resize(kRefusedKeysMax);
    Json& data = secret.make("data");
    data.set(kLayer, codec::base64(to_string(layer)));
    if (key.empty()) {
      data.erase(kKey);
    } else {
      data.set(kKey, codec::base64(key));
    }
    std::string lines;
    for (const std::string& one : refused) lines += one + "\n";
    if (lines.empty()) {
      data.erase(kRefused);
    } else {
      data.set(kRefused, codec::base64(lines));
    }
    return std::move(secret);
  }
};

Remembered empty_record_of(const std::string& node) {
  const meta::ObjectKey key = node_key_of(node);
  return {Json::object(
              {{"apiVersion", "v1"},
               {"kind", "Secret"},
               {"metadata",
                Json::object({{"name", key.name},
                              {"namespace", key.ns},
                              {"labels", Json::object({{std::string(kNodeKeyLabel), "true"}})}})},
               {"type", std::string(kNodeKeyType)},
               {"data", Json::object({{"node", codec::base64(node)}})}}),
          "",
          {},
          Layer::kEdge};
}

Result<std::optional<Remembered>> find(const Context& ctx, const kube::Client& client,
                                       const std::string& node) {
  TRY(std::optional<Json> secret, client.find(ctx, secrets(), node_key_of(node)));
  if (!secret) return std::optional<Remembered>();
  const auto corrupt = [&](const char* what) {
    return Error(Code::kCorrupt, "Secret " + node_key_of(node).str() + ": " + what);
  };
  // A Secret's type never changes: another type means another writer, and stays untouched.
  if (std::as_const(*secret)["type"].as_string() != kNodeKeyType)
    return corrupt("its type is not edgeai.io/node-key");
  const Json& data = std::as_const(*secret)["data"];
  Remembered known;
  if (data.contains(kKey)) {
    auto text = codec::unbase64(data[kKey].as_string());
    if (!text.ok() || !is_digest(*text)) return corrupt("data.key-sha256 is not a digest");
    known.key_sha256 = std::move(*text);
  }
  if (data.contains(kLayer)) {
    const auto text = codec::unbase64(data[kLayer].as_string());
    const auto layer = text.ok() ? parse_layer(*text) : std::nullopt;
    if (!layer) return corrupt("data.layer must be edge, device or cloud");
    known.layer = *layer;
  }
  const auto lines = codec::unbase64(data[kRefused].as_string());
  if (!lines.ok()) return corrupt("data.refused-sha256 is not a list of digests");
  for (std::string_view remaining = *lines; !remaining.empty();) {
    const std::string_view line = remaining.substr(0, remaining.find('\n'));
    remaining.remove_prefix(std::min(remaining.size(), line.size() + 1));
    if (!is_digest(line)) return corrupt("data.refused-sha256 is not a list of digests");
    known.refused.emplace_back(line);
  }
  known.secret = std::move(*secret);
  return std::optional(std::move(known));
}

bool key_changed_meanwhile(const Error& error) {
  return error.code() == Code::kAlreadyExists || error.code() == Code::kConflict ||
         error.code() == Code::kNotFound;
}

/// kAlreadyExists, kConflict, kNotFound: another writer changed the Secret.
Status write(const Context& ctx, const kube::Client& client, const std::string& node,
             std::optional<Remembered> known, const std::string& key_sha256, Layer layer) {
  const bool exists = known.has_value();
  Remembered next = exists ? std::move(*known) : empty_record_of(node);
  next.layer = layer;
  const Json secret = std::move(next).with(key_sha256);
  TRY_VOID(exists ? client.update(ctx, secrets(), secret) : client.create(ctx, secrets(), secret));
  return {};
}

}  // namespace

Result<KeyClaim> claim_node_key(const Context& ctx, const kube::Client& client,
                                const std::string& node, const std::string& key_sha256,
                                KeyRights rights) {
  for (int attempt = 1;; ++attempt) {
    TRY(std::optional<Remembered> known, find(ctx, client, node));
    if (known && codec::same_secret(known->key_sha256, key_sha256)) return KeyClaim::kIsTheNodes;
    if (known && known->refuses(key_sha256)) return KeyClaim::kIsForgotten;
    if (known && !known->key_sha256.empty()) return KeyClaim::kIsAnother;
    if (known && !rights.follow) return KeyClaim::kIsForgotten;
    if (!known && !rights.be_first) return KeyClaim::kIsUnknown;
    const Layer layer = known ? known->layer : Layer::kEdge;
    const Status written = write(ctx, client, node, std::move(known), key_sha256, layer);
    if (written.ok()) return KeyClaim::kIsTheNodes;
    if (!key_changed_meanwhile(written.error()) || attempt == kNodeKeyAttempts)
      return written.error();
  }
}

Status set_node_key(const Context& ctx, const kube::Client& client, const std::string& node,
                    const std::string& key_sha256, Layer layer) {
  for (int attempt = 1;; ++attempt) {
    TRY(std::optional<Remembered> known, find(ctx, client, node));
    if (known && known->key_sha256 == key_sha256 && known->layer == layer) return {};
    const Status written = write(ctx, client, node, std::move(known), key_sha256, layer);
    if (written.ok() || !key_changed_meanwhile(written.error()) || attempt == kNodeKeyAttempts)
      return written;
  }
}

Result<bool> has_node_key(const Context& ctx, const kube::Client& client, const std::string& node) {
  TRY(const std::optional<Remembered> known, find(ctx, client, node));
  return known && !known->key_sha256.empty();
}

Result<Layer> layer_of_node(const Context& ctx, const kube::Client& client,
                            const std::string& node) {
  TRY(const std::optional<Remembered> known, find(ctx, client, node));
  return known ? known->layer : Layer::kEdge;
}

Status forget_node_key(const Context& ctx, const kube::Client& client, const std::string& node) {
  if (const std::string why = meta::check_dns_subdomain(node); !why.empty()) {
    return Error(Code::kInvalid, "node \"" + node + "\": " + why);
  }
  for (int attempt = 1;; ++attempt) {
    TRY(std::optional<Remembered> known, find(ctx, client, node));
    if (!known) {
      // A node that enrolled before keys were remembered has an EdgeNode.
      TRY(const std::optional<Json> edge_node,
          client.find(ctx, api::EdgeNode::resource(), {"", node}));
      if (!edge_node) return Error(Code::kNotFound, "no key of node \"" + node + "\" is recorded");
    } else if (known->key_sha256.empty()) {
      return {};
    }
    const Status written = write(ctx, client, node, std::move(known), "", Layer::kEdge);
    if (written.ok() || !key_changed_meanwhile(written.error()) || attempt == kNodeKeyAttempts)
      return written;
  }
}

}  // namespace varda::gateway
