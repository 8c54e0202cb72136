// When a pod that has ended for good is replaced: at once helps nobody where the node is short of something.
#pragma once

#include <chrono>
#include <map>
#include <string>

#include "base/clock.h"
#include "meta/object.h"

namespace varda::controllers {

/// The pauses double from 5 s to 5 min, and begin anew for a pod that lived longer than 10 min, as containers' do. Kept in memory:
/// an operator that takes over begins with the shortest. Not thread-safe.
class ReplacementPauses {
 public:
  /// How long to wait from `now` on, zero or less: no longer, before the pod `uid` of `model` is taken away. Asked again for the
  /// same pod, its end stays where it is. `lived`: since the pod was made.
  Duration left(const meta::ObjectKey& model, const std::string& uid, Duration lived, SteadyTime now);
  void forget(const meta::ObjectKey& model) { pauses_.erase(model); }

 private:
  struct Pause {
    std::string uid;
    Duration length{};
    SteadyTime until;
  };
  std::map<meta::ObjectKey, Pause> pauses_;
};

}  // namespace varda::controllers
