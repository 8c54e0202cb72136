// Model servers' tier counters, one answer per line, summed by the agent. A line may also be a
// record from the disk or from the cluster.
#include "agent/models/tier_counters.h"

#include <string>

#include "base/check.h"
#include "input.h"

using namespace varda;  // NOLINT: a program of one file
using codec::Json;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  agent::models::TierCounters record("epoch", "");
  while (!input.rest().empty()) {
    const auto line = codec::parse_json(std::string(input.line()), {.depth_max = 16});
    if (!line.ok()) continue;
    if (auto restored = agent::models::TierCounters::from_json(*line)) {
      record = std::move(*restored);
      record.reconcile_with_server(*line, "another");
      continue;
    }
    auto answer = agent::models::read_tier_answer(*line);
    if (!answer.ok()) continue;
    CHECK(!answer->instance.empty() &&
          answer->counters.size() <= agent::models::TierAnswer::kCountersMax);
    CHECK(agent::models::urgent(agent::models::noteworthy(answer->rest)) ==
          agent::models::urgent(answer->rest));
    const agent::models::Counts before = record.sums(), received = answer->counters;
    const bool begins = !record.to_json()["skip"].is_null();
    record.take(std::move(*answer));
    const agent::models::Counts after = record.sums();
    for (const auto& [place, count] : before)
      CHECK(begins || after.at(place) >= count);  // sums never shrink
    // The record reads back equal, and is not behind itself.
    const auto again = agent::models::TierCounters::from_json(
        codec::parse_json(codec::write_json(record.to_json())).value());
    CHECK(again.has_value() && again->sums() == after &&
          again->report(after) == record.report(after));
    Json report = record.report(after);
    const Json as_reported = report;
    agent::models::keep_ahead(report, as_reported);
    CHECK(report == as_reported);
  }
  return 0;
}
