#include "spool/selection.h"

#include <algorithm>

namespace varda::spool {
namespace {

using codec::Json;

constexpr std::string_view kRest = "\n";  // no class has this name

}  // namespace

Selection::Group& Selection::group(std::string_view name, std::string& known_as) {
  if (groups_.size() >= kGroupsMax && groups_.find(name) == groups_.end()) name = kRest;
  known_as = name;
  return groups_[known_as];
}

const Selection::Group* Selection::largest() const {
  const Group* out = nullptr;
  for (const auto& [name, one] : groups_)
    if (out == nullptr || one.ids.size() > out->ids.size()) out = &one;
  return out != nullptr && !out->ids.empty() ? out : nullptr;
}

std::optional<std::vector<std::string>> Selection::offer(std::string_view name, std::uint64_t bytes,
                                                         Rng& rng) {
  std::string known_as;
  Group& own = group(name, known_as);
  ++own.offered;
  if (bounds_.count_max == 0 || bytes > bounds_.bytes_max) return std::nullopt;
  std::vector<std::string> out;
  const bool filled = count() >= bounds_.count_max || bytes_ + bytes > bounds_.bytes_max;
  if (!filled) return out;
  const auto any_of = [&](const std::vector<std::string>& ids) {
    return ids[rng.below(ids.size())];
  };
  if (bounds_.replacement == Replacement::kReservoir) {
    std::uint64_t offered = 0;
    for (const auto& [other, one] : groups_) offered += one.offered;
    if (rng.below(std::max(offered, std::uint64_t{1})) >= count()) return std::nullopt;
  } else {
    const Group* most = largest();
    for (auto& [other, one] : groups_)
      if (most != nullptr && one.ids.size() == most->ids.size()) one.full = true;
    if (own.ids.empty()) own.full = false;  // all were labelled
    if (own.full) {
      if (rng.below(own.offered) >= own.ids.size()) return std::nullopt;
      out.push_back(any_of(own.ids));
    } else {
      out.push_back(any_of(most->ids));
    }
  }
  // More than one has to leave for a large sample.
  std::uint64_t freed = 0;
  std::set<std::string> leaving(out.begin(), out.end());
  for (const std::string& id : out) freed += samples_.at(id).bytes;
  const auto fits = [&] {
    return count() - leaving.size() < bounds_.count_max &&
           bytes_ - freed + bytes <= bounds_.bytes_max;
  };
  std::vector<std::string> rest;
  if (!fits()) {
    for (const auto& [id, one] : samples_)
      if (!leaving.contains(id)) rest.push_back(id);
  }
  while (!fits() && !rest.empty()) {
    std::swap(rest[rng.below(rest.size())], rest.back());
    freed += samples_.at(rest.back()).bytes;
    leaving.insert(rest.back());
    out.push_back(std::move(rest.back()));
    rest.pop_back();
  }
  return out;
}

void Selection::add(const std::string& id, std::string_view name, std::uint64_t bytes) {
  if (samples_.contains(id)) return;
  std::string known_as;
  group(name, known_as).ids.push_back(id);
  samples_[id] = {std::move(known_as), bytes};
  bytes_ += bytes;
}

void Selection::remove(const std::string& id) {
  const auto found = samples_.find(id);
  if (found == samples_.end()) return;
  bytes_ -= found->second.bytes;
  std::vector<std::string>& ids = groups_[found->second.group].ids;
  const auto at = std::find(ids.begin(), ids.end(), id);
  std::swap(*at, ids.back());
  ids.pop_back();
  samples_.erase(found);
}

std::vector<std::string> Selection::surplus(Rng& rng) const {
  std::vector<std::string> rest = ids(), out;
  std::uint64_t bytes = bytes_;
  while (!rest.empty() && (rest.size() > bounds_.count_max || bytes > bounds_.bytes_max)) {
    std::swap(rest[rng.below(rest.size())], rest.back());
    bytes -= samples_.at(rest.back()).bytes;
    out.push_back(std::move(rest.back()));
    rest.pop_back();
  }
  return out;
}

std::vector<std::string> Selection::ids() const {
  std::vector<std::string> out;
  out.reserve(samples_.size());
  for (const auto& [id, one] : samples_) out.push_back(id);
  return out;
}

Json Selection::state() const {
  Json groups = Json::array();
  for (const auto& [name, one] : groups_)
    groups.push_back(Json::object({{"name", name}, {"offered", one.offered}, {"full", one.full}}));
  return Json::object({{"version", 1}, {"groups", std::move(groups)}});
}

void Selection::restore(const Json& state) {
  for (const Json& one : state["groups"].as_array()) {
    if (!one["name"].is_string()) continue;
    std::string known_as;
    Group& own = group(one["name"].as_string(), known_as);
    own.offered = std::max<std::uint64_t>(
        own.offered,
        static_cast<std::uint64_t>(std::max<std::int64_t>(0, one["offered"].as_integer())));
    own.full = own.full || one["full"].as_bool();
  }
  // A file of an earlier time may know fewer offers than there are samples.
  for (auto& [name, one] : groups_)
    one.offered = std::max<std::uint64_t>(one.offered, one.ids.size());
}

}  // namespace varda::spool
