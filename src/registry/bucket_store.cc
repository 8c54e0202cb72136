#include "registry/bucket_store.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "artifact/file_server.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/text.h"
#include "net/server.h"
#include "registry/bucket_stream.h"
#include "registry/quota.h"

namespace varda::registry {
namespace {

using codec::Sha256;
using State = BlobUpload::State;

// A sender holds one part in memory.
constexpr std::size_t kSenders = 4, kReaders = 4;
constexpr std::uint64_t kHashBytes = 4 << 20;  // of one request of a verification
constexpr std::string_view kBlobs = "blobs/", kUploads = "uploads/";

std::string blob_key(const Sha256& digest) { return std::string(kBlobs) + digest.hex(); }

std::string record_key(const Sha256& digest, std::uint64_t total) {
  return std::string(kUploads) + digest.hex() + "-" + std::to_string(total);
}

Error another_writer() {
  return {Code::kConflict, "another request continues the upload of this blob"};
}

Error busy_upload() {
  return {Code::kUnavailable, "the upload of this blob is being verified or removed; try again"};
}

Error start_over() {
  return {Code::kUnavailable, "the bucket lost the upload; it must start over"};
}

/// An unfinished upload. The store takes its own mutex first.
struct BucketPending {
  BucketPending(const Sha256& sha, std::uint64_t total_bytes) : digest(sha), total(total_bytes) {}

  /// A part of the current piece can be sent.
  bool due(std::uint64_t part_bytes) const REQUIRES(mutex) {
    return !failure && end > held && (end == total || end - held >= part_bytes);
  }

  const Sha256 digest;
  const std::uint64_t total;
  Mutex mutex;
  CondVar changed_state;
  // The bucket has the bytes [0, held), whole parts. The spool has [held, end).
  std::uint64_t held GUARDED_BY(mutex) = 0, end GUARDED_BY(mutex) = 0;
  std::uint64_t writer GUARDED_BY(mutex) = 0;         // the number of the piece that may write
  bool writing GUARDED_BY(mutex) = false;             // that piece is alive
  bool finishing GUARDED_BY(mutex) = false;           // no other piece may take over
  bool sending GUARDED_BY(mutex) = false;             // a part is on its way to the bucket
  std::uint64_t sending_until GUARDED_BY(mutex) = 0;  // the end of that part
  WallTime changed GUARDED_BY(mutex) = {};
  std::unique_ptr<os::File> file GUARDED_BY(mutex);  // of the part at `end`; null: not open
  std::uint64_t file_part GUARDED_BY(mutex) = 0;     // its number, from 0
  std::optional<Error> failure GUARDED_BY(mutex);    // of the current piece
  // Belongs to the current piece, until its end. It only posts a message, so the lock may be
  // held.
  std::function<void()> wake GUARDED_BY(mutex);

  // These belong to the thread that set `sending`, or else to the thread that set `finishing`.
  std::string id;  // of the multipart upload; "": not begun
  std::vector<BucketPart> parts;
  // Covers the bytes [0, hashed). Null after a restart.
  std::unique_ptr<codec::Sha256Stream> hash = std::make_unique<codec::Sha256Stream>();
  std::uint64_t hashed = 0;
  bool complete = false;  // the object exists in the bucket
  bool verified = false;  // its bytes have the digest
};

class BucketStore final : public BlobStore {
 public:
  BucketStore(const Context& ctx, BucketStoreOptions options, Bucket& bucket, os::FileSystem& fs)
      : ctx_(ctx), options_(std::move(options)), bucket_(bucket), fs_(fs) {}

  Status prepare() EXCLUDES(mutex_);
  Result<std::optional<BlobInfo>> find(const Sha256& digest) override EXCLUDES(mutex_);
  std::optional<std::uint64_t> offset(const Sha256& digest) override EXCLUDES(mutex_);
  Result<std::unique_ptr<BlobUpload>> begin(const Piece& piece) override EXCLUDES(mutex_);
  net::Response serve(const Sha256& digest, const net::Request& request) override EXCLUDES(mutex_);
  Status remove(const Sha256& digest) override EXCLUDES(mutex_);
  Result<std::vector<BlobInfo>> list(const std::optional<Sha256>& after, std::size_t limit) override
      EXCLUDES(mutex_);
  Result<std::size_t> expire_uploads(WallTime unchanged_since) override EXCLUDES(mutex_);
  Usage usage() override EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return count();
  }

