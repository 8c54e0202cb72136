// Content of a disk, and possible content after a power cut: the model beneath CrashingFileSystem.
//
// The model. Every change is pending until a sync makes it durable. A crash keeps any subset of the
// pending changes, with these rules:
//
//  * File data. A sync of a file makes its bytes, length and mode durable. Later writes survive by
//    sector (512 bytes) or by page (4 KiB), each independently, in any state since the last sync.
//    Bytes outside the written range are never damaged (SQLite's "powersafe overwrite").
//  * File length. Any length since the last sync survives, independently of the data. A longer
//    length without the data reads as zeros.
//  * Directory entries. Creating, removing and renaming an entry is durable after the sync of the
//    entry's directory; the sync of the file does not include the name. Until then, any subset
//    survives. As in every journal, changes of one name survive in order, and a rename is atomic.
//  * A failed sync makes nothing durable. Dirty data may also be gone from memory: the next sync
//    succeeds without that data.
//
// The model is deliberately stricter than any single journalling file system. Sources: POSIX.1-2017
// fsync(); Pillai et al., "All File Systems Are Not Created Equal" (OSDI '14), for reordering and
// torn writes; SQLite, "Atomic Commit In SQLite", for sectors; Rebello et al., "Can Applications
// Recover from fsync Failures?" (USENIX ATC '20), for the last rule.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/rng.h"
#include "os/file_system.h"

namespace varda::os::testing {

/// Bytes in shared pages: cheap copies, sparse holes.
class Image {
 public:
  static constexpr std::size_t kSector = 512, kPage = 4096;

  std::uint64_t size() const { return size_; }
  std::string read(std::uint64_t offset, std::uint64_t max) const;
  void write(std::uint64_t offset, std::string_view bytes);  // grows as needed
  void resize(std::uint64_t size);                // bytes cut off read as zeros after growing again
  std::string sector(std::uint64_t index) const;  // also beyond the end: zeros
  void set_sector(std::uint64_t index, std::string_view bytes);
  /// Copies page `index` from `other`.
  void take_page(const Image& other, std::uint64_t index);
  /// Indices of allocated pages, from `index` on.
  std::vector<std::uint64_t> pages_from(std::uint64_t index) const;

 private:
  using Page = std::array<char, kPage>;
  Page& page(std::uint64_t index);

  std::uint64_t size_ = 0;
  std::map<std::uint64_t, std::shared_ptr<Page>> pages_;
};

/// Not thread-safe. Copies are independent and include pending changes.
class CrashDisk {
 public:
  using Inode = std::uint64_t;  // 0: none
  static constexpr Inode kRoot = 1;

  struct Node {
    FileKind kind = FileKind::kFile;
    std::uint32_t mode = 0644;
    std::uint64_t links = 0;
    WallTime modified;
    std::string link_target;
    std::map<std::string, Inode> entries;  // of a directory
    Image image;                           // of a file

    // Durable state, and changes in memory.
    std::uint32_t durable_mode = 0644;
    std::map<std::string, Inode> durable_entries;
    Image durable;
    std::map<std::uint64_t, std::vector<std::string>>
        dirty;                         // by sector: its states since the last sync, oldest first
    std::vector<std::uint64_t> sizes;  // since the last sync
    bool mode_pending = false;
  };

  CrashDisk();
  CrashDisk(const CrashDisk& other);
  CrashDisk& operator=(const CrashDisk&) = delete;

  const Node& at(Inode inode) const { return *nodes_.at(inode); }
  std::uint64_t used_bytes() const { return used_; }
  /// Grows with every change that affects crash results.
  std::uint64_t changes() const { return changes_; }

  Inode make(FileKind kind, std::uint32_t mode, std::string link_target = "");
  void write(Inode inode, std::uint64_t offset, std::string_view bytes);
  void truncate(Inode inode, std::uint64_t size);
  void set_mode(Inode inode, std::uint32_t mode);
  void sync(Inode inode);
  /// A failed sync: each sector is either on the disk or lost, without a retry.
  void lose(Inode inode, Rng& rng);

  struct Change {
    Inode directory = 0;
    std::string name;
    Inode target = 0;  // 0: removes the entry
  };
  /// Changes entries atomically.
  void change(std::vector<Change> together);
  void sync_directory(Inode directory);

  /// True if a crash may leave more than one state.
  bool pending() const;
  /// A state after a power cut; deterministic for a generator state.
  CrashDisk crashed(Rng& rng) const;

 private:
  struct Nothing {};
  explicit CrashDisk(Nothing) {}
  Node& node(Inode inode) { return *nodes_.at(inode); }
  void dirty_sectors(Node& node, std::uint64_t from, std::uint64_t to);
  static Node survivor(const Node& node, Rng& rng);

  std::map<Inode, std::unique_ptr<Node>> nodes_;
  std::deque<std::vector<Change>> pending_;  // changes of entries, oldest first
  Inode last_ = kRoot;
  std::uint64_t used_ = 0;
  std::uint64_t changes_ = 0;
};

}  // namespace varda::os::testing
