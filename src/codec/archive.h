// Archives: tar (plain, gzip or zstd) and zip, read and written as streams.
//
// Only the format: `artifact` decides which entries are safe and where they are stored.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace varda::codec {

enum class EntryKind {
  kFile,
  kDirectory,
  kSymlink,
  kHardLink,
  kOther
};  // kOther: devices, fifos, sockets

struct ArchiveEntry {
  std::string path;  // as written in the archive
  EntryKind kind = EntryKind::kFile;
  std::uint64_t size_bytes = 0;  // declared
  std::uint32_t mode = 0644;
  std::string link_target;
};

/// Source of archive bytes: returns the next piece, empty at the end. An error ends the reading and
/// is returned unchanged.
using ByteSource = std::function<Result<std::string>()>;

/// Reads entry by entry in one pass. Not thread-safe.
class ArchiveReader {
 public:
  /// Detects the format by the first bytes. kCorrupt: unknown format. kUnsupported: a known format
  /// that is not read (7z, rar ...).
  static Result<std::unique_ptr<ArchiveReader>> open(ByteSource source);
  virtual ~ArchiveReader() = default;
  /// The next entry; skips unread bytes of the current one. nullopt at the end. kCorrupt: damaged.
  virtual Result<std::optional<ArchiveEntry>> next() = 0;
  /// More bytes of the current entry; empty at its end.
  virtual Result<std::string> read() = 0;
};

// kZip: the sizes follow the content, so a reader without the end of the archive sees none. No hard
// links.
enum class ArchiveFormat { kTarGzip, kTarZstd, kTar, kZip };

/// Writes a reproducible archive: equal entries give equal bytes; times are 0, owners root without
/// names.
class ArchiveWriter {
 public:
  using Sink = std::function<Status(std::string_view)>;
  static Result<std::unique_ptr<ArchiveWriter>> create(ArchiveFormat format, Sink sink);
  virtual ~ArchiveWriter() = default;
  /// Call write() next, for exactly entry.size_bytes.
  virtual Status add(const ArchiveEntry& entry) = 0;
  virtual Status write(std::string_view bytes) = 0;
  virtual Status finish() = 0;
};

/// The bytes that a kTar writer puts before the content of this entry. Zeros fill the content up to
/// a multiple of kTarBlockBytes; two blocks of zeros end the archive.
Result<std::string> tar_header(const ArchiveEntry& entry);
inline constexpr std::size_t kTarBlockBytes = 512;

}  // namespace varda::codec
