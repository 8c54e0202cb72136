#include "aggregator/store.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/text.h"

namespace varda::aggregator {
namespace {

using codec::Sha256;
using os::Path;

constexpr std::size_t kHashPieceBytes = 256 << 10;
constexpr std::uint64_t kStateBytesMax = std::uint64_t{256} << 20;
constexpr std::uint64_t kFileBytesMax = std::uint64_t{64} << 30;
constexpr std::size_t kClientKeyDigits = 32;

bool is_plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '.' || c == '_';
}

/// "default/w-1" -> "default%2fw-1"
std::string escape_client(std::string_view client) {
  std::string out;
  for (const char c : client)
    out += is_plain(c) ? std::string(1, c) : "%" + codec::hex(std::string_view(&c, 1));
  return out;
}

std::optional<std::string> unescape_client(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    if (text.front() != '%') {
      if (!is_plain(text.front())) return std::nullopt;
      out += text.front();
      text.remove_prefix(1);
      continue;
    }
    unsigned value = 0;
    for (std::size_t i = 1; i <= 2; ++i) {
      const std::size_t digit = i < text.size() ? std::string_view("0123456789abcdef").find(text[i])
                                                : std::string_view::npos;
      if (digit == std::string_view::npos) return std::nullopt;
      value = value * 16 + static_cast<unsigned>(digit);
    }
    out += static_cast<char>(value);
    text.remove_prefix(3);
  }
  return out;
}

std::string upload_key(std::string_view client) {
  return Sha256::of(client).hex().substr(0, kClientKeyDigits);
}

Error taken_over() { return {Code::kConflict, "another request continues this upload"}; }

}  // namespace

bool Store::good_client(std::string_view client) {
  return !client.empty() && client.size() <= kClientBytesMax && client.front() != '.' &&
         escape_client(client).size() <= kClientBytesMax;
}

/// An unfinished upload. A piece takes `mutex` for each write. The store takes its own mutex first.
struct Store::Unfinished {
  Unfinished(std::string client_key, const Sha256& expected, std::uint64_t total_bytes)
      : key(std::move(client_key)), digest(expected), total(total_bytes) {}
  const std::string key;
  const Sha256 digest;
  const std::uint64_t total;
  Mutex mutex;
  std::uint64_t held GUARDED_BY(mutex) = 0;
  std::uint64_t writer GUARDED_BY(mutex) = 0;  // the number of the piece that may write
  bool finishing GUARDED_BY(mutex) = false;    // no other piece may take over
  // Runs over the bytes as they arrive, so that the last piece need not read them again. Absent
  // after a restart and after a piece that began earlier.
  std::unique_ptr<codec::Sha256Stream> hash GUARDED_BY(mutex);
};

class Store::Piece final : public Upload {
 public:
  Piece(Store& store, std::shared_ptr<Unfinished> upload, std::uint64_t number,
        std::uint64_t length, std::unique_ptr<os::File> file)
      : store_(store),
        upload_(std::move(upload)),
        number_(number),
        left_(length),
        file_(std::move(file)) {}
  ~Piece() override {
    if (complete_) store_.end(*upload_);
  }

  Status write(std::string_view bytes) override {
    const MutexLock lock(upload_->mutex);
    if (upload_->writer != number_) return taken_over();
    if (bytes.size() > left_)
      return Error(Code::kInvalid, "the body is longer than the piece that it announced");
    if (const Status written = file_->write(bytes); !written.ok()) {
      upload_->hash.reset();
      return written;
    }
    left_ -= bytes.size();
    upload_->held += bytes.size();
    if (upload_->hash) upload_->hash->update(bytes);
    return {};
  }

  Result<std::optional<Path>> finish() override {
    {
      const MutexLock lock(upload_->mutex);
      if (upload_->writer != number_) return taken_over();
      if (left_ > 0) return Error(Code::kInvalid, "the body is shorter than the piece");
      upload_->finishing = true;
    }
    auto out = store_.finish(*upload_, number_, *file_);
    complete_ = out.ok() && out->has_value();
    return out;
  }

