// Noticing that something changes at paths, without reading what is there.
//
//   const auto watch = make_file_watch();
//   Status told = watch->watch(7, "/data/train.csv", FileWatch::Scope::kFile);   // not ok: look yourself now and then
//   while (watch->wait(ctx).ok())
//     for (FileWatch::Id id : watch->take()) look_at(id);
//
// Whoever is told looks for what it was, and watches again before it looks: what comes to be at a path, and folders made below one,
// are watched from the next watch() on, and what happened before is seen by the look that follows. So nothing is missed between the
// two.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/context.h"
#include "base/result.h"
#include "os/file_system.h"

namespace varda::os {

/// Thread-safe.
class FileWatch {
 public:
  using Id = std::uint64_t;  // the caller's
  enum class Scope {
    kNames,   // what the path leads to: every name on the way, links included, that is made, removed, renamed or replaced
    kFile,    // and the file there: its bytes and its inode
    kFolder,  // and the folder there with all below it; links to folders and folders whose names begin with '.' are not entered
  };

  virtual ~FileWatch() = default;
  /// From now on changes at `path`, which is absolute, are told as `id`; replaces what was watched as `id`. May tell of changes
  /// that are none of what the caller looks at, and of one that is over. Nothing has to be at `path`. Blocks as long as listing
  /// folders does.
  ///
  /// An error says that changes may be missed, and why; what could be watched is. kUnsupported: the file system does not tell what
  /// other machines do to it. kExhausted: too many folders, or the system's limit. kForbidden: a folder cannot be read.
  virtual Status watch(Id id, const Path& path, Scope scope) = 0;
  virtual void unwatch(Id id) = 0;

  /// Blocks until take() would return something or the context is done.
  virtual Status wait(const Context& ctx) = 0;
  /// take() would return something.
  virtual bool pending() = 0;
  /// Where something changed since the last call, each id once. Never blocks.
  virtual std::vector<Id> take() = 0;
};

struct FileWatchOptions {
  std::size_t folders_max = 4096;  // of one id
};
/// The machine's (inotify). Costs nothing before the first watch().
std::unique_ptr<FileWatch> make_file_watch(FileWatchOptions options = {});

}  // namespace varda::os
