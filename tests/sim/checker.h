// Checker: the invariants of every step, and of a settled world, computed only from the users'
// requests.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cluster.h"
#include "codec/json.h"
#include "machine.h"
#include "scheduler.h"
#include "store/store.h"
#include "user.h"

namespace varda::sim {

class Checker {
 public:
  Checker(Cluster& cluster, const std::vector<std::unique_ptr<Machine>>& machines,
          const std::vector<std::unique_ptr<User>>& users);

  /// A user read the object with this key in the store. Its spec must stay the same until the user
  /// changes it.
  void user_read(const std::string& key, const std::string& uid, const codec::Json& spec) {
    read_[key] = {uid, spec};
  }
  /// Checks the events since the last call, and the machines. Returns the violation, if any.
  std::optional<std::string> after_step();
  /// Checks whether everything matches the users' requests. Returns the difference, if any.
  std::optional<std::string> check_settled();
  /// Number of writes, without leases: a leader renews its lease forever.
  std::uint64_t writes() const { return writes_; }
  SteadyTime last_write() const { return last_write_; }
  const std::string& last_written() const { return last_written_; }
  /// Holder of the operators' lease. A change of holder counts as a write, because a new leader
  /// takes up unfinished work.
  const std::string& leader() const { return leader_; }
  /// Starts a new schedule in a settled world; earlier excuses no longer apply.
  void begin() { deleted_nodes_.clear(); }
  /// A live Node object was deleted: its containers may still run, as in any cluster.
  void node_was_deleted(const std::string& node) { deleted_nodes_.insert(node); }

 private:
  struct Known {
    std::string uid;
    std::int64_t generation = 0, observed = 0, inferences = 0;
    std::string url, serving;
  };
  std::optional<std::string> note(const store::Event& event);
  std::optional<std::string> note_url(const std::string& what, const std::string& name,
                                      Known& known, const codec::Json& object);
  void note_work(const std::string& node, const Known& known, const codec::Json& object);
  std::optional<std::string> monotonic(Known& known, const codec::Json& object,
                                       const std::string& what);
  std::optional<std::string> unchanged(const std::string& key, const codec::Json& object,
                                       const std::string& what) const;
  std::optional<std::string> containers();
  std::optional<std::string> files();
  std::optional<std::string> check_node_settled(Machine& machine);
  std::optional<std::string> check_owners_settled();

  Cluster& cluster_;
  const std::vector<std::unique_ptr<Machine>>& machines_;
  const std::vector<std::unique_ptr<User>>& users_;
  std::unique_ptr<store::Watch> watch_;
  struct Read {
    std::string uid;
    codec::Json spec;
  };
  std::map<std::string, Read> read_;    // by users, by key in the store
  std::map<std::string, Known> known_;  // by key in the store
  std::map<std::string, std::set<std::string>>
      acknowledged_;  // by node: all models that its agent acknowledges; absent: the agent is
                      // behind
  std::set<std::string> deleted_nodes_;
  std::uint64_t writes_ = 0;
  SteadyTime last_write_;
  std::string last_written_, leader_;
};

}  // namespace varda::sim
