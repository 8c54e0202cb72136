#include "registry/directory_store.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "artifact/file_server.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/text.h"
#include "registry/quota.h"

namespace varda::registry {
namespace {

using codec::Sha256;
using os::FileKind;
using os::Path;

constexpr std::size_t kHashPieceBytes = 256 << 10;

Error taken_over() {
  return {Code::kConflict, "another request continues the upload of this blob"};
}

Error verifying() {
  return {Code::kUnavailable, "the upload of this blob is being verified; try again"};
}

/// An unfinished upload. A piece takes `mutex` for each write. The store takes its own mutex first.
struct Unfinished {
  explicit Unfinished(std::uint64_t total_bytes) : total(total_bytes) {}
  const std::uint64_t total;
  Mutex mutex;
  std::uint64_t held GUARDED_BY(mutex) = 0;
  // The number of the piece that may write, finish and publish. Changes under both mutexes.
  std::uint64_t writer GUARDED_BY(mutex) = 0;
  bool writing GUARDED_BY(mutex) = false;    // that piece is alive
  bool finishing GUARDED_BY(mutex) = false;  // no other piece may take over
  WallTime changed GUARDED_BY(mutex);
};

class DirectoryStore final : public BlobStore {
 public:
  DirectoryStore(DirectoryOptions options, os::FileSystem& fs)
      : options_(std::move(options)), fs_(fs) {}

  Status prepare() EXCLUDES(mutex_);
  Result<std::optional<BlobInfo>> find(const Sha256& digest) override EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return stored(digest);
  }
  std::optional<std::uint64_t> offset(const Sha256& digest) override EXCLUDES(mutex_);
  Result<std::unique_ptr<BlobUpload>> begin(const Piece& piece) override EXCLUDES(mutex_);
  net::Response serve(const Sha256& digest, const net::Request& request) override EXCLUDES(mutex_);
  Status remove(const Sha256& digest) override EXCLUDES(mutex_);
  Result<std::vector<BlobInfo>> list(const std::optional<Sha256>& after, std::size_t limit) override
      EXCLUDES(mutex_);
  Result<std::size_t> expire_uploads(WallTime unchanged_since) override EXCLUDES(mutex_);
  Usage usage() override EXCLUDES(mutex_);

  // For pieces.
  Result<BlobUpload::State> finish(const Sha256& digest, Unfinished& upload, std::uint64_t number,
                                   os::File& file, bool complete) EXCLUDES(mutex_);

 private:
  Path blobs() const { return options_.root / "blobs"; }
  Path uploads() const { return options_.root / "uploads"; }
  Path path_of(const Sha256& digest) const { return blobs() / digest.hex(); }
  Path path_of(const Sha256& digest, const Unfinished& upload) const {
    return uploads() / (digest.hex() + "-" + std::to_string(upload.total));
  }
  Result<std::optional<BlobInfo>> stored(const Sha256& digest) REQUIRES(mutex_);
  Usage count() REQUIRES(mutex_);
  /// Ends the upload and removes its file. If the disk refuses, the upload stays with no bytes.
  Status drop(const Sha256& digest) REQUIRES(mutex_);
  /// The same, unless another piece took over.
  void drop_own(const Sha256& digest, Unfinished& upload, std::uint64_t number) EXCLUDES(mutex_);
  Status publish(const Sha256& digest, Unfinished& upload, std::uint64_t number) EXCLUDES(mutex_);
  Result<Sha256> hash(os::File& file) const;

  const DirectoryOptions options_;
  os::FileSystem& fs_;
  // Held over calls that change names in the directories, but never over reading, writing or
  // syncing the bytes of a blob.
  Mutex mutex_;
  std::map<Sha256, std::shared_ptr<Unfinished>> unfinished_ GUARDED_BY(mutex_);
  std::set<Sha256> doubtful_ GUARDED_BY(mutex_);  // blobs whose name may not be durable: invisible
  std::uint64_t stored_bytes_ GUARDED_BY(mutex_) = 0, stored_blobs_ GUARDED_BY(mutex_) = 0;
};

class DirectoryUpload final : public BlobUpload {
 public:
  DirectoryUpload(DirectoryStore& store, const Piece& piece, std::shared_ptr<Unfinished> upload,
                  std::uint64_t number, std::unique_ptr<os::File> file)
      : store_(store),
        digest_(piece.digest),
        left_(piece.length),
        upload_(std::move(upload)),
        number_(number),
        file_(std::move(file)) {}
  ~DirectoryUpload() override {
    const MutexLock lock(upload_->mutex);
    if (upload_->writer == number_) upload_->writing = false;
  }

