// Checks whether a history could come from one server that handles one request at a time.
//
// There are two checks, because each finds errors that the other misses.
//
//   check_keys()       only knows that revisions grow. For each object it searches an order of the
//                      operations that respects real time and explains every answer by a single
//                      map. The search follows Wing and Gong ("Testing and verifying concurrent
//                      objects", 1993), with Lowe's memory of failed configurations ("Testing for
//                      linearizability", 2017). One object at a time is enough, because
//                      linearizability is local (Herlihy and Wing, 1990).
//   check_revisions()  takes revisions as a total order of all writes. Every read and list must
//                      match the state at one of them, within real time. Every watch must be a
//                      section of that log, event for event.
#pragma once

#include <string>
#include <vector>

#include "history.h"

namespace varda::linearizability {

/// The violations, as sentences; empty: no violation.
std::vector<std::string> check_keys(const History& history);
std::vector<std::string> check_revisions(const History& history);
/// Runs both checks.
std::vector<std::string> check(const History& history);

}  // namespace varda::linearizability
