#include "runtime/internal/controller_loop.h"

#include <exception>
#include <thread>
#include <utility>

#include "base/log.h"
#include "base/log_scope.h"

namespace varda::runtime {
namespace {

std::vector<ApiWriter::Owned> owned_kinds(const ControllerSpec& spec) {
  std::vector<ApiWriter::Owned> out;
  for (const ControllerSpec::Source& source : spec.sources) {
    if (source.owned) out.push_back({source.informer.resource, *source.owned});
  }
  return out;
}

}  // namespace

std::vector<ObjectKey> keys_of_controller(const Stored& child, const Resource& primary) {
  const meta::OwnerReference* owner = child.metadata.controller();
  if (!owner || owner->kind != primary.kind) return {};
  const auto slash = owner->api_version.find('/');
  const std::string_view group = slash == std::string::npos
                                     ? std::string_view()
                                     : std::string_view(owner->api_version).substr(0, slash);
  if (group != primary.group) return {};
  return {{primary.namespaced ? child.metadata.ns : "", owner->name}};
}

ControllerLoop::ControllerLoop(ControllerSpec spec, const kube::Client& client,
                               const Caches& caches, EventRecorder& events, const Options& options)
    : spec_(std::move(spec)),
      caches_(caches),
      events_(events),
      metrics_(options.metrics),
      primary_(caches.find(spec_.primary)),
      queue_({.name = spec_.name,
              .backoff = spec_.backoff,
              .clock = options.clock,
              .rng = options.rng,
              .metrics = options.metrics}),
      writer_(client, caches, events, owned_kinds(spec_)) {
  CHECK(primary_ != nullptr);
  CHECK(spec_.workers > 0);
  for (const ControllerSpec::Source& source : spec_.sources) {
    Informer* informer = caches.find(source.informer.resource);
    CHECK(informer != nullptr);
    if (source.keys || source.change)
      informer->on_change([this, &source](const Change& change) { changed(source, change); });
  }
  if (!metrics_) return;
  succeeded_ = result_counter("success");
  requeued_ = result_counter("requeue_after");
  (void)result_counter("requeue");  // one of controller-runtime's four results; unused here,
                                    // because requeues always have a delay
  failed_ = result_counter("error");
  const metrics::Labels labels{{"controller", spec_.name}};
  errors_ = &metrics_->counter("controller_runtime_reconcile_errors_total",
                               "Total number of reconciliation errors per controller", labels);
  terminal_ =
      &metrics_->counter("controller_runtime_terminal_reconcile_errors_total",
                         "Total number of terminal reconciliation errors per controller", labels);
  panics_ = &metrics_->counter("controller_runtime_reconcile_panics_total",
                               "Total number of reconciliation panics per controller", labels);
  // The bounds of controller-runtime, so that its dashboards show the same.
  seconds_ = &metrics_->histogram(
      "controller_runtime_reconcile_time_seconds",
      "Length of time per reconciliation per controller",
      {0.005, 0.01, 0.025, 0.05, 0.1,  0.15, 0.2,  0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6,
       0.7,   0.8,  0.9,   1.0,  1.25, 1.5,  1.75, 2.0,  2.5, 3.0,  3.5, 4.0,  4.5, 5,
       6,     7,    8,     9,    10,   15,   20,   25,   30,  40,   50,  60},
      labels);
  active_ = &metrics_->gauge("controller_runtime_active_workers",
                             "Number of currently used workers per controller", labels);
  metrics_
      ->gauge("controller_runtime_max_concurrent_reconciles",
              "Maximum number of concurrent reconciles per controller", labels)
      .set(static_cast<double>(spec_.workers));
}

metrics::Counter* ControllerLoop::result_counter(const char* result) const {
  return &metrics_->counter("controller_runtime_reconcile_total",
                            "Total number of reconciliations per controller",
                            {{"controller", spec_.name}, {"result", result}});
}

void ControllerLoop::changed(const ControllerSpec::Source& source, const Change& change) {
  try {
    if (change.old && change.now && source.same && source.same(*change.old, *change.now)) return;
    if (source.change) {
      for (const ObjectKey& key : source.change(change.old.get(), change.now.get(), caches_))
        queue_.add(key);
      return;
    }
    // The old version counts too: an object that moves affects its former relations.
    if (change.old) {
      for (const ObjectKey& key : source.keys(*change.old, caches_)) queue_.add(key);
    }
    if (change.now) {
      for (const ObjectKey& key : source.keys(*change.now, caches_)) queue_.add(key);
    }
  } catch (const std::exception& e) {
    log::error("map function threw",
               {{"controller", spec_.name}, {"object", change.key.str()}, {"what", e.what()}});
  }
}

void ControllerLoop::run(const Context& ctx) {
  const std::stop_callback wake(ctx.stop_token(), [this] { queue_.shut_down(); });
  std::vector<std::jthread> workers;
  for (std::size_t i = 0; i < spec_.workers; ++i) workers.emplace_back([this, &ctx] { work(ctx); });
  for (std::jthread& worker : workers) worker.join();
}

void ControllerLoop::work(const Context& ctx) {
  while (const auto key = queue_.take()) work_on(ctx, *key);
}

void ControllerLoop::step(const Context& ctx) {
  if (const auto key = queue_.try_take()) work_on(ctx, *key);
}

void ControllerLoop::work_on(const Context& ctx, const ObjectKey& key) {
  if (active_) active_->add(1);
  process(ctx, key);
  if (active_) active_->add(-1);
}

void ControllerLoop::process(const Context& ctx, const ObjectKey& key) {
  const SteadyTime begin = system_clock().now();
  // Uses the machine's randomness, because this id need not be equal in repeated simulations.
  const log::Scope scope({{"controller", spec_.name},
                          {"namespace", key.ns},
                          {"name", key.name},
                          {"reconcileID", system_rng().uuid()}});
  const StoredPtr object = primary_->get(key);
  settle(ctx, key, object, reconcile(ctx, key, object));
  if (seconds_)
    seconds_->observe(std::chrono::duration<double>(system_clock().now() - begin).count());
  queue_.done(key);
}

Result<Action> ControllerLoop::reconcile(const Context& ctx, const ObjectKey& key,
                                         const StoredPtr& object) {
  try {
    if (!object)
      return spec_.on_deleted ? spec_.on_deleted(ctx, key, writer_) : Action::await_change();
    // Unreadable: an event shows the problem to the user. The object and its children stay
    // unchanged.
    if (!object->problem.empty()) return Action::await_change();
    return spec_.reconcile(ctx, *object, writer_);
  } catch (const std::exception& e) {
    if (panics_) panics_->add();
    return Error(Code::kInternal, std::string("exception: ") + e.what());
  } catch (...) {
    if (panics_) panics_->add();
    return Error(Code::kInternal, "unknown exception");
  }
}

void ControllerLoop::settle(const Context& ctx, const ObjectKey& key, const StoredPtr& object,
                            const Result<Action>& result) {
  if (result.ok()) {
    queue_.forget(key);
    if (const auto delay = result->delay()) queue_.add_after(key, *delay);
    metrics::Counter* counter = result->delay() ? requeued_ : succeeded_;
    if (counter) counter->add();
    log::debug("reconciled");
    return;
  }
  const Error& error = result.error();
  if (ctx.stopped()) return;
  if (failed_) failed_->add();
  if (errors_) errors_->add();
  if (error.code() == Code::kConflict) {
    // An ordinary race: the copy was behind.
    log::debug("conflict, retrying", {{"error", error}});
    queue_.retry(key);
    return;
  }
  log::warn("reconcile failed", {{"error", error}, {"terminal", error.terminal()}});
  if (object) {
    const ObjectRef ref{&spec_.primary, key, object->metadata.uid,
                        object->metadata.resource_version};
    events_.record(ref, EventType::kWarning, "ReconcileFailed", error.message());
  }
  if (error.terminal()) {
    if (terminal_) terminal_->add();
    queue_.forget(key);
  } else {
    queue_.retry(key);
  }
}

}  // namespace varda::runtime
