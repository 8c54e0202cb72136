#include "replica/difference.h"

#include <map>
#include <utility>

namespace varda::replica {

std::vector<FilePlan> difference(const Snapshot& have, const Snapshot& wanted,
                                 std::uint64_t run_blocks_max) {
  using Place = std::pair<std::size_t, std::uint64_t>;  // file, block
  // A short block at the end of a file has a digest of its shorter content, so equal digests mean
  // equal lengths.
  std::map<codec::Sha256, Place> known;
  std::map<std::pair<std::uint64_t, std::vector<codec::Sha256>>, std::size_t> whole;
  for (std::size_t i = 0; i < have.files.size() && have.block_bytes == wanted.block_bytes; ++i) {
    const SnapshotFile& file = have.files[i];
    whole.emplace(std::pair(file.size, file.blocks), i);
    for (std::uint64_t block = 0; block < file.blocks.size(); ++block)
      known.emplace(file.blocks[block], Place(i, block));
  }
  std::vector<FilePlan> out;
  out.reserve(wanted.files.size());
  for (const SnapshotFile& file : wanted.files) {
    FilePlan& plan = out.emplace_back();
    if (const auto same = whole.find({file.size, file.blocks}); same != whole.end()) {
      plan.link = true;
      plan.from = same->second;
      continue;
    }
    for (std::uint64_t block = 0; block < file.blocks.size(); ++block) {
      const auto at = known.find(file.blocks[block]);
      BlockRun* last = plan.runs.empty() ? nullptr : &plan.runs.back();
      if (at == known.end()) {
        plan.fetch_bytes += length_of(block, file.size, wanted.block_bytes);
        if (last != nullptr && last->fetch && last->count < run_blocks_max) {
          ++last->count;
        } else {
          plan.runs.push_back({.first = block, .count = 1});
        }
      } else if (last != nullptr && !last->fetch && last->file == at->second.first &&
                 last->from_block + last->count == at->second.second) {
        ++last->count;
      } else {
        plan.runs.push_back({.first = block,
                             .count = 1,
                             .fetch = false,
                             .file = at->second.first,
                             .from_block = at->second.second});
      }
    }
  }
  return out;
}

}  // namespace varda::replica
