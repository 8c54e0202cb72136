// The ledger of an incremental job, an assignment, and the state of a streaming last layer.
//
// The first byte chooses. For a ledger the target adds the digest, because the fuzzer would never
// find one. What is read and written again reads back the same, and a selection keeps its promises.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/check.h"
#include "codec/digest.h"
#include "codec/json.h"
#include "input.h"
#include "train/slda.h"
#include "training/incremental_task.h"
#include "training/selection.h"

namespace {

using namespace varda;  // NOLINT: a program of one file

void check_ledger(std::string_view text) {
  auto json = codec::parse_json(text);
  if (!json.ok() || !json->is_array()) return;
  const std::string rounds = codec::write_json(*json);
  const std::string bytes = R"({"version":1,"sha256":")" + codec::Sha256::of(rounds).hex() +
                            R"(","rounds":)" + rounds + "}";
  const auto first = training::Ledger::decode(bytes);
  if (!first.ok()) {
    CHECK(first.error().code() == Code::kCorrupt);
    return;
  }
  CHECK(first->samples() <= training::Ledger::kSamplesMax);
  for (const training::LedgerRound& one : first->rounds) {
    CHECK(one.round >= 1 && std::ranges::is_sorted(one.train));
    CHECK(std::ranges::is_sorted(one.evaluate));
  }
  const auto second = training::Ledger::decode(first->encode());
  CHECK(second.ok() && second->rounds == first->rounds);
}

void check_assignment(std::string_view text) {
  const auto json = codec::parse_json(text);
  if (!json.ok()) return;
  const auto task = training::parse_incremental_task(*json);
  if (!task.ok()) {
    CHECK(!task.error().message().empty());
    return;
  }
  CHECK(task->round >= 1 && task->attempt >= 1);
  CHECK(task->train_probability > 0 && task->train_probability <= 1);
  CHECK(task->consumed.ranges().size() <= training::RoundSet::kRangesMax);
  const auto again = training::parse_incremental_task(training::to_json(*task));
  CHECK(again.ok() && again->consumed == task->consumed && again->refused == task->refused);
  CHECK(again->round == task->round && again->seed == task->seed);
}

void check_state(std::string_view bytes) {
  auto state = train::StreamingLda::decode(bytes);
  if (!state.ok()) return;
  CHECK(state->encode() == bytes);
  CHECK(state->features() <= train::StreamingLda::kFeaturesMax);
  if (state->features() > 64) return;
  const std::vector<float> sample(state->features(), 0.5f);
  CHECK(state->update(sample, 1).ok());
  (void)state->layer(0.5, std::max<std::size_t>(state->classes(), 2));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  switch (input.byte()) {
    case 'l':
      check_ledger(input.rest());
      break;
    case 's':
      check_state(input.rest());
      break;
    default:
      check_assignment(input.rest());
  }
  return 0;
}
