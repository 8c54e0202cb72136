// What a store must hold, revision by revision: the plainest thing that can be compared with one.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/rng.h"
#include "store/store.h"

namespace varda::store::testing {

/// Not thread-safe. Copies are whole.
class StoreModel {
 public:
  using Events = std::vector<Event>;

  Revision revision() const { return static_cast<Revision>(history_.size()); }
  /// What the transaction does at the next revision; empty: nothing. kConflict as the store says it.
  Result<Events> plan(const std::vector<Op>& ops) const;
  void apply(const Events& events);
  /// What a store that keeps so many events has forgotten at least.
  Revision trimmed(std::size_t history_events_max) const;
  /// The keys there are, in order.
  const std::map<std::string, Entry>& entries() const { return entries_; }

  /// What is different in the store, or "". It must be at revision(), reach back to `oldest_min` at least, and forget nothing after
  /// `oldest_max`. `rng` picks a past revision to list and a prefix and a revision to watch from.
  std::string difference(Store& store, Revision oldest_min, Revision oldest_max, Rng& rng) const;

 private:
  std::map<std::string, Entry> entries_;
  std::vector<Events> history_;  // by revision, from 1
};

/// A seeded transaction over a dozen keys: values from nothing to a few pages, some expectations, now and then one that does not
/// hold.
std::vector<Op> draw_transaction(const StoreModel& model, Rng& rng);

}  // namespace varda::store::testing
