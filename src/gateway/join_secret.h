// The join token that all agents of a DaemonSet share. The gateway makes it in the key `token` of a
// Secret, which the agents mount. It has the form of any join token (join_token.h), but admits
// every node of the cluster that runs such an agent. Enrolment asks the API server for the proof
// that the token lacks: see why_no_agent() and node_key.h.
#pragma once

#include <atomic>
#include <optional>
#include <string>
#include <string_view>

#include "base/context.h"
#include "base/result.h"
#include "base/rng.h"
#include "gateway/join_token.h"
#include "kube/client.h"
#include "meta/object.h"

namespace varda::gateway {

inline constexpr std::string_view kJoinSecretDefault = "varda-edge/varda-agent-join";
/// Labels of the agents' Pods, as in the selector of deploy/kustomize/agent.
inline constexpr std::string_view kAgentLabels =
    "app.kubernetes.io/name=varda,app.kubernetes.io/component=agent";

/// "NAMESPACE/NAME". kInvalid.
Result<meta::ObjectKey> parse_join_secret(std::string_view text);

struct SharedJoinToken {
  JoinToken token;
  bool revoked = false;  // see join_token_is_revoked(): admits no node; no gateway replaces it
};
/// Nothing: no Secret, or no token in it. kCorrupt: the content is no join token.
Result<std::optional<SharedJoinToken>> find_shared_join_token(const Context& ctx,
                                                              const kube::Client& client,
                                                              const meta::ObjectKey& secret);
enum class TokenChange { kUnchanged, kCreated };
/// Makes the Secret if it is missing, and the token if it is missing or names another authority. If
/// two gateways race, the second takes the token of the first. A revoked token stays. kCorrupt: the
/// key holds no join token and stays as it is. kNotFound: the namespace is missing.
Result<TokenChange> ensure_shared_join_token(const Context& ctx, const kube::Client& client,
                                             const meta::ObjectKey& secret,
                                             const std::string& ca_sha256, Rng& rng);
/// Calls ensure_shared_join_token() every few seconds until the context is done: an administrator
/// may delete the Secret to get another token. An error is logged once until it changes.
void run_join_secret(const Context& ctx, const kube::Client& client, const meta::ObjectKey& secret,
                     const std::string& ca_sha256, Rng& rng);

// For administrators of the cluster.

/// Makes another token in any case. The former token admits no node any more. kNotFound: no gateway
/// has made one yet.
Status rotate_shared_join_token(const Context& ctx, const kube::Client& client,
                                const meta::ObjectKey& secret, const std::string& ca_sha256,
                                Rng& rng);
/// The token admits no node until it is rotated, or the Secret deleted. kNotFound.
Status revoke_shared_join_token(const Context& ctx, const kube::Client& client,
                                const meta::ObjectKey& secret);

// Checks of a node that uses it.

/// True: the Pod is an agent of a DaemonSet, bound to `node`, not finished and not being deleted.
/// Pure.
bool is_agent_of(const codec::Json& pod, std::string_view node);
/// The reason why the cluster lacks the node, or an agent in `ns` on it; "": it has both. The text
/// suits an answer.
Result<std::string> why_no_agent(const Context& ctx, const kube::Client& client,
                                 const std::string& ns, const std::string& node);

}  // namespace varda::gateway
