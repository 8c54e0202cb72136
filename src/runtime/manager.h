// Manager: puts informers, controllers, events and leader election together and runs them.
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
#include "runtime/strand.h"

namespace varda::runtime {

class Manager {
 public:
  struct Options {
    std::string component = "varda";  // in events
    std::string host;
    std::optional<LeaderElector::Options> election;  // set: controllers run only while leading
    std::vector<std::string> namespaces;             // only what is in these, of namespaced kinds; none: all there are
    /// May change how a resource's copy is kept (trim, whole), before there is one. None: as those who use it ask.
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

  /// Keeps a copy of T. Where only some objects matter, call it before the controllers that use T are added.
  template <Object T>
  Cache<T> watch(Informer::Filter filter = {}) {
    return Cache<T>(add_informer(Informer::typed<T>(std::move(filter))));
  }
  /// `reconciler` outlives run(). Returns what may be called to have one object reconciled (thread-safe, while the manager lives).
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
  /// Informers have all synced, and controllers run (or wait for leadership).
  bool ready() const;
  /// It is this process that works: every copy is complete, and with an election it leads.
  bool leading() const;
  /// No controller has anything to do right now. For tests.
  bool idle() const;

  /// Starts informers, waits for all of them to sync, runs the controllers (while leading) until `ctx` stops; then stops
  /// controllers, informers and events, in this order, and joins every thread. Once. kUnavailable: leadership was lost.
  Status run(const Context& ctx);

  /// The same work for a driver of its own, instead of run(): informers, events, the lease, and one strand for each worker of each
  /// controller, which is due only while every cache is complete and (with an election) while leading. Valid as long as the
  /// manager. Without an end: who drives them drops them.
  std::vector<Strand> strands();
  /// Of strands(): it has led, and leads no more. The process should end.
  bool leadership_lost() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace varda::runtime
