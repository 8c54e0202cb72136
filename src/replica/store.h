// The replicas on a node's disk. What readers see changes as a whole or not at all.
//
//   root/KEY/current            -> ID          a link, replaced by rename: the copy that is whole
//   root/KEY/ID/…                              the files of the snapshot named ID (for one file: the file, in that folder)
//   root/KEY/ID.snapshot                       what it is (snapshot.h)
//   root/KEY/.new-ID/{snapshot,tree/…,part}    a copy being made; goes on after a kill
//   root/KEY/.old-ID/…                         what was a copy and is being removed
//
// A file that did not change is a hard link of the one before, so files below are never written in place: whoever wants to change
// one copies it first.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/context.h"
#include "os/file_system.h"
#include "replica/snapshot.h"

namespace varda::replica {

/// Where blocks come from. Called by one thread at a time.
class BlockSource {
 public:
  virtual ~BlockSource() = default;
  /// `length` bytes of the file from `offset` on, both within its size; to `sink`, in order, in pieces of any length. An error of
  /// the sink ends it. kNotFound, kConflict: the files are others by now: ask for the snapshot again. kUnavailable: try again.
  virtual Status read(const Context& ctx, const SnapshotFile& file, std::uint64_t offset, std::uint64_t length,
                      const std::function<Status(std::string_view)>& sink) = 0;
};

struct Progress {
  std::uint64_t done_bytes = 0;  // of those that had to be fetched
  std::uint64_t total_bytes = 0;
};

/// Owns all below its root, alone. Thread-safe for different keys; calls for one key come one at a time.
class Store {
 public:
  /// Keys are like "default/faces"; checked as paths of snapshots are.
  struct Options {
    os::Path root;
    Limits limits;
    std::string file_name = "data";  // of the only file of a snapshot that is one
  };
  /// Makes the root, and sweeps what belongs to no copy. `fs` outlives the store.
  static Result<std::unique_ptr<Store>> open(Options options, os::FileSystem& fs);
  virtual ~Store() = default;

  struct Copy {
    codec::Sha256 id;
    os::Path path;  // of the folder, or of the file; goes through `current`, so it stays right
    Snapshot snapshot;
  };
  /// The copy that readers see. Nothing: there is none. kCorrupt: its snapshot cannot be read; bring() mends that.
  virtual Result<std::optional<Copy>> find(const std::string& key) = 0;
  virtual std::vector<std::string> list() = 0;

  /// Makes `wanted` what readers see. Blocks; whatever breaks it, the next call with the same snapshot goes on: of what was fetched
  /// at most a block is lost. Every block is checked. The copy before the one before goes.
  /// kCorrupt: a block came with other bytes twice. kExhausted: the disk is full. Else as the source says.
  virtual Status bring(const Context& ctx, const std::string& key, const Snapshot& wanted, BlockSource& source,
                       const std::function<void(const Progress&)>& progress = {}) = 0;
  /// Fine if there is none.
  virtual Status remove(const std::string& key) = 0;
};

}  // namespace varda::replica
