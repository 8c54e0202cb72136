// State: the latest report of one worker, per item and with limits. Pure.
//
// to_json() is the form on disk; report() is the form upstream, EdgeNode.status.workers[].report.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "codec/json.h"

namespace varda::agent::workers {

class State {
 public:
  static constexpr std::size_t kResultsMax = 64;
  static constexpr std::size_t kModelsMax = 64;               // Models in all results together
  static constexpr std::size_t kModelMetricsMax = 64;         // of each Model
  static constexpr std::size_t kBytesMax = 64u << 10;         // total, as JSON
  static constexpr std::size_t kProgressBytesMax = 8u << 10;  // of that, reserved for progress

  State() = default;
  /// Sequences start above `after`.
  explicit State(std::string uid, std::int64_t after = 0) : uid_(std::move(uid)), after_(after) {}
  /// Reads the output of to_json(); nothing if it is malformed.
  static std::optional<State> from_json(const codec::Json& json);
  codec::Json to_json() const;
  const std::string& uid() const { return uid_; }

  // Each function takes the output of message.h, and returns whether it changed the state.
  // Repeated requests therefore have no effect. `time` is informational. kExhausted: above a limit,
  // and the state is unchanged.
  // A registration with another `instance` is a new run, which clears the metrics of the old one.
  Result<bool> set_registered(codec::Json message, const std::string& time);
  Result<bool> set_progress(codec::Json message, const std::string& time);
  Result<bool> set_metrics(codec::Json message);
  /// `written`, a copy of this state, is on disk: its metrics enter the report. True: the report
  /// changes. A worker's counts must not shrink after a restart of the agent, because the operator
  /// takes a smaller count for a new start and adds both.
  bool set_written(const State& written);
  /// Models of a replaced result stay unless the new result contains them.
  Result<bool> set_result(const std::string& name, codec::Json message, const std::string& time);

  /// The upstream report in at most `bytes_max` bytes of JSON: Models first, then the rest, newest
  /// results first. `artifacts` follows the Models. `cut` lists omitted parts. The report lacks the
  /// sequence number, which identifies a version of `models`.
  codec::Json report(std::size_t bytes_max, const codec::Json& artifacts = {}) const;

  /// The sequence number of the last forwarded `models`. Nothing: unknown, so nothing is forwarded
  /// yet.
  std::optional<std::int64_t> sequence() const { return sequence_; }
  /// Restores missing items from the server's report, for example after a disk loss. Existing items
  /// stay. A result is left out if its file was lost before the upload: the worker makes it again,
  /// perhaps with other bytes. Returns the uploaded files of the restored results:
  /// {NAME: {sha256, bytes, state}}.
  codec::Json adopt(const codec::Json& report);
  /// Call before forwarding `report`. True: its `models` differ from the last forwarded ones, so
  /// the number has increased. Persist it before forwarding.
  bool pass_on(const codec::Json& report);

 private:
  struct Result_ {
    std::int64_t order = 0;  // order of arrival in this worker's life
    std::string time;
    codec::Json body;
  };
  Status check_size() const;

  std::string uid_;
  codec::Json registered_, progress_, metrics_;  // null: not received
  codec::Json written_metrics_;                  // on disk, and of the same run
  codec::Json models_ = codec::Json::object();   // {KEY: {metrics: {NAME: NUMBER}}}, merged
  std::map<std::string, Result_, std::less<>> results_;
  std::int64_t after_ = 0;
  std::optional<std::int64_t> sequence_;
  std::string published_;  // digest of the `models` with the current number
};

/// Shares `total` bytes: small needs are met in full, and the others share the rest evenly.
std::vector<std::size_t> share_out(const std::vector<std::size_t>& needs, std::size_t total);

}  // namespace varda::agent::workers
