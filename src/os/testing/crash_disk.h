// What a disk holds, and what it may hold after the power was cut: the model beneath CrashingFileSystem.
//
// The model. Every change is pending until a sync promises it; a crash keeps any subset of what is pending, within these rules:
//
//  * File data. A sync of a file makes its bytes, its length and its mode durable. What was written since survives sector by sector
//    (512 bytes), or page by page (4 KiB), each independently, each as any of the states it went through since. Bytes outside of
//    what was written are never damaged (what SQLite calls "powersafe overwrite").
//  * File length. Any of the lengths since the last sync, independently of the data: a longer length without the data reads as
//  zeros.
//  * Directory entries. Making, removing and renaming an entry is durable after the sync of the directory that holds the entry; the
//    sync of the file does not promise its name. Until then any subset survives. Two things hold as they do in every journal: the
//    changes of one name survive in their order, and a rename happens on both sides or on none.
//  * A sync that fails promises nothing, and what was to be written may be gone from memory too: the next sync succeeds without it.
//
// This is stricter than any one journalling file system, and meant to be. Sources: POSIX.1-2017 fsync(); Pillai et al., "All File
// Systems Are Not Created Equal" (OSDI '14), for what reorders and what tears; SQLite, "Atomic Commit In SQLite", for its
// assumptions of sectors; Rebello et al., "Can Applications Recover from fsync Failures?" (USENIX ATC '20), for the last rule.
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

/// Bytes in shared pages: copies are cheap, holes cost nothing.
class Image {
 public:
  static constexpr std::size_t kSector = 512, kPage = 4096;

  std::uint64_t size() const { return size_; }
  std::string read(std::uint64_t offset, std::uint64_t max) const;
  void write(std::uint64_t offset, std::string_view bytes);  // grows as needed
  void resize(std::uint64_t size);                           // what is cut off reads as zeros when it grows again
  std::string sector(std::uint64_t index) const;             // also beyond the end: zeros
  void set_sector(std::uint64_t index, std::string_view bytes);
  /// Page `index` becomes what `other` has there.
  void take_page(const Image& other, std::uint64_t index);
  /// Indices of the pages that are no holes, from that one on.
  std::vector<std::uint64_t> pages_from(std::uint64_t index) const;

 private:
  using Page = std::array<char, kPage>;
  Page& page(std::uint64_t index);

  std::uint64_t size_ = 0;
  std::map<std::uint64_t, std::shared_ptr<Page>> pages_;
};

/// Not thread-safe. Copies are whole and independent: what is pending in one is pending in the other.
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

    // What the disk holds, and what the memory holds beyond it.
    std::uint32_t durable_mode = 0644;
    std::map<std::string, Inode> durable_entries;
    Image durable;
    std::map<std::uint64_t, std::vector<std::string>> dirty;  // by sector: its states since the last sync, oldest first
    std::vector<std::uint64_t> sizes;                         // since the last sync
    bool mode_pending = false;
  };

  CrashDisk();
  CrashDisk(const CrashDisk& other);
  CrashDisk& operator=(const CrashDisk&) = delete;

  const Node& at(Inode inode) const { return *nodes_.at(inode); }
  std::uint64_t used_bytes() const { return used_; }
  /// Grows with everything that changes what a crash may leave.
  std::uint64_t changes() const { return changes_; }

  Inode make(FileKind kind, std::uint32_t mode, std::string link_target = "");
  void write(Inode inode, std::uint64_t offset, std::string_view bytes);
  void truncate(Inode inode, std::uint64_t size);
  void set_mode(Inode inode, std::uint32_t mode);
  void sync(Inode inode);
  /// A sync that failed: each sector is on the disk or is not, and nobody will try again.
  void lose(Inode inode, Rng& rng);

  struct Change {
    Inode directory = 0;
    std::string name;
    Inode target = 0;  // 0: the entry goes
  };
  /// Entries that change together, or not at all.
  void change(std::vector<Change> together);
  void sync_directory(Inode directory);

  /// A crash may leave more than one thing.
  bool pending() const;
  /// What the power cut leaves. The same for the same generator state.
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
