// The replicas on a node's disk. Readers see a new version completely or not at all.
//
//   root/KEY/current            -> ID          a link, replaced by rename: the complete version
//   root/KEY/ID/…                              the files of snapshot ID, or its single file
//   root/KEY/ID.snapshot                       the snapshot (snapshot.h)
//   root/KEY/metadata.json                     facts for readers, written by the caller
//   root/KEY/.new-ID/{snapshot,tree/…,part}    a version being built; resumed after a kill
//   root/KEY/.old-ID/…                         an old version being removed
//
// An unchanged file is a hard link to the previous version, so files below are never written in
// place. A program that wants to change a file copies it first.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/context.h"
#include "os/file_system.h"
#include "replica/snapshot.h"

namespace varda::replica {

/// Supplies blocks. Called by one thread at a time.
class BlockSource {
 public:
  virtual ~BlockSource() = default;
  /// Passes `length` bytes of the file from `offset` to `sink`, in order, in pieces of any length.
  /// Both values are within the file's size. An error of the sink ends the read. kNotFound,
  /// kConflict: the files have changed, so request the snapshot again. kUnavailable: retry.
  virtual Status read(const Context& ctx, const SnapshotFile& file, std::uint64_t offset,
                      std::uint64_t length,
                      const std::function<Status(std::string_view)>& sink) = 0;
};

struct Progress {
  std::uint64_t done_bytes = 0;  // bytes fetched of those to fetch
  std::uint64_t total_bytes = 0;
};

/// Exclusively owns all below its root. Thread-safe for different keys; calls for one key must not
/// overlap.
class Store {
 public:
  /// Keys are like "default/faces" and follow the rules of snapshot paths.
  struct Options {
    os::Path root;
    Limits limits;
    std::string file_name = "data";  // name of the file if a snapshot is a single file
  };
  /// Creates the root and removes files that belong to no version. `fs` outlives the store.
  static Result<std::unique_ptr<Store>> open(Options options, os::FileSystem& fs);
  virtual ~Store() = default;

  struct Copy {
    codec::Sha256 id;
    os::Path path;  // the folder or the file; goes through `current`, so it stays valid
    Snapshot snapshot;
  };
  /// The version that readers see. Absent: none. kCorrupt: its snapshot is unreadable; bring()
  /// repairs that.
  virtual Result<std::optional<Copy>> find(const std::string& key) = 0;
  virtual std::vector<std::string> list() = 0;

  /// Makes `wanted` the version that readers see. Blocks. After any interruption, the next call
  /// with the same snapshot resumes; at most one fetched block is lost. Every block is checked.
  /// Only the previous version is kept besides the new one. kCorrupt: a block came with wrong bytes
  /// twice. kExhausted: the disk is full. Other errors come from the source.
  virtual Status bring(const Context& ctx, const std::string& key, const Snapshot& wanted,
                       BlockSource& source,
                       const std::function<void(const Progress&)>& progress = {}) = 0;
  /// Replaces root/KEY/metadata.json; writes only a difference. kNotFound: there is no replica.
  virtual Status put_metadata(const std::string& key, std::string_view text) = 0;
  /// Success if missing.
  virtual Status remove(const std::string& key) = 0;
};

}  // namespace varda::replica
