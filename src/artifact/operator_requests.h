// Messages between `varda artifacts` and a store beside a running agent, as files that appear and
// vanish atomically.
//
//   root/.marks/HEX.pinned    never evicted; operators create and remove it
//   root/.marks/HEX.damaged   differs from the archive: installed again when wanted; created by
//                             whichever process finds the damage, removed by the store
//   root/.marks/collect       request to remove everything unused; created by operators, removed by
//                             the store
//   root/.kept                digests to keep though no model exposes them, one per line;
//                             written by the store
#pragma once

#include <set>
#include <string_view>

#include "base/result.h"
#include "codec/digest.h"
#include "os/file_system.h"

namespace varda::artifact {

enum class Mark { kPinned, kDamaged };

/// Creates the marks' directory. Call it as the store's owner, which must be able to read and
/// remove other users' marks there.
Status make_requests_directory(os::FileSystem& fs, const os::Path& root);

/// Durable on return. Idempotent. `root` is the store's root.
Status set_mark(os::FileSystem& fs, const os::Path& root, const codec::Sha256& digest, Mark mark);
Status clear_mark(os::FileSystem& fs, const os::Path& root, const codec::Sha256& digest, Mark mark);
Result<bool> is_marked(os::FileSystem& fs, const os::Path& root, const codec::Sha256& digest,
                       Mark mark);
Result<std::set<codec::Sha256>> marked(os::FileSystem& fs, const os::Path& root, Mark mark);

Status request_collection(os::FileSystem& fs, const os::Path& root);
/// True once per request; the caller then collects.
Result<bool> take_request_to_collect(os::FileSystem& fs, const os::Path& root);

Status write_protected(os::FileSystem& fs, const os::Path& root,
                       const std::set<codec::Sha256>& digests);
/// Empty if no store has written it yet.
Result<std::set<codec::Sha256>> read_protected(os::FileSystem& fs, const os::Path& root);

}  // namespace varda::artifact
