// NodeComponent: one duty of a node. A component applies a part of the work list, and reports some
// members of EdgeNode.status.
//
//   class Fans final : public core::NodeComponent {
//    public:
//     void apply(const core::WorkList& list) override;      // keeps list.spec.fans, wakes its task
//     std::vector<runtime::Task> tasks() override;          // a task works, then calls publish()
//     core::ListId put_report(api::EdgeNodeStatus& status, const api::EdgeNodeStatus&) const
//         override {
//       const MutexLock lock(mutex_);
//       status.fans = reports_;
//       return list_;
//     }
//   };
//
// Core calls apply() with the persisted list, then load(), both before the first step of a task.
// Later calls of adopt() and apply() come from one task. README.md lists the places to touch for a
// new component.
#pragma once

#include <functional>
#include <vector>

#include "agent/core/work_list.h"
#include "runtime/task.h"

namespace varda::agent::core {

class NodeComponent {
 public:
  virtual ~NodeComponent() = default;

  /// Accepts a work list, which is on disk already. Must be quick. The list may repeat an earlier
  /// one after a restart.
  virtual void apply(const WorkList& list) = 0;
  /// Restores the component's own state from disk. Called once.
  virtual void load() {}
  /// Accepts the server's status, which may hold figures that this disk has lost. Called before the
  /// apply() of the same EdgeNode; a step may run in between. Must be quick.
  virtual void adopt(const api::EdgeNodeStatus& /*live*/) {}
  /// The component's loops. Called once, after load(). The component outlives the tasks.
  virtual std::vector<runtime::Task> tasks() = 0;
  /// Puts the component's members into `status`, and returns the work list that they answer. `live`
  /// is the server's status, for members that must not go back. Thread-safe. Not called before the
  /// first publish().
  virtual ListId put_report(api::EdgeNodeStatus& status, const api::EdgeNodeStatus& live) const = 0;
  /// Persists what is unsaved. After the last step.
  virtual void finish() {}

  /// Sets the callback of publish(). Before the first step.
  void on_publish(std::function<void()> published) { published_ = std::move(published); }

 protected:
  /// Announces that put_report() has changed. Call it without locks.
  void publish() const {
    if (published_) published_();
  }

 private:
  std::function<void()> published_;
};

}  // namespace varda::agent::core
