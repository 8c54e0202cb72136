// An aggregator in memory, and a client of it with connections that break, for tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "codec/json.h"
#include "net/http.h"

namespace varda::participant {

/// Follows docs/reference/federated-api.yaml where a client depends on it. Gives one client the
/// tasks of a list, each until the client has answered it, then the end. Thread-safe.
class FakeAggregator {
 public:
  /// Adds a file for GET /v1/models; returns {sha256, bytes}.
  codec::Json add_file(const std::string& bytes);
  void add_task(codec::Json task);

  net::Handler handler();

  /// Answers requests that begin with `start`, such as "PUT /v1/updates", with this status.
  void refuse(const std::string& start, int status, std::string message = "no");
  void stop_refusing();
  /// Bytes of files for which the aggregator sends others.
  void corrupt(int files);
  /// The stored part of uploads is lost, as after a restart of a process without a disk.
  void forget_uploads();

  std::vector<std::string> requests() const;
  /// Accepted updates by task: the bytes.
  std::map<std::string, std::string> updates() const;
  std::map<std::string, codec::Json> evaluations() const;
  /// 201 was sent so often for each task.
  int accepted_times(const std::string& task) const;

  /// A part of a PUT's body arrived before the connection broke.
  void receive_cut(const net::ClientRequest& request, std::size_t bytes);

 private:
  struct Upload {
    std::string bytes;
    bool accepted = false;
  };
  net::Response answer(const net::Request& request);
  net::Response task_for(const std::string& after) REQUIRES(mutex_);
  net::Response file(const net::Request& request, const std::string& digest) REQUIRES(mutex_);
  net::Response update(const net::Request& request, const std::string& task,
                       const std::string& digest) REQUIRES(mutex_);

  mutable Mutex mutex_;
  std::map<std::string, std::string> files_ GUARDED_BY(mutex_);  // by digest
  std::vector<codec::Json> tasks_ GUARDED_BY(mutex_);
  std::map<std::string, bool> answered_ GUARDED_BY(mutex_);   // by task
  std::map<std::string, Upload> uploads_ GUARDED_BY(mutex_);  // by "TASK/sha256:HEX"
  std::map<std::string, std::string> accepted_ GUARDED_BY(mutex_);
  std::map<std::string, int> times_ GUARDED_BY(mutex_);
  std::map<std::string, codec::Json> evaluations_ GUARDED_BY(mutex_);
  std::vector<std::string> requests_ GUARDED_BY(mutex_);
  std::vector<std::pair<std::string, std::pair<int, std::string>>> refusals_ GUARDED_BY(mutex_);
  int corrupt_ GUARDED_BY(mutex_) = 0;
};

/// A fault of one request.
struct Fault {
  enum class Kind : std::uint8_t {
    kNone,
    kLostRequest,  // nothing arrives
    kLostAnswer,   // the aggregator did the work; the client gets no answer
    kCut,          // `bytes` of the body arrive: of the answer (GET), or of the request (PUT)
  };
  Kind kind = Kind::kNone;
  std::size_t bytes = 0;
};

/// Calls `fault` for each request, with its number from 0.
std::unique_ptr<net::HttpClient> faulty_client(
    FakeAggregator& aggregator,
    std::function<Fault(std::size_t number, const net::ClientRequest& request)> fault);

}  // namespace varda::participant