 private:
  Store& store_;
  const std::shared_ptr<Unfinished> upload_;
  const std::uint64_t number_;
  std::uint64_t left_;
  const std::unique_ptr<os::File> file_;
  bool complete_ = false;
};

Result<std::unique_ptr<Store>> Store::open(Path root, os::FileSystem& fs) {
  std::unique_ptr<Store> store(new Store(std::move(root), fs));
  TRY_VOID(store->prepare().context(store->root_.string()));
  return store;
}

Status Store::prepare() {
  TRY_VOID(fs_.make_directories(files()));
  TRY_VOID(fs_.make_directories(uploads()));
  TRY_VOID(fs_.make_directories(root_ / "updates"));
  if (&fs_ == &os::real_file_system()) {
    TRY(lock_, os::FileLock::acquire(root_ / "lock"));
  }
  TRY_VOID(os::remove_leftovers(fs_, root_));
  TRY_VOID(os::remove_leftovers(fs_, files()));
  // A killed process may have left names that are not durable. They count as durable from now on.
  TRY_VOID(fs_.sync_directory(root_.parent_path()));
  for (const Path& directory : {root_, files(), uploads(), root_ / "updates"})
    TRY_VOID(fs_.sync_directory(directory));
  const MutexLock lock(mutex_);
  TRY(const std::vector<std::string> rounds, fs_.list(root_ / "updates"));
  for (const std::string& name : rounds) {
    const auto round = parse_integer<std::int64_t>(name);
    if (!round) continue;
    TRY_VOID(fs_.sync_directory(round_directory(*round)));
    rounds_.insert(*round);
  }
  TRY(const std::vector<std::string> names, fs_.list(uploads()));
  for (const std::string& name : names) {
    const std::vector<std::string_view> parts = split(name, '-');
    const Path path = uploads() / name;
    TRY(const auto info, fs_.stat(path));
    if (!info) continue;
    const auto digest = parts.size() == 3 ? Sha256::parse(parts[1]) : Error(Code::kInvalid, "");
    const auto total = parts.size() == 3 ? parse_integer<std::uint64_t>(parts[2]) : std::nullopt;
    const std::string key(parts[0]);
    if (!digest.ok() || !total || info->size_bytes > *total || unfinished_.contains(key)) {
      TRY_VOID(fs_.remove(path));
      continue;
    }
    const auto upload = std::make_shared<Unfinished>(key, *digest, *total);
    const MutexLock upload_lock(upload->mutex);
    upload->held = info->size_bytes;
    unfinished_.emplace(key, upload);
  }
  return {};
}

Result<std::optional<std::string>> Store::state() {
  TRY(const auto info, fs_.stat(root_ / "state.json"));
  if (!info) return std::optional<std::string>();
  TRY(std::string text, os::read_file(fs_, root_ / "state.json", kStateBytesMax));
  return std::optional(std::move(text));
}

Status Store::save_state(std::string_view state) {
  // The state of a private job has the seed of the noise.
  return os::write_file_atomically(fs_, root_ / "state.json", state, 0600);
}

Result<Sha256> Store::put(std::string_view bytes) {
  const Sha256 digest = Sha256::of(bytes);
  TRY_VOID(os::write_file_atomically(fs_, path_of(digest), bytes));
  return digest;
}

Result<std::string> Store::read(const Sha256& digest) {
  TRY(std::string bytes, os::read_file(fs_, path_of(digest), kFileBytesMax));
  if (Sha256::of(bytes) != digest)
    return Error(Code::kCorrupt, path_of(digest).string() + " has another SHA-256 than its name");
  return bytes;
}

Result<std::unique_ptr<os::File>> Store::open(const Sha256& digest) {
  return fs_.open(path_of(digest), os::Open::kRead);
}

std::optional<std::uint64_t> Store::size_of(const Sha256& digest) {
  const auto info = fs_.stat(path_of(digest));
  if (!info.ok() || !*info) return std::nullopt;
  return (*info)->size_bytes;
}

Status Store::keep_only(const std::set<std::string>& hex_digests) {
  TRY(const std::vector<std::string> names, fs_.list(files()));
  for (const std::string& name : names)
    if (!hex_digests.contains(name)) TRY_VOID(fs_.remove(files() / name));
  return {};
}

