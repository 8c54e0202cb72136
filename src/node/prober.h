// Prober: runs probes of containers. Probes take up to seconds, so they run outside the runner's
// thread.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "node/driver.h"

namespace varda::node {

struct Probe {
  enum class Kind { kHttp, kTcp, kExec };
  Kind kind = Kind::kHttp;
  std::string host;
  int port = 0;
  std::string path = "/";  // kHttp
  std::string scheme = "HTTP";
  std::vector<std::pair<std::string, std::string>> headers;
  std::vector<std::string> command;  // kExec
  ContainerConfig config;            // kExec
  std::chrono::milliseconds timeout{1000};
};

/// Thread-safe.
class Prober {
 public:
  /// Success, or the failure: "HTTP probe failed with statuscode: 503".
  using Done = std::function<void(Status)>;
  virtual ~Prober() = default;
  /// `done` is called once, from any thread, possibly before start() returns. It is never called
  /// after the prober is destroyed.
  virtual void start(Probe probe, Done done) = 0;
};

struct ProberOptions {
  std::size_t threads = 2;       // started with the first probe
  std::size_t queue_max = 1024;  // excess probes fail
};
std::unique_ptr<Prober> make_prober(Driver& driver, ProberOptions options = {});

}  // namespace varda::node
