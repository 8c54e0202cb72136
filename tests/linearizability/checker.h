// Tells whether a history could have come from one server that does one request after the other.
//
// Two ways, since each sees what the other cannot:
//
//   check_keys()       knows nothing of revisions but that they grow: for every object it looks for an order of the operations that
//   keeps
//                      real time and in which every answer is what a single map would have said. Search after Wing and Gong
//                      ("Testing and verifying concurrent objects", 1993), with Lowe's memory of the configurations that led
//                      nowhere ("Testing for linearizability", 2017); one object at a time is enough, since linearizability is
//                      local (Herlihy and Wing, 1990).
//   check_revisions()  takes the revisions at their word: they are a total order of all writes, so every read and list must fit to
//   the
//                      state at one of them, within real time, and every watch must be a stretch of that log, event for event.
#pragma once

#include <string>
#include <vector>

#include "history.h"

namespace varda::linearizability {

/// What is wrong, in sentences; empty: nothing.
std::vector<std::string> check_keys(const History& history);
std::vector<std::string> check_revisions(const History& history);
/// Both.
std::vector<std::string> check(const History& history);

}  // namespace varda::linearizability
