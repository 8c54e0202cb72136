// Load: sends many requests to a model for some time and counts the answers.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/context.h"
#include "codec/json.h"
#include "net/client.h"
#include "oip/images.h"

namespace varda::oip {

/// A histogram of latencies in logarithmic buckets of 2 %. Its size does not depend on the number
/// of requests.
class LatencyBuckets {
 public:
  LatencyBuckets();
  void add(Duration latency);
  void add(const LatencyBuckets& other);
  /// The latency that `share` of all requests stayed below, 0 <= share <= 1. 0 without requests.
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
  // If set, `duration` begins when this version has answered every client.
  std::string until_version;
  std::chrono::milliseconds longest = std::chrono::minutes(10);  // the end in any case
  // Makes a client that keeps at most this many idle connections. Null: one without credentials.
  std::function<std::unique_ptr<net::HttpClient>(std::size_t idle_connections_max)> make_client;
  // Servers behind the URL; the report counts the answers of each one.
  std::vector<std::string> replicas;
};

struct LoadReport {
  struct Span {
    std::uint64_t count = 0;
    double first = 0, last = 0;  // seconds since the start of the load
  };
  struct Replica {
    std::string url;
    std::uint64_t answered = 0;
    std::string error;  // why the count is not known
  };
  std::string url, model;
  std::size_t clients = 0;
  double seconds = 0;
  // `reused` counts requests over kept connections, `fresh` those over new ones.
  std::uint64_t requests = 0, failures = 0, reused = 0, fresh = 0;
  std::map<std::string, Span> versions;  // by the version that answered
  std::map<std::string, Span> errors;    // by message; at most kErrorsMax
  bool reached = true;                   // until_version has answered every client
  LatencyBuckets latencies;
  std::vector<Replica> replicas;

  static constexpr std::size_t kErrorsMax = 8;

  codec::Json to_json() const;
  std::string to_text() const;
};

/// Returns when request `i` of client `number` is due, counted from the start of the load. The
/// requests of all clients are evenly spread. With a rate of 0 every request is due at once.
Duration turn_of(const LoadOptions& options, std::uint64_t i, std::size_t number);

/// Reads from the text of /metrics the number of answered requests for all versions of `model`.
/// kNotFound: the text has no such counter.
Result<std::uint64_t> answered_requests(std::string_view metrics, const std::string& model);

/// Sends the images over and over until the time is over or `ctx` ends. Failed requests are
/// counted, not returned. An error means that the server did not describe the model before the
/// load. Runs `clients` threads.
Result<LoadReport> put_load(const Context& ctx, const LoadOptions& options,
                            const std::vector<Images>& images);

}  // namespace varda::oip
