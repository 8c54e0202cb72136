// WorkerProgram: the program of a user in a worker's pod. It does what examples/workers do: registers with its agent, follows its
// assignment, reports its counts and the accuracy of its model, and repeats a report until the agent acknowledges it.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/worker_keeper.h"
#include "mutations.h"

namespace varda::sim {

/// Results that the agent of one worker was sent. Each is another number than all before it.
struct Told {
  bool acknowledged = false;
  bool taken_away = false;  // the work list dropped the worker: results that were not reported upstream by then are lost
  /// The last one that was acknowledged, and those sent since.
  std::vector<int> possible;
};

class WorkerProgram {
 public:
  /// `told` returns the results of the worker with that uid, and outlives the program.
  WorkerProgram(std::string instance, std::function<Told&(const std::string& uid)> told, const Mutations& mutations)
      : state_(std::make_shared<State>()), instance_(std::move(instance)), told_(std::move(told)), mutations_(mutations) {}

  std::optional<SteadyTime> due() const { return state_->due; }
  /// Sends its next requests. `token` is the content of the token file; nothing: the file is missing.
  void step(SteadyTime now, agent::WorkerKeeper& keeper, const std::optional<std::string>& token);
  /// Its connections broke: what was under way may have been kept or not.
  void agent_is_gone();
  void agent_is_there() { state_->due = SteadyTime::min(); }

  /// Clients asked it that often since it started.
  void count(std::int64_t inferences);
  /// It found how good its model is, in percent.
  void evaluate(int accuracy);
  /// As it was last read; null: never.
  const codec::Json& assignment() const { return state_->assignment; }

 private:
  enum class Word { kUnsaid, kUnderWay, kSaid };
  /// The state that callbacks change. A callback may come after the program ended.
  struct State {
    std::optional<SteadyTime> due = SteadyTime::min();
    std::string uid;  // of the worker that it registered as
    Word registration = Word::kUnsaid, result = Word::kSaid, assignment_read = Word::kUnsaid;
    bool counted = false;  // something that the agent does not know
    int accuracy = 0;
    std::string revision;
    codec::Json assignment;
  };
  static constexpr std::chrono::seconds kRetry{2}, kPatience{60};

  void tell_result(SteadyTime now, agent::WorkerKeeper& keeper, const agent::WorkerKeeper::Who& who);

  const std::shared_ptr<State> state_;
  const std::string instance_;
  const std::function<Told&(const std::string& uid)> told_;
  const Mutations& mutations_;
  std::int64_t inferences_ = 0;
};

}  // namespace varda::sim
