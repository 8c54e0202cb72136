// WorkerProgram: a user's program in a worker's pod, like examples/workers. It registers with its
// agent, follows its assignment, and reports its counts and the accuracy of its model. It repeats
// each report until the agent acknowledges it.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/workers/manager.h"
#include "mutations.h"

namespace varda::sim {

/// Results sent to the agent of one worker. Each is a new number.
struct Reported {
  bool acknowledged = false;
  bool unassigned = false;  // the work list dropped the worker; unreported results are lost
  /// The last acknowledged result, and those sent since.
  std::vector<int> possible;
};

class WorkerProgram {
 public:
  /// `reported` returns the results of the worker with that uid, and outlives the program.
  WorkerProgram(std::string instance, std::function<Reported&(const std::string& uid)> reported,
                const Mutations& mutations)
      : state_(std::make_shared<State>()),
        instance_(std::move(instance)),
        reported_(std::move(reported)),
        mutations_(mutations) {}

  std::optional<SteadyTime> due() const { return state_->due; }
  /// Sends the next requests. `token` is the content of the token file; nothing: no file.
  void step(SteadyTime now, agent::workers::Manager& manager,
            const std::optional<std::string>& token);
  /// Connections broke: pending requests may have been stored or not.
  void agent_stopped();
  void agent_started() { state_->due = SteadyTime::min(); }

  /// Number of client requests since the start.
  void count(std::int64_t inferences);
  /// Reports the accuracy of its model, in percent.
  void evaluate(int accuracy);
  /// The assignment as last read; null: never read.
  const codec::Json& assignment() const { return state_->assignment; }

 private:
  enum class Message { kUnsent, kUnderWay, kSent };
  /// The state that callbacks change. A callback may come after the program ended.
  struct State {
    std::optional<SteadyTime> due = SteadyTime::min();
    std::string uid;  // of the worker that it registered as
    Message registration = Message::kUnsent, result = Message::kSent,
            assignment_read = Message::kUnsent;
    bool counted = false;  // the agent lacks the current count
    int accuracy = 0;
    std::string revision;
    codec::Json assignment;
  };
  static constexpr std::chrono::seconds kRetry{2}, kPatience{60};

  void send_result(SteadyTime now, agent::workers::Manager& manager,
                   const agent::workers::Manager::Caller& caller);

  const std::shared_ptr<State> state_;
  const std::string instance_;
  const std::function<Reported&(const std::string& uid)> reported_;
  const Mutations& mutations_;
  std::int64_t inferences_ = 0;
};

}  // namespace varda::sim
