// Network: connects simulated processes to the API server. Requests and watch events may be
// refused, lost, repeated, delayed or cut off, as the seed decides. Other processes run between a
// request and its answer.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "apiserver/server.h"
#include "mutations.h"
#include "net/http.h"
#include "scheduler.h"
#include "store/store.h"

namespace varda::sim {

/// Rates per thousand.
struct FaultRates {
  std::uint32_t refuse = 0;        // of requests: not delivered
  std::uint32_t lose_answer = 0;   // delivered, but the answer is lost
  std::uint32_t repeat = 0;        // an idempotent request delivered twice, as by a retry
  std::uint32_t server_error = 0;  // 429, 500 or 503, without effect
  std::uint32_t delay = 0;         // of requests and answers: up to 3 s of virtual time
  std::uint32_t watch_break = 0;   // of watch events: the connection breaks before it
  std::uint32_t watch_end = 0;     // ... or ends cleanly
  std::uint32_t hold = 0;          // of watch events: held back up to 5 s, with all later ones
};

class WatchPipe;

class Network {
 public:
  Network(Scheduler& scheduler, store::Store& store, const Mutations& mutations)
      : scheduler_(scheduler), store_(store), mutations_(mutations) {}

  /// Null: the server is down, and every open watch breaks.
  void serve(apiserver::Server* server);
  void set_rates(const FaultRates& rates) { rates_ = rates; }
  /// Number of modifying requests, whatever their result.
  std::uint64_t writes() const { return writes_; }
  std::uint64_t requests() const { return requests_; }

  /// The connection of one process to the server.
  class Link final : public net::HttpClient {
   public:
    Link(Network& network, Process& process, apiserver::Identity identity)
        : network_(network), process_(process), identity_(std::move(identity)) {}
    ~Link() override;
    Result<net::ClientResponse> send(const Context& ctx, net::ClientRequest request) override;
    /// Down: requests fail; open watches stay silent, and break once the link is up again.
    void set_up(bool up);
    bool up() const { return up_; }

   private:
    friend class WatchPipe;
    Result<net::Response> deliver(const net::ClientRequest& request);
    Status maybe_delay();

    Network& network_;
    Process& process_;
    const apiserver::Identity identity_;
    bool up_ = true;
    apiserver::Server* served_by_ = nullptr;
    net::Handler handler_;
  };

 private:
  friend class WatchPipe;
  Scheduler& scheduler_;
  store::Store& store_;
  const Mutations& mutations_;
  apiserver::Server* server_ = nullptr;
  FaultRates rates_;
  std::vector<WatchPipe*> watches_;
  std::uint64_t writes_ = 0, requests_ = 0;
};

}  // namespace varda::sim
