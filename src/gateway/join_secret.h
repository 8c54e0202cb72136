// The join token that all agents of a DaemonSet share: key `token` of a Secret that they mount, made and kept by the gateway, in
// the form of any join token (join_token.h) but good for every node of the cluster that runs such an agent. What it does not prove,
// enrolment asks of the API server: see why_no_agent() and node_key.h.
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
/// What the agents' Pods have as labels, as the selector of deploy/kustomize/agent says.
inline constexpr std::string_view kAgentLabels = "app.kubernetes.io/name=varda,app.kubernetes.io/component=agent";

/// "NAMESPACE/NAME". kInvalid.
Result<meta::ObjectKey> parse_join_secret(std::string_view text);

struct SharedJoinToken {
  JoinToken token;
  bool revoked = false;  // as says_revoked(): lets nobody in, and no gateway makes another one
};
/// Nothing: there is no Secret, or no token in it. kCorrupt: what is there is no join token.
Result<std::optional<SharedJoinToken>> find_shared_join_token(const Context& ctx, const kube::Client& client,
                                                              const meta::ObjectKey& secret);
enum class Kept { kAsItWas, kMade };
/// Sees to it that there is one for that authority: makes the Secret if it is missing, the token if the Secret has none, another
/// one if it names another authority. Of two gateways the second takes what the first made. What is revoked stays. kCorrupt:
/// what is there is not ours to replace. kNotFound: the namespace is missing.
Result<Kept> keep_shared_join_token(const Context& ctx, const kube::Client& client, const meta::ObjectKey& secret,
                                    const std::string& ca_sha256, Rng& rng);
/// Keeps it until the context is done: now, and then every few seconds, as somebody may delete the Secret to have another token.
/// What goes wrong is said once.
void run_join_secret(const Context& ctx, const kube::Client& client, const meta::ObjectKey& secret, const std::string& ca_sha256,
                     Rng& rng);

// For who administers the cluster.

/// Another token, whatever was there; the former lets nobody in from now on. kNotFound: no gateway has made one yet.
Status rotate_shared_join_token(const Context& ctx, const kube::Client& client, const meta::ObjectKey& secret,
                                const std::string& ca_sha256, Rng& rng);
/// It lets nobody in until it is rotated, or the Secret deleted. kNotFound.
Status revoke_shared_join_token(const Context& ctx, const kube::Client& client, const meta::ObjectKey& secret);

// Who may use it.

/// Is that Pod an agent of a DaemonSet, bound to that node, not finished and not being deleted? Pure.
bool is_agent_of(const codec::Json& pod, std::string_view node);
/// Why the API server does not have that node with an agent in `ns` on it; "": it has. In an answer's words.
Result<std::string> why_no_agent(const Context& ctx, const kube::Client& client, const std::string& ns, const std::string& node);

}  // namespace varda::gateway
