// What one worker said: the last word of each item, bounded. Pure.
//
// On disk as to_json(), upstream as report(): EdgeNode.status.workers[].report.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "codec/json.h"

namespace varda::agent {

class WorkerState {
 public:
  static constexpr std::size_t kResultsMax = 64;
  static constexpr std::size_t kModelsMax = 64;               // that all results together name
  static constexpr std::size_t kModelMetricsMax = 64;         // of each
  static constexpr std::size_t kBytesMax = 64u << 10;         // of all it said, as JSON
  static constexpr std::size_t kProgressBytesMax = 8u << 10;  // of that, what is kept free of results and metrics

  WorkerState() = default;
  /// Sequences start above `after`.
  explicit WorkerState(std::string uid, std::int64_t after = 0) : uid_(std::move(uid)), after_(after) {}
  /// As to_json() wrote it; nothing: that is none.
  static std::optional<WorkerState> from_json(const codec::Json& json);
  codec::Json to_json() const;
  const std::string& uid() const { return uid_; }

  // Each takes what worker_message.h read, and says whether that is anything new: what is said again changes nothing, so a request
  // may come twice. `time` is for people. kExhausted: there is no room for it, and nothing was changed.
  /// One with another `instance` is another run, and the metrics of the former go.
  Result<bool> set_registered(codec::Json said, const std::string& time);
  Result<bool> set_progress(codec::Json said, const std::string& time);
  Result<bool> set_metrics(codec::Json said);
  /// What a result says of Models stays when the result is replaced by one that does not say it.
  Result<bool> set_result(const std::string& name, codec::Json said, const std::string& time);

  /// What to say upstream, in `bytes_max` bytes of JSON: what Models are told first, then the rest, the newest results before older
  /// ones. `cut` says what is left out. Without the number, which tells one of its `models` from another.
  codec::Json report(std::size_t bytes_max) const;

  /// The number of the last report whose `models` were passed on. Nothing: not known, so nothing is passed on yet.
  std::optional<std::int64_t> sequence() const { return sequence_; }
  /// Takes up what the server has of this worker, as after the loss of the disk. What is known here stays.
  void adopt(const codec::Json& report);
  /// That `report` is about to be passed on. True: its `models` are other ones than those last passed on, so the number has grown,
  /// and is to be kept on disk before anybody is told.
  bool pass_on(const codec::Json& report);

 private:
  struct Result_ {
    std::int64_t order = 0;  // of being said, in this worker's life
    std::string time;
    codec::Json said;
  };
  Status check_size() const;

  std::string uid_;
  codec::Json registered_, progress_, metrics_;  // null: not said
  codec::Json models_ = codec::Json::object();   // {KEY: {metrics: {NAME: NUMBER}}}: the last word of all results
  std::map<std::string, Result_, std::less<>> results_;
  std::int64_t after_ = 0;
  std::optional<std::int64_t> sequence_;
  std::string told_;  // digest of the `models` that have the number
};

/// How many bytes each may have, of `total`: who needs little gets that, the others share the rest evenly.
std::vector<std::size_t> share_out(const std::vector<std::size_t>& needs, std::size_t total);

}  // namespace varda::agent
