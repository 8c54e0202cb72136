// Sums of counters over servers that restart, since a begin.
#pragma once

#include <map>
#include <string>

#include "incremental/round_machine.h"

namespace varda::incremental {

/// The present counters of servers, by node.
using Readings = std::map<std::string, Counters>;

/// The growth since the begin of the tally. A server without a mark counts from 0.
Counters growth(const Tally& tally, const Readings& readings);
/// Begins again: the readings become the marks. Marks of absent servers stay.
void restart(Tally& tally, const Readings& readings);
/// Moves the growth so far into `carried`, so that a restart of a server loses less.
void absorb(Tally& tally, const Readings& readings);
/// A server restarted since its mark.
bool has_new_epoch(const Tally& tally, const Readings& readings);

}  // namespace varda::incremental