  // For pieces.
  /// False: two parts wait already.
  bool has_room(const BucketPending& upload) const REQUIRES(upload.mutex) {
    return upload.failure || upload.end - upload.held < 2 * options_.part_bytes;
  }
  Status spool(BucketPending& upload, std::string_view bytes) const REQUIRES(upload.mutex);
  /// Sends the next part if it is there and no other part is on its way.
  void pump(const std::shared_ptr<BucketPending>& upload) REQUIRES(upload->mutex);
  Result<State> finish(const std::shared_ptr<BucketPending>& upload, std::uint64_t number)
      EXCLUDES(mutex_);

 private:
  Usage count() REQUIRES(mutex_);
  Status resume(const BucketObject& record) REQUIRES(mutex_);
  Status resume_spool(const std::string& name) REQUIRES(mutex_);
  os::Path spool_path(const BucketPending& upload, std::uint64_t part) const {
    return options_.spool /
           (upload.digest.hex() + "-" + std::to_string(upload.total) + "-" + std::to_string(part));
  }
  /// Forgets the bytes of the spool from `end` on.
  Status cut_spool(BucketPending& upload, std::uint64_t end) const REQUIRES(upload.mutex);
  /// Makes the spooled bytes safe against a power cut, or else forgets them.
  Status sync_spool(BucketPending& upload) EXCLUDES(upload.mutex);
  /// Sends the part that pump() chose.
  void send(const std::shared_ptr<BucketPending>& upload);
  Status send_part(BucketPending& upload, std::uint64_t first, std::uint64_t length);
  /// kGone: another program changed the file.
  Result<std::string> read_spool(const BucketPending& upload, std::uint64_t part,
                                 std::uint64_t length) const;
  /// The bucket has all bytes: makes the object, and checks its digest.
  Status seal(BucketPending& upload);
  Result<Sha256> hash_object(const BucketPending& upload);
  /// The upload starts over.
  void forget_parts(BucketPending& upload) const REQUIRES(upload.mutex);
  /// Removes the upload from the bucket, then from memory. The caller has set `finishing`.
  Status discard(const std::shared_ptr<BucketPending>& upload) EXCLUDES(mutex_);

  const Context ctx_;
  const BucketStoreOptions options_;
  Bucket& bucket_;
  os::FileSystem& fs_;
  // Never held over requests to the bucket, because I/O threads take it.
  Mutex mutex_;
  std::map<Sha256, BlobInfo> blobs_ GUARDED_BY(mutex_);
  std::set<Sha256> removing_ GUARDED_BY(mutex_);
  std::map<Sha256, std::shared_ptr<BucketPending>> pending_ GUARDED_BY(mutex_);
  std::uint64_t stored_bytes_ GUARDED_BY(mutex_) = 0;
  // Last, because running work uses the members above.
  net::HandlerPool senders_{{.threads = kSenders, .queue_max = SIZE_MAX}};
  net::HandlerPool readers_{{.threads = kReaders, .queue_max = SIZE_MAX}};
};

class BucketUpload final : public BlobUpload {
 public:
  /// `skip`: that many bytes are in the bucket already.
  BucketUpload(BucketStore& store, std::shared_ptr<BucketPending> upload, std::uint64_t number,
               std::uint64_t skip, std::uint64_t length)
      : store_(store), upload_(std::move(upload)), number_(number), skip_(skip), left_(length) {}
  ~BucketUpload() override {
    const MutexLock lock(upload_->mutex);
    if (upload_->writer != number_) return;
    upload_->writing = false;
    upload_->wake = nullptr;
  }

