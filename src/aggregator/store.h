// The directory of one federated job: its state, models, updates, and unfinished uploads.
//
//   DIR/lock                          one process owns the directory
//   DIR/state.json                    replaced by a rename
//   DIR/files/HEX                     models, states of the rule, by SHA-256
//   DIR/updates/ROUND/HEX.CLIENT      accepted updates; the name is the record
//   DIR/uploads/CLIENT-HEX-TOTAL      unfinished uploads; the length is the offset
//
// An update is accepted by one rename. So no index can disagree with the directory, and accepting
// the thousandth update costs no more than the first.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "base/result.h"
#include "codec/digest.h"
#include "os/file_system.h"

namespace varda::aggregator {

/// An accepted update on the disk.
struct StoredUpdate {
  std::int64_t round = 0;  // for which it counts
  std::string client;
  codec::Sha256 digest;
  friend auto operator<=>(const StoredUpdate&, const StoredUpdate&) = default;
};

/// The bytes [first, first + length) of a file with `total` bytes.
struct UploadPiece {
  std::uint64_t first = 0, length = 0, total = 0;
};

/// A piece that arrives. Its bytes stay for the next piece if the object is destroyed early. One
/// thread at a time.
class Upload {
 public:
  virtual ~Upload() = default;
  /// Quick enough for an I/O thread. kConflict: a newer piece of this upload took over.
  /// kExhausted: the disk is full. kInvalid: more bytes than the piece has.
  virtual Status write(std::string_view bytes) = 0;
  /// Makes the piece durable. Returns the path of the file if all bytes are there and have the
  /// digest. The file is there until this object is destroyed. Blocks. kCorrupt: another digest,
  /// and the upload is gone. kConflict: as write().
  virtual Result<std::optional<os::Path>> finish() = 0;
};

/// Thread-safe. Outlives its uploads.
class Store {
 public:
  /// Longest name of a client as a part of a file's name.
  static constexpr std::size_t kClientBytesMax = 180;
  /// True if the client's name fits into the name of a file: 1 to kClientBytesMax bytes, of which
  /// those other than letters, digits, '-', '.' and '_' count threefold.
  static bool good_client(std::string_view client);

  /// Opens or creates the directory. `fs` outlives the store.
  static Result<std::unique_ptr<Store>> open(os::Path root, os::FileSystem& fs);

  /// The saved state; nothing: a new job.
  Result<std::optional<std::string>> state();
  /// Durable on return. The old state stays on an error.
  Status save_state(std::string_view state);

  /// Stores bytes under their SHA-256. Durable on return.
  Result<codec::Sha256> put(std::string_view bytes);
  os::Path path_of(const codec::Sha256& digest) const { return files() / digest.hex(); }
  Result<std::string> read(const codec::Sha256& digest);
  /// kNotFound: no such file.
  Result<std::unique_ptr<os::File>> open(const codec::Sha256& digest);
  /// The size, or nothing.
  std::optional<std::uint64_t> size_of(const codec::Sha256& digest);
  /// Removes all other files.
  Status keep_only(const std::set<std::string>& hex_digests);

  Result<std::vector<StoredUpdate>> updates();
  os::Path path_of(const StoredUpdate& update) const;
  /// Gives a finished upload its name as an accepted update. Durable on return.
  Status accept(const os::Path& upload, const StoredUpdate& update);
  /// The same for an update in memory. One call at a time for a client.
  Status accept_bytes(std::string_view bytes, const StoredUpdate& update);
  /// Durable on return, so that a crash brings no refused update back.
  Status remove(const StoredUpdate& update);
  /// Removes the directories of earlier rounds with all updates.
  Status remove_rounds_before(std::int64_t round);

  /// Begins or continues an upload. Each client has one at a time: another digest replaces the
  /// unfinished one. kConflict: the piece begins behind the next missing byte, see offset().
  Result<std::unique_ptr<Upload>> begin(const std::string& client, const codec::Sha256& digest,
                                        const UploadPiece& piece) EXCLUDES(mutex_);
  /// The next missing byte of an unfinished upload, below its total.
  std::optional<std::uint64_t> offset(const std::string& client, const codec::Sha256& digest)
      EXCLUDES(mutex_);
  /// Removes the unfinished upload of the client, if any.
  void forget_upload(const std::string& client) EXCLUDES(mutex_);

 private:
  struct Unfinished;
  class Piece;

  Store(os::Path root, os::FileSystem& fs) : root_(std::move(root)), fs_(fs) {}
  Status prepare() EXCLUDES(mutex_);
  os::Path files() const { return root_ / "files"; }
  os::Path uploads() const { return root_ / "uploads"; }
  os::Path round_directory(std::int64_t round) const {
    return root_ / "updates" / std::to_string(round);
  }
  os::Path path_of(const Unfinished& upload) const;
  Status make_round_directory(std::int64_t round) EXCLUDES(mutex_);
  Result<std::optional<os::Path>> finish(Unfinished& upload, std::uint64_t writer, os::File& file)
      EXCLUDES(mutex_);
  void end(Unfinished& upload) EXCLUDES(mutex_);
  Status drop(const std::string& key) REQUIRES(mutex_);

  const os::Path root_;
  os::FileSystem& fs_;
  // Held over calls that change names, never over reading, writing or syncing bytes.
  Mutex mutex_;
  std::map<std::string, std::shared_ptr<Unfinished>> unfinished_ GUARDED_BY(mutex_);  // by client
  std::set<std::int64_t> rounds_ GUARDED_BY(mutex_);  // durable directories
  std::unique_ptr<os::FileLock> lock_;
};

}  // namespace varda::aggregator
