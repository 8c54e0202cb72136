// Counts the samples of a dataset, exactly or with the reason why not. After growth, counting
// resumes where it stopped.
//
//   TRY(auto tree, os::open_readable_tree({"/data"}));
//   TRY(const Counted first, count(ctx, *tree, {.path = "/data/train.csv", .format = csv}));
//   ... rows are appended ...
//   // The second count reads only the new rows.
//   TRY(const Counted again, count(ctx, *tree, {.path = "/data/train.csv", .format = csv,
//                                               .state = first.state}));
//
// A count depends only on the bytes, not on the number of steps that made it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/context.h"
#include "base/result.h"
#include "codec/json.h"
#include "dataset/format.h"
#include "os/readable_tree.h"

namespace varda::dataset {

/// The progress of a count.
struct Progress {
  std::uint64_t bytes = 0, bytes_total = 0;  // for a file
  std::uint64_t entries = 0;                 // entries visited in a folder; no total before the end
};

struct Request {
  os::Path path;
  const Format* format = nullptr;  // of find_format()
  FormatOptions options;
  std::string state;  // state of an earlier count, checked before use; "": none
  /// For a file: the limit of bytes counted now; a later count continues from the state. 0: no
  /// limit. Folders are always counted whole; FolderCount counts in portions.
  std::uint64_t bytes_max = 0;
  std::function<void(const Progress&)> progress;  // called from time to time
};

struct Counted {
  Tally tally;
  std::uint64_t bytes = 0;      // counted bytes: of the file, or of the samples' files
  std::string fingerprint;      // "xxh3:" and 32 hex digits; unread images: names and sizes
  std::uint64_t from_byte = 0;  // start of reading; above 0 after growth. Of a folder: bytes of
                                // its files that were not read again
  std::string whole_because;    // the reason why the given state was unusable
  bool complete = true;         // false: stopped at bytes_max; the tally covers the bytes so far
  os::FileFacts facts;          // facts of the path, from before reading
  std::string state;  // for the next count; "" if that must read everything (a folder of voc or
                      // imagefolder, very many files, a file changed while it was read)
};

/// Blocks and reads in the calling thread. Memory does not grow with the dataset (kClassesMax and
/// the longest state of a folder, 1 MiB, bound it).
///
/// The state is used if it has the same format, options and file, and the file has not shrunk. The
/// first and the last 64 KiB of the counted part must be unchanged. A change in the middle of a
/// file with the same inode is therefore missed. Count without a state from time to time. Bytes
/// beyond the initial size are left for the next count, and the result mentions them.
///
/// The state of a folder covers each file alone. A file with the same size and times is not opened.
///
/// kNotFound, kForbidden: from the tree. kInvalid: a file where the format needs a folder, or vice
/// versa; a pipe or device. kInternal: reading failed before the end. kCancelled, kTimeout: from
/// the context.
Result<Counted> count(const Context& ctx, os::ReadableTree& tree, const Request& request);

/// Counts a folder in portions, for callers with other work in between. Between portions it keeps
/// its progress in memory only, and some folders and a file open. One thread at a time.
class FolderCount {
 public:
  /// `tree` outlives it. `request` has a format that counts folders. Errors are those of count().
  static Result<std::unique_ptr<FolderCount>> begin(os::ReadableTree& tree, const Request& request);
  virtual ~FolderCount() = default;
  /// Continues for about this many steps; a step is one entry or 4 KiB read. Absent: unfinished.
  virtual Result<std::optional<Counted>> resume(const Context& ctx, std::uint64_t steps) = 0;
  virtual Progress progress() const = 0;
};

/// JSON with samples, bytes, exact, inexactBecause, malformed, firstMalformed, classes,
/// furtherClasses, header, fingerprint, fromByte.
codec::Json to_json(const Counted& counted);

}  // namespace varda::dataset
