// FlowerRounds: the tasks of a job as Flower clients get them. flower::Adapter has the protocol.
//
//   FlowerRounds rounds(coordinator, {.order = model.order(), .settings = settings});
//   flower::Adapter adapter({}, rounds);
//
// Clients get all weights of a task's model in `order` and return them after training. The update
// is the difference, as from our own clients.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "aggregator/coordinator.h"
#include "base/mutex.h"
#include "federated/settings.h"
#include "federated/weights.h"
#include "flower/rounds.h"

namespace varda::aggregator {

/// Thread-safe.
class FlowerRounds final : public flower::Rounds {
 public:
  struct Options {
    std::vector<std::string> order;  // names of all weights, see ModelFile::order()
    federated::Settings settings;    // for the dictionary `config` of clients
    Duration sign_of_life = std::chrono::seconds(20);  // well below Coordinator's lost_after
  };
  /// kUnsupported: the rule, local privacy or secure aggregation needs more from clients than
  /// Flower's protocol has. `coordinator` outlives the object.
  static Result<std::unique_ptr<FlowerRounds>> create(Coordinator& coordinator, Options options);
  ~FlowerRounds() override;

  Status joined(const std::string& client, const net::Peer& peer) override;
  void left(const std::string& client) override;
  Result<std::optional<flower::Task>> next(const std::string& client) override;
  Status fitted(const std::string& client, const flower::Fitted& answer) override;
  Status evaluated(const std::string& client, const flower::Evaluated& answer) override;
  Status initial(const std::string& client, const flower::Initial& answer) override;
  void failed(const std::string& client, const flower::Task& task, const Error& error) override;
  void on_change(std::function<void()> changed) override;

 private:
  /// A model for clients, and its weights for the difference.
  struct Loaded {
    federated::Weights weights;
    std::shared_ptr<const flower::Model> model;
  };

  FlowerRounds(Coordinator& coordinator, Options options);
  Result<std::shared_ptr<const Loaded>> load(const std::string& model) EXCLUDES(mutex_, loading_);
  flower::Scalars config_of(const federated::Task& task) const;
  void show_life(const std::stop_token& stop) EXCLUDES(mutex_);

  /// Outlives this object with the coordinator's list of listeners.
  struct Listener {
    Mutex mutex;
    std::function<void()> changed GUARDED_BY(mutex);
  };

  Coordinator& coordinator_;
  const Options options_;
  const std::shared_ptr<Listener> listener_ = std::make_shared<Listener>();
  Mutex loading_;  // two threads never load one model twice
  Mutex mutex_;
  CondVar changed_;
  struct Client {
    std::string task, model;  // the last task given
    std::string failed;       // a task that does not come again
  };
  std::map<std::string, Client> clients_ GUARDED_BY(mutex_);
  std::map<std::string, std::shared_ptr<const Loaded>> models_ GUARDED_BY(mutex_);  // at most two
  std::jthread life_;
};

}  // namespace varda::aggregator