  Status write(std::string_view bytes) override {
    const MutexLock lock(upload_->mutex);
    if (upload_->writer != number_) return another_writer();
    if (upload_->failure) return *upload_->failure;
    if (bytes.size() > left_)
      return Error(Code::kInvalid, "the body is longer than the piece that it announced");
    left_ -= bytes.size();
    const std::uint64_t known = std::min<std::uint64_t>(skip_, bytes.size());
    skip_ -= known;
    bytes.remove_prefix(known);
    TRY_VOID(store_.spool(*upload_, bytes));
    upload_->changed = system_clock().wall();
    store_.pump(upload_);
    return {};
  }
  bool ready() override {
    const MutexLock lock(upload_->mutex);
    return upload_->writer != number_ || store_.has_room(*upload_);
  }
  void on_ready(std::function<void()> wake) override {
    const MutexLock lock(upload_->mutex);
    if (upload_->writer == number_) upload_->wake = std::move(wake);
  }
  Result<State> finish() override {
    {
      const MutexLock lock(upload_->mutex);
      if (upload_->writer != number_) return another_writer();
      if (left_ > 0) return Error(Code::kInvalid, "the body is shorter than the piece");
      upload_->finishing = true;
    }
    return store_.finish(upload_, number_);
  }

 private:
  BucketStore& store_;
  const std::shared_ptr<BucketPending> upload_;
  const std::uint64_t number_;
  std::uint64_t skip_, left_;
};

Status BucketStore::prepare() {
  TRY_VOID(fs_.make_directories(options_.spool, 0700));
  TRY_VOID(fs_.sync_directory(options_.spool.parent_path()));
  TRY(const std::vector<std::string> spooled, fs_.list(options_.spool));
  TRY(const std::vector<BucketObject> objects, bucket_.list(ctx_, std::string(kBlobs)));
  TRY(const std::vector<BucketObject> records, bucket_.list(ctx_, std::string(kUploads)));
  const MutexLock lock(mutex_);
  for (const BucketObject& object : objects) {
    const auto digest = Sha256::parse(std::string_view(object.key).substr(kBlobs.size()));
    if (!digest.ok()) continue;
    blobs_[*digest] = {
        .digest = *digest, .size_bytes = object.size_bytes, .created = object.modified};
  }
  for (const BucketObject& record : records) TRY_VOID(resume(record));
  for (const std::string& name : spooled) TRY_VOID(resume_spool(name));
  for (const auto& [digest, blob] : blobs_) stored_bytes_ += blob.size_bytes;
  return {};
}

/// Continues an upload of an earlier process.
Status BucketStore::resume(const BucketObject& record) {
  const std::string_view name = std::string_view(record.key).substr(kUploads.size());
  const std::size_t dash = std::min(name.find('-'), name.size());
  const auto digest = Sha256::parse(name.substr(0, dash));
  const auto total = parse_integer<std::uint64_t>(name.substr(std::min(dash + 1, name.size())));
  if (!digest.ok() || !total || record.size_bytes > kRangeBytes) return {};
  const auto upload = std::make_shared<BucketPending>(*digest, *total);
  TRY(upload->id, bucket_.get(ctx_, record.key, 0, kRangeBytes));
  if (pending_.contains(*digest)) {  // a second total for the same digest
    TRY_VOID(bucket_.abort(ctx_, blob_key(*digest), upload->id));
    return bucket_.remove(ctx_, record.key);
  }
  auto parts = bucket_.parts(ctx_, blob_key(*digest), upload->id);
  const auto blob = blobs_.find(*digest);
  const bool whole = blob != blobs_.end() && blob->second.size_bytes == *total;
  if (blob != blobs_.end()) blobs_.erase(blob);
  if (!parts.ok() && parts.error().code() != Code::kNotFound) return parts.error();
  if (!parts.ok() && !whole) {
    // The upload was aborted in the bucket. An object of another size is not this blob.
    TRY_VOID(bucket_.remove(ctx_, blob_key(*digest)));
    return bucket_.remove(ctx_, record.key);
  }
  const MutexLock lock(upload->mutex);
  upload->changed = record.modified;
  if (!parts.ok()) {
    upload->complete = true;
    upload->held = *total;
  } else {
    for (const BucketPart& part : *parts) {
      const std::uint64_t due = std::min(options_.part_bytes, *total - upload->held);
      const auto number = static_cast<std::size_t>(part.number);
      if (number != upload->parts.size() + 1 || part.size_bytes != due || due == 0) break;
      upload->held += due;
      upload->changed = std::max(upload->changed, part.modified);
      upload->parts.push_back(part);
    }
  }
  upload->end = upload->held;
  if (upload->held > 0) upload->hash.reset();
  pending_[*digest] = upload;
  return {};
}

/// The file continues its upload if it has the first bytes that the bucket lacks.
Status BucketStore::resume_spool(const std::string& name) {
  const os::Path path = options_.spool / name;
  const std::vector<std::string_view> words = split(name, '-');
  const auto digest = Sha256::parse(words[0]);
  const auto number = [&words](std::size_t word) {
    return word < words.size() ? parse_integer<std::uint64_t>(words[word]) : std::nullopt;
  };
  const auto total = number(1), part = number(2);
  TRY(const auto info, fs_.stat(path));
  if (!info || !digest.ok() || !total || !part || blobs_.contains(*digest)) return fs_.remove(path);
  auto upload = std::make_shared<BucketPending>(*digest, *total);
  if (const auto known = pending_.find(*digest); known != pending_.end()) upload = known->second;
  const MutexLock lock(upload->mutex);
  const std::uint64_t room = std::min(options_.part_bytes, upload->total - upload->held);
  if (upload->total != *total || *part != upload->held / options_.part_bytes || room == 0 ||
      info->size_bytes > room)
    return fs_.remove(path);
  upload->end = upload->held + info->size_bytes;
  upload->changed = std::max<WallTime>(upload->changed, info->modified);
  pending_[*digest] = upload;
  return {};
}

Result<std::optional<BlobInfo>> BucketStore::find(const Sha256& digest) {
  const MutexLock lock(mutex_);
  const auto blob = blobs_.find(digest);
  return blob == blobs_.end() ? std::nullopt : std::optional(blob->second);
}

std::optional<std::uint64_t> BucketStore::offset(const Sha256& digest) {
  const MutexLock lock(mutex_);
  const auto at = pending_.find(digest);
  if (at == pending_.end()) return std::nullopt;
  const std::shared_ptr<BucketPending> upload = at->second;
  const MutexLock upload_lock(upload->mutex);
  // The last byte always remains to be sent: its piece is the request for verification.
  return std::min(upload->end, std::max<std::uint64_t>(upload->total, 1) - 1);
}

Usage BucketStore::count() {
  Usage out{.stored_bytes = stored_bytes_, .blobs = blobs_.size(), .uploads = pending_.size()};
  for (const auto& [digest, upload] : pending_) out.reserved_bytes += upload->total;
  return out;
}

Result<std::unique_ptr<BlobUpload>> BucketStore::begin(const Piece& piece) {
  const MutexLock lock(mutex_);
  if (blobs_.contains(piece.digest))
    return Error(Code::kAlreadyExists, "the blob is stored already");
  if (removing_.contains(piece.digest)) return busy_upload();
  const std::uint64_t largest = BucketPart::kNumberMax * options_.part_bytes;
  if (piece.total > largest)
    return Error(Code::kInvalid,
                 "a blob in a bucket has at most " + std::to_string(largest) + " bytes");
  std::size_t running = 0;
  for (const auto& [digest, other] : pending_) {
    const MutexLock other_lock(other->mutex);
    if (digest == piece.digest) continue;
    running += other->writing || other->finishing ? 1 : 0;
  }
  if (running >= options_.running_max)
    return Error(Code::kUnavailable,
                 std::to_string(running) + " uploads run at the same time; try again");
  const auto at = pending_.find(piece.digest);
  std::shared_ptr<BucketPending> upload;
  if (at == pending_.end()) {
    TRY_VOID(check_room(count(),
                        {.bytes = options_.quota_bytes, .unfinished_max = options_.unfinished_max},
                        piece.total));
    upload = std::make_shared<BucketPending>(piece.digest, piece.total);
  } else {
    upload = at->second;
  }
  const MutexLock upload_lock(upload->mutex);
  if (upload->finishing) return busy_upload();
  if (upload->total != piece.total) {
    // A digest has one total, so one of the two is wrong. The newer one gets its chance.
    upload->finishing = true;
    // On a reader, because it may wait for a sender.
    run_on(readers_, [this, upload] { (void)discard(upload); });
    return busy_upload();
  }
  if (piece.first > upload->end)
    return Error(Code::kConflict, "the piece begins at " + std::to_string(piece.first) +
                                      ", but the next missing byte is " +
                                      std::to_string(upload->end));
  if (upload->wake) upload->wake();  // the former piece learns that it is replaced
  upload->wake = nullptr;
  ++upload->writer;
  upload->writing = false;
  // Bytes in the bucket, or on their way, stay. Of others, the newer ones count.
  const std::uint64_t fixed = upload->sending ? upload->sending_until : upload->held;
  const std::uint64_t start = std::max(piece.first, fixed);
  TRY_VOID(cut_spool(*upload, start));
  upload->writing = true;
  upload->failure.reset();
  upload->changed = system_clock().wall();
  pending_[piece.digest] = upload;
  pump(upload);
  return std::unique_ptr<BlobUpload>(std::make_unique<BucketUpload>(
      *this, upload, upload->writer, start - piece.first, piece.length));
}

Status BucketStore::spool(BucketPending& upload, std::string_view bytes) const {
  while (!bytes.empty()) {
    const std::uint64_t part = upload.end / options_.part_bytes;
    const std::uint64_t at = upload.end % options_.part_bytes;
    if (!upload.file || upload.file_part != part) {
      TRY(upload.file, fs_.open(spool_path(upload, part),
                                at == 0 ? os::Open::kTruncate : os::Open::kCreate, 0600));
      upload.file_part = part;
    }
    const std::string_view run = bytes.substr(0, options_.part_bytes - at);
    TRY_VOID(upload.file->seek(at));
    TRY_VOID(upload.file->write(run));
    upload.end += run.size();
    bytes.remove_prefix(run.size());
  }
  return {};
}

Status BucketStore::cut_spool(BucketPending& upload, std::uint64_t end) const {
  if (end >= upload.end) return {};
  upload.file.reset();
  const std::uint64_t last = (upload.end - 1) / options_.part_bytes;
  upload.end = end;
  const std::uint64_t part = end / options_.part_bytes, at = end % options_.part_bytes;
  for (std::uint64_t gone = at == 0 ? part : part + 1; gone <= last; ++gone)
    TRY_VOID(fs_.remove(spool_path(upload, gone)));
  if (at == 0) return {};
  TRY(const auto file, fs_.open(spool_path(upload, part), os::Open::kCreate, 0600));
  return file->truncate(at);
}

Status BucketStore::sync_spool(BucketPending& upload) {
  std::uint64_t part = 0;
  {
    const MutexLock lock(upload.mutex);
    if (upload.end == upload.held) return {};
    part = upload.held / options_.part_bytes;
  }
  // An earlier process may have written some of the bytes, so the file may not be open.
  const auto file = fs_.open(spool_path(upload, part), os::Open::kRead);
  Status synced = file.ok() ? (*file)->sync() : Status(file.error());
  if (synced.ok()) synced = fs_.sync_directory(options_.spool);
  if (synced.ok()) return {};
  // The kernel may have dropped bytes, and a second sync would succeed without them.
  const MutexLock lock(upload.mutex);
  (void)cut_spool(upload, upload.held);
  return std::move(synced).error().context("the client must send the piece again");
}

Result<std::string> BucketStore::read_spool(const BucketPending& upload, std::uint64_t part,
                                            std::uint64_t length) const {
  const Error gone(Code::kGone, "the spool of the upload was cut");
  const auto file = fs_.open(spool_path(upload, part), os::Open::kRead);
  if (!file.ok()) return gone;
  std::string out;
  out.reserve(length);
  while (out.size() < length) {
    TRY(const std::string bytes, (*file)->read(std::min(length - out.size(), kRangeBytes)));
    if (bytes.empty()) return gone;
    out += bytes;
  }
  return out;
}

void BucketStore::pump(const std::shared_ptr<BucketPending>& upload) {
  if (upload->sending || !upload->due(options_.part_bytes)) return;
  upload->sending = true;
  upload->sending_until = std::min(upload->held + options_.part_bytes, upload->end);
  run_on(senders_, [this, upload] { send(upload); });
}

void BucketStore::send(const std::shared_ptr<BucketPending>& upload) {
  std::uint64_t first = 0, length = 0;
  {
    const MutexLock lock(upload->mutex);
    first = upload->held;
    length = upload->sending_until - first;
  }
  const Status sent = send_part(*upload, first, length);
  if (sent.ok()) (void)fs_.remove(spool_path(*upload, first / options_.part_bytes));
  const MutexLock lock(upload->mutex);
  upload->sending = false;
  if (sent.ok()) {
    upload->held += length;
  } else if (sent.error().code() == Code::kNotFound) {
    forget_parts(*upload);
    upload->failure = start_over();
  } else if (sent.error().code() == Code::kGone) {
    (void)cut_spool(*upload, upload->held);
    upload->failure = Error(Code::kUnavailable, sent.error().message());
  } else {
    upload->failure = sent.error();
  }
  pump(upload);
  if (upload->wake) upload->wake();
  upload->changed_state.notify_all();
}

Status BucketStore::send_part(BucketPending& upload, std::uint64_t first, std::uint64_t length) {
  const std::uint64_t number = first / options_.part_bytes;
  TRY(std::string bytes, read_spool(upload, number, length));
  const std::string key = blob_key(upload.digest);
  bool fresh = true;
  const Bucket::Body body = [&]() -> Result<std::string> {
    if (std::exchange(fresh, false)) return std::move(bytes);
    return read_spool(upload, number, length);
  };
  if (upload.total <= options_.part_bytes) {
    if (Sha256::of(bytes) != upload.digest)
      return Error(Code::kCorrupt, "the " + std::to_string(upload.total) +
                                       " bytes received have the SHA-256 " +
                                       Sha256::of(bytes).hex() + "; the upload is removed");
    TRY_VOID(bucket_.put(ctx_, key, body));
    upload.complete = upload.verified = true;
    return {};
  }
  if (upload.hash && upload.hashed != first) upload.hash.reset();
  if (upload.hash) upload.hash->update(bytes);
  upload.hashed = first + length;
  if (upload.id.empty()) {
    TRY(const std::string id, bucket_.begin_upload(ctx_, key));
    const std::string record = record_key(upload.digest, upload.total);
    if (const Status kept =
            bucket_.put(ctx_, record, [&id]() -> Result<std::string> { return id; });
        !kept.ok()) {
      (void)bucket_.abort(ctx_, key, id);
      return kept;
    }
    upload.id = id;
  }
  auto part = bucket_.put_part(ctx_, key, upload.id, static_cast<int>(number) + 1, body);
  if (!part.ok()) return part.error();
  part->size_bytes = length;
  upload.parts.push_back(std::move(*part));
  return {};
}

Result<State> BucketStore::finish(const std::shared_ptr<BucketPending>& upload,
                                  std::uint64_t number) {
  std::optional<Error> failure;
  bool complete = false;
  {
    const MutexLock lock(upload->mutex);
    while (upload->writer == number && upload->sending) upload->changed_state.wait(upload->mutex);
    if (upload->writer != number) return another_writer();
    failure = upload->failure;
    complete = upload->held == upload->total;
  }
  if (!failure && !complete) {
    const Status synced = sync_spool(*upload);
    const MutexLock lock(upload->mutex);
    upload->finishing = false;
    if (!synced.ok()) return synced.error();
    return State::kPartial;
  }
  const Status sealed = failure ? Status(*failure) : seal(*upload);
  if (sealed.ok()) {
    const MutexLock lock(mutex_);
    pending_.erase(upload->digest);
    blobs_[upload->digest] = {
        .digest = upload->digest, .size_bytes = upload->total, .created = system_clock().wall()};
    stored_bytes_ += upload->total;
    return State::kStored;
  }
  if (sealed.error().code() == Code::kCorrupt) {
    TRY_VOID(discard(upload));
    return sealed.error();
  }
  const MutexLock lock(upload->mutex);
  upload->finishing = false;
  return sealed.error();
}

Result<Sha256> BucketStore::hash_object(const BucketPending& upload) {
  codec::Sha256Stream stream;
  for (std::uint64_t at = 0; at < upload.total;) {
    TRY(const std::string bytes, bucket_.get(ctx_, blob_key(upload.digest), at, kHashBytes));
    if (bytes.empty()) return Error(Code::kUnavailable, "the object in the bucket is too short");
    stream.update(bytes);
    at += bytes.size();
  }
  return stream.finish();
}

void BucketStore::forget_parts(BucketPending& upload) const {
  upload.id.clear();
  upload.parts.clear();
  upload.hash = std::make_unique<codec::Sha256Stream>();
  upload.hashed = 0;
  (void)cut_spool(upload, upload.held);
  upload.held = upload.end = 0;
}

Status BucketStore::seal(BucketPending& upload) {
  const std::string key = blob_key(upload.digest);
  const auto check = [&upload](const Sha256& found) -> Status {
    upload.verified = found == upload.digest;
    if (upload.verified) return {};
    return Error(Code::kCorrupt, "the " + std::to_string(upload.total) +
                                     " bytes received have the SHA-256 " + found.hex() +
                                     "; the upload is removed");
  };
  if (upload.hash && upload.hashed == upload.total && !upload.verified) {
    const auto hash = std::move(upload.hash);
    TRY_VOID(check(hash->finish()));
  }
  if (!upload.complete && upload.total == 0) {
    TRY_VOID(bucket_.put(ctx_, key, []() -> Result<std::string> { return std::string(); }));
    upload.complete = true;
  }
  if (!upload.complete) {
    const Status completed = bucket_.complete(ctx_, key, upload.id, upload.parts);
    if (!completed.ok() && completed.error().code() != Code::kNotFound) return completed;
    if (!completed.ok()) {
      // An attempt without an answer may have completed the upload. Else a part is missing.
      TRY(const auto objects, bucket_.list(ctx_, key));
      if (objects.size() != 1 || objects[0].size_bytes != upload.total) {
        (void)bucket_.abort(ctx_, key, upload.id);
        const MutexLock lock(upload.mutex);
        forget_parts(upload);
        return start_over();
      }
      upload.verified = false;
    }
    upload.complete = true;
  }
  if (!upload.verified) {
    TRY(const Sha256 found, hash_object(upload));
    TRY_VOID(check(found));
  }
  if (upload.total <= options_.part_bytes) return {};
  // From here on the blob is visible, also after a restart.
  return bucket_.remove(ctx_, record_key(upload.digest, upload.total));
}

Status BucketStore::discard(const std::shared_ptr<BucketPending>& upload) {
  {
    const MutexLock lock(upload->mutex);
    ++upload->writer;
    upload->writing = false;
    if (upload->wake) upload->wake();
    upload->wake = nullptr;
    while (upload->sending) upload->changed_state.wait(upload->mutex);
  }
  const std::string key = blob_key(upload->digest);
  Status removed =
      upload->id.empty() || upload->complete ? Status() : bucket_.abort(ctx_, key, upload->id);
  if (removed.ok()) removed = bucket_.remove(ctx_, key);
  if (removed.ok() && upload->total > options_.part_bytes)
    removed = bucket_.remove(ctx_, record_key(upload->digest, upload->total));
  {
    const MutexLock lock(upload->mutex);
    if (removed.ok()) removed = cut_spool(*upload, upload->held);
    if (!removed.ok()) {
      upload->finishing = false;
      return removed;
    }
  }
  const MutexLock lock(mutex_);
  pending_.erase(upload->digest);
  return {};
}

Status BucketStore::remove(const Sha256& digest) {
  std::shared_ptr<BucketPending> upload;
  {
    const MutexLock lock(mutex_);
    if (const auto blob = blobs_.find(digest); blob != blobs_.end()) {
      stored_bytes_ -= blob->second.size_bytes;
      blobs_.erase(blob);
      removing_.insert(digest);
    } else if (const auto at = pending_.find(digest); at != pending_.end()) {
      upload = at->second;
      const MutexLock upload_lock(upload->mutex);
      if (upload->finishing) return busy_upload();
      upload->finishing = true;
    } else {
      return Error(Code::kNotFound, "there is no such blob");
    }
  }
  if (upload) return discard(upload);
  // After a failure the object may exist or not. It stays invisible until a restart.
  const Status removed = bucket_.remove(ctx_, blob_key(digest));
  const MutexLock lock(mutex_);
  removing_.erase(digest);
  return removed;
}

net::Response BucketStore::serve(const Sha256& digest, const net::Request& request) {
  const auto refuse = [](int status, const std::string& why) {
    net::Response out{.status = status,
                      .headers = {{"Content-Type", "text/plain; charset=utf-8"}},
                      .body = why + "\n"};
    if (status == 503) out.headers.add("Retry-After", "1");
    return out;
  };
  const auto blob = find(digest);
  if (!blob.ok() || !*blob) return refuse(404, "there is no such blob");
  std::optional<Error> failure;
  const auto open = [&](std::uint64_t first,
                        std::uint64_t length) -> Result<std::unique_ptr<net::BodyStream>> {
    const std::string key = blob_key(digest);
    const std::uint64_t begin = std::min(length, kRangeBytes);
    auto bytes = bucket_.get(ctx_, key, first, begin);
    if (bytes.ok() && bytes->size() != begin)
      bytes = Error(Code::kUnavailable, "the object in the bucket is too short");
    if (!bytes.ok()) {
      failure = bytes.error();
      return bytes.error();
    }
    return stream_object({.ctx = ctx_, .bucket = bucket_, .readers = readers_, .key = key},
                         std::move(*bytes), first + begin, first + length);
  };
  net::Response out = artifact::serve_content({.size_bytes = (*blob)->size_bytes,
                                               .tag = "\"sha256:" + digest.hex() + "\"",
                                               .modified = (*blob)->created,
                                               .open = open},
                                              request);
  if (!failure) return out;
  if (failure->code() != Code::kNotFound) return refuse(503, failure->message());
  // Another program removed the object from the bucket. Clients may send it again.
  const MutexLock lock(mutex_);
  if (blobs_.erase(digest) > 0) stored_bytes_ -= (*blob)->size_bytes;
  return refuse(404, "the blob is gone from the bucket");
}

Result<std::vector<BlobInfo>> BucketStore::list(const std::optional<Sha256>& after,
                                                std::size_t limit) {
  const MutexLock lock(mutex_);
  std::vector<BlobInfo> out;
  for (auto blob = after ? blobs_.upper_bound(*after) : blobs_.begin();
       blob != blobs_.end() && out.size() < limit; ++blob)
    out.push_back(blob->second);
  return out;
}

Result<std::size_t> BucketStore::expire_uploads(WallTime unchanged_since) {
  std::vector<std::shared_ptr<BucketPending>> expired;
  {
    const MutexLock lock(mutex_);
    for (const auto& [digest, upload] : pending_) {
      const MutexLock upload_lock(upload->mutex);
      if (upload->writing || upload->finishing || upload->changed >= unchanged_since) continue;
      upload->finishing = true;
      expired.push_back(upload);
    }
  }
  Status first_failure;
  std::size_t count = 0;
  for (const auto& upload : expired) {
    const Status removed = discard(upload);
    if (!removed.ok()) {
      if (first_failure.ok()) first_failure = removed;
      continue;
    }
    ++count;
    log::info("unfinished upload expired", {{"digest", upload->digest.hex()}});
  }
  TRY_VOID(first_failure);
  return count;
}

}  // namespace

Result<std::unique_ptr<BlobStore>> open_bucket_store(const Context& ctx, BucketStoreOptions options,
                                                     Bucket& bucket, os::FileSystem& fs) {
  auto store = std::make_unique<BucketStore>(ctx, std::move(options), bucket, fs);
  TRY_VOID(store->prepare());
  return std::unique_ptr<BlobStore>(std::move(store));
}

}  // namespace varda::registry
