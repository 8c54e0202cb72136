// Prober: asks a container how it is. Probes take up to seconds, so they run beside the runner's thread.
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
  /// Success, or why not: "HTTP probe failed with statuscode: 503".
  using Done = std::function<void(Status)>;
  virtual ~Prober() = default;
  /// `done` is called once, from any thread, also before start() returns; never after the prober is destroyed.
  virtual void start(Probe probe, Done done) = 0;
};

struct ProberOptions {
  std::size_t threads = 2;       // started with the first probe
  std::size_t queue_max = 1024;  // a probe beyond fails
};
std::unique_ptr<Prober> make_prober(Driver& driver, ProberOptions options = {});

}  // namespace varda::node
