// Archives: tar, plain or compressed with gzip or zstd, and zip, read and written as streams.
//
// This is only the format: which entries are safe and where they go is `artifact`'s business.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace varda::codec {

enum class EntryKind { kFile, kDirectory, kSymlink, kHardLink, kOther };  // kOther: devices, fifos, sockets

struct ArchiveEntry {
  std::string path;  // as written in the archive
  EntryKind kind = EntryKind::kFile;
  std::uint64_t size_bytes = 0;  // declared
  std::uint32_t mode = 0644;
  std::string link_target;
};

/// Where archive bytes come from: the next piece, empty at the end. Its error ends the reading and is passed on unchanged.
using ByteSource = std::function<Result<std::string>()>;

/// Reads entry by entry in one pass. Not thread-safe.
class ArchiveReader {
 public:
  /// Recognises the format by its first bytes. kCorrupt: none of ours. kUnsupported: one we know and do not read (7z, rar ...).
  static Result<std::unique_ptr<ArchiveReader>> open(ByteSource source);
  virtual ~ArchiveReader() = default;
  /// The next entry, skipping what is left of the current one; nullopt at the end. kCorrupt: damaged.
  virtual Result<std::optional<ArchiveEntry>> next() = 0;
  /// More bytes of the current entry; empty at its end.
  virtual Result<std::string> read() = 0;
};

enum class ArchiveFormat { kTarGzip, kTarZstd, kTar };

/// Writes a reproducible archive: same entries, same bytes; times are 0, owners root, no names of users.
class ArchiveWriter {
 public:
  using Sink = std::function<Status(std::string_view)>;
  static Result<std::unique_ptr<ArchiveWriter>> create(ArchiveFormat format, Sink sink);
  virtual ~ArchiveWriter() = default;
  /// Then exactly entry.size_bytes through write().
  virtual Status add(const ArchiveEntry& entry) = 0;
  virtual Status write(std::string_view bytes) = 0;
  virtual Status finish() = 0;
};

}  // namespace varda::codec
