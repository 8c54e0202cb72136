// ArtifactStore: files that workers hand over, on the node's disk until the registry has them.
//
//   ROOT/WHO.WHAT-TOTAL      the bytes so far; the length is the offset of an unfinished upload
//   agent.db artifacts/KEY   {uid, artifacts: [{name, sha256, bytes, file, state, reason, upload}]}
//
// WHO and WHAT are hex digits of SHA-256: of the worker, and of the artifact's name. The record
// accepts a file: without an entry in the record, the file is an unfinished upload. An accepted
// artifact is never changed.
//
// Bytes of an unfinished upload are not synced, and have no digest yet. They survive a kill of the
// agent, but after a reboot they are unknown and removed.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/core/state_store.h"
#include "api/edgeai/edge_node.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "codec/digest.h"
#include "codec/json.h"
#include "os/file_system.h"
#include "runtime/task.h"

namespace varda::agent::workers {

/// A worker that may hand over files.
struct ArtifactOwner {
  std::string key, uid;
  std::uint64_t bytes_max = 0;  // of one file, and of all files that wait; 0: no files
  std::optional<api::EdgeBucket> bucket = {};  // absent: the files go to the registry
  friend bool operator==(const ArtifactOwner&, const ArtifactOwner&) = default;
};

/// The bytes [first, first + length) of an artifact with `total` bytes.
struct ArtifactPiece {
  std::string name;
  std::uint64_t first = 0, length = 0, total = 0;
};

struct Artifact {
  static constexpr std::string_view kWaiting = "Waiting", kUploading = "Uploading",
                                    kUploaded = "Uploaded", kFailed = "Failed";
  std::string name;
  codec::Sha256 sha256;
  std::uint64_t bytes = 0, sent = 0;
  std::string state{kWaiting}, reason;
  std::string file;          // below ROOT; "": removed
  std::string upload = {};   // identifier of the multipart upload to a bucket; "": none
  SteadyTime retry_at = {};  // if kWaiting
};

/// Thread-safe.
class ArtifactStore {
 public:
  static constexpr std::size_t kArtifactsMax = 16;  // of a worker; old uploaded ones make room

  struct Options {
    os::Path root;
    std::string boot;               // identifies this boot of the machine; "": unknown
    const Clock* clock = nullptr;   // null: the system clock
    std::function<void()> changed;  // runs after changes of reports; must be quick
  };
  /// All references outlive the store.
  ArtifactStore(Options options, os::FileSystem& fs, core::StateStore& state_store);

  /// Reads records and files. Call it first. After a failure begin() refuses all pieces.
  Status load();
  bool loaded() const;
  /// Repeats a failed load(), then applies the last set_owners().
  Status load_again();
  /// Drops the files and records of all other workers. Retries waiting uploads at once.
  void set_owners(const std::vector<ArtifactOwner>& owners);

  /// Restores uploaded files of a worker in the list, {NAME: {sha256, bytes, state}}, from a report
  /// that an earlier disk of the node made. Present files stay.
  void adopt(const std::string& key, const std::string& uid, const codec::Json& uploaded);

  class Upload {
   public:
    virtual ~Upload() = default;
    /// Quick enough for an I/O thread. kConflict: a newer piece took over. kUnavailable: the disk
    /// failed, or is full.
    virtual Status write(std::string_view bytes) = 0;
    /// After the last byte, makes the file durable and accepts the artifact. Blocks. Nothing: more
    /// bytes are missing. kUnavailable: retry.
    virtual Result<std::optional<Artifact>> finish() = 0;
  };
  /// Quick. kForbidden: the worker may not upload. kExhausted: the file is larger than allowed.
  /// kUnavailable: other files of the worker must be sent first, or the disk is full. kConflict:
  /// the piece begins after offset(). kAlreadyExists: find() has the name.
  Result<std::unique_ptr<Upload>> begin(const ArtifactOwner& owner, const ArtifactPiece& piece);
  /// The accepted artifact.
  std::optional<Artifact> find(const ArtifactOwner& owner, const std::string& name) const;
  /// Where the next piece may begin; nothing: no unfinished upload.
  std::optional<std::uint64_t> offset(const ArtifactOwner& owner, const std::string& name) const;
  /// {NAME: {sha256, bytes, sent, state, reason?}}; {}: none.
  codec::Json report(const std::string& key, const std::string& uid) const;

