// Cluster: one real in-memory API server for many schedules in sequence. Between two schedules it
// is reset to its initial content, so that kinds are installed only once.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "apiserver/server.h"
#include "cluster/sessions.h"
#include "codec/json.h"
#include "network.h"
#include "scheduler.h"
#include "store/store.h"

namespace varda::sim {

class Cluster {
 public:
  Cluster();
  ~Cluster();

  VirtualClock& clock() { return clock_; }
  SeededRng& product_rng() { return rng_; }
  store::Store& store() { return *store_; }
  apiserver::Server* server() { return server_.get(); }
  cluster::NodeSessions& sessions() { return *sessions_.now; }

  /// Resets the cluster to its kinds and namespaces, with product randomness from `seed` and a new
  /// day. No client may exist.
  void begin(std::uint64_t seed);
  /// The process dies and starts again over the same store.
  void restart_server(Network& network);

  struct Reply {
    int status = 0;
    codec::Json body;
  };
  /// A user's request, answered synchronously.
  Reply call(const std::string& method, const std::string& target,
             const codec::Json& body = nullptr, const std::string& type = "application/json");

 private:
  // Each schedule has a new observer of sessions, but the server keeps one listener.
  struct Sessions final : apiserver::SessionObserver {
    void opened(const apiserver::Identity& caller) override { now->opened(caller); }
    void closed(const apiserver::Identity& caller) override { now->closed(caller); }
    std::unique_ptr<cluster::NodeSessions> now;
  };
  void open_server();
  void settle();

  VirtualClock clock_;
  SeededRng rng_;
  Sessions sessions_;
  std::unique_ptr<store::Store> store_;
  std::unique_ptr<apiserver::Server> server_;
  net::Handler user_;
  std::map<std::string, std::string> clean_;
};

}  // namespace varda::sim
