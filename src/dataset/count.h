// Counts the samples of a dataset: exactly, or it says why not; again after growth from where it stopped.
//
//   TRY(auto tree, os::open_readable_tree({"/data"}));
//   TRY(const Counted first, count(ctx, *tree, {.path = "/data/train.csv", .format = csv}));
//   ... rows are appended ...
//   TRY(const Counted again, count(ctx, *tree, {.path = "/data/train.csv", .format = csv, .state = first.state}));   // reads the
//   new rows
//
// A count is a function of the bytes: whether it was made at once or in ten steps cannot be seen in it.
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

/// How far a count is.
struct Progress {
  std::uint64_t bytes = 0, bytes_total = 0;  // of a file
  std::uint64_t entries = 0;                 // of a folder: looked at; how many there are is known at the end
};

struct Request {
  os::Path path;
  const Format* format = nullptr;  // of find_format()
  FormatOptions options;
  std::string state;  // of an earlier count, as it gave it; "" for none. Whatever is wrong with it, the count is right.
  /// Of a file, no more than so many bytes are counted now, and the rest by whoever goes on from the state; 0: all. Of a folder
  /// all is counted; FolderCount has portions.
  std::uint64_t bytes_max = 0;
  std::function<void(const Progress&)> progress;  // is told now and then
};

struct Counted {
  Tally tally;
  std::uint64_t bytes = 0;      // that were counted: of the file, or of the samples' files
  std::string fingerprint;      // "xxh3:" and 32 hex digits; of the bytes, or where images are not read of their names and sizes
  std::uint64_t from_byte = 0;  // where reading began; more than 0 after growth
  std::string whole_because;    // a state was given and could not be used: why
  bool complete = true;         // false: Request::bytes_max ended it; the tally is that of the bytes so far
  os::FileFacts facts;          // of the path, before anything was read
  std::string state;  // for the next time; "" where that must read all again (folders, a file that changed while it was read)
};

/// Blocks; reads in the calling thread, with memory that does not grow with the dataset (kClassesMax bounds what it remembers).
///
/// The state is gone on from if it is of the same format and options and of the same file, that has not shrunk, and if the first
/// and the last 64 KiB of what was counted are as they were. A change in the middle of a file whose inode stays is thus not seen:
/// count without a state now and then. What is behind the size the file has at the beginning is left for the next time, and the
/// count says so.
///
/// kNotFound, kForbidden: from the tree. kInvalid: a file where the format wants a folder, or the other way round; a pipe or
/// device. kInternal: it could not be read to its end. kCancelled, kTimeout: from the context.
Result<Counted> count(const Context& ctx, os::ReadableTree& tree, const Request& request);

/// A count of a folder in portions, for whoever has other things to do in between. It lives in memory alone, and has some folders
/// open all the while. One thread at a time.
class FolderCount {
 public:
  /// `tree` outlives it. Errors as count().
  static Result<std::unique_ptr<FolderCount>> begin(os::ReadableTree& tree, const os::Path& path, const Format& format,
                                                    const FormatOptions& options);
  virtual ~FolderCount() = default;
  /// Goes on for about so many steps: an entry looked at, or 4 KiB read. Nothing: there is more.
  virtual Result<std::optional<Counted>> go_on(const Context& ctx, std::uint64_t steps) = 0;
  virtual Progress progress() const = 0;
};

/// For machines: samples, bytes, exact, inexactBecause, malformed, firstMalformed, classes, furtherClasses, header, fingerprint,
/// fromByte.
codec::Json to_json(const Counted& counted);

}  // namespace varda::dataset
