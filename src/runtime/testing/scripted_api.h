// A handler with scripted answers: lists, watches that the test feeds, errors, ends. It makes
// faults that no real server makes on demand. All else is tested against the in-memory API server.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "codec/json.h"
#include "net/http.h"

namespace varda::runtime {

/// Thread-safe. Outlives the clients of handler().
class ScriptedApi {
 public:
  net::Handler handler();

  /// Queues an answer for requests that are not watches; the last answer is repeated.
  void answer(int status, const codec::Json& body);
  /// Answers the next watch request with this instead of a stream, once.
  void refuse_watch(int status, const codec::Json& body);

  /// Waits until `count` watches have been opened in total; returns the last target.
  std::string wait_watches(std::size_t count);
  /// Sends a line to the newest watch.
  void send(const codec::Json& event);
  /// Ends the newest watch without an error.
  void end_watch();
  /// Targets of all requests so far, in order ("GET /api/v1/pods?limit=500").
  std::vector<std::string> requests() const;

 private:
  class Stream;
  struct Pipe;
  mutable std::mutex mutex_;
  std::condition_variable opened_;
  std::deque<std::pair<int, codec::Json>> answers_;
  std::pair<int, codec::Json> current_{503, codec::Json::object()};
  std::deque<std::pair<int, codec::Json>> refusals_;
  std::vector<std::shared_ptr<Pipe>> pipes_;
  std::vector<std::string> requests_;
  std::string last_watch_;
};

/// {"type": ..., "object": ...}
codec::Json watch_event(const char* type, codec::Json object);
/// A pod with that resourceVersion.
codec::Json pod_object(const char* name, int resource_version, const char* ns = "default");
codec::Json pod_list(int resource_version, std::vector<codec::Json> items,
                     const char* continue_token = "");

}  // namespace varda::runtime
