// Inspects a node's disk beside a running agent. It changes only marks.
#pragma once

#include <string>
#include <vector>

#include "artifact/operator_requests.h"
#include "base/context.h"

namespace varda::artifact {

struct Found {
  codec::Sha256 digest;
  bool complete = true;     // false: a running or interrupted download
  std::uint64_t bytes = 0;  // of the tree's files, or of the downloaded part
  bool exposed = false;     // a model exposes it
  bool wanted = false;      // it is in the work list
  bool pinned = false;
  bool damaged = false;
  std::vector<std::string> models;  // "NAMESPACE/NAME VERSION", as far as known
  bool unused() const { return complete && !exposed && !wanted && !pinned; }
};

/// Sorted by digest. Artifacts that disappear meanwhile are left out. `models` is the root of the
/// model directories; it may be missing.
Result<std::vector<Found>> inspect(os::FileSystem& fs, const os::Path& root,
                                   const os::Path& models);

struct Verdict {
  enum class Kind {
    kWhole,
    kDamaged,  // and marked as damaged
    kUnknown,  // it was installed without a record
    kMissing,  // missing, or removed meanwhile
  };
  Kind kind = Kind::kWhole;
  std::vector<std::string> differences;  // for kDamaged; for kUnknown: the reason
};

/// Reads every byte of an artifact and compares it with the record of the archive. Marks a damaged
/// artifact. The agent checks marks every few seconds and installs it again. Until then a model
/// keeps the exposed files. kForbidden: no permission to read it.
Result<Verdict> verify(const Context& ctx, os::FileSystem& fs, const os::Path& root,
                       const codec::Sha256& digest);

}  // namespace varda::artifact
