// Asks model servers which version they serve, whether one failed to load, and what they count of their tiers.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <vector>

#include "agent/complaint.h"
#include "agent/plan.h"
#include "base/context.h"
#include "base/mutex.h"
#include "net/http.h"

namespace varda::agent {

/// Thread-safe.
class ServingPoller {
 public:
  struct Options {
    std::chrono::milliseconds busy{300};     // between polls of a server that does not serve what it should yet
    std::chrono::milliseconds steady{2000};  // of one that does
    std::chrono::milliseconds timeout{1000};
    const Clock* clock = nullptr;  // null: the machine's
  };
  /// Gets each answer about the tiers of a model, as JSON, or why it is none. A server that knows of no tiers answers nothing.
  using OnCascade = std::function<void(const std::string& key, const Result<codec::Json>& answer)>;
  /// `http` outlives the poller. `changed` is called from run()'s thread when a report is another one than before.
  ServingPoller(net::HttpClient& http, Options options, std::function<void()> changed, OnCascade cascade = {})
      : http_(http),
        options_(options),
        clock_(options.clock != nullptr ? *options.clock : system_clock()),
        changed_(std::move(changed)),
        cascade_(std::move(cascade)) {}

  /// Whom to ask from now on; a new or changed one is asked at once. Reports of others are forgotten.
  void set(std::vector<Poll> polls);
  std::map<std::string, api::EdgeServingReport> reports() const;
  /// By model: the line of `.last-good` for what its server serves. Only of servers that tell.
  std::map<std::string, std::string> last_good() const;
  /// Everyone has been asked at least once.
  bool complete() const;

  /// Polls until the context is done.
  void run(const Context& ctx);
  /// Asks those whose time has come; what run() does between two waits. One thread.
  void step(const Context& ctx);
  /// Asks all servers what they count, but for those that did not answer lately, until the context is done. Any thread.
  void ask_tiers(const Context& ctx);
  /// When step() has somebody to ask.
  std::optional<SteadyTime> due() const;

 private:
  struct State {
    Poll poll;
    SteadyTime due;
    int failures = 0;
    std::optional<api::EdgeServingReport> report;
    std::string last_good;
    Complaint complaint;  // of what it says of its versions
  };
  struct Answer {
    api::EdgeServingReport report;
    std::string last_good;
  };
  Result<Answer> ask(const Context& ctx, const Poll& poll);
  void take(const Poll& poll, const Result<Answer>& answer);
  void ask_cascade(const Context& ctx, const Poll& poll);

  net::HttpClient& http_;
  const Options options_;
  const Clock& clock_;
  const std::function<void()> changed_;
  const OnCascade cascade_;
  mutable Mutex mutex_;
  std::condition_variable_any woken_;
  std::map<std::string, State> states_ GUARDED_BY(mutex_);
  bool poked_ GUARDED_BY(mutex_) = false;
};

}  // namespace varda::agent
