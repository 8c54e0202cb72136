// A simple model of a store, revision by revision, to compare stores with.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/rng.h"
#include "store/store.h"

namespace varda::store::testing {

/// Not thread-safe. Copies are deep.
class StoreModel {
 public:
  using Events = std::vector<Event>;

  Revision revision() const { return static_cast<Revision>(history_.size()); }
  /// The events of the transaction at the next revision; empty without changes. kConflict like the
  /// store.
  Result<Events> plan(const std::vector<Op>& ops) const;
  void apply(const Events& events);
  /// Revision up to which a store with that limit has dropped history at least.
  Revision trimmed(std::size_t history_events_max) const;
  /// The current entries, by key.
  const std::map<std::string, Entry>& entries() const { return entries_; }

  /// Describes a difference to the store; "" if equal. The store must be at revision(). Its history
  /// must reach back to `oldest_min` and include everything after `oldest_max`. `rng` picks a past
  /// revision to list, and a prefix and a revision to watch from.
  std::string difference(Store& store, Revision oldest_min, Revision oldest_max, Rng& rng) const;

 private:
  std::map<std::string, Entry> entries_;
  std::vector<Events> history_;  // index: revision - 1
};

/// A seeded transaction over a dozen keys. Values take zero bytes to a few pages; some `expected`
/// revisions match, few do not.
std::vector<Op> draw_transaction(const StoreModel& model, Rng& rng);

}  // namespace varda::store::testing
