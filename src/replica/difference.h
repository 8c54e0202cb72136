// What must be fetched to have a snapshot, and what is there already. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "replica/snapshot.h"

namespace varda::replica {

/// Some blocks of one file, one after the other, and where they come from.
struct BlockRun {
  std::uint64_t first = 0;  // block in the wanted file
  std::uint64_t count = 0;
  bool fetch = true;             // else copied from `file` of the snapshot there is
  std::size_t file = 0;          // index in have.files
  std::uint64_t from_block = 0;  // block there
  friend bool operator==(const BlockRun&, const BlockRun&) = default;
};

struct FilePlan {
  bool link = false;  // the same bytes are whole in have.files[from]: a hard link will do
  std::size_t from = 0;
  std::vector<BlockRun> runs;  // in order, all blocks; none with `link`
  std::uint64_t fetch_bytes = 0;
  friend bool operator==(const FilePlan&, const FilePlan&) = default;
};

/// One for each of wanted.files. A block is known by its digest wherever it lies in `have`, so that renamed and moved files cost
/// nothing; runs to fetch are at most `run_blocks_max` long.
std::vector<FilePlan> difference(const Snapshot& have, const Snapshot& wanted, std::uint64_t run_blocks_max = 16);

}  // namespace varda::replica
