#include "store/testing/sqlite_vfs.h"

#include <atomic>
#include <cstring>
#include <sqlite3.h>

namespace varda::store::testing {
namespace {

constexpr int kSectorBytes = 4096;

struct OpenFile {
  sqlite3_file base;
  os::FileSystem* fs;
  os::File* file;
  std::string* path;
  bool sync_directory;  // at the first sync, because the file's name is new
  bool delete_on_close;
};

OpenFile& self(sqlite3_file* file) { return *reinterpret_cast<OpenFile*>(file); }
os::FileSystem& disk(sqlite3_vfs* vfs) { return *static_cast<os::FileSystem*>(vfs->pAppData); }

int close_file(sqlite3_file* base) {
  OpenFile& file = self(base);
  delete file.file;
  if (file.delete_on_close) (void)file.fs->remove(*file.path);
  delete file.path;
  return SQLITE_OK;
}

int read_file(sqlite3_file* base, void* into, int count, sqlite3_int64 offset) {
  os::File& file = *self(base).file;
  if (!file.seek(static_cast<std::uint64_t>(offset)).ok()) return SQLITE_IOERR_READ;
  const auto bytes = file.read(static_cast<std::size_t>(count));
  if (!bytes.ok()) return SQLITE_IOERR_READ;
  std::memcpy(into, bytes->data(), bytes->size());
  if (bytes->size() == static_cast<std::size_t>(count)) return SQLITE_OK;
  std::memset(static_cast<char*>(into) + bytes->size(), 0,
              static_cast<std::size_t>(count) - bytes->size());
  return SQLITE_IOERR_SHORT_READ;
}

int write_file(sqlite3_file* base, const void* from, int count, sqlite3_int64 offset) {
  os::File& file = *self(base).file;
  if (!file.seek(static_cast<std::uint64_t>(offset)).ok()) return SQLITE_IOERR_WRITE;
  const Status written =
      file.write({static_cast<const char*>(from), static_cast<std::size_t>(count)});
  if (written.ok()) return SQLITE_OK;
  return written.error().code() == Code::kExhausted ? SQLITE_FULL : SQLITE_IOERR_WRITE;
}

int truncate_file(sqlite3_file* base, sqlite3_int64 size) {
  return self(base).file->truncate(static_cast<std::uint64_t>(size)).ok() ? SQLITE_OK
                                                                          : SQLITE_IOERR_TRUNCATE;
}

int sync_file(sqlite3_file* base, int) {
  OpenFile& file = self(base);
  if (!file.file->sync().ok()) return SQLITE_IOERR_FSYNC;
  if (file.sync_directory) (void)file.fs->sync_directory(os::Path(*file.path).parent_path());
  file.sync_directory = false;
  return SQLITE_OK;
}

int file_size(sqlite3_file* base, sqlite3_int64* size) {
  const auto found = self(base).file->size();
  if (!found.ok()) return SQLITE_IOERR_FSTAT;
  *size = static_cast<sqlite3_int64>(*found);
  return SQLITE_OK;
}

int lock(sqlite3_file*, int) { return SQLITE_OK; }
int check_lock(sqlite3_file*, int* held) {
  *held = 0;
  return SQLITE_OK;
}
int control(sqlite3_file*, int, void*) { return SQLITE_NOTFOUND; }
int sector_size(sqlite3_file*) { return kSectorBytes; }
int characteristics(sqlite3_file*) { return SQLITE_IOCAP_POWERSAFE_OVERWRITE; }

const sqlite3_io_methods kMethods{.iVersion = 1,
                                  .xClose = close_file,
                                  .xRead = read_file,
                                  .xWrite = write_file,
                                  .xTruncate = truncate_file,
                                  .xSync = sync_file,
                                  .xFileSize = file_size,
                                  .xLock = lock,
                                  .xUnlock = lock,
                                  .xCheckReservedLock = check_lock,
                                  .xFileControl = control,
                                  .xSectorSize = sector_size,
                                  .xDeviceCharacteristics = characteristics,
                                  .xShmMap = nullptr,
                                  .xShmLock = nullptr,
                                  .xShmBarrier = nullptr,
                                  .xShmUnmap = nullptr,
                                  .xFetch = nullptr,
                                  .xUnfetch = nullptr};

int open_file(sqlite3_vfs* vfs, const char* name, sqlite3_file* base, int flags, int* flags_out) {
  static std::atomic<int> unnamed{0};
  OpenFile& file = self(base);
  file = {};
  const std::string path =
      name != nullptr ? name : "/sqlite-" + std::to_string(unnamed.fetch_add(1));
  os::Open how = os::Open::kRead;
  if ((flags & SQLITE_OPEN_CREATE) != 0) how = os::Open::kCreate;
  if ((flags & SQLITE_OPEN_READWRITE) != 0 && how == os::Open::kRead) {
    const auto existing = disk(vfs).stat(path);
    if (!existing.ok() || !*existing) return SQLITE_CANTOPEN;
    how = os::Open::kCreate;
  }
  auto opened = disk(vfs).open(path, how, 0600);
  if (!opened.ok()) return SQLITE_CANTOPEN;
  file.fs = &disk(vfs);
  file.file = std::move(*opened).release();
  file.path = new std::string(path);
  file.sync_directory =
      (flags & SQLITE_OPEN_CREATE) != 0 &&
      (flags & (SQLITE_OPEN_MAIN_JOURNAL | SQLITE_OPEN_SUPER_JOURNAL | SQLITE_OPEN_WAL)) != 0;
  file.delete_on_close = (flags & SQLITE_OPEN_DELETEONCLOSE) != 0;
  file.base.pMethods = &kMethods;
  if (flags_out != nullptr) *flags_out = flags;
  return SQLITE_OK;
}

int delete_file(sqlite3_vfs* vfs, const char* name, int sync) {
  const auto existing = disk(vfs).stat(name);
  if (!existing.ok()) return SQLITE_IOERR_DELETE;
  if (!*existing) return SQLITE_IOERR_DELETE_NOENT;
  if (!disk(vfs).remove(name).ok()) return SQLITE_IOERR_DELETE;
  if ((sync & 1) != 0 && !disk(vfs).sync_directory(os::Path(name).parent_path()).ok())
    return SQLITE_IOERR_DIR_FSYNC;
  return SQLITE_OK;
}

int access_file(sqlite3_vfs* vfs, const char* name, int what, int* answer) {
  const auto existing = disk(vfs).stat(name);
  if (!existing.ok()) return SQLITE_IOERR_ACCESS;
  // Like the unix VFS, reports an empty file as absent.
  *answer = *existing && (what != SQLITE_ACCESS_EXISTS ||
                          (*existing)->kind != os::FileKind::kFile || (*existing)->size_bytes > 0)
                ? 1
                : 0;
  return SQLITE_OK;
}

int full_path(sqlite3_vfs*, const char* name, int size, char* into) {
  sqlite3_snprintf(size, into, "%s", name);
  return SQLITE_OK;
}

int randomness(sqlite3_vfs*, int count, char* into) {
  for (int i = 0; i < count; ++i) into[i] = static_cast<char>(i * 37 + 11);
  return count;
}

int sleep_for(sqlite3_vfs*, int microseconds) { return microseconds; }

int current_time(sqlite3_vfs*, double* days) {
  *days = 2460000.5;
  return SQLITE_OK;
}

int last_error(sqlite3_vfs*, int, char*) { return 0; }

}  // namespace

struct SqliteVfs::State {
  std::string name;
  sqlite3_vfs vfs{};
};

SqliteVfs::SqliteVfs(os::FileSystem& fs) : state_(std::make_unique<State>()) {
  static std::atomic<int> count{0};
  state_->name = "varda-test-" + std::to_string(count.fetch_add(1));
  sqlite3_vfs& vfs = state_->vfs;
  vfs.iVersion = 1;
  vfs.szOsFile = sizeof(OpenFile);
  vfs.mxPathname = 512;
  vfs.zName = state_->name.c_str();
  vfs.pAppData = &fs;
  vfs.xOpen = open_file;
  vfs.xDelete = delete_file;
  vfs.xAccess = access_file;
  vfs.xFullPathname = full_path;
  vfs.xRandomness = randomness;
  vfs.xSleep = sleep_for;
  vfs.xCurrentTime = current_time;
  vfs.xGetLastError = last_error;
  sqlite3_vfs_register(&vfs, 0);
}

SqliteVfs::~SqliteVfs() { sqlite3_vfs_unregister(&state_->vfs); }

const char* SqliteVfs::name() const { return state_->name.c_str(); }

SqliteRandomness::SqliteRandomness(int seed) {
  sqlite3_test_control(SQLITE_TESTCTRL_PRNG_SEED, seed + 1, nullptr);
}

SavedSqliteRandomness::SavedSqliteRandomness() { sqlite3_test_control(SQLITE_TESTCTRL_PRNG_SAVE); }
SavedSqliteRandomness::~SavedSqliteRandomness() {
  sqlite3_test_control(SQLITE_TESTCTRL_PRNG_RESTORE);
}

}  // namespace varda::store::testing
