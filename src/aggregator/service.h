// The endpoints of a federated job over HTTP: docs/reference/federated-api.yaml has the protocol.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>

#include "aggregator/coordinator.h"
#include "base/context.h"
#include "base/metric_collector.h"
#include "base/metrics.h"
#include "base/mutex.h"
#include "net/http.h"
#include "net/server.h"

namespace varda::aggregator {

/// Thread-safe. Outlives its server. Destroying it answers waiting polls.
class Service {
 public:
  /// The name of the client that sent a request. An error refuses the request: kUnauthenticated
  /// without a name, kInvalid for a wrong one.
  using ClientOf = std::function<Result<std::string>(const net::Request&)>;

  struct Options {
    ClientOf client_of;
    std::size_t threads = 8;  // for updates and other requests that block
    std::chrono::seconds wait_max{60};
    metrics::Registry* metrics = nullptr;
  };
  /// `coordinator` and the metrics outlive the service.
  Service(Coordinator& coordinator, Options options);
  ~Service();
  Service(const Service&) = delete;

  /// Limits and streaming of bodies; the caller adds the address and the identity.
  net::Server::Options server_options();
  net::Handler handler();
  /// Answers all polls now, and each later one at once.
  void drain() EXCLUDES(mutex_);
  std::size_t polls() EXCLUDES(mutex_);
  /// Clients that have polled at least once.
  std::size_t pollers() EXCLUDES(mutex_);
  /// Returns when each client that has polled knows the end of the job, or when the context is
  /// done. Waits for the context if no client has polled.
  void wait_for_ends(const Context& ctx) EXCLUDES(mutex_);

 private:
  class Receiver;
  class Ignore;
  /// A request for a message of secure aggregation.
  struct SecureAsk {
    std::string task;
    SecureRound::Message message = SecureRound::Message::kKeys;
  };
  /// A client has one poll for tasks and one for messages.
  struct PollKey {
    std::string client;
    bool secure = false;
    friend auto operator<=>(const PollKey&, const PollKey&) = default;
  };
  struct Poll {
    std::string after;                // the last task; not for messages
    std::optional<SecureAsk> secure;  // absent: a poll for tasks
    SteadyTime until{};
    net::Responder respond;
  };

  net::Reception receive(const net::Request& head);
  net::Response answer(const net::Request& request);
  net::Response task_response(const std::string& client, const federated::Task& task)
      EXCLUDES(mutex_);
  void poll(const net::Request& request, net::Responder respond) EXCLUDES(mutex_);
  /// The answer of a poll; nothing: it waits.
  std::optional<net::Response> ready(const PollKey& key, const std::string& after,
                                     const std::optional<SecureAsk>& secure) EXCLUDES(mutex_);
  net::Response put_secure(const net::Request& request, const std::string& client);
  void answer_polls(const std::stop_token& stop) EXCLUDES(mutex_);
  net::Response update_head(const net::Request& request, const std::string& client);
  net::Response file(const net::Request& request);
  net::Response evaluation(const net::Request& request, const std::string& client);
  net::Response finish(Upload& upload, std::optional<double> norm, const std::string& client,
                       const std::string& task, const codec::Sha256& digest);
  net::Response verdict_response(federated::Verdict verdict, const std::string& message,
                                 const std::string& reason);

  Coordinator& coordinator_;
  const Options options_;
  metrics::Counter* accepted_ = nullptr;
  metrics::Counter* received_bytes_ = nullptr;
  metrics::Counter* sent_bytes_ = nullptr;

  Mutex mutex_;
  CondVar changed_;
  std::map<PollKey, Poll> polls_ GUARDED_BY(mutex_);
  std::set<std::string> polled_ GUARDED_BY(mutex_), dismissed_ GUARDED_BY(mutex_);
  bool tasks_changed_ GUARDED_BY(mutex_) = false;
  bool draining_ GUARDED_BY(mutex_) = false;
  std::atomic<std::size_t> scans_{0};  // uploads with a norm that is computed as they arrive

  net::HandlerPool pool_;  // running requests use the members above
  std::jthread polls_thread_;
};

/// The state of a job as Prometheus metrics: round, clients, results of the last round.
class JobMetrics final : public metrics::Collector {
 public:
  explicit JobMetrics(Coordinator& coordinator) : coordinator_(coordinator) {}
  void collect(metrics::Samples& out) const override;

 private:
  Coordinator& coordinator_;
};

}  // namespace varda::aggregator
