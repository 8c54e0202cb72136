// User: plays one kind of object in a world, and knows what must hold for that kind once the world has settled.
#pragma once

#include <optional>
#include <set>
#include <string>

namespace varda::sim {

class Machine;

/// Keys that the work list of one node must name, and no others.
struct WorkKeys {
  std::set<std::string> models, datasets, workers;
};

class User {
 public:
  virtual ~User() = default;
  /// One change that the user makes, with all requests for it. The API server is up.
  virtual void act() = 0;
  /// Names the claim that does not hold, judged by what the API server answered to this user. Nothing: all holds.
  virtual std::optional<std::string> settled() = 0;
  virtual void add_work(const Machine&, WorkKeys&) const {}
  /// A node without changes elsewhere reports counts this late. A world waits for the longest of all users.
  virtual bool reports_counts() const { return false; }
};

}  // namespace varda::sim
