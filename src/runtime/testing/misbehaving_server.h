// The API server behind a socket that does not always say what it should: drops, half frames, refusals, noise. For what happens
// between a client and a server on real networks; answers that nobody spoils are the real server's.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "net/http.h"

namespace varda::runtime {

/// What becomes of one request, in place of its answer.
struct Fault {
  enum class On { kList, kWatch };
  enum class What {
    kSay,      // `bytes`, whatever they are, and the end of the connection
    kCut,      // the true answer up to its `count`th byte, and the end of the connection
    kDribble,  // the true answer, a byte at a time
    kEvents,   // of a watch: `count` true events, then `bytes`, and the end of the connection
  };
  On on = On::kList;
  What what = What::kSay;
  std::string bytes = {};
  std::size_t count = 0;
};

/// A whole answer of HTTP/1.1, with a body of that type.
std::string http_answer(int status, const std::string& body, const std::string& type = "application/json",
                        const std::string& more_headers = "");

/// Thread-safe. `real` outlives it.
class MisbehavingServer {
 public:
  MisbehavingServer(net::HttpClient& real, std::vector<Fault> faults);
  ~MisbehavingServer();

  std::string url() const;
  /// Every fault has happened.
  bool done() const;

 private:
  void serve(int fd);
  bool answer(int fd, const std::string& method, const std::string& target);
  std::optional<Fault> next(Fault::On on);
  void stream(int fd, net::BodyReader& body, const Fault* fault);

  net::HttpClient& real_;
  int listener_ = -1;
  int port_ = 0;
  std::stop_source stop_;
  mutable std::mutex mutex_;
  std::deque<Fault> faults_;
  std::vector<int> open_;
  std::vector<std::jthread> threads_;
  std::jthread acceptor_;
};

}  // namespace varda::runtime
