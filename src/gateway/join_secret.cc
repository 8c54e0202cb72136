#include "gateway/join_secret.h"

#include <algorithm>

#include "base/log.h"
#include "codec/digest.h"
#include "meta/resources.h"

namespace varda::gateway {
namespace {

using codec::Json;

constexpr const char* kToken = "token";
constexpr const char* kRevoked = "revoked";
constexpr std::chrono::seconds kCheckPeriod{5};
constexpr int kSecretAttempts = 8;  // if other writers change the Secret

std::string decoded_text(const Json& secret, const char* key) {
  auto bytes = codec::unbase64(secret["data"][key].as_string());
  return bytes.ok() ? std::move(*bytes) : std::string();
}

/// Nothing: no token.
Result<std::optional<SharedJoinToken>> read(const Json& secret, const meta::ObjectKey& key) {
  if (!secret["data"].contains(kToken) || secret["data"][kToken].as_string().empty())
    return std::optional<SharedJoinToken>();
  auto token = JoinToken::parse(decoded_text(secret, kToken));
  if (!token.ok()) {
    return Error(Code::kCorrupt, "Secret " + key.str() +
                                     ": the key token contains no join token. If the Secret is the "
                                     "right one, delete it, or run "
                                     "`varda join-token --rotate-shared`");
  }
  return std::optional(SharedJoinToken{std::move(*token), join_token_is_revoked(secret)});
}

Json with_token(std::optional<Json> present, const meta::ObjectKey& key, const JoinToken& token) {
  Json secret =
      present
          ? std::move(*present)
          : Json::object({{"apiVersion", "v1"},
                          {"kind", "Secret"},
                          {"metadata", Json::object({{"name", key.name}, {"namespace", key.ns}})},
                          {"type", "Opaque"}});
  secret.make("data").set(kToken, codec::base64(token.text()));
  secret.make("data").erase(kRevoked);
  return secret;
}

bool changed_meanwhile(const Error& error) {
  return error.code() == Code::kAlreadyExists || error.code() == Code::kConflict;
}

}  // namespace

Result<meta::ObjectKey> parse_join_secret(std::string_view text) {
  const auto slash = text.find('/');
  meta::ObjectKey key;
  if (slash != std::string_view::npos)
    key = {std::string(text.substr(0, slash)), std::string(text.substr(slash + 1))};
  if (!meta::check_dns_label(key.ns).empty() || !meta::check_dns_subdomain(key.name).empty()) {
    return Error(Code::kInvalid,
                 "\"" + std::string(text) + "\": must be NAMESPACE/NAME of a Secret");
  }
  return key;
}

Result<std::optional<SharedJoinToken>> find_shared_join_token(const Context& ctx,
                                                              const kube::Client& client,
                                                              const meta::ObjectKey& secret) {
  TRY(const std::optional<Json> found, client.find(ctx, secrets(), secret));
  if (!found) return std::optional<SharedJoinToken>();
  return read(*found, secret);
}

Result<TokenChange> ensure_shared_join_token(const Context& ctx, const kube::Client& client,
                                             const meta::ObjectKey& secret,
                                             const std::string& ca_sha256, Rng& rng) {
  for (int attempt = 1;; ++attempt) {
    TRY(std::optional<Json> present, client.find(ctx, secrets(), secret));
    if (present) {
      // A revocation outlasts a change of the authority and the removal of the token.
      if (join_token_is_revoked(*present)) return TokenChange::kUnchanged;
      TRY(const std::optional<SharedJoinToken> shared, read(*present, secret));
      if (shared && shared->token.ca_sha256 == ca_sha256) return TokenChange::kUnchanged;
    }
    const bool exists = present.has_value();
    const Json wanted = with_token(std::move(present), secret, JoinToken::make(ca_sha256, rng));
    const auto written =
        exists ? client.update(ctx, secrets(), wanted) : client.create(ctx, secrets(), wanted);
    if (written.ok()) return TokenChange::kCreated;
    const bool removed_meanwhile = exists && written.error().code() == Code::kNotFound;
    if ((!changed_meanwhile(written.error()) && !removed_meanwhile) || attempt == kSecretAttempts)
      return written.error();
  }
}

void run_join_secret(const Context& ctx, const kube::Client& client, const meta::ObjectKey& secret,
                     const std::string& ca_sha256, Rng& rng) {
  std::string last_error;
  while (!ctx.done()) {
    const auto ensured = ensure_shared_join_token(ctx.with_timeout(std::chrono::seconds(30)),
                                                  client, secret, ca_sha256, rng);
    if (ctx.done()) return;
    if (ensured.ok()) {
      if (*ensured == TokenChange::kCreated)
        log::info("made the join token that agents share", {{"secret_name", secret.str()}});
      last_error.clear();
    } else if (ensured.error().message() != last_error) {
      last_error = ensured.error().message();
      log::warn("cannot keep the join token that agents share; retrying",
                {{"secret_name", secret.str()}, {"error", ensured.error()}});
    }
    if (!ctx.sleep_for(kCheckPeriod).ok()) return;
  }
}

Status rotate_shared_join_token(const Context& ctx, const kube::Client& client,
                                const meta::ObjectKey& secret, const std::string& ca_sha256,
                                Rng& rng) {
  for (int attempt = 1;; ++attempt) {
    TRY(Json present,
        client.get(ctx, secrets(), secret)
            .context("the join token that agents share (`varda gateway --join-secret`)"));
    const auto written = client.update(
        ctx, secrets(), with_token(std::move(present), secret, JoinToken::make(ca_sha256, rng)));
    if (written.ok()) return {};
    if (!changed_meanwhile(written.error()) || attempt == kSecretAttempts) return written.error();
  }
}

Status revoke_shared_join_token(const Context& ctx, const kube::Client& client,
                                const meta::ObjectKey& secret) {
  const Json patch = Json::object({{"data", Json::object({{kRevoked, codec::base64("true")}})}});
  TRY_VOID(client.patch(ctx, secrets(), secret, kube::PatchType::kMerge, patch)
               .context("the join token that agents share (`varda gateway --join-secret`)"));
  return {};
}

bool is_agent_of(const Json& pod, std::string_view node) {
  const Json& metadata = pod["metadata"];
  const Json& labels = metadata["labels"];
  if (labels["app.kubernetes.io/name"].as_string() != "varda" ||
      labels["app.kubernetes.io/component"].as_string() != "agent")
    return false;
  // A Pod being deleted will leave its node. On a lost node that state lasts, since no kubelet
  // reports the end.
  if (!metadata["deletionTimestamp"].is_null()) return false;
  if (node.empty() || pod["spec"]["nodeName"].as_string() != node) return false;
  const std::string& phase = pod["status"]["phase"].as_string();
  if (phase == "Succeeded" || phase == "Failed") return false;
  const auto& owners = metadata["ownerReferences"].as_array();
  return std::any_of(owners.begin(), owners.end(), [](const Json& owner) {
    return owner["controller"].as_bool() && owner["kind"].as_string() == "DaemonSet" &&
           owner["apiVersion"].as_string().starts_with("apps/");
  });
}

Result<std::string> why_no_agent(const Context& ctx, const kube::Client& client,
                                 const std::string& ns, const std::string& node) {
  TRY(const std::optional<Json> known, client.find(ctx, meta::core::nodes(), {"", node}));
  if (!known) return "the cluster has no node \"" + node + "\"";
  kube::ListOptions options;
  options.ns = ns;
  options.label_selector = kAgentLabels;
  options.field_selector = "spec.nodeName=" + node;
  // Version 0 reads the server's cache, which indexes Pods by node. A consistent read would scan
  // all agents' Pods for each agent.
  options.resource_version = "0";
  TRY(const kube::List pods, client.list(ctx, meta::core::pods(), options));
  const bool has_agent = std::any_of(pods.items.begin(), pods.items.end(),
                                     [&](const Json& pod) { return is_agent_of(pod, node); });
  return has_agent ? std::string()
                   : "no Pod of the agents' DaemonSet in namespace " + ns + " (labels " +
                         std::string(kAgentLabels) + ") is on node \"" + node + "\"";
}

}  // namespace varda::gateway