// ---- updates ----

Result<std::vector<StoredUpdate>> Store::updates() {
  std::vector<StoredUpdate> out;
  std::set<std::int64_t> rounds;
  {
    const MutexLock lock(mutex_);
    rounds = rounds_;
  }
  for (const std::int64_t round : rounds) {
    TRY(const std::vector<std::string> names, fs_.list(round_directory(round)));
    for (const std::string& name : names) {
      const std::size_t dot = name.find('.');
      const auto digest = Sha256::parse(name.substr(0, dot));
      const auto client = dot == std::string::npos
                              ? std::nullopt
                              : unescape_client(std::string_view(name).substr(dot + 1));
      if (digest.ok() && client && good_client(*client)) out.push_back({round, *client, *digest});
    }
  }
  std::sort(out.begin(), out.end());
  return out;
}

Path Store::path_of(const StoredUpdate& update) const {
  return round_directory(update.round) / (update.digest.hex() + "." + escape_client(update.client));
}

Status Store::make_round_directory(std::int64_t round) {
  const MutexLock lock(mutex_);
  if (rounds_.contains(round)) return {};
  TRY_VOID(fs_.make_directories(round_directory(round)));
  TRY_VOID(fs_.sync_directory(root_ / "updates"));
  rounds_.insert(round);
  return {};
}

Status Store::accept(const Path& upload, const StoredUpdate& update) {
  TRY_VOID(make_round_directory(update.round));
  TRY_VOID(fs_.rename(upload, path_of(update)));
  return fs_.sync_directory(round_directory(update.round));
}

Status Store::accept_bytes(std::string_view bytes, const StoredUpdate& update) {
  // A scratch file in the directory of the round could look like an update of another client.
  const Path scratch = uploads() / (upload_key(update.client) + "-memory");
  {
    TRY(const auto file, fs_.open(scratch, os::Open::kTruncate));
    TRY_VOID(file->write(bytes));
    TRY_VOID(file->sync());
  }
  return accept(scratch, update);
}

Status Store::remove(const StoredUpdate& update) {
  TRY_VOID(fs_.remove(path_of(update)));
  return fs_.sync_directory(round_directory(update.round));
}

Status Store::remove_rounds_before(std::int64_t round) {
  std::vector<std::int64_t> old;
  {
    const MutexLock lock(mutex_);
    old.assign(rounds_.begin(), rounds_.lower_bound(round));
    rounds_.erase(rounds_.begin(), rounds_.lower_bound(round));
  }
  for (const std::int64_t one : old) TRY_VOID(fs_.remove_all(round_directory(one)));
  return {};
}

// ---- uploads ----

Path Store::path_of(const Unfinished& upload) const {
  return uploads() / (upload.key + "-" + upload.digest.hex() + "-" + std::to_string(upload.total));
}

std::optional<std::uint64_t> Store::offset(const std::string& client, const Sha256& digest) {
  const MutexLock lock(mutex_);
  const auto at = unfinished_.find(upload_key(client));
  if (at == unfinished_.end() || at->second->digest != digest) return std::nullopt;
  Unfinished& upload = *at->second;
  const MutexLock upload_lock(upload.mutex);
  // The last byte always remains to be sent: its piece is the request for a decision.
  return std::min(upload.held, std::max<std::uint64_t>(upload.total, 1) - 1);
}

Status Store::drop(const std::string& key) {
  const auto at = unfinished_.find(key);
  if (at == unfinished_.end()) return {};
  const std::shared_ptr<Unfinished> upload = at->second;
  const MutexLock lock(upload->mutex);
  ++upload->writer;
  upload->held = 0;
  upload->hash.reset();
  TRY_VOID(fs_.remove(path_of(*upload)));
  unfinished_.erase(key);
  return {};
}

void Store::forget_upload(const std::string& client) {
  const MutexLock lock(mutex_);
  if (const Status dropped = drop(upload_key(client)); !dropped.ok())
    log::warn("unfinished upload not removed", {{"client", client}, {"error", dropped.error()}});
}