  Status write(std::string_view bytes) override {
    const MutexLock lock(upload_->mutex);
    if (upload_->writer != number_) return taken_over();
    if (bytes.size() > left_)
      return Error(Code::kInvalid, "the body is longer than the piece that it announced");
    TRY_VOID(file_->write(bytes));
    left_ -= bytes.size();
    upload_->held += bytes.size();
    upload_->changed = system_clock().wall();
    return {};
  }

  Result<State> finish() override {
    bool complete = false;
    {
      const MutexLock lock(upload_->mutex);
      if (upload_->writer != number_) return taken_over();
      if (left_ > 0) return Error(Code::kInvalid, "the body is shorter than the piece");
      complete = upload_->held == upload_->total;
      upload_->finishing = true;
    }
    return store_.finish(digest_, *upload_, number_, *file_, complete);
  }

 private:
  DirectoryStore& store_;
  const Sha256 digest_;
  std::uint64_t left_;
  const std::shared_ptr<Unfinished> upload_;
  const std::uint64_t number_;
  const std::unique_ptr<os::File> file_;
};

Status DirectoryStore::prepare() {
  const MutexLock lock(mutex_);
  TRY_VOID(fs_.make_directories(blobs(), 0755));
  TRY_VOID(fs_.make_directories(uploads(), 0755));
  // A killed process may have left names that are not durable. They count as stored from now on.
  TRY_VOID(fs_.sync_directory(options_.root.parent_path()));
  TRY_VOID(fs_.sync_directory(options_.root));
  TRY_VOID(fs_.sync_directory(blobs()));
  TRY(const std::vector<std::string> names, fs_.list(blobs()));
  for (const std::string& name : names) {
    const auto digest = Sha256::parse(name);
    if (!digest.ok()) continue;
    TRY(const auto blob, stored(*digest));
    if (!blob) continue;
    stored_bytes_ += blob->size_bytes;
    ++stored_blobs_;
  }
  TRY(const std::vector<std::string> partial, fs_.list(uploads()));
  for (const std::string& name : partial) {
    const Path path = uploads() / name;
    TRY(const auto info, fs_.stat(path));
    if (!info || info->kind != FileKind::kFile) continue;
    const std::size_t dash = name.find('-');
    const auto digest = Sha256::parse(name.substr(0, dash));
    const auto total = dash == std::string::npos
                           ? std::nullopt
                           : parse_integer<std::uint64_t>(name.substr(dash + 1));
    TRY(const auto blob, digest.ok() ? stored(*digest) : std::optional<BlobInfo>());
    if (!digest.ok() || !total || info->size_bytes > *total || blob ||
        unfinished_.contains(*digest)) {
      TRY_VOID(fs_.remove(path));
      continue;
    }
    const auto upload = std::make_shared<Unfinished>(*total);
    const MutexLock upload_lock(upload->mutex);
    upload->held = info->size_bytes;
    upload->changed = info->modified;
    unfinished_.emplace(*digest, upload);
  }
  return {};
}

Result<std::optional<BlobInfo>> DirectoryStore::stored(const Sha256& digest) {
  if (doubtful_.contains(digest)) return std::optional<BlobInfo>();
  TRY(const auto info, fs_.stat(path_of(digest)));
  if (!info || info->kind != FileKind::kFile) return std::optional<BlobInfo>();
  return std::optional(
      BlobInfo{.digest = digest, .size_bytes = info->size_bytes, .created = info->modified});
}

std::optional<std::uint64_t> DirectoryStore::offset(const Sha256& digest) {
  const MutexLock lock(mutex_);
  const auto at = unfinished_.find(digest);
  if (at == unfinished_.end()) return std::nullopt;
  Unfinished& upload = *at->second;
  const MutexLock upload_lock(upload.mutex);
  // The last byte always remains to be sent: its piece is the request for verification.
  return std::min(upload.held, std::max<std::uint64_t>(upload.total, 1) - 1);
}

Usage DirectoryStore::count() {
  Usage out{.stored_bytes = stored_bytes_, .blobs = stored_blobs_, .uploads = unfinished_.size()};
  for (const auto& [digest, upload] : unfinished_) out.reserved_bytes += upload->total;
  return out;
}

Usage DirectoryStore::usage() {
  const MutexLock lock(mutex_);
  return count();
}

Result<std::unique_ptr<BlobUpload>> DirectoryStore::begin(const Piece& piece) {
  const MutexLock lock(mutex_);
  TRY(const auto blob, stored(piece.digest));
  if (blob) return Error(Code::kAlreadyExists, "the blob is stored already");
  auto at = unfinished_.find(piece.digest);
  if (at != unfinished_.end() && at->second->total != piece.total) {
    // A digest has one total, so one of the two is wrong. The newer one gets its chance.
    TRY_VOID(drop(piece.digest));
    at = unfinished_.end();
  }
  std::size_t running = 0;
  for (const auto& [digest, other] : unfinished_) {
    const MutexLock other_lock(other->mutex);
    if (digest == piece.digest) continue;
    running += other->writing || other->finishing ? 1 : 0;
  }
  if (running >= options_.running_max)
    return Error(Code::kUnavailable,
                 std::to_string(running) + " uploads run at the same time; try again");
  std::shared_ptr<Unfinished> upload;
  if (at == unfinished_.end()) {
    TRY_VOID(check_room(count(),
                        {.bytes = options_.quota_bytes, .unfinished_max = options_.unfinished_max},
                        piece.total));
    upload = std::make_shared<Unfinished>(piece.total);
  } else {
    upload = at->second;
  }
  const MutexLock upload_lock(upload->mutex);
  if (upload->finishing) return verifying();
  if (piece.first > upload->held)
    return Error(Code::kConflict, "the piece begins at " + std::to_string(piece.first) +
                                      ", but the next missing byte is " +
                                      std::to_string(upload->held));
  ++upload->writer;  // from here on, another piece must not write
  upload->writing = false;
  const Path path = path_of(piece.digest, *upload);
  TRY(std::unique_ptr<os::File> file,
      fs_.open(path, piece.first == 0 ? os::Open::kTruncate : os::Open::kCreate, 0644));
  unfinished_[piece.digest] = upload;
  upload->changed = system_clock().wall();
  TRY(const std::uint64_t size, file->size());
  if (size < piece.first) {  // not our work: the file was cut by hand
    upload->held = size;
    return Error(Code::kConflict, "the next missing byte is " + std::to_string(size));
  }
  TRY_VOID(file->truncate(piece.first));
  TRY_VOID(file->seek(piece.first));
  upload->held = piece.first;
  upload->writing = true;
  return std::unique_ptr<BlobUpload>(
      std::make_unique<DirectoryUpload>(*this, piece, upload, upload->writer, std::move(file)));
}

Result<Sha256> DirectoryStore::hash(os::File& file) const {
  TRY_VOID(file.seek(0));
  codec::Sha256Stream stream;
  while (true) {
    TRY(const std::string bytes, file.read(kHashPieceBytes));
    if (bytes.empty()) return stream.finish();
    stream.update(bytes);
  }
}

Result<BlobUpload::State> DirectoryStore::finish(const Sha256& digest, Unfinished& upload,
                                                 std::uint64_t number, os::File& file,
                                                 bool complete) {
  const auto keep_for_retry = [&upload, number] {
    const MutexLock lock(upload.mutex);
    if (upload.writer == number) upload.finishing = false;
  };
  Status synced = file.sync();
  if (synced.ok() && !complete) synced = fs_.sync_directory(uploads());
  if (!synced.ok()) {
    // The kernel may have dropped bytes, and a second sync would succeed without them.
    drop_own(digest, upload, number);
    return std::move(synced).error().context("the upload must start over");
  }
  if (!complete) {
    keep_for_retry();
    return BlobUpload::State::kPartial;
  }
  const auto found = hash(file);
  if (!found.ok()) {
    keep_for_retry();
    return found.error();
  }
  if (*found != digest) {
    drop_own(digest, upload, number);
    return Error(Code::kCorrupt, "the " + std::to_string(upload.total) +
                                     " bytes received have the SHA-256 " + found->hex() +
                                     "; the upload is removed");
  }
  if (const Status published = publish(digest, upload, number); !published.ok()) {
    keep_for_retry();
    return published.error();
  }
  return BlobUpload::State::kStored;
}

Status DirectoryStore::publish(const Sha256& digest, Unfinished& upload, std::uint64_t number) {
  const MutexLock lock(mutex_);
  {
    // After a removal, the name may already belong to the bytes of another upload.
    const MutexLock upload_lock(upload.mutex);
    if (upload.writer != number) return taken_over();
  }
  const Path path = path_of(digest);
  TRY_VOID(fs_.rename(path_of(digest, upload), path));
  unfinished_.erase(digest);
  doubtful_.erase(digest);
  if (Status synced = fs_.sync_directory(blobs()); !synced.ok()) {
    // A blob that a crash may lose must not be shown, or a client would not send it again.
    if (!fs_.remove(path).ok()) doubtful_.insert(digest);
    return std::move(synced).error().context("the upload must start over");
  }
  stored_bytes_ += upload.total;
  ++stored_blobs_;
  return {};
}

void DirectoryStore::drop_own(const Sha256& digest, Unfinished& upload, std::uint64_t number) {
  const MutexLock lock(mutex_);
  {
    const MutexLock upload_lock(upload.mutex);
    if (upload.writer != number) return;
  }
  (void)drop(digest);
}

Status DirectoryStore::drop(const Sha256& digest) {
  const auto at = unfinished_.find(digest);
  if (at == unfinished_.end()) return {};
  const std::shared_ptr<Unfinished> upload = at->second;
  const MutexLock lock(upload->mutex);
  ++upload->writer;
  upload->writing = upload->finishing = false;
  upload->held = 0;
  TRY_VOID(fs_.remove(path_of(digest, *upload)));
  unfinished_.erase(digest);
  return {};
}

Status DirectoryStore::remove(const Sha256& digest) {
  const MutexLock lock(mutex_);
  TRY(const auto blob, stored(digest));
  if (blob) {
    TRY_VOID(fs_.remove(path_of(digest)));
    stored_bytes_ -= blob->size_bytes;
    --stored_blobs_;
    return fs_.sync_directory(blobs());
  }
  const auto at = unfinished_.find(digest);
  if (at == unfinished_.end()) return Error(Code::kNotFound, "there is no such blob");
  {
    const MutexLock upload_lock(at->second->mutex);
    if (at->second->finishing) return verifying();
  }
  return drop(digest);
}

net::Response DirectoryStore::serve(const Sha256& digest, const net::Request& request) {
  const auto blob = find(digest);
  auto file =
      blob.ok() && *blob
          ? fs_.open(path_of(digest), os::Open::kRead)
          : Result<std::unique_ptr<os::File>>(Error(Code::kNotFound, "there is no such blob"));
  if (!file.ok())
    return {.status = 404,
            .headers = {{"Content-Type", "text/plain; charset=utf-8"}},
            .body = file.error().message() + "\n"};
  return artifact::serve_content({.size_bytes = (*blob)->size_bytes,
                                  .tag = "\"sha256:" + digest.hex() + "\"",
                                  .modified = (*blob)->created,
                                  .open = artifact::bytes_of_file(std::move(*file))},
                                 request);
}

Result<std::vector<BlobInfo>> DirectoryStore::list(const std::optional<Sha256>& after,
                                                   std::size_t limit) {
  TRY(const std::vector<std::string> names, fs_.list(blobs()));
  std::vector<BlobInfo> out;
  for (auto name = after ? std::upper_bound(names.begin(), names.end(), after->hex())
                         : names.begin();
       name != names.end() && out.size() < limit; ++name) {
    const auto digest = Sha256::parse(*name);
    if (!digest.ok()) continue;
    TRY(const auto blob, find(*digest));
    if (blob) out.push_back(*blob);
  }
  return out;
}

Result<std::size_t> DirectoryStore::expire_uploads(WallTime unchanged_since) {
  const MutexLock lock(mutex_);
  std::vector<Sha256> expired;
  for (const auto& [digest, upload] : unfinished_) {
    const MutexLock upload_lock(upload->mutex);
    if (!upload->writing && !upload->finishing && upload->changed < unchanged_since)
      expired.push_back(digest);
  }
  for (const Sha256& digest : expired) {
    TRY_VOID(drop(digest));
    log::info("unfinished upload expired", {{"digest", digest.hex()}});
  }
  return expired.size();
}

}  // namespace

Result<std::unique_ptr<BlobStore>> open_directory_store(DirectoryOptions options,
                                                        os::FileSystem& fs) {
  auto store = std::make_unique<DirectoryStore>(std::move(options), fs);
  TRY_VOID(store->prepare());
  return std::unique_ptr<BlobStore>(std::move(store));
}

}  // namespace varda::registry
