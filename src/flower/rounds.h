// The rounds of a job as Flower clients need them. The owner of the rounds implements this
// interface, and Adapter calls it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "flower/array.h"
#include "flower/messages.h"
#include "net/http.h"
#include "tensor/tensor.h"

namespace varda::flower {

/// A model on its way to clients. Flower sends tensors without names, so their order is part of
/// the agreement with the client.
struct Model {
  std::string id;  // equal ids have equal tensors, in equal order
  std::vector<tensor::Named> tensors;
};

struct Task {
  enum class Kind {
    kFit,
    kEvaluate,
    kParameters,  // the client gives the initial model; `model` is null
    kLeave,       // the client disconnects, and comes back after `seconds`; 0: it exits
  };
  Kind kind = Kind::kFit;
  std::string id;
  std::shared_ptr<const Model> model;
  Scalars config;  // the dictionary `config` of fit() and evaluate(); best equal for all clients
  std::int64_t seconds = 0;
};

/// Answers of a client to a task.
struct Fitted {
  std::string task;
  std::int64_t examples = 0;  // at least 1
  std::map<std::string, double> metrics;
  /// The weights after training, in the order of the model. Valid during the call.
  std::span<const Array> weights;
};
struct Evaluated {
  std::string task;
  std::int64_t examples = 0;              // at least 1
  std::map<std::string, double> metrics;  // with "loss"
};
struct Initial {
  std::string task;
  std::span<const Array> weights;  // valid during the call
};

/// Thread-safe. All functions may block (disk) but not wait for clients. Calls for one client come
/// one after the other.
class Rounds {
 public:
  virtual ~Rounds() = default;
  /// A client is there. An error refuses the client.
  virtual Status joined(const std::string& client, const net::Peer& peer) = 0;
  virtual void left(const std::string& client) = 0;
  /// The next task of a client that has none; nothing: wait for changed(). An error sends the
  /// client away. A task that an answer arrived for, or that failed, does not come again.
  virtual Result<std::optional<Task>> next(const std::string& client) = 0;
  /// Errors are logged; the client continues with the next task. kInvalid: the weights do not fit.
  virtual Status fitted(const std::string& client, const Fitted& answer) = 0;
  virtual Status evaluated(const std::string& client, const Evaluated& answer) = 0;
  virtual Status initial(const std::string& client, const Initial& answer) = 0;
  /// The client answered the task with an error, or with arrays that cannot be read.
  virtual void failed(const std::string& client, const Task& task, const Error& error) = 0;
  /// Called once, before all other functions. Call `changed` when next() may have another result
  /// for some client; from any thread, at any time until the adapter stops. It only posts.
  virtual void on_change(std::function<void()> changed) = 0;
};

}  // namespace varda::flower
