// Signs of life while the worker is busy: the aggregator replaces clients that are silent.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <thread>

#include "base/context.h"
#include "participant/transfer.h"

namespace varda::participant {

/// Asks for the next task from time to time, until destroyed. If the job ends, the work ends too;
/// or at another task, if the work is good for its round alone.
class Presence {
 public:
  struct Options {
    std::string target;  // of the requests
    std::chrono::milliseconds every{30'000};
    std::chrono::seconds wait{30};  // an empty answer takes this long
    enum class Until : std::uint8_t { kEnd, kNextTask };
    Until until = Until::kEnd;
  };
  /// `transfer` belongs to the thread of this object.
  Presence(const Context& ctx, Options options, Transfer transfer);

  /// For the work: done with the context of the constructor, or with the job.
  const Context& context() const { return work_; }
  /// The work ended for a reason of the aggregator.
  bool is_over() const { return over_; }

 private:
  void run(const std::stop_token& stop);

  const Options options_;
  Transfer transfer_;
  std::stop_source source_;
  const Context work_;
  const std::stop_callback<std::function<void()>> chained_;
  std::atomic<bool> over_ = false;
  std::jthread thread_;  // last: it uses the members above
};

}  // namespace varda::participant
