// A model under load: many requests for some time, and what became of them.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/context.h"
#include "base/mutex.h"
#include "codec/json.h"
#include "oip/images.h"

namespace varda::app {

/// Times by logarithmic buckets of 2 %: as small after a day as after a second.
class LatencyBuckets {
 public:
  LatencyBuckets();
  void add(Duration latency);
  void add(const LatencyBuckets& other);
  /// 0 <= share <= 1. 0 if there is none.
  double milliseconds_at(double share) const;
  double milliseconds_max() const { return max_; }

 private:
  std::vector<std::uint64_t> counts_;
  std::uint64_t total_ = 0;
  double max_ = 0;
};

struct LoadOptions {
  std::string url, model;
  std::size_t clients = 4;  // every second client opens a new connection for each request
  double rate = 0;          // requests a second of all clients together; 0: as fast as answers come
  std::chrono::milliseconds duration{0};
  std::string until_version;                                     // if set, `duration` begins when every client had an answer of it
  std::chrono::milliseconds longest = std::chrono::minutes(10);  // ends in any case
  std::vector<std::string> replicas;  // servers behind the URL, asked for how many requests they answered
};

struct LoadReport {
  struct Span {
    std::uint64_t count = 0;
    double first = 0, last = 0;  // seconds since the begin
  };
  struct Replica {
    std::string url;
    std::uint64_t answered = 0;
    std::string error;  // why it could not be asked
  };
  std::string url, model;
  std::size_t clients = 0;
  double seconds = 0;
  std::uint64_t requests = 0, failures = 0, kept = 0, fresh = 0;  // over connections kept, and over new ones
  std::map<std::string, Span> versions;                           // that answered
  std::map<std::string, Span> errors;                             // by message; at most kErrorsMax
  bool reached = true;                                            // every client had an answer of until_version
  LatencyBuckets latencies;
  std::vector<Replica> replicas;

  static constexpr std::size_t kErrorsMax = 8;

  codec::Json to_json() const;
  std::string to_text() const;
};

/// When request `i` of client `number` is due, counted from the begin. The turns of all clients are evenly spread; with a rate of 0
/// every request is due at once.
Duration turn_of(const LoadOptions& options, std::uint64_t i, std::size_t number);

/// Reads from the text of /metrics the number of answered requests for all versions of `model`. kNotFound: none are
/// counted.
Result<std::uint64_t> answered_requests(std::string_view metrics, const std::string& model);

/// Sends the images over and over until the time is over, or a stop. Failed requests are counted and are no error: kUnavailable and
/// the like mean that the server could not even be asked what the model takes. Runs `clients` threads.
Result<LoadReport> put_load(const Context& ctx, const LoadOptions& options, const std::vector<oip::Images>& images);

}  // namespace varda::app
