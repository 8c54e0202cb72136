#include "trouble.h"

#include <algorithm>

#include "base/check.h"

namespace varda::sim {

using std::chrono::milliseconds;

namespace {

std::uint32_t maybe(SeededRng& rng, std::uint32_t most) {
  return rng.below(3) == 0 ? 1 + static_cast<std::uint32_t>(rng.below(most)) : 0;
}

}  // namespace

void Trouble::draw_network() {
  SeededRng& rng = world_.rng();
  FaultRates rates;
  rates.refuse = maybe(rng, 150);
  rates.lose_answer = maybe(rng, 150);
  rates.repeat = maybe(rng, 200);
  rates.server_error = maybe(rng, 150);
  rates.delay = maybe(rng, 300);
  rates.watch_break = maybe(rng, 100);
  rates.watch_end = maybe(rng, 100);
  rates.hold = maybe(rng, 300);
  world_.network().set_rates(rates);
  world_.origin().failures = maybe(rng, 300);
}

void Trouble::draw_rates() {
  SeededRng& rng = world_.rng();
  const auto rate = [this](Hazard hazard) -> std::uint32_t& {
    return rates_[static_cast<std::size_t>(hazard)];
  };
  rate(Hazard::kOperatorRestart) = maybe(rng, 10);
  rate(Hazard::kAgentDies) = maybe(rng, 15);
  rate(Hazard::kReboot) = maybe(rng, 8);
  rate(Hazard::kLink) = maybe(rng, 15);
  rate(Hazard::kCrash) = maybe(rng, 15);
  rate(Hazard::kServerDies) = rng.below(64) == 0 ? 5 : 0;  // expensive: it reloads all kinds
  rate(Hazard::kCompaction) = maybe(rng, 20);
  rate(Hazard::kJump) = maybe(rng, 10);
  if (rng.below(6) == 0) rate(Hazard::kEdgeNodeDeleted) = rate(Hazard::kNodeDeleted) = 3;
}

void Trouble::draw_moments(std::uint64_t steps) {
  SeededRng& rng = world_.rng();
  for (std::uint64_t left = rng.below(4); left > 0; --left) {
    const auto hazard = static_cast<Hazard>(rng.below(kHazards));
    if (hazard == Hazard::kServerDies && rng.below(16) > 0) continue;  // expensive, as above
    moments_.emplace_back(rng.below(steps), hazard);
  }
}

void Trouble::before_step(std::uint64_t step) {
  come_back();
  for (std::size_t i = 0; i < kHazards; ++i)
    if (world_.rng().chance(rates_[i])) happen(static_cast<Hazard>(i));
  while (true) {
    const auto due = std::find_if(moments_.begin(), moments_.end(),
                                  [&](const auto& moment) { return moment.first <= step; });
    if (due == moments_.end()) break;
    const Hazard hazard = due->second;
    moments_.erase(due);
    happen(hazard);
  }
}

// Stopped agents and cut links come back by themselves, sooner or later.
void Trouble::come_back() {
  for (const auto& machine : world_.machines()) {
    if (!machine->agent_running() && world_.rng().chance(20)) {
      world_.scheduler().note("agent starts", machine->name());
      machine->start_agent();
    }
    if (!machine->link_up() && world_.rng().chance(30)) {
      world_.scheduler().note("link comes up", machine->name());
      machine->set_link(true);
    }
  }
}

void Trouble::happen(Hazard hazard) {
  SeededRng& rng = world_.rng();
  Scheduler& scheduler = world_.scheduler();
  VirtualClock& clock = world_.cluster().clock();
  Machine& machine = world_.any_machine();
  switch (hazard) {
    case Hazard::kOperatorRestart: {
      Operator& one = *world_.operators()[rng.below(world_.operators().size())];
      scheduler.note("operator restarts", one.name());
      one.stop();
      one.start();
      return;
    }
    case Hazard::kAgentDies:
    case Hazard::kReboot:
      if (!machine.agent_running()) return;
      scheduler.note(hazard == Hazard::kReboot ? "node reboots" : "agent dies", machine.name());
      machine.stop_agent();
      if (hazard == Hazard::kReboot) machine.lose_containers();
      if (rng.below(2) == 0) machine.start_agent();
      return;
    case Hazard::kLink:
      if (!machine.link_up()) return;
      scheduler.note("link goes down", machine.name());
      machine.set_link(false);
      return;
    case Hazard::kCrash:
      machine.crash_container(rng.next());
      return;
    case Hazard::kServerDies:
      if (!world_.server_down()) world_.server_dies(clock.now() + milliseconds(rng.below(5000)));
      return;
    case Hazard::kCompaction: {
      scheduler.note("history is compacted");
      const store::Revision now = world_.cluster().store().revision();
      CHECK(
          world_.cluster().store().compact(now - static_cast<store::Revision>(rng.below(3))).ok() ||
          now < 3);
      return;
    }
    case Hazard::kJump: {
      const SteadyTime to = clock.now() + milliseconds(rng.below(30'000));
      scheduler.note("time jumps");
      clock.move_to(to);
      return;
    }
    case Hazard::kEdgeNodeDeleted:
      if (world_.server_down()) return;
      scheduler.note("user deletes EdgeNode", machine.name());
      world_.cluster().call("DELETE", "/apis/edgeai.io/v1alpha1/edgenodes/" + machine.name());
      return;
    case Hazard::kNodeDeleted:
      if (world_.server_down()) return;
      scheduler.note("user deletes Node", machine.name());
      world_.checker().node_was_deleted(machine.name());
      world_.cluster().call("DELETE", "/api/v1/nodes/" + machine.name());
      return;
  }
}

}  // namespace varda::sim
