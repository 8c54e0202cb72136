// A worker's messages to its agent, one per line: a letter, then the body. Letters: r registration,
// p progress, m metrics, any other a result of that name. Also a worker's record on the disk.
#include <algorithm>
#include <string>

#include "agent/workers/message.h"
#include "agent/workers/state.h"
#include "base/check.h"
#include "codec/text.h"
#include "input.h"

namespace {

using namespace varda;  // NOLINT: a program of one file
using codec::Json;

const agent::workers::Name kWorker{"default", "eval"};

Result<Json> read(char kind, std::string_view body) {
  if (kind == 'r') return agent::workers::read_registration(kWorker, body);
  if (kind == 'p') return agent::workers::read_progress(body);
  if (kind == 'm') return agent::workers::read_metrics(body);
  return agent::workers::read_result(kWorker, body);
}

Result<bool> take(agent::workers::State& state, char kind, const Json& message) {
  if (kind == 'r') return state.set_registered(message, "now");
  if (kind == 'p') return state.set_progress(message, "now");
  if (kind == 'm') return state.set_metrics(message);
  return state.set_result(std::string(1, kind), message, "now");
}

/// The state fits its limits and reads back equal once it is written.
void check(agent::workers::State state, std::size_t room) {
  (void)state.set_written(agent::workers::State(state));
  const Json report = state.report(room);
  CHECK(codec::write_json(report).size() <= std::max<std::size_t>(room, 256));
  const auto again = agent::workers::State::from_json(
      codec::parse_json(codec::write_json(state.to_json())).value());
  CHECK(again.has_value() && again->report(room) == report);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  const std::size_t room = std::size_t{input.byte()} * 64;
  agent::workers::State state("u1");
  state.adopt(Json());
  while (!input.rest().empty()) {
    const std::string line(input.line());
    if (line.empty()) continue;
    const char kind = agent::workers::check_result_name(line.substr(0, 1)).empty() ? line[0] : 'x';
    const std::string body = line.substr(1);
    if (const auto record = codec::parse_json(body); record.ok()) {
      if (auto restored = agent::workers::State::from_json(*record)) (void)restored->report(room);
    }
    const auto message = read(kind, body);
    if (!message.ok()) {
      CHECK(codec::is_utf8(message.error().message()) || !codec::is_utf8(body));
      continue;
    }
    // Members without information may be left out; the result reads back equal.
    if (kind != 'm') CHECK(read(kind, codec::write_json(*message)).value() == *message);
    const Json before = state.to_json();
    const auto updated = take(state, kind, *message);
    if (!updated.ok()) {
      CHECK(state.to_json() == before);
      continue;
    }
    CHECK(!take(state, kind, *message).value());
    const auto number = state.sequence();
    CHECK(state.pass_on(state.report(room)) == (state.sequence() != number));
    CHECK(!state.pass_on(state.report(room)));
    check(state, room);
  }
  return 0;
}
