#include "controllers/joint/counters.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <utility>

namespace varda::controllers::joint {

namespace {

using api::JointCounters;
using codec::Json;

constexpr int kDepthMax = 8;
constexpr std::size_t kMembersMax = 64;  // of an object in the nameless record

using Join = std::int64_t (*)(std::int64_t, std::int64_t);

std::int64_t counter_sum(std::int64_t a, std::int64_t b) {
  constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
  return a > kMax - b ? kMax : a + b;
}
std::int64_t greater(std::int64_t a, std::int64_t b) { return std::max(a, b); }

// Merges counts of `from`; `join` combines counts in both. Other values are ignored, and so are new
// names beyond `members_max`.
void merge(Json& into, const Json& from, Join join, std::size_t members_max = SIZE_MAX,
           int depth = 0) {
  for (const auto& [name, value] : from.as_object()) {
    if (into.size() >= members_max && !into.contains(name)) continue;
    if (value.is_object()) {
      if (depth + 1 == kDepthMax) continue;
      Json& there = into[name];
      if (!there.is_object()) there = Json::object();
      merge(there, value, join, members_max, depth + 1);
    } else if (value.is_integer() && value.as_integer() >= 0) {
      const Json& there = std::as_const(into)[name];
      into.set(name, there.is_integer() ? join(there.as_integer(), value.as_integer())
                                        : value.as_integer());
    }
  }
}

// True: some count of `now` is smaller than before.
bool went_back(const Json& before, const Json& now) {
  const auto& members = before.as_object();
  return std::any_of(members.begin(), members.end(), [&](const auto& member) {
    const Json& value = now[member.first];
    if (member.second.is_object()) return value.is_object() && went_back(member.second, value);
    return member.second.is_integer() && value.is_integer() &&
           value.as_integer() < member.second.as_integer();
  });
}

// The nameless record, which is the first.
JointCounters& past(std::vector<JointCounters>& kept) {
  if (kept.empty() || !kept.front().node.empty()) {
    JointCounters none;
    none.counters = Json::object();
    kept.insert(kept.begin(), std::move(none));
  }
  return kept.front();
}

void add_to_past(std::vector<JointCounters>& kept, const Json& counters) {
  merge(past(kept).counters, counters, counter_sum, kMembersMax);
}

}  // namespace

std::vector<JointCounters> gather(std::vector<JointCounters> kept, const std::vector<Count>& counts,
                                  const Counting& who) {
  std::set<std::pair<std::string, std::string>> current;
  std::set<std::string> speaking;
  for (const Count& count : counts) {
    if (count.node.empty() || count.counters.empty()) continue;
    current.emplace(count.node, count.epoch);
    speaking.insert(count.node);
  }
  const auto is_reported = [&](const JointCounters& record) {
    return current.contains({record.node, record.epoch});
  };
  // Folds the least needed record into the nameless one. False: all others are reported now.
  const auto make_room = [&] {
    const auto silent = [&](const JointCounters& record) {
      return !record.node.empty() && !is_reported(record);
    };
    auto found = std::find_if(kept.begin(), kept.end(), [&](const JointCounters& record) {
      return silent(record) && !who.nodes.contains(record.node);
    });
    if (found == kept.end()) found = std::find_if(kept.begin(), kept.end(), silent);
    if (found == kept.end()) return false;
    const JointCounters folded = std::move(*found);
    kept.erase(found);
    add_to_past(kept, folded.counters);
    return true;
  };
  for (const Count& count : counts) {
    if (count.node.empty() || count.counters.empty()) continue;
    const auto found = std::find_if(kept.begin(), kept.end(), [&](const JointCounters& one) {
      return one.node == count.node && one.epoch == count.epoch;
    });
    if (found == kept.end()) {
      // A source without room is not counted: without a record its next report would count again.
      bool room = true;
      while (room && kept.size() >= kRecordsMax - 1) room = make_room();
      if (!room) continue;
      JointCounters record;
      record.node = count.node;
      record.epoch = count.epoch;
      record.counters = Json::object();
      merge(record.counters, count.counters, counter_sum);
      kept.push_back(std::move(record));
    } else if (count.back == Count::Back::kNewStart && went_back(found->counters, count.counters)) {
      const Json before = std::exchange(found->counters, Json::object());
      merge(found->counters, count.counters, counter_sum);
      add_to_past(kept, before);
    } else {
      merge(found->counters, count.counters, greater);
    }
  }
  while (kept.size() > kRecordsMax && make_room()) {
  }
  std::stable_partition(kept.begin(), kept.end(),
                        [&](const JointCounters& record) { return !is_reported(record); });
  // Old epochs are unknown for a silent node, so only reporting nodes are trimmed.
  const std::size_t most = std::max(kOldEpochsMax, 2 * who.side_by_side);
  std::map<std::string, std::size_t> old;
  std::vector<JointCounters> dropped;
  for (auto record = kept.rbegin(); record != kept.rend(); ++record) {
    if (!speaking.contains(record->node) || is_reported(*record)) continue;
    if (++old[record->node] > most) dropped.push_back(*record);
  }
  for (const JointCounters& record : dropped) {
    std::erase(kept, record);
    add_to_past(kept, record.counters);
  }
  return kept;
}

Json total(const std::vector<JointCounters>& counters) {
  Json out = Json::object();
  for (const JointCounters& record : counters) merge(out, record.counters, counter_sum);
  return out;
}

}  // namespace varda::controllers::joint
