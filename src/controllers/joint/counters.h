// Growing sums of counters that come and go with pods, agents and nodes. Pure.
//
// A node reports its counts within an epoch. The service's status keeps the highest report of each
// node and epoch (JointCounters), and shows the sum of all. A restarted operator continues from the
// status. Records of old epochs stay separate for a while, since a node may return to one. After
// that they are folded into one nameless record. Folded counts that are reported again count twice.
// A silent node's records therefore stay as they are while there is room.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "api/sedna/joint_inference_service.h"
#include "codec/json.h"

namespace varda::controllers::joint {

/// The counts of one source on a node: our server, or a worker.
struct Count {
  /// Meaning of a count that is smaller than before.
  enum class Back {
    kOldReport,  // an older record was restored: the earlier count holds
    kNewStart,   // the source restarted at zero: add both (users' workers count since their start)
  };
  std::string node;
  std::string epoch;     // of the record; sources side by side on a node differ in it
  codec::Json counters;  // integers at any depth; other values are ignored
  Back back = Back::kOldReport;
};

/// The sources that count now.
struct Counting {
  std::size_t side_by_side = 1;  // sources on one node, each with its own epoch
  std::set<std::string> nodes;   // present nodes
};

/// Adds the present reports to `records`, the latest ones last. The sum never shrinks. No count is
/// added twice if a silent source returns before its record is folded. A reporting node keeps the
/// old epochs that it reported last: kOldEpochsMax, or twice `side_by_side`. All nodes together
/// keep kRecordsMax records; those of absent nodes are folded first.
std::vector<api::JointCounters> gather(std::vector<api::JointCounters> records,
                                       const std::vector<Count>& counts,
                                       const Counting& sources = {});

/// The sum of all, member by member.
codec::Json total(const std::vector<api::JointCounters>& counters);

inline constexpr std::size_t kOldEpochsMax = 4;  // epochs of a node that are not reported now
inline constexpr std::size_t kRecordsMax =
    640;  // one for each of a worker's 500 nodes, and some former
static_assert(kRecordsMax <= api::JointInferenceServiceStatus::kCountersMax);

}  // namespace varda::controllers::joint
