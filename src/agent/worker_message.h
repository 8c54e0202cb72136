// What a worker sends to its agent, read and checked. Pure: what comes out is what is kept, and what is told upstream.
//
// docs/reference/worker-api.yaml says each member. A member that nobody knows is refused, with the one that was meant: a worker
// whose words are dropped in silence finds out after days.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "codec/json.h"

namespace varda::agent {

inline constexpr std::size_t kWorkerBodyBytesMax = 32 << 10;
inline constexpr std::size_t kWorkerMetricsMax = 128;      // of PUT /v1/metrics
inline constexpr std::size_t kWorkerModelsMax = 32;        // that one result may name
inline constexpr std::size_t kWorkerModelMetricsMax = 64;  // of one Model: as many as its status has room for
inline constexpr std::size_t kWorkerCapabilitiesMax = 32;

/// Who speaks: NAMESPACE/NAME, as in EdgeNode.spec.workers.
struct WorkerName {
  std::string ns, name;
  /// kInvalid: that is not what a namespace and a name look like, so it is no part of a path either.
  static Result<WorkerName> parse(std::string_view key);
  std::string key() const { return ns + "/" + name; }
};

/// Each takes the body of a request. kInvalid names the member, what is wrong with it and what was expected; kForbidden: it speaks
/// of what is another worker's or another namespace's.

/// {version, capabilities?}; a `worker` that it may hold is compared and left out.
Result<codec::Json> read_registration(const WorkerName& who, std::string_view body);
/// Some of {phase, fraction, step, steps, message}.
Result<codec::Json> read_progress(std::string_view body);
/// {metrics: {NAME: NUMBER}}; the map alone.
Result<codec::Json> read_metrics(std::string_view body);
/// {models?: {KEY: {metrics: {NAME: NUMBER}}}, data?: anything}.
Result<codec::Json> read_result(const WorkerName& who, std::string_view body);

/// The name of a result: 1 to 63 of A-Z a-z 0-9 . _ -, the first a letter or a digit. Else why not; "" it is one.
std::string check_result_name(std::string_view name);

}  // namespace varda::agent
