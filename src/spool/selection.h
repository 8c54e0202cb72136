// Selection: which samples stay when the spool is full. Pure; randomness comes in.
//
// Two ways:
//  * reservoir: every sample so far is kept with the same probability. Algorithm R of J. S. Vitter,
//    "Random Sampling with a Reservoir", ACM TOMS 11 (1985).
//  * class-balanced: the groups get equal shares as far as they have samples, and within a group
//    every sample is kept with the same probability. Algorithm 1 of A. Chrysakis and M.-F. Moens,
//    "Online Continual Learning from Imbalanced Data", ICML 2020.
//
// A group is the class that the model predicted; the control samples are one more group.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/rng.h"
#include "codec/json.h"

namespace varda::spool {

enum class Replacement : std::uint8_t { kReservoir, kClassBalanced };

struct Bounds {
  std::uint64_t bytes_max = std::uint64_t{64} << 20;
  std::uint64_t count_max = 1000;
  Replacement replacement = Replacement::kClassBalanced;
  friend bool operator==(const Bounds&, const Bounds&) = default;
};

/// Not thread-safe.
class Selection {
 public:
  static constexpr std::size_t kGroupsMax = 1024;  // further groups share one

  explicit Selection(Bounds bounds) : bounds_(bounds) {}

  /// The ids to remove for a new sample. Empty: the sample is not kept. The caller then calls
  /// remove() for each, and add() for the sample.
  std::optional<std::vector<std::string>> offer(std::string_view group, std::uint64_t bytes,
                                                Rng& rng);
  void add(const std::string& id, std::string_view group, std::uint64_t bytes);
  /// Unknown ids are ignored: another process may have removed the sample.
  void remove(const std::string& id);
  void set_bounds(Bounds bounds) { bounds_ = bounds; }
  /// Ids to remove until the bounds hold, after smaller bounds or a restart.
  std::vector<std::string> surplus(Rng& rng) const;

  bool contains(const std::string& id) const { return samples_.contains(id); }
  std::vector<std::string> ids() const;
  std::uint64_t count() const { return samples_.size(); }
  std::uint64_t bytes() const { return bytes_; }

  /// The number of offers of each group, for a restart.
  codec::Json state() const;
  void restore(const codec::Json& state);

 private:
  struct Sample {
    std::string group;
    std::uint64_t bytes = 0;
  };
  struct Group {
    std::vector<std::string> ids;
    std::uint64_t offered = 0;
    bool full = false;  // it has been the largest once
  };
  Group& group(std::string_view name, std::string& known_as);
  const Group* largest() const;

  Bounds bounds_;
  std::map<std::string, Sample> samples_;
  std::map<std::string, Group, std::less<>> groups_;
  std::uint64_t bytes_ = 0;
};

}  // namespace varda::spool
