// The embedded API server: the Kubernetes REST dialect over a store::Store.
//
//   auto server = apiserver::Server::create(
//       {.store = store.get(), .authenticator = tokens.get(), .authorizer = rules.get()});
//   net::Server::create({.listen = "127.0.0.1:6443", .tls = tls}, (*server)->pool_handler());
//   auto client = net::loopback(
//       (*server)->handler_as({"system:varda:operator", {"system:masters"}}));
//
// Serves the core kinds of kinds/core.h, CustomResourceDefinitions and custom objects. A write is
// answered after the store has committed it. One thread runs garbage collection by owner
// references, namespace deletion and default service accounts.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apiserver/audit.h"
#include "apiserver/identity.h"
#include "apiserver/kinds/crd.h"
#include "base/clock.h"
#include "base/metrics.h"
#include "base/result.h"
#include "base/rng.h"
#include "net/http.h"
#include "store/store.h"

namespace varda::apiserver {

/// GET of a pod's subresource "log".
struct LogRequest {
  std::string ns, pod, uid, node, container;
  bool follow = false;
  bool previous = false;
  bool timestamps = false;
  std::optional<std::int64_t> tail_lines, limit_bytes, since_seconds;
};
/// Source of logs. The stream ends with the log or, with follow, with the container.
using LogSource = std::function<Result<std::unique_ptr<net::BodyStream>>(const LogRequest&)>;

struct Limits {
  std::size_t body_bytes_max = 3u << 20;    // 413 beyond
  std::size_t object_bytes_max = 3u << 20;  // stored size, also after patches: 413 beyond
  std::size_t json_depth_max = 200;
  std::size_t patch_operations_max = 10'000;
  std::size_t list_items_max = 0;            // page size limit; 0: the client's limit
  std::size_t watches_max = 10'000;          // 429 beyond
  std::size_t watch_batch_events = 256;      // read from the store per call
  std::chrono::seconds watch_timeout{2700};  // of watches without a timeout
  std::chrono::seconds bookmark_period{60};
  std::chrono::seconds event_ttl{3600};  // older Event objects are removed
  std::size_t events_max = 5000;         // beyond this, the oldest are removed
  std::size_t handler_threads =
      32;  // of pool_handler(); most wait for the disk, and waiting writes share one sync
  std::size_t handler_queue_max = 1024;  // 429 beyond
};

class Server {
 public:
  struct Options {
    store::Store* store = nullptr;  // outlives the server
    const Authenticator* authenticator =
        nullptr;  // null: all are system:anonymous in system:masters (tests)
    const Authorizer* authorizer = nullptr;  // null: everything is allowed
    SessionObserver* sessions = nullptr;
    NativeRules rules;  // native rules of custom kinds, in addition to schemas
    LogSource logs;     // absent: pods have no logs (503)
    Limits limits;
    const Clock* clock = nullptr;  // null: the machine's
    Rng* rng = nullptr;            // null: the machine's
    metrics::Registry* metrics = nullptr;
    AuditLog* audit = nullptr;  // null: none; outlives the server
    /// Run garbage collection, namespaces, default service accounts. False: only in
    /// step_controllers().
    bool controllers = true;
  };

  /// Loads the CRDs and creates the namespaces default, kube-system, kube-public and
  /// kube-node-lease if missing.
  static Result<std::unique_ptr<Server>> create(Options options);
  virtual ~Server() = default;

  /// Serves on the caller's thread and blocks for the store: for loopback() clients and tests.
  virtual net::Handler handler() = 0;
  /// Serves as `identity` without authentication; authorization stays.
  virtual net::Handler handler_as(Identity identity) = 0;
  /// Serves on the server's own threads; for net::Server.
  virtual net::Handler pool_handler() = 0;

  /// Ends every watch (clients see the end of the stream) and the controllers. Idempotent; ~Server
  /// calls it. Handlers stay usable until the server is destroyed. No caller may use a handler
  /// after that.
  virtual void stop() = 0;

  /// Waits until the controllers have processed every write up to now. For tests. False: `ctx` was
  /// done first.
  virtual bool settle(const Context& ctx) = 0;

  /// One pass of the controllers, for Options.controllers = false. nullopt: call again at once.
  /// Otherwise: the time of the next call, unless a write comes before. One thread.
  virtual std::optional<SteadyTime> step_controllers() = 0;
};

}  // namespace varda::apiserver
