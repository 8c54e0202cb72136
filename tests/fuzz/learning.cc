// Incremental learning, by the first byte. c: a worker's comparison, which the gate judges. s: the
// settings in a spec. Otherwise: a saved state, with a worker's report on the second line.
//
// An accepted text reads back as written, and a state that parse_state() accepts survives events.
#include <string>

#include "base/check.h"
#include "codec/json.h"
#include "incremental/round_machine.h"
#include "input.h"

namespace {

using namespace varda;  // NOLINT: a program of one file
namespace il = incremental;

void comparison(std::string_view text) {
  const auto parsed = il::parse_comparison_text(text);
  if (!parsed.ok()) return;
  CHECK(il::parse_comparison_text(codec::write_json(to_json(*parsed))).value() == *parsed);
  const il::Condition delta{
      .metric = "accuracy_delta", .op = il::Operator::kGreater, .threshold = 0};
  il::Gate gate;
  gate.resamples = 100;
  for (const char* metric : {"accuracy", "mae"}) {
    gate.metric = metric;
    const il::GateVerdict verdict = judge(gate, {delta}, *parsed);
    CHECK(verdict.passed == (verdict.reason == "GatePassed"));
    CHECK(verdict.checks.size() <= il::GateVerdict::kChecksMax);
    CHECK(!verdict.probability || (*verdict.probability >= 0 && *verdict.probability <= 1));
    CHECK(il::verdict_of(codec::parse_json(codec::write_json(to_json(verdict))).value()) ==
          verdict);
  }
}

void settings(std::string_view text) {
  const auto json = codec::parse_json(text);
  if (!json.ok()) return;
  const auto parsed = il::parse_settings(*json);
  if (!parsed.ok()) return;
  CHECK(il::parse_settings(to_json(*parsed)).value() == *parsed);
  check(parsed->trigger.rule, {.now = WallTime{}, .samples = 3});
}

void state(fuzz::Input& input) {
  const auto json = codec::parse_json(input.line());
  if (!json.ok()) return;
  auto state = il::parse_state(*json);
  if (!state.ok()) return;
  CHECK(il::parse_state(to_json(*state)).value() == *state);
  il::Settings settings;
  settings.trigger.rule.hard_share = 0.5;
  settings.trial = il::Trial{};
  il::Observation seen;
  seen.now = WallTime(std::chrono::hours(24 * 365 * 50));
  seen.initial_version = "1";
  seen.samples = 10;
  seen.nodes = {il::NodeReport{
      .name = "a", .serving = "1", .counters = {.answers = 9, .scores = {1, 2}}, .crashes = 1}};
  const auto comparison = codec::parse_json(input.rest());
  for (int i = 0; i < 6; ++i) {
    seen.now += std::chrono::minutes(i);
    il::WorkerReport report{.stage = state->stage,
                            .round = state->round,
                            .attempt = state->attempt,
                            .phase = il::Phase::kCompleted};
    if (comparison.ok()) report.comparison = *comparison;
    seen.workers = {report};
    const il::Wanted wanted = wanted_of(settings, *state);
    seen.nodes[0].serving = wanted.version_for("a");
    if (wanted.trial)
      seen.nodes[0].trial =
          il::TrialReport{.version = wanted.trial->version, .counters = {.answers = 500}};
    il::Advance next = advance(settings, *state, seen);
    CHECK(il::parse_state(to_json(next.state)).value() == next.state);
    CHECK(next.state.rounds.size() <= il::State::kRoundsKept + state->rounds.size());
    *state = std::move(next.state);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  switch (input.byte()) {
    case 'c':
      comparison(input.rest());
      break;
    case 's':
      settings(input.rest());
      break;
    default:
      state(input);
  }
  return 0;
}