  // ---- for the sender

  struct Pending {
    std::string key, uid;
    Artifact artifact;
    os::Path path;
    std::optional<codec::Sha256> base;      // an uploaded artifact that may have the same parts
    std::optional<api::EdgeBucket> bucket;  // absent: the registry
  };
  /// When the first waiting artifact is due; nothing: none waits, or set_owners() was not called
  /// yet, so that the place of the files is unknown.
  std::optional<SteadyTime> due() const;
  /// Takes the artifact that has been due longest, which is now kUploading.
  std::optional<Pending> take();
  void set_sent(const Pending& pending, std::uint64_t sent);
  /// Persists the identifier of the artifact's multipart upload.
  Status set_upload(const Pending& pending, const std::string& id);
  /// The registry has the file. Removes it here, once that is recorded.
  void set_uploaded(const Pending& pending);
  void set_waiting(const Pending& pending, std::string reason, SteadyTime retry_at);
  /// The file is lost for ever.
  void set_failed(const Pending& pending, std::string reason);

  runtime::Wakeup& wakeup() { return wakeup_; }

 private:
  class Piece;
  struct Unfinished;
  struct Record {
    std::string uid;
    std::vector<Artifact> artifacts;  // in order of acceptance
  };
  using Records = std::map<std::string, Record>;

  os::Path path_of(const std::string& file) const { return options_.root / file; }
  Result<std::optional<Artifact>> finish(const ArtifactOwner& owner, const ArtifactPiece& piece,
                                         Unfinished& upload, std::uint64_t number, os::File& file);
  Status accept(const ArtifactOwner& owner, const Artifact& artifact) EXCLUDES(writing_, mutex_);
  void drop(const std::string& stem, const Unfinished& upload, std::uint64_t number)
      EXCLUDES(mutex_);
  Status check_room(const ArtifactOwner& owner, const ArtifactPiece& piece,
                    const std::string& stem) const REQUIRES(mutex_);
  const Artifact* find_locked(const std::string& key, const std::string& uid,
                              const std::string& name) const REQUIRES(mutex_);
  /// Changes one artifact of the record, if it still exists.
  void change(const Pending& pending, const std::function<void(Artifact&)>& by) EXCLUDES(mutex_);
  /// The same, also on disk.
  Status change_record(const Pending& pending, const std::function<void(Artifact&)>& by)
      EXCLUDES(writing_, mutex_);
  Status put(const std::string& key, const Record& record);
  void replace_owners(const std::vector<ArtifactOwner>& owners) REQUIRES(writing_) EXCLUDES(mutex_);
  void notify();

  const Options options_;
  const Clock& clock_;
  os::FileSystem& fs_;
  core::StateStore& state_store_;
  runtime::Wakeup wakeup_;
  Mutex writing_;        // orders changes of records; held over disk writes; taken before mutex_
  mutable Mutex mutex_;  // taken before those of uploads
  bool loaded_ GUARDED_BY(mutex_) = false;
  std::optional<std::vector<ArtifactOwner>> owners_ GUARDED_BY(mutex_);  // absent: no list yet
  std::optional<std::vector<ArtifactOwner>> early_owners_ GUARDED_BY(mutex_);  // before loaded_
  Records records_ GUARDED_BY(mutex_);
  std::map<std::string, std::shared_ptr<Unfinished>> unfinished_ GUARDED_BY(mutex_);  // by stem
};

}  // namespace varda::agent::workers
