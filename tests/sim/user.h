// User: acts on one kind of object in a world, and checks the invariants of that kind once the
// world has settled.
#pragma once

#include <optional>
#include <set>
#include <string>

namespace varda::sim {

class Machine;

/// Keys that one node's work list must contain, and no others.
struct WorkKeys {
  std::set<std::string> models, datasets, workers;
};

class User {
 public:
  virtual ~User() = default;
  /// Makes one change, with all its requests. The API server is up.
  virtual void act() = 0;
  /// Names the violated invariant, judged by the API server's answers to this user. Nothing: all
  /// hold.
  virtual std::optional<std::string> settled() = 0;
  virtual void add_work(const Machine&, WorkKeys&) const {}
  /// Whether nodes report counts without any other change. The world then waits longer until it
  /// counts as settled.
  virtual bool reports_counts() const { return false; }
};

}  // namespace varda::sim
