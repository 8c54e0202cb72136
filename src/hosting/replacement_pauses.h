// Pauses before ended pods are replaced: an immediate replacement does not help a node that lacks a
// resource.
#pragma once

#include <chrono>
#include <map>
#include <string>

#include "base/clock.h"
#include "meta/object.h"

namespace varda::hosting {

/// Pauses double from 5 s to 5 min. They start again at 5 s after a pod that lived longer than 10
/// min, like those of containers. They are in memory: a new leader starts with the shortest. Not
/// thread-safe.
class ReplacementPauses {
 public:
  /// Time from `now` until the pod `uid` of `model` is removed; zero or less: now. Further calls
  /// for the same pod do not move the end. `lived`: time since the pod was made.
  Duration left(const meta::ObjectKey& model, const std::string& uid, Duration lived,
                SteadyTime now);
  void forget(const meta::ObjectKey& model) { pauses_.erase(model); }

 private:
  struct Pause {
    std::string uid;
    Duration length{};
    SteadyTime until;
  };
  std::map<meta::ObjectKey, Pause> pauses_;
};

}  // namespace varda::hosting
