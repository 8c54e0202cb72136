// WorkerApi: what workers on a node ask of their agent over HTTP. docs/reference/worker-api.yaml is its contract.
//
//   agent::WorkerApi api({.node_name = "edge0"}, keeper);
//   auto server = net::Server::create({.listen = "unix:/var/lib/varda/worker/worker.sock"}, api.handler());
//
// Whoever shows the token of a worker speaks for that worker, and for no other. Everything that goes wrong is a Status in JSON.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/complaint.h"
#include "agent/worker_keeper.h"
#include "base/metrics.h"
#include "base/mutex.h"
#include "net/http.h"

namespace varda::agent {

/// So many of something at once, and so many a second from then on. Not thread-safe.
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

class WorkerApi {
 public:
  static constexpr int kTimeoutSecondsDefault = 30, kTimeoutSecondsMax = 300;  // of GET /v1/assignment

  struct Options {
    std::string node_name;
    // Of one worker. Beyond, 429.
    Allowance::Rate requests{400, 200};
    Allowance::Rate writes{64, 20};        // of those, registrations and results: each may cost a sync of the disk
    Allowance::Rate strangers{100, 20};    // of all who show no token of a worker
    const Clock* clock = nullptr;          // null: the machine's
    metrics::Registry* metrics = nullptr;  // varda_agent_worker_requests_total; outlives the API
  };
  /// `keeper` outlives it.
  WorkerApi(Options options, WorkerKeeper& keeper);

  /// Never blocks. It uses this object.
  net::Handler handler();

  struct Route {
    std::string_view method;
    std::string_view path;  // "{name}" stands for one segment
  };
  static const std::vector<Route>& routes();

 private:
  struct Allowances {
    std::string uid;
    Allowance requests, writes;
    std::map<std::string_view, Complaint> complaints;  // by what was asked
  };
  using Reply = std::function<void(net::Response)>;

  void answer(const net::Request& request, const Reply& reply);
  void get_assignment(const WorkerKeeper::Who& who, const net::Request& request, const Reply& reply);
  void put(const WorkerKeeper::Who& who, const net::Request& request, const Reply& reply);
  std::optional<Error> over_limit(const WorkerKeeper::Who& who, bool writes);
  codec::Json body_of(const WorkerKeeper::Assignment& assignment) const;
  void count(std::string_view request, int status);
  /// Logs what a worker did wrong: whoever wrote it may never look at the answers.
  void log_refusal(const std::string& worker, std::string_view request, const net::Response& response);

  const Options options_;
  const Clock& clock_;
  WorkerKeeper& keeper_;
  Mutex mutex_;
  std::map<std::string, Allowances> allowances_ GUARDED_BY(mutex_);  // by key of the worker
  Allowance strangers_ GUARDED_BY(mutex_);
};

}  // namespace varda::agent