Result<std::unique_ptr<Upload>> Store::begin(const std::string& client, const Sha256& digest,
                                             const UploadPiece& piece) {
  const std::string key = upload_key(client);
  const MutexLock lock(mutex_);
  auto at = unfinished_.find(key);
  if (at != unfinished_.end() &&
      (at->second->digest != digest || at->second->total != piece.total)) {
    {
      const MutexLock upload_lock(at->second->mutex);
      if (at->second->finishing)
        return Error(Code::kUnavailable, "another update of this client is being checked");
    }
    TRY_VOID(drop(key));
    at = unfinished_.end();
  }
  const auto upload =
      at != unfinished_.end() ? at->second : std::make_shared<Unfinished>(key, digest, piece.total);
  const MutexLock upload_lock(upload->mutex);
  if (upload->finishing) return Error(Code::kUnavailable, "this update is being checked");
  if (piece.first > upload->held)
    return Error(Code::kConflict, "the piece begins at " + std::to_string(piece.first) +
                                      ", but the next missing byte is " +
                                      std::to_string(upload->held));
  ++upload->writer;  // from here on, another piece must not write
  TRY(std::unique_ptr<os::File> file,
      fs_.open(path_of(*upload), piece.first == 0 ? os::Open::kTruncate : os::Open::kCreate));
  unfinished_[key] = upload;
  TRY(const std::uint64_t size, file->size());
  if (size < piece.first) {  // the file was cut by hand
    upload->held = size;
    return Error(Code::kConflict, "the next missing byte is " + std::to_string(size));
  }
  if (size > piece.first) TRY_VOID(file->truncate(piece.first));
  TRY_VOID(file->seek(piece.first));
  if (piece.first == 0)
    upload->hash = std::make_unique<codec::Sha256Stream>();
  else if (piece.first != upload->held)
    upload->hash.reset();
  upload->held = piece.first;
  return std::unique_ptr<Upload>(
      std::make_unique<Piece>(*this, upload, upload->writer, piece.length, std::move(file)));
}

Result<std::optional<Path>> Store::finish(Unfinished& upload, std::uint64_t writer,
                                          os::File& file) {
  const auto keep = [&upload] {
    const MutexLock lock(upload.mutex);
    upload.finishing = false;
  };
  const auto give_up = [&] {
    const MutexLock lock(mutex_);
    {
      const MutexLock upload_lock(upload.mutex);
      upload.finishing = false;
      if (upload.writer != writer) return;
    }
    (void)drop(std::string(upload.key));
  };
  std::unique_ptr<codec::Sha256Stream> hash;
  bool complete = false;
  {
    const MutexLock lock(upload.mutex);
    complete = upload.held == upload.total;
    if (complete) hash = std::move(upload.hash);
  }
  Status synced = file.sync();
  if (synced.ok() && !complete) synced = fs_.sync_directory(uploads());
  if (!synced.ok()) {
    // The kernel may have dropped bytes, and a second sync would succeed without them.
    give_up();
    return std::move(synced).error().context("the upload must start over");
  }
  if (!complete) {
    keep();
    return std::optional<Path>();
  }
  if (!hash) {
    hash = std::make_unique<codec::Sha256Stream>();
    Status read = file.seek(0);
    while (read.ok()) {
      auto bytes = file.read(kHashPieceBytes);
      if (!bytes.ok()) read = bytes.error();
      if (!bytes.ok() || bytes->empty()) break;
      hash->update(*bytes);
    }
    if (!read.ok()) {
      keep();
      return read.error();
    }
  }
  const Sha256 found = hash->finish();
  if (found != upload.digest) {
    give_up();
    return Error(Code::kCorrupt, "the " + std::to_string(upload.total) +
                                     " bytes received have the SHA-256 " + found.hex());
  }
  return std::optional(path_of(upload));
}

void Store::end(Unfinished& upload) {
  const MutexLock lock(mutex_);
  if (const Status removed = fs_.remove(path_of(upload)); !removed.ok())
    log::warn("upload not removed", {{"error", removed.error()}});
  const auto at = unfinished_.find(upload.key);
  if (at != unfinished_.end() && at->second.get() == &upload) unfinished_.erase(at);
}

}  // namespace varda::aggregator
