// Parses and validates messages from a worker. Pure: the output is stored and forwarded.
//
// docs/reference/worker-api.yaml describes each member. An unknown member is rejected with a
// suggestion, because silently dropped data would be noticed only days later.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "codec/json.h"

namespace varda::agent::workers {

inline constexpr std::size_t kBodyBytesMax = 32 << 10;
inline constexpr std::size_t kMetricsMax = 128;  // of PUT /v1/metrics
inline constexpr std::size_t kModelsMax = 32;    // models in one result
inline constexpr std::size_t kModelMetricsMax =
    64;  // metrics of one Model: the limit of its status
inline constexpr std::size_t kCapabilitiesMax = 32;

/// A worker's NAMESPACE/NAME, as in EdgeNode.spec.workers.
struct Name {
  std::string ns, name;
  /// kInvalid: not a valid namespace and name. A valid key is therefore safe as a path.
  static Result<Name> parse(std::string_view key);
  std::string key() const { return ns + "/" + name; }
};

/// Each function parses a request body. kInvalid names the member, the problem and the expectation.
/// kForbidden: the body refers to another worker or namespace.

/// {version, capabilities?}; an optional `worker` must match and is left out.
Result<codec::Json> read_registration(const Name& caller, std::string_view body);
/// A subset of {phase, fraction, step, steps, message, data}. data is defined by the job.
Result<codec::Json> read_progress(std::string_view body);
/// {metrics: {NAME: NUMBER}}; returns the inner map.
Result<codec::Json> read_metrics(std::string_view body);
/// {models?: {KEY: {metrics: {NAME: NUMBER}}}, data?: anything}.
Result<codec::Json> read_result(const Name& caller, std::string_view body);

/// Checks the name of a result: 1 to 63 of A-Z a-z 0-9 . _ -, starting with a letter or digit.
/// Returns the problem, or "".
std::string check_result_name(std::string_view name);

}  // namespace varda::agent::workers
