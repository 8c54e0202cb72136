// Core: the agent's EdgeNode, as a list of components.
//
//   Core core(client, {.link = {.node_name = "edge0"}, .address = "192.168.1.5"}, state_store,
//             {&models, &datasets});
//   core.load();
//   runtime::run_tasks(ctx, core.tasks());
//   core.finish();
//
// One task receives each version of the EdgeNode, persists the work list, and then hands the list
// to all components. Another task merges the components' reports and writes EdgeNode.status.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "agent/core/component.h"
#include "agent/core/link.h"
#include "agent/core/state_store.h"
#include "agent/core/work_list.h"
#include "base/mutex.h"
#include "runtime/task.h"

namespace varda::agent::core {

class Core {
 public:
  struct Options {
    Link::Options link;
    std::string address;  // of the node, for status; "": not reported
  };
  /// All references outlive the core.
  Core(const kube::Client& client, Options options, StateStore& state_store,
       std::vector<NodeComponent*> components);

  /// Applies the persisted work list and loads all components. Before tasks(), once.
  void load();
  /// The link's, the work list's and all components' tasks. Once.
  std::vector<runtime::Task> tasks();
  /// Finishes all components. After the last step.
  void finish();

 private:
  /// On the link's thread.
  void received(const api::EdgeNode& node);
  std::optional<SteadyTime> due() const;
  /// Persists and applies the last received work list.
  void apply();
  void published(const NodeComponent& component);
  Link::Report report(const api::EdgeNodeStatus& live) const;

  const std::string address_;
  const std::vector<NodeComponent*> components_;
  WorkListStore work_list_;  // of load(), then of the task "work list"
  runtime::Wakeup wakeup_;
  mutable Mutex mutex_;
  std::optional<api::EdgeNode> received_ GUARDED_BY(mutex_);       // not applied yet
  std::set<const NodeComponent*> unpublished_ GUARDED_BY(mutex_);  // have not reported yet
  Link link_;
};

}  // namespace varda::agent::core
