// Computes which blocks of a snapshot must be fetched, and which exist already. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "replica/snapshot.h"

namespace varda::replica {

/// Consecutive blocks of one file with a common origin.
struct BlockRun {
  std::uint64_t first = 0;  // block in the wanted file
  std::uint64_t count = 0;
  bool fetch = true;             // false: copied from `file` of the existing snapshot
  std::size_t file = 0;          // index in have.files
  std::uint64_t from_block = 0;  // first block in `file`
  friend bool operator==(const BlockRun&, const BlockRun&) = default;
};

struct FilePlan {
  bool link = false;  // have.files[from] has the same bytes: a hard link is enough
  std::size_t from = 0;
  std::vector<BlockRun> runs;  // all blocks in order; empty with `link`
  std::uint64_t fetch_bytes = 0;
  friend bool operator==(const FilePlan&, const FilePlan&) = default;
};

/// Returns one plan for each of wanted.files. Blocks are matched by digest anywhere in `have`, so
/// renamed and moved files cost nothing. Runs to fetch have at most `run_blocks_max` blocks.
std::vector<FilePlan> difference(const Snapshot& have, const Snapshot& wanted,
                                 std::uint64_t run_blocks_max = 16);

}  // namespace varda::replica
