// Manager: combines informers, controllers, events and leader election, and runs them.
//
//   runtime::Manager manager(client, {.component = "varda"});
//   ModelReconciler models(manager.caches());
//   manager.add<InferenceModel>(models);
//   TRY_VOID(manager.run(ctx));       // blocks until ctx stops
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/context.h"
#include "base/metrics.h"
#include "base/result.h"
#include "base/rng.h"
#include "kube/client.h"
#include "runtime/controller.h"
#include "runtime/event.h"
#include "runtime/informer.h"
#include "runtime/leader.h"
#include "runtime/task.h"

namespace varda::runtime {

class Manager {
 public:
  struct Options {
    std::string component = "varda";  // in events
    std::string host;
    std::optional<LeaderElector::Options> election;  // set: controllers run only while leading
    std::vector<std::string> namespaces;  // limits namespaced kinds to these namespaces; empty: all
    /// May change how a resource's copy is kept (trim, whole), before the copy exists. Absent: no
    /// change.
    std::function<void(Informer::Options&)> informers;
    std::chrono::milliseconds informer_backoff_min{200};
    const Clock* clock = nullptr;  // null: the machine's
    Rng* rng = nullptr;
    metrics::Registry* metrics = nullptr;  // outlives the manager
  };
  /// `client` outlives the manager.
  Manager(const kube::Client& client, Options options);
  ~Manager();
  Manager(const Manager&) = delete;
  Manager& operator=(const Manager&) = delete;

  // Before run(), on one thread.

  /// Keeps a copy of T. With a filter, call it before adding controllers that use T.
  template <Object T>
  Cache<T> watch(Informer::Filter filter = {}) {
    return Cache<T>(add_informer(Informer::typed<T>(std::move(filter))));
  }
  /// `reconciler` outlives run(). Returns a function that queues one object for reconciliation
  /// (thread-safe, while the manager lives).
  template <Object T, typename Reconciler>
  std::function<void(const ObjectKey&)> add(Reconciler& reconciler) {
    return add(make_controller<T>(reconciler));
  }
  std::function<void(const ObjectKey&)> add(ControllerSpec spec);
  Informer& add_informer(Informer::Options options);

  // Any time, any thread.
  const Caches& caches() const;
  EventRecorder& events();
  /// A writer that owns no kinds, for code outside controllers.
  Writer& writer();
  /// All informers have synced, and controllers run or wait for leadership.
  bool ready() const;
  /// This process does the work: every copy is complete, and with an election it leads.
  bool leading() const;
  /// No controller has work right now. For tests.
  bool idle() const;

  /// Starts informers, waits until all have synced, and runs the controllers (while leading) until
  /// `ctx` stops. Then stops controllers, informers and events, in this order, and joins every
  /// thread. Call it once. kUnavailable: leadership was lost.
  Status run(const Context& ctx);

  /// The work of run() as tasks, for callers that schedule it themselves. There are tasks for
  /// informers, events, the lease, and each worker of each controller. A worker's task is due
  /// only while every cache is complete and, with an election, while leading. Valid as long as the
  /// manager. Tasks never end; the caller drops them.
  std::vector<Task> tasks();
  /// With tasks(): this process led and no longer leads. It should end.
  bool leadership_lost() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace varda::runtime
