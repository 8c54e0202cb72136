// The EdgeNode of a Job: the agent in the pod of one run is a node of its own, for the life of the
// run. The operator makes the EdgeNode, with the digest of the token that admits the agent.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "meta/object.h"

namespace varda::api {

/// Begins the name of each such EdgeNode. No agent makes an EdgeNode with this name.
inline constexpr std::string_view kJobNodePrefix = "varda-job-";
/// The object that runs: "NAMESPACE/NAME", its kind, and its uid.
inline constexpr std::string_view kJobAnnotation = "edgeai.io/job";
inline constexpr std::string_view kJobKindAnnotation = "edgeai.io/job-kind";
inline constexpr std::string_view kJobUidAnnotation = "edgeai.io/job-uid";
/// "ID.SHA256" of the token's secret.
inline constexpr std::string_view kJobTokenAnnotation = "edgeai.io/job-token";

/// "varda-job-0a1b2c3d4e5f6071", by the uid of the object that runs: a successor of the same name
/// is another node.
std::string job_node_name(std::string_view uid);
bool is_job_node(std::string_view name);

/// The token of an EdgeNode, as its annotation has it.
struct JobToken {
  std::string id;             // 12 hex digits
  std::string secret_sha256;  // 64 hex digits
  std::string text() const { return id + "." + secret_sha256; }
};
/// Nothing: no annotation, or another form.
std::optional<JobToken> job_token_of(const meta::ObjectMeta& edge_node);

}  // namespace varda::api
