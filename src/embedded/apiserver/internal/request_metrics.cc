#include "apiserver/internal/request_metrics.h"

#include <algorithm>
#include <string>

namespace varda::apiserver {

namespace {

struct Name {
  std::string_view verb, shown;
};
constexpr std::array<Name, 9> kVerbs = {{{"get", "GET"},
                                         {"list", "LIST"},
                                         {"watch", "WATCH"},
                                         {"create", "CREATE"},
                                         {"update", "UPDATE"},
                                         {"patch", "PATCH"},
                                         {"delete", "DELETE"},
                                         {"deletecollection", "DELETECOLLECTION"},
                                         {"", "OTHER"}}};
constexpr std::size_t kWatch = 2;

}  // namespace

void RequestMetrics::count(std::string_view verb, int status, Duration took) {
  if (registry_ == nullptr) return;
  const auto* known = std::find_if(kVerbs.begin(), kVerbs.end() - 1,
                                   [&](const Name& name) { return name.verb == verb; });
  const auto index = static_cast<std::size_t>(known - kVerbs.begin());
  Verb& metrics = verbs_[index];
  // The first request looks the metric up; concurrent first requests find the same metric.
  std::atomic<metrics::Counter*>& slot =
      metrics.by_status[static_cast<std::size_t>(std::clamp(status, 100, 599) - 100)];
  metrics::Counter* counter = slot.load(std::memory_order_acquire);
  if (counter == nullptr) {
    counter = &registry_->counter(
        "apiserver_request_total", "Requests answered.",
        {{"verb", std::string(known->shown)}, {"code", std::to_string(status)}});
    slot.store(counter, std::memory_order_release);
  }
  counter->add();
  if (index == kWatch) return;
  metrics::Histogram* seconds = metrics.seconds.load(std::memory_order_acquire);
  if (seconds == nullptr) {
    seconds =
        &registry_->histogram("apiserver_request_duration_seconds", "Time to answer.",
                              metrics::latency_buckets(), {{"verb", std::string(known->shown)}});
    metrics.seconds.store(seconds, std::memory_order_release);
  }
  seconds->observe(std::chrono::duration<double>(took).count());
}

}  // namespace varda::apiserver
