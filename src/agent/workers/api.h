// Api: the HTTP API of the agent for the workers on its node. docs/reference/worker-api.yaml is the
// contract.
//
//   Api api({.node_name = "edge0"}, manager);
//   auto server = net::Server::create({.listen = "unix:/var/lib/varda/worker/worker.sock"},
//                                     api.handler());
//
// A request acts for the worker of its token, and for no other. Every error is a Status in JSON.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/core/log_throttle.h"
#include "agent/workers/artifact_store.h"
#include "agent/workers/manager.h"
#include "base/metrics.h"
#include "base/mutex.h"
#include "net/http.h"
#include "net/server.h"

namespace varda::agent::workers {

/// Token bucket: `burst` at once, then `per_second`. Not thread-safe.
class Allowance {
 public:
  struct Rate {
    double burst, per_second;
  };
  explicit Allowance(Rate rate) : rate_(rate), left_(rate.burst) {}
  bool take(SteadyTime now);

 private:
  Rate rate_;
  double left_;
  std::optional<SteadyTime> filled_;
};

class Api {
 public:
  static constexpr int kTimeoutSecondsDefault = 30,
                       kTimeoutSecondsMax = 300;  // of GET /v1/assignment

  struct Options {
    std::string node_name;
    // Limits of one worker; excess requests get 429.
    Allowance::Rate requests{400, 200};
    Allowance::Rate writes{64, 20};            // registrations and results: each may sync the disk
    Allowance::Rate unauthenticated{100, 20};  // all requests without a valid token together
    ArtifactStore* artifacts = nullptr;    // takes files of workers; null: none; outlives the API
    Streams* streams = nullptr;            // opens streams; null: none; outlives the API
    const Clock* clock = nullptr;          // null: the system clock
    metrics::Registry* metrics = nullptr;  // varda_agent_worker_requests_total; outlives the API
  };
  /// `manager` outlives it.
  Api(Options options, Manager& manager);

  /// Never blocks. The handler uses this object.
  net::Handler handler();
  /// Takes the bodies of artifacts while they arrive, for net::Server::Options::receive.
  net::Reception receive(const net::Request& head);

  struct Route {
    std::string_view method;
    std::string_view path;  // "{name}" stands for one segment
  };
  static const std::vector<Route>& routes();

 private:
  struct Allowances {
    std::string uid;
    Allowance requests, writes;
    std::map<std::string_view, core::LogThrottle> complaints;  // by request
  };
  using Reply = std::function<void(net::Response)>;

  void answer(const net::Request& request, const Reply& reply);
  void get_assignment(const Manager::Caller& caller, const net::Request& request,
                      const Reply& reply);
  void open_stream(const Manager::Caller& caller, const net::Request& request, const Reply& reply);
  void put(const Manager::Caller& caller, const net::Request& request, const Reply& reply);
  class Receiver;
  class Comparison;
  class Refusal;
  net::Reception receive_from(const Manager::Caller& caller, const net::Request& head);
  net::Response finish(ArtifactStore::Upload& upload, const ArtifactOwner& owner,
                       const std::string& name);
  net::Response refuse_artifact(const Error& error, const ArtifactOwner& owner,
                                const std::string& name) const;
  net::Response find_artifact(const Manager::Caller& caller, const std::string& name) const;
  std::optional<Error> over_limit(const Manager::Caller& caller, bool writes);
  codec::Json body_of(const Manager::Assignment& assignment) const;
  void count(std::string_view request, int status);
  /// Logs a worker's error, because the worker's author may ignore the response.
  void log_refusal(const std::string& worker, std::string_view request,
                   const net::Response& response);

  const Options options_;
  const Clock& clock_;
  Manager& manager_;
  Mutex mutex_;
  std::map<std::string, Allowances> allowances_ GUARDED_BY(mutex_);  // by key of the worker
  Allowance unauthenticated_ GUARDED_BY(mutex_);
  net::HandlerPool pool_;  // last, because running requests use the members above
};

}  // namespace varda::agent::workers
