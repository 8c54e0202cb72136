#include "dataset_user.h"

#include <algorithm>

namespace varda::sim {

using codec::Json;

namespace {

constexpr std::string_view kRow = "1,2\n";

}  // namespace

std::string DatasetUser::draw_node() {
  return world_.rng().below(12) == 0 ? "nowhere" : world_.edge_machine().name();
}

void DatasetUser::change_file(Machine& machine) {
  SeededRng& rng = world_.rng();
  const auto facts = machine.datasets().facts(file());
  const std::uint64_t rows = facts.ok() ? facts->size_bytes / kRow.size() : 0;
  if (rows > 0 && rng.below(8) == 0) {
    world_.scheduler().note("user removes rows", machine.name());
    machine.datasets().truncate(file(), rng.below(rows) * kRow.size());
  } else if (facts.ok() && rng.below(8) == 0) {
    world_.scheduler().note("user removes file", machine.name());
    machine.datasets().remove(file());
  } else {
    world_.scheduler().note("user appends rows", machine.name());
    for (std::uint64_t more = 1 + rng.below(5); more > 0; --more)
      machine.datasets().append(file(), kRow);
  }
  machine.dataset_changed(file());
}

void DatasetUser::act() {
  SeededRng& rng = world_.rng();
  if (!dataset_.exists()) {
    if (rng.below(4) > 0) change_file(world_.edge_machine());
    return dataset_.create(Json::object(
        {{"dataUrl", file()}, {"format", "csv"}, {"header", "no"}, {"nodeName", draw_node()}}));
  }
  switch (rng.below(8)) {
    case 0:
      return dataset_.patch(Json::object({{"nodeName", draw_node()}}));
    case 1:
      return dataset_.remove();
    default:
      change_file(world_.edge_machine());
  }
}

std::optional<std::string> DatasetUser::settled() {
  const std::string what = dataset_.what();
  const auto reply = dataset_.get();
  if (auto wrong = dataset_.presence(reply)) return wrong;
  if (!dataset_.exists()) return {};
  const std::string ready = condition(reply.body, "Ready");
  const auto& machines = world_.machines();
  const std::string& node = dataset_.spec()["nodeName"].as_string();
  const auto home = std::find_if(machines.begin(), machines.end(),
                                 [&](const auto& machine) { return machine->name() == node; });
  if (home == machines.end()) {
    return ready == "False NodeUnknown"
               ? std::nullopt
               : std::optional(what + "Ready is " + ready + " and not False NodeUnknown");
  }
  const auto facts = (*home)->datasets().facts(file());
  const std::string wanted = facts.ok() ? "True Counted" : "False PathNotFound";
  if (ready != wanted) return what + "Ready is " + ready + " and not " + wanted;
  if (!facts.ok()) return {};
  const auto rows = static_cast<std::int64_t>(facts->size_bytes / kRow.size());
  const std::int64_t counted = reply.body.at("status/numberOfSamples").as_integer(-1);
  if (counted != rows)
    return what + std::to_string(counted) + " samples are counted of " + std::to_string(rows);
  return {};
}

void DatasetUser::add_work(const Machine& machine, WorkKeys& keys) const {
  if (dataset_.exists() && dataset_.spec()["nodeName"].as_string() == machine.name())
    keys.datasets.insert("datasets.edgeai.io/default/" + dataset_.name());
}

}  // namespace varda::sim
