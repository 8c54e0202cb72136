#include "agent/pods/pods.h"

#include <optional>
#include <utility>

#include "api/core/pod.h"

namespace varda::agent::pods {
namespace {

runtime::Informer::Options pod_informer(const Pods::Options& options, const Clock& clock,
                                        Rng& rng) {
  runtime::Informer::Options informer;
  informer.resource = api::Pod::resource();
  informer.filter.field_selector = "spec.nodeName=" + options.facts.name;
  informer.watch_timeout = options.watch_timeout;
  informer.backoff_max = options.backoff_max;
  informer.clock = &clock;
  informer.rng = &rng;
  informer.metrics = options.metrics;
  return informer;
}

}  // namespace

Pods::Pods(Options options, const kube::Client& api, const Clock& clock, Rng& rng)
    : clock_(clock),
      informer_(api, pod_informer(options, clock, rng)),
      events_(
          api,
          {.component = "varda-agent", .host = options.facts.name, .clock = &clock, .rng = &rng}),
      host_(api, informer_, events_, {.backoff_max = options.backoff_max, .clock = &clock}),
      registration_(api, std::move(options.facts), options.node_period, clock) {
  informer_.on_change([this](const runtime::Change&) {
    const MutexLock lock(mutex_);
    changed_ = true;
    wakeup_.notify();
  });
  // If there are no pods, only this marks the end of the first list.
  informer_.on_progress(
      [this](const std::string&, runtime::Informer::Progress) { wakeup_.notify(); });
}

std::vector<runtime::Task> Pods::tasks() {
  std::vector<runtime::Task> out;
  out.push_back(registration_.task());
  out.push_back(runtime::informer_task(informer_, clock_));
  out.push_back(events_.task());
  out.push_back(host_.task());
  out.push_back({.name = "pods",
                 .due = [this] { return feed_due(); },
                 .step = [this](const Context&) { feed(); },
                 .wakeup = &wakeup_});
  return out;
}

std::optional<SteadyTime> Pods::feed_due() const {
  if (!informer_.has_synced()) return std::nullopt;
  const MutexLock lock(mutex_);
  return changed_ || !fed_ ? std::optional(SteadyTime::min()) : std::nullopt;
}

void Pods::feed() {
  {
    const MutexLock lock(mutex_);
    changed_ = false;
    fed_ = true;
  }
  std::vector<codec::Json> pods;
  for (const auto& stored : informer_.list()) pods.push_back(stored->json());
  runner_->set_desired(std::move(pods));
  host_.wake();
}

}  // namespace varda::agent::pods
