// The API server behind a socket that misbehaves: drops, partial frames, refusals, noise. It
// simulates faults of real networks; all other answers are the real server's.
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

/// A fault that replaces or spoils one answer.
struct Fault {
  enum class On { kList, kWatch };
  enum class What {
    kSend,     // sends `bytes` and closes
    kCut,      // sends the real answer up to `count` bytes and closes
    kDribble,  // sends the real answer byte by byte
    kEvents,   // for a watch: sends `count` real events, then `bytes`, and closes
  };
  On on = On::kList;
  What what = What::kSend;
  std::string bytes = {};
  std::size_t count = 0;
};

/// A complete HTTP/1.1 answer, with a body of that type.
std::string http_answer(int status, const std::string& body,
                        const std::string& type = "application/json",
                        const std::string& more_headers = "");

/// Thread-safe. `real` outlives it.
class MisbehavingServer {
 public:
  MisbehavingServer(net::HttpClient& real, std::vector<Fault> faults);
  ~MisbehavingServer();

  std::string url() const;
  /// True once every fault has happened.
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
