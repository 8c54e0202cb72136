// Takes snapshots of files that other programs write.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "base/context.h"
#include "os/readable_tree.h"
#include "replica/snapshot.h"

namespace varda::replica {

/// A snapshot, with data to speed up the next one of the same path.
struct Taken {
  Snapshot snapshot;
  std::map<std::string, os::FileFacts> facts;  // by path in the snapshot, read before the file
  std::uint64_t bytes_read = 0;                // bytes read for this snapshot
};

/// Encodes `taken` for the next process: the snapshot's length, the encoded snapshot, the facts. If
/// decoding fails, everything is read again.
std::string encode(const Taken& taken);
std::optional<Taken> decode_taken(std::string_view text, const Limits& limits = {});

/// Reads the regular files below `path`, or `path` itself if it is a file. Links inside are not
/// followed. Links and other kinds are left out. Blocks. Memory grows with the number of files and
/// blocks, not with their size.
///
/// With `before` (of the same block length), files with unchanged facts are not read again. A file
/// that only grew keeps its whole old blocks if the first and the last of them are unchanged. A
/// change in the middle of a growing file is therefore missed. Take a snapshot without `before`
/// from time to time. A fetching peer checks every block, so later changes are never mistaken for
/// the snapshot.
///
/// kNotFound, kForbidden: from the tree. kExhausted: beyond the limits. kUnavailable: a file shrank
/// or vanished while it was read; retry. kCancelled, kTimeout: from the context.
Result<Taken> take_snapshot(const Context& ctx, os::ReadableTree& tree, const os::Path& path,
                            const Taken* before = nullptr, const Limits& limits = {},
                            std::uint32_t block_bytes = kBlockBytes);

}  // namespace varda::replica
