// Mutations: deliberate bugs that the checks must find.
#pragma once

#include <optional>

#include "cast.h"

namespace varda::sim {

struct Mutations {
  std::optional<Cast>
      cast;  // of every world, so that a bug of one kind appears soon; nothing: random

  bool server_lies = false;         // an agent that reports the target as served without an answer
  bool files_stay = false;          // an agent that acknowledges a deletion and keeps the files
  bool half_exposed = false;        // a store that exposes incomplete downloads
  bool containers_stay = false;     // a runner that reports a pod's end and keeps its container
  bool heartbeats = false;          // an agent that changes its report without a reason
  bool deletions_are_lost = false;  // a watch that drops deletions
  bool versions_ignored = false;    // a client that overwrites in spite of a conflict
  bool url_at_once = false;         // an operator that publishes a URL without a server

  bool pods_are_ready_at_once = false;  // cloud models: pods are ready before the fetch
  bool counts_twice = false;            // joint inference: each answer has a new instance
  bool tiers_are_lost = false;          // joint inference: work lists lose tier addresses
  bool results_are_lost = false;        // workers: an agent drops acknowledged results
  bool rows_are_lost = false;           // datasets: a disk that hides the last row of a file
};

}  // namespace varda::sim
