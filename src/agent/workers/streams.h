// Streams: TCP connections of the node's workers to targets that the work list names
// (docs/design/029-streams.md).
//
// A worker asks for a stream at the worker API. A stream with `listen` also has a port on the node,
// the same after a restart of the agent. Connections go through the gateway, which writes the
// worker's identity. Without a gateway they go to the target itself, with an unsigned identity.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <stop_token>
#include <string>
#include <vector>

#include "agent/core/state_store.h"
#include "api/edgeai/edge_node.h"
#include "base/mutex.h"
#include "net/pair_slots.h"
#include "net/server.h"
#include "net/splicer.h"
#include "net/tunnel.h"

namespace varda::agent::workers {

/// Thread-safe. Destroying it ends all streams.
class Streams {
 public:
  struct Options {
    std::string node_name;
    net::TunnelOpener* gateway = nullptr;   // null: connects to targets itself; outlives this
    std::string gateway_url;                // "https://cloud.example:10443"
    std::string listen_host = "127.0.0.1";  // of the ports, numeric; IPv6 in brackets
    std::size_t per_worker_max = 32;        // streams of one worker
    std::size_t all_max = 512;
    std::chrono::milliseconds connect_timeout{15000};
    std::chrono::milliseconds idle_timeout{600000};
    std::size_t threads = 4;  // that wait for connections; the queue behind them is bounded
  };
  /// `state_store` outlives it.
  Streams(Options options, core::StateStore& state_store);
  ~Streams();

  /// Opens and closes ports, and ends streams that lost their permission. One call at a time.
  void set_workers(const std::vector<api::EdgeWorker>& workers) EXCLUDES(mutex_);
  /// The ports of the worker, by name.
  std::vector<api::EdgeStreamReport> report(const std::string& key, const std::string& uid) const
      EXCLUDES(mutex_);

  /// Takes the worker's side of a connected stream.
  using Start = std::function<void(std::unique_ptr<net::Tunnel> worker)>;
  using OnOpened = std::function<void(Result<Start>)>;
  /// Connects, then calls `then` once, on a thread that may block. kNotFound: the worker has no
  /// such stream. kUnavailable: not reachable, refused by the gateway, or too many streams.
  void open(const std::string& key, const std::string& uid, const std::string& stream,
            OnOpened then);
  std::size_t count() const { return slots_.size(); }
  /// Idempotent.
  void stop();

 private:
  struct Port {
    std::unique_ptr<net::Splicer::Listener> listener;  // null: it could not be opened
    std::string address, message;
  };
  using Id = std::pair<std::string, std::string>;  // key of the worker, name of the stream
  struct Known {
    std::string uid;
    api::EdgeStream stream;
    std::string grant() const;
  };

  std::optional<Known> find(const Id& id, const std::string& uid) const EXCLUDES(mutex_);
  Result<Start> connect(const std::string& key, const std::string& uid, const std::string& stream);
  Result<std::unique_ptr<net::Tunnel>> reach_gateway(const Id& id);
  Result<std::unique_ptr<net::Tunnel>> reach_target(const Known& known);
  void accepted(const Id& id, std::unique_ptr<net::Tunnel> worker);
  Port open_port(const Id& id, codec::Json& saved);
  void update_ports(const std::set<Id>& wanted) EXCLUDES(mutex_);

  const Options options_;
  core::StateStore& state_store_;
  std::stop_source stop_;
  mutable Mutex mutex_;
  std::map<Id, Known> known_ GUARDED_BY(mutex_);
  std::map<Id, Port> ports_ GUARDED_BY(mutex_);
  net::Splicer splicer_;
  net::PairSlots slots_;
  net::HandlerPool pool_;  // destroyed first: its work uses the rest
};

}  // namespace varda::agent::workers
