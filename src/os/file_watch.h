// Notifications about changes at paths, without reading the files.
//
//   const auto watch = make_file_watch();
//   // An error: poll too.
//   Status watched = watch->watch(7, "/data/train.csv", FileWatch::Scope::kFile);
//   while (watch->wait(ctx).ok())
//     for (FileWatch::Id id : watch->take()) look_at(id);
//
// After a notification, call watch() again and then read the path. A new file at the path, and new
// folders below it, are watched only from the next watch() on. The read sees earlier changes. In
// this order, no change is missed.
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
  using Id = std::uint64_t;  // chosen by the caller
  enum class Scope {
    kNames,   // the path itself: any name on it, also of links, created, removed, renamed or
              // replaced
    kFile,    // also the file: content and inode
    kFolder,  // also the folder with everything below; skips links to folders, and folders with
              // names that begin with '.'
  };

  virtual ~FileWatch() = default;
  /// Reports changes at the absolute `path` as `id` from now on; replaces an earlier watch of `id`.
  /// May report irrelevant or past changes. `path` need not exist. Blocks while listing folders.
  ///
  /// An error gives the reason why changes may be missed; everything possible is watched anyway.
  /// kUnsupported: the file system does not report changes by other machines. kExhausted: too many
  /// folders, or the system's limit. kForbidden: a folder cannot be read.
  virtual Status watch(Id id, const Path& path, Scope scope) = 0;
  virtual void unwatch(Id id) = 0;

  /// Blocks until take() would return something or the context is done.
  virtual Status wait(const Context& ctx) = 0;
  /// True if take() would return something.
  virtual bool pending() = 0;
  /// The ids with changes since the last call, each once. Never blocks.
  virtual std::vector<Id> take() = 0;
};

struct FileWatchOptions {
  std::size_t folders_max = 4096;  // per id
};
/// The machine's file watch (inotify). Uses no resources before the first watch().
std::unique_ptr<FileWatch> make_file_watch(FileWatchOptions options = {});

}  // namespace varda::os
