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
      Json& existing = into[name];
      if (!existing.is_object()) existing = Json::object();
      merge(existing, value, join, members_max, depth + 1);
    } else if (value.is_integer() && value.as_integer() >= 0) {
      const Json& existing = std::as_const(into)[name];
      into.set(name, existing.is_integer() ? join(existing.as_integer(), value.as_integer())
                                           : value.as_integer());
    }
  }
}

// True: some count of `now` is smaller than before.
bool has_decreased(const Json& before, const Json& now) {
  const auto& members = before.as_object();
  return std::any_of(members.begin(), members.end(), [&](const auto& member) {
    const Json& value = now[member.first];
    if (member.second.is_object()) return value.is_object() && has_decreased(member.second, value);
    return member.second.is_integer() && value.is_integer() &&
           value.as_integer() < member.second.as_integer();
  });
}

// The nameless record, which is the first.
JointCounters& past(std::vector<JointCounters>& records) {
  if (records.empty() || !records.front().node.empty()) {
    JointCounters none;
    none.counters = Json::object();
    records.insert(records.begin(), std::move(none));
  }
  return records.front();
}

void add_to_past(std::vector<JointCounters>& records, const Json& counters) {
  merge(past(records).counters, counters, counter_sum, kMembersMax);
}

}  // namespace

std::vector<JointCounters> gather(std::vector<JointCounters> records,
                                  const std::vector<Count>& counts, const Counting& sources) {
  std::set<std::pair<std::string, std::string>> current;
  std::set<std::string> reporting;
  for (const Count& count : counts) {
    if (count.node.empty() || count.counters.empty()) continue;
    current.emplace(count.node, count.epoch);
    reporting.insert(count.node);
  }
  const auto is_reported = [&](const JointCounters& record) {
    return current.contains({record.node, record.epoch});
  };
  // Folds the least needed record into the nameless one. False: all others are reported now.
  const auto make_room = [&] {
    const auto unreported = [&](const JointCounters& record) {
      return !record.node.empty() && !is_reported(record);
    };
    auto found = std::find_if(records.begin(), records.end(), [&](const JointCounters& record) {
      return unreported(record) && !sources.nodes.contains(record.node);
    });
    if (found == records.end()) found = std::find_if(records.begin(), records.end(), unreported);
    if (found == records.end()) return false;
    const JointCounters folded = std::move(*found);
    records.erase(found);
    add_to_past(records, folded.counters);
    return true;
  };
  for (const Count& count : counts) {
    if (count.node.empty() || count.counters.empty()) continue;
    const auto found = std::find_if(records.begin(), records.end(), [&](const JointCounters& one) {
      return one.node == count.node && one.epoch == count.epoch;
    });
    if (found == records.end()) {
      // A source without room is not counted: without a record its next report would count again.
      bool room = true;
      while (room && records.size() >= kRecordsMax - 1) room = make_room();
      if (!room) continue;
      JointCounters record;
      record.node = count.node;
      record.epoch = count.epoch;
      record.counters = Json::object();
      merge(record.counters, count.counters, counter_sum);
      records.push_back(std::move(record));
    } else if (count.back == Count::Back::kNewStart &&
               has_decreased(found->counters, count.counters)) {
      const Json before = std::exchange(found->counters, Json::object());
      merge(found->counters, count.counters, counter_sum);
      add_to_past(records, before);
    } else {
      merge(found->counters, count.counters, greater);
    }
  }
  while (records.size() > kRecordsMax && make_room()) {
  }
  std::stable_partition(records.begin(), records.end(),
                        [&](const JointCounters& record) { return !is_reported(record); });
  // Old epochs are unknown for a silent node, so only reporting nodes are trimmed.
  const std::size_t most = std::max(kOldEpochsMax, 2 * sources.side_by_side);
  std::map<std::string, std::size_t> old;
  std::vector<JointCounters> dropped;
  for (auto record = records.rbegin(); record != records.rend(); ++record) {
    if (!reporting.contains(record->node) || is_reported(*record)) continue;
    if (++old[record->node] > most) dropped.push_back(*record);
  }
  for (const JointCounters& record : dropped) {
    std::erase(records, record);
    add_to_past(records, record.counters);
  }
  return records;
}

Json total(const std::vector<JointCounters>& counters) {
  Json out = Json::object();
  for (const JointCounters& record : counters) merge(out, record.counters, counter_sum);
  return out;
}

}  // namespace varda::controllers::joint
