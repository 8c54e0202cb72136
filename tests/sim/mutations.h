// Mutations: deliberate mistakes, to see that the checks find them.
#pragma once

#include <optional>

#include "cast.h"

namespace varda::sim {

struct Mutations {
  std::optional<Cast> cast;  // of every world, so that a mistake of one kind is met soon; nothing: as drawn

  bool server_lies = false;         // an agent that reports the target as served while nothing answers
  bool files_stay = false;          // an agent that acknowledges a deletion and leaves the files
  bool half_exposed = false;        // an artifact store that takes an archive for complete while it still comes
  bool containers_stay = false;     // a runner that says a pod has ended and leaves its container
  bool heartbeats = false;          // an agent that writes something into its report now and then, whether or not anything happened
  bool deletions_are_lost = false;  // a watch that leaves out what was deleted
  bool versions_ignored = false;    // a client that answers a conflict by writing what it read long ago all the same
  bool url_at_once = false;         // an operator that tells of the URL before any server answers there

  bool pods_are_ready_at_once = false;  // cloud models: a runner that reports a pod as ready before its version is fetched
  bool counts_twice = false;            // joint inference: a server that draws a new instance for every answer
  bool tiers_are_lost = false;          // joint inference: a client that drops the addresses of tiers from a work list
  bool results_are_lost = false;        // workers: an agent that acknowledges results and forgets them
  bool rows_are_lost = false;           // datasets: a disk that hides the last row of a file
};

}  // namespace varda::sim
