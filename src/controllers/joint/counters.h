// Sums that only grow, of counters that come and go with pods, agents and nodes. Pure.
//
// A node tells what it has counted within an epoch; the service's status keeps, for each node and epoch, the most that was told
// (JointCounters), and its numbers are the sum of all. An operator that starts anew goes on from there. What is of old epochs is
// kept apart for a while, since a node may come back to one, and is added up into one record without a name after that: what is
// told once more then is counted once more. A silent node's records therefore stay as they are while there is room.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "api/sedna/joint_inference_service.h"
#include "codec/json.h"

namespace varda::controllers {

/// What somebody on a node has counted so far.
struct Count {
  /// What a smaller number than before means.
  enum class Back {
    kOldWord,   // the record was restored from an earlier one: what it said before holds
    kNewStart,  // whoever counts began anew, and what it said before comes on top (workers of users, who count since their start)
  };
  std::string node;
  std::string epoch;     // of the record; several of one node that count side by side have several
  codec::Json counters;  // integers at any depth; anything else in it is left out
  Back back = Back::kOldWord;
};

/// Who counts.
struct Counting {
  std::size_t side_by_side = 1;  // so many on one node, each with an epoch of its own
  std::set<std::string> nodes;   // those that are there
};

/// `kept` with what is told now. Nothing that was counted is lost, and nothing is counted twice as long as who is silent comes back
/// before its record has made room: on a node that tells something for the old epochs of it that were told last (kOldEpochsMax, or
/// twice as many as count there), and among all nodes for kRecordsMax; those of nodes that are gone make room first.
/// What is told last stands last.
std::vector<api::JointCounters> gather(std::vector<api::JointCounters> kept, const std::vector<Count>& told,
                                       const Counting& who = {});

/// The sum of all, member by member.
codec::Json total(const std::vector<api::JointCounters>& counters);

inline constexpr std::size_t kOldEpochsMax = 4;  // of a node, that nobody tells of
inline constexpr std::size_t kRecordsMax = 640;  // a node each for as many as a worker is on at once, and some of those before them
static_assert(kRecordsMax <= api::JointInferenceServiceStatus::kCountersMax);

}  // namespace varda::controllers
