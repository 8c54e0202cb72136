// The entries of the archive that packs a directory.
#pragma once

#include <vector>

#include "artifact/internal/entry_rules.h"
#include "codec/archive.h"
#include "os/file_system.h"

namespace varda::artifact {

struct PackItem {
  os::Path path;  // below the directory; empty: an entry that only the archive has
  codec::ArchiveEntry entry;
};

/// Sorted by name, with normalized modes, without times and owners, as pack() writes them.
/// kInvalid: content that `rules` refuse. `rules` then know the entries.
Result<std::vector<PackItem>> pack_items(os::FileSystem& fs, const os::Path& directory,
                                         const Limits& limits, EntryRules& rules);

/// Checks the entries. kInvalid: nodes would refuse the archive.
Status admit_items(EntryRules& rules, const std::vector<PackItem>& items);

}  // namespace varda::artifact
