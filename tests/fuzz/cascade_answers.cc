// Model servers' tier counters, one answer per line, summed by the agent. A line may also be a
// record from the disk or from the cluster.
#include <string>

#include "agent/cascade_record.h"
#include "base/check.h"
#include "input.h"

using namespace varda;  // NOLINT: a program of one file
using codec::Json;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  agent::CascadeRecord record("epoch", "");
  while (!input.rest().empty()) {
    const auto line = codec::parse_json(std::string(input.line()), {.depth_max = 16});
    if (!line.ok()) continue;
    if (auto kept = agent::CascadeRecord::from_json(*line)) {
      record = std::move(*kept);
      record.meet(*line, "another");
      continue;
    }
    auto answer = agent::read_cascade(*line);
    if (!answer.ok()) continue;
    CHECK(!answer->instance.empty() &&
          answer->counters.size() <= agent::CascadeAnswer::kCountersMax);
    CHECK(agent::urgent(agent::noteworthy(answer->rest)) == agent::urgent(answer->rest));
    const agent::Counts before = record.sums(), said = answer->counters;
    const bool begins = !record.to_json()["skip"].is_null();
    record.take(std::move(*answer));
    const agent::Counts after = record.sums();
    for (const auto& [place, count] : before)
      CHECK(begins || after.at(place) >= count);  // sums never shrink
    // The record reads back equal, and is not behind itself.
    const auto again = agent::CascadeRecord::from_json(
        codec::parse_json(codec::write_json(record.to_json())).value());
    CHECK(again.has_value() && again->sums() == after &&
          again->report(after) == record.report(after));
    Json report = record.report(after);
    const Json as_told = report;
    agent::keep_ahead(report, as_told);
    CHECK(report == as_told);
  }
  return 0;
}
