// Files in memory on the remote side of a replica.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "replica/store.h"

namespace varda::replica::testing {

using Files = std::map<std::string, std::string,
                       PathOrder>;  // path -> bytes; the path "" means a single file

inline Snapshot snapshot_of(const Files& files, std::uint32_t block_bytes) {
  Snapshot out{.block_bytes = block_bytes, .files = {}};
  for (const auto& [path, bytes] : files) {
    SnapshotFile& file =
        out.files.emplace_back(SnapshotFile{.path = path, .size = bytes.size(), .blocks = {}});
    for (std::size_t at = 0; at < bytes.size(); at += block_bytes)
      file.blocks.push_back(codec::Sha256::of(std::string_view(bytes).substr(at, block_bytes)));
  }
  return out;
}

/// Serves the files in pieces of odd lengths and counts the bytes. Not thread-safe.
class FileSource final : public BlockSource {
 public:
  explicit FileSource(const Files& files) : files_(files) {}
  std::uint64_t served_bytes = 0;
  /// Called before each piece; an error ends the read.
  std::function<Status()> before_piece;
  std::size_t piece_bytes = 700;

  Status read(const Context& ctx, const SnapshotFile& file, std::uint64_t offset,
              std::uint64_t length, const std::function<Status(std::string_view)>& sink) override {
    const auto at = files_.find(file.path);
    if (at == files_.end()) return Error(Code::kNotFound, file.path);
    while (length > 0) {
      TRY_VOID(ctx.check());
      if (before_piece) TRY_VOID(before_piece());
      if (offset >= at->second.size())
        return Error(Code::kConflict, file.path + " is shorter by now");
      const std::string_view piece = std::string_view(at->second)
                                         .substr(static_cast<std::size_t>(offset),
                                                 std::min<std::uint64_t>(piece_bytes, length));
      served_bytes += piece.size();
      TRY_VOID(sink(piece));
      offset += piece.size();
      length -= piece.size();
    }
    return {};
  }

 private:
  const Files& files_;
};

}  // namespace varda::replica::testing
