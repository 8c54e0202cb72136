#include "runtime/manager.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>

#include "base/log.h"
#include "runtime/internal/api_writer.h"
#include "runtime/internal/controller_loop.h"

namespace varda::runtime {
namespace {

// Pause between checks that every copy is complete: short at a normal start, long if the server is
// unreachable.
constexpr std::chrono::milliseconds kSyncPollMin{2}, kSyncPollMax{250};

}  // namespace

struct Manager::Impl {
  Impl(const kube::Client& c, Options o)
      : client(c),
        options(std::move(o)),
        events(client, {.component = options.component,
                        .host = options.host,
                        .clock = options.clock,
                        .rng = options.rng,
                        .metrics = options.metrics}),
        writer(client, caches, events, {}) {}

  const kube::Client& client;
  const Options options;
  Caches caches;
  ApiEventRecorder events;
  ApiWriter writer;
  std::vector<std::unique_ptr<ControllerLoop>> controllers;
  std::atomic<bool> started{false};
  std::atomic<bool> is_leader{false};  // with an election: leading, as last seen
  // For tasks().
  std::unique_ptr<LeaderElector> elector;
  SteadyTime next_attempt = SteadyTime::min();
  bool led = false;

  std::unique_ptr<LeaderElector> make_elector() {
    LeaderElector::Options election = *options.election;
    election.clock = options.clock;
    election.rng = options.rng;
    election.metrics = options.metrics;
    return std::make_unique<LeaderElector>(client, std::move(election));
  }

  void run_controllers(const Context& ctx) {
    std::vector<std::jthread> threads;
    for (const auto& controller : controllers)
      threads.emplace_back([&controller, &ctx] { controller->run(ctx); });
    for (std::jthread& thread : threads) thread.join();
  }
};

Manager::Manager(const kube::Client& client, Options options)
    : impl_(std::make_unique<Impl>(client, std::move(options))) {}
Manager::~Manager() = default;

Informer& Manager::add_informer(Informer::Options options) {
  CHECK(!impl_->started);
  options.backoff_min = impl_->options.informer_backoff_min;
  options.namespaces = impl_->options.namespaces;
  options.rng = impl_->options.rng;
  options.clock = impl_->options.clock;
  options.metrics = impl_->options.metrics;
  if (!options.on_problem) {
    options.on_problem = [this, resource = options.resource](const Stored& object) {
      events().record(
          {&resource, object.metadata.key(), object.metadata.uid, object.metadata.resource_version},
          EventType::kWarning, "Unreadable",
          "this object cannot be read and is ignored until it is corrected: " + object.problem);
    };
  }
  if (impl_->options.informers) impl_->options.informers(options);
  return impl_->caches.add(impl_->client, std::move(options));
}

std::function<void(const ObjectKey&)> Manager::add(ControllerSpec spec) {
  CHECK(!impl_->started);
  for (ControllerSpec::Source& source : spec.sources) {
    Informer& informer = add_informer(source.informer);
    if (source.index_of) informer.add_index(std::move(source.index), std::move(source.index_of));
  }
  const ControllerLoop::Options options{
      .clock = impl_->options.clock, .rng = impl_->options.rng, .metrics = impl_->options.metrics};
  impl_->controllers.push_back(std::make_unique<ControllerLoop>(
      std::move(spec), impl_->client, impl_->caches, impl_->events, options));
  return [controller = impl_->controllers.back().get()](const ObjectKey& key) {
    controller->enqueue(key);
  };
}

const Caches& Manager::caches() const { return impl_->caches; }
EventRecorder& Manager::events() { return impl_->events; }
Writer& Manager::writer() { return impl_->writer; }

bool Manager::ready() const { return impl_->started && impl_->caches.synced(); }

bool Manager::leading() const { return ready() && (!impl_->options.election || impl_->is_leader); }

bool Manager::idle() const {
  for (const auto& controller : impl_->controllers) {
    if (!controller->idle()) return false;
  }
  return true;
}

Status Manager::run(const Context& ctx) {
  CHECK(!impl_->started.exchange(true));
  // Informers and events outlive the controllers, so that their last changes are still seen and
  // reported.
  std::stop_source stop;
  const Context inner = Context(stop.get_token());
  std::vector<std::jthread> threads;
  for (const auto& informer : impl_->caches.all())
    threads.emplace_back([&informer, &inner] { informer->run(inner); });
  threads.emplace_back([this, &inner] { impl_->events.run(inner); });

  for (auto pause = kSyncPollMin; !impl_->caches.synced() && ctx.sleep_for(pause).ok();)
    pause = std::min(pause * 2, kSyncPollMax);
  Status status;
  if (impl_->caches.synced() && !ctx.stopped()) {
    if (impl_->options.election) {
      const auto elector = impl_->make_elector();
      status = elector->run(ctx, [this, &elector](const Context& leading) {
        impl_->events.record(elector->lease(), EventType::kNormal, "LeaderElection",
                             elector->identity() + " became leader");
        impl_->is_leader = true;
        // From now on the controllers' remaining work is that of a former leader.
        const std::stop_callback lost(leading.stop_token(), [this] { impl_->is_leader = false; });
        impl_->run_controllers(leading);
        impl_->is_leader = false;
      });
    } else {
      impl_->run_controllers(ctx);
      // Without controllers, the copies are still kept.
      while (ctx.sleep_for(std::chrono::hours(1)).ok()) {
      }
    }
  }
  stop.request_stop();
  for (std::jthread& thread : threads) thread.join();
  impl_->events.flush(Context().with_timeout(std::chrono::seconds(2)));
  return status;
}

std::vector<Task> Manager::tasks() {
  CHECK(!impl_->started.exchange(true));
  const Clock& clock = impl_->options.clock ? *impl_->options.clock : system_clock();
  std::vector<Task> out;
  for (const auto& informer : impl_->caches.all()) {
    for (std::size_t scope = 0; scope < informer->scopes(); ++scope)
      out.push_back(informer_task(*informer, clock, scope));
  }
  out.push_back(impl_->events.task());
  if (impl_->options.election) {
    impl_->elector = impl_->make_elector();
    out.push_back({"lease",
                   [this]() -> std::optional<SteadyTime> {
                     if (!impl_->caches.synced()) return std::nullopt;
                     return impl_->next_attempt;
                   },
                   [this, &clock](const Context& ctx) {
                     (void)impl_->elector->attempt(ctx);  // leading() shows the result
                     impl_->is_leader = impl_->elector->leading();
                     impl_->led = impl_->led || impl_->is_leader;
                     impl_->next_attempt = clock.now() + impl_->elector->pause();
                   }});
  }
  for (const auto& controller : impl_->controllers) {
    for (std::size_t i = 0; i < controller->workers(); ++i) {
      out.push_back({controller->name(),
                     [this, &controller]() -> std::optional<SteadyTime> {
                       if (!impl_->caches.synced() ||
                           (impl_->elector && !impl_->elector->leading()))
                         return std::nullopt;
                       return controller->due();
                     },
                     [&controller](const Context& ctx) { controller->step(ctx); }});
    }
  }
  return out;
}

bool Manager::leadership_lost() const { return impl_->led && !impl_->elector->leading(); }

}  // namespace varda::runtime
