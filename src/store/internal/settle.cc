#include "store/internal/settle.h"

namespace varda::store::internal {

Status settle_log(os::FileSystem& fs, const std::filesystem::path& database) {
  constexpr std::size_t kPiece = 64 << 10;
  std::filesystem::path log = database;
  log += "-wal";
  TRY(const auto existing, fs.stat(log));
  if (!existing || existing->size_bytes == 0) return {};
  TRY(const std::unique_ptr<os::File> file, fs.open(log, os::Open::kCreate, 0600));
  for (std::uint64_t at = 0;;) {
    TRY_VOID(file->seek(at));
    TRY(const std::string bytes, file->read(kPiece));
    if (bytes.empty()) break;
    TRY_VOID(file->seek(at));
    if (Status written = file->write(bytes); !written.ok()) {
      // On some file systems even overwriting needs space. A full disk must not keep the store
      // closed, so only sync.
      if (written.error().code() != Code::kExhausted) return written;
      break;
    }
    at += bytes.size();
  }
  TRY_VOID(file->sync());
  return sync_name(fs, database);
}

Status sync_name(os::FileSystem& fs, const std::filesystem::path& database) {
  return fs.sync_directory(database.parent_path().empty() ? std::filesystem::path(".")
                                                          : database.parent_path());
}

}  // namespace varda::store::internal
