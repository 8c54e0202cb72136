// What is on a node's disk, read beside whatever agent runs there: nothing of it is changed but marks.
#pragma once

#include <string>
#include <vector>

#include "artifact/marks.h"
#include "base/context.h"

namespace varda::artifact {

struct Found {
  codec::Sha256 digest;
  bool complete = true;     // false: a download under way, or broken off
  std::uint64_t bytes = 0;  // of its files; of what there is of the archive
  bool exposed = false;     // a model shows it
  bool wanted = false;      // the work list has it
  bool pinned = false;
  bool damaged = false;
  std::vector<std::string> models;  // "NAMESPACE/NAME VERSION", as far as they could be told
  bool unused() const { return complete && !exposed && !wanted && !pinned; }
};

/// In the order of digests. What goes meanwhile is left out. `models` is the root of the model directories; it may be missing.
Result<std::vector<Found>> inspect(os::FileSystem& fs, const os::Path& root, const os::Path& models);

struct Verdict {
  enum class Kind {
    kWhole,
    kDamaged,   // marked as such
    kUnknown,   // nothing was recorded when it was installed
    kNotThere,  // or gone meanwhile
  };
  Kind kind = Kind::kWhole;
  std::vector<std::string> differences;  // of kDamaged; of kUnknown: why
};

/// Reads every byte of an artifact and compares it with what the archive held. A damaged one is marked: the agent installs it anew
/// as soon as it looks, which it does every few seconds, and a model keeps what it shows until then. kForbidden: it may not be
/// read.
Result<Verdict> verify(const Context& ctx, os::FileSystem& fs, const os::Path& root, const codec::Sha256& digest);

}  // namespace varda::artifact
