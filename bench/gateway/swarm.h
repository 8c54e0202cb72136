// Thousands of agents on one thread. Each watches its EdgeNode over a separate TLS connection.
// Reconnects use the back-off of real agents (runtime::Informer as agent::Link configures it). Each
// reports the received work on a second connection.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "net/certificates.h"
#include "net/tls.h"

namespace varda::bench {

class Swarm {
 public:
  struct Options {
    std::size_t agents = 0;
    std::string address;  // of the gateway
    net::KeyPair ca;
    std::chrono::seconds watch_timeout{10};  // jittered upwards by half
  };
  explicit Swarm(Options options);
  ~Swarm();
  static std::string name(std::size_t agent) { return "node-" + std::to_string(agent); }

  void start();
  struct Counts {
    std::size_t watching = 0;   // agents with an answered watch
    std::size_t reported = 0;   // agents with an accepted report of the latest work
    std::size_t refused = 0;    // answers other than 200, so far
    std::size_t broken = 0;     // connections that failed or broke off, so far
    std::size_t watches = 0;    // watches answered, so far
    std::size_t anonymous = 0;  // foreign objects received: must stay 0
  };
  /// Counts over agents with the work `target`; "" for all.
  Counts counts(const std::string& target) const;
  /// Waits until `done` returns true; returns the seconds. Dies after `limit`.
  double wait(const char* what, std::chrono::seconds limit,
              const std::function<bool()>& done) const;
  double cpu_seconds() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace varda::bench
