// What `varda artifacts` tells a store, and what a store tells it, beside a running agent: files that appear and go as a whole.
//
//   root/.marks/HEX.pinned    never evicted, whoever uses it; made and removed by people
//   root/.marks/HEX.damaged   its bytes are not those of the archive: installed anew when it is wanted; made by whoever looked,
//                             removed by the store
//   root/.marks/collect       everything unused goes; made by people, removed by the store
//   root/.kept                the digests that must stay though no model shows them, one a line; written by the store
#pragma once

#include <set>
#include <string_view>

#include "base/result.h"
#include "codec/digest.h"
#include "os/file_system.h"

namespace varda::artifact {

enum class Mark { kPinned, kDamaged };

/// The directory that marks are in. Of the store's owner, who must be able to read and remove what others leave there.
Status make_room_for_marks(os::FileSystem& fs, const os::Path& root);

/// Durable on return. Making what is there, and removing what is not, is fine. `root` is that of the store.
Status set_mark(os::FileSystem& fs, const os::Path& root, const codec::Sha256& digest, Mark mark);
Status clear_mark(os::FileSystem& fs, const os::Path& root, const codec::Sha256& digest, Mark mark);
Result<bool> is_marked(os::FileSystem& fs, const os::Path& root, const codec::Sha256& digest, Mark mark);
Result<std::set<codec::Sha256>> marked(os::FileSystem& fs, const os::Path& root, Mark mark);

Status ask_to_collect(os::FileSystem& fs, const os::Path& root);
/// True once: whoever asks does it.
Result<bool> take_request_to_collect(os::FileSystem& fs, const os::Path& root);

Status write_kept(os::FileSystem& fs, const os::Path& root, const std::set<codec::Sha256>& kept);
/// Empty where no store has written it yet.
Result<std::set<codec::Sha256>> read_kept(os::FileSystem& fs, const os::Path& root);

}  // namespace varda::artifact
