// PairSlots: limits the pairs of a splicer by group, and ends those that have lost their grant.
//
//   auto slot = slots.reserve("edge0", grant);          // null: a limit is reached
//   if (!is_granted_now()) return;                      // after reserve(): no change is missed
//   slot->attach(splicer.splice({…, .on_end = [slot](const auto&) {}}));
//   …
//   slots.keep_only("edge0", grants_of(work_list));     // on each change
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <string>

#include "net/splicer.h"

namespace varda::net {

/// Thread-safe. The splicer outlives it; slots may outlive both.
class PairSlots {
 public:
  struct Limits {
    std::size_t per_group = 64;
    std::size_t all = 4096;
  };
  PairSlots(Splicer& splicer, Limits limits);
  ~PairSlots();

  /// The place of one pair, from before it is dialed until its last owner is gone.
  class Slot {
   public:
    virtual ~Slot() = default;
    /// From now on the slot ends this pair with its grant, at once if the grant is lost already.
    /// Ignored for 0.
    virtual void attach(std::uint64_t pair) = 0;
    virtual bool revoked() const = 0;
  };
  /// `grant` is any text that identifies the permission. Null: a limit is reached.
  std::shared_ptr<Slot> reserve(const std::string& group, const std::string& grant);

  /// Revokes the slots of the group with other grants. Returns their number.
  std::size_t keep_only(const std::string& group, const std::set<std::string>& grants);
  /// True: the group has a slot. Cheap.
  bool has(const std::string& group) const;
  std::size_t size() const;

 private:
  struct State;
  class SlotImpl;
  const Limits limits_;
  const std::shared_ptr<State> state_;
};

}  // namespace varda::net
