// The embedded API server: the Kubernetes REST dialect over a store::Store.
//
//   auto server = apiserver::Server::create({.store = store.get(), .authenticator = tokens.get(), .authorizer = rules.get()});
//   net::Server::create({.listen = "127.0.0.1:6443", .tls = tls}, (*server)->pool_handler());
//   auto client = net::loopback((*server)->handler_as({"system:varda:operator", {"system:masters"}}));
//
// It serves the core kinds of kinds/core.h, CustomResourceDefinitions and the objects these define. Every answer to a write comes
// after the store has committed it. Garbage collection by owner references, namespace deletion and default service accounts run on
// a thread of the server.
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
/// Where logs come from; the stream ends when the log does (or, with follow, when the container ends).
using LogSource = std::function<Result<std::unique_ptr<net::BodyStream>>(const LogRequest&)>;

struct Limits {
  std::size_t body_bytes_max = 3u << 20;    // 413 beyond
  std::size_t object_bytes_max = 3u << 20;  // as stored, which patches may make larger than any body: 413 beyond
  std::size_t json_depth_max = 200;
  std::size_t patch_operations_max = 10'000;
  std::size_t list_items_max = 0;            // a page is never longer; 0: as the client wishes
  std::size_t watches_max = 10'000;          // 429 beyond
  std::size_t watch_batch_events = 256;      // read from the store at once
  std::chrono::seconds watch_timeout{2700};  // of watches that name none
  std::chrono::seconds bookmark_period{60};
  std::chrono::seconds event_ttl{3600};  // Event objects older than this go
  std::size_t events_max = 5000;         // and the oldest ones beyond this number
  std::size_t handler_threads = 32;      // of pool_handler(); most wait for the disk, and those who wait together share one sync
  std::size_t handler_queue_max = 1024;  // 429 beyond
};

class Server {
 public:
  struct Options {
    store::Store* store = nullptr;                 // outlives the server
    const Authenticator* authenticator = nullptr;  // null: everybody is system:anonymous in system:masters (tests)
    const Authorizer* authorizer = nullptr;        // null: everything is allowed
    SessionObserver* sessions = nullptr;
    NativeRules rules;  // of custom kinds, beside their schemas
    LogSource logs;     // absent: pods have no logs (503)
    Limits limits;
    const Clock* clock = nullptr;  // null: the machine's
    Rng* rng = nullptr;            // null: the machine's
    metrics::Registry* metrics = nullptr;
    AuditLog* audit = nullptr;  // null: none; outlives the server
    /// Garbage collection, namespaces, default service accounts. False: they run in step_controllers() only.
    bool controllers = true;
  };

  /// Reads the CRDs there are and creates the namespaces default, kube-system, kube-public and kube-node-lease where missing.
  static Result<std::unique_ptr<Server>> create(Options options);
  virtual ~Server() = default;

  /// Serves on the caller's thread, which waits for the store: for loopback() clients and tests.
  virtual net::Handler handler() = 0;
  /// The same for one identity, with no authentication (authorization stays).
  virtual net::Handler handler_as(Identity identity) = 0;
  /// Serves on the server's own threads: what a net::Server takes.
  virtual net::Handler pool_handler() = 0;

  /// Ends every watch (clients see the end of the stream) and the controllers. Idempotent; ~Server does it too. Handlers stay
  /// usable until the server is destroyed, and nothing they were given to may call them after that.
  virtual void stop() = 0;

  /// Waits until the controllers have seen every write up to now and have nothing left to do: for tests. False: `ctx` was done
  /// first.
  virtual bool settle(const Context& ctx) = 0;

  /// With Options.controllers = false, for a driver of its own: what their thread does between two waits. Nothing: call it again;
  /// else when there is something to do if nothing is written before. One thread.
  virtual std::optional<SteadyTime> step_controllers() = 0;
};

}  // namespace varda::apiserver
