// Taking snapshots of files that somebody else writes.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "base/context.h"
#include "os/readable_tree.h"
#include "replica/snapshot.h"

namespace varda::replica {

/// A snapshot and what the next one of the same place can go on from.
struct Taken {
  Snapshot snapshot;
  std::map<std::string, os::FileFacts> facts;  // by path in the snapshot, as they were before the file was read
  std::uint64_t bytes_read = 0;                // for this snapshot
};

/// As it is kept between two lives of a process: the encoded snapshot, its length before it, then the facts. What does not decode
/// is nothing: all is read again.
std::string encode(const Taken& taken);
std::optional<Taken> decode_taken(std::string_view text, const Limits& limits = {});

/// Reads the regular files below `path`, or `path` itself where it is a file. Links are not followed inside of it and are left out,
/// as is what is no file. Blocks; memory does not grow with the files, only with their number and blocks.
///
/// With `before` (of the same block length), a file whose facts have not changed is not read again, and of one that only grew the
/// blocks that were whole are taken over if the first and the last of them still are what they were. A change in the middle of a
/// file that grows too is thus not seen: take one without `before` now and then. Whoever fetches checks every block, so what
/// changes after the snapshot was taken is never taken for it.
///
/// kNotFound, kForbidden: from the tree. kExhausted: beyond the limits. kUnavailable: a file shrank or went away while it was read;
/// try again. kCancelled, kTimeout: from the context.
Result<Taken> take_snapshot(const Context& ctx, os::ReadableTree& tree, const os::Path& path, const Taken* before = nullptr,
                            const Limits& limits = {}, std::uint32_t block_bytes = kBlockBytes);

}  // namespace varda::replica
