// Settings of federated training, and the saved state of rounds with events after it.
//
// The first byte chooses. A state that restore() accepts survives any events, and reads back as
// written.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "codec/digest.h"
#include "codec/json.h"
#include "federated/round_machine.h"
#include "federated/settings.h"
#include "input.h"

namespace {

using namespace varda;
using federated::RoundMachine;

void settings(std::string_view text) {
  const auto json = codec::parse_json(text);
  if (!json.ok()) return;
  if (const auto train = federated::parse_train_settings(*json); train.ok()) {
    const auto again = federated::parse_train_settings(federated::to_json(*train));
    if (!again.ok() || !(federated::to_json(*again) == federated::to_json(*train))) std::abort();
  }
  const auto parsed = federated::parse_settings(*json);
  if (!parsed.ok()) return;
  const auto again = federated::parse_settings(federated::to_json(*parsed));
  if (!again.ok() || !(federated::to_json(*again) == federated::to_json(*parsed))) std::abort();
}

void state(fuzz::Input input) {
  federated::Settings some;
  const std::uint8_t choice = input.byte();
  some.mode = (choice & 1) != 0 ? federated::Mode::kAsync : federated::Mode::kSync;
  some.late = (choice & 2) != 0 ? federated::Late::kFold : federated::Late::kDrop;
  some.evaluation.every = choice >> 2 & 1;
  some.rounds = 3;
  const std::string model = codec::Sha256::of("model").hex();
  SteadyTime now{std::chrono::hours(1)};
  const std::string events(input.line());
  const auto json = codec::parse_json(input.rest(), {.nodes_max = 10'000});
  if (!json.ok()) return;
  auto restored = RoundMachine::restore({.settings = some, .job = "j", .model = model}, *json, {}, now);
  if (!restored.ok()) return;
  RoundMachine& machine = *restored;
  for (const char event : events.substr(0, 200)) {
    const std::string client(1, static_cast<char>('a' + (event & 3)));
    const auto task = machine.task_for(client);
    const std::string id = task ? task->id : "";
    switch (event >> 2 & 7) {
      case 0:
        machine.joined(client, now);
        break;
      case 1:
        machine.left(client, now);
        break;
      case 2:
        machine.refused(client, id, "why", now);
        break;
      case 3:
        machine.evaluated(client, id, 1, {{"loss", 1}}, now);
        break;
      case 4:
        machine.aggregated(codec::Sha256::of(id + client).hex(), {{client, "norm"}}, now);
        break;
      case 5:
        now += std::chrono::minutes(7);
        machine.time_passed(now);
        break;
      case 6:
        machine.too_few(now);
        break;
      default:
        machine.accepted({.client = client,
                          .digest = codec::Sha256::of(client).hex(),
                          .trained_on = task ? task->round : 1,
                          .samples = 1},
                         machine.accepting_round(), now);
    }
    (void)machine.due();
    (void)machine.clients();
  }
  const std::string written = codec::write_json(machine.to_json(now));
  const auto again = RoundMachine::restore({.settings = some, .job = "j", .model = model},
                                           codec::parse_json(written).value(), {}, now);
  if (!again.ok() || codec::write_json(again->to_json(now)) != written) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  if (input.byte() == 's')
    settings(input.rest());
  else
    state(input);
  return 0;
}
