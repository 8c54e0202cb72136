#include "agent/workers/artifact_store.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/log.h"
#include "base/text.h"

namespace varda::agent::workers {
namespace {

using codec::Json;
using codec::Sha256;

constexpr std::string_view kArtifactRecords = "artifacts/", kArtifactBoot = "artifact-boot";
constexpr std::size_t kWhoDigits = 12, kWhatDigits = 32;
constexpr std::size_t kHashReadBytes = 256 << 10;

std::string who_of(const std::string& key, const std::string& uid) {
  return Sha256::of(key + "\n" + uid).hex().substr(0, kWhoDigits);
}

/// The file's name without the total.
std::string stem_of(const std::string& key, const std::string& uid, const std::string& name) {
  return who_of(key, uid) + "." + Sha256::of(name).hex().substr(0, kWhatDigits);
}

Error newer_piece() {
  return {Code::kConflict, "another request continues the upload of this artifact"};
}

/// A full or broken disk may recover. kExhausted would end the run of the worker.
template <typename T>
T as_unavailable(T result) {
  if (result.ok()) return result;
  return Error(Code::kUnavailable, "the node's disk failed: " + result.error().message());
}

Result<Sha256> sha256_of(os::File& file) {
  TRY_VOID(file.seek(0));
  codec::Sha256Stream stream;
  while (true) {
    TRY(const std::string bytes, file.read(kHashReadBytes));
    if (bytes.empty()) return stream.finish();
    stream.update(bytes);
  }
}

Json record_of(const Artifact& artifact) {
  const bool ended = artifact.state == Artifact::kUploaded || artifact.state == Artifact::kFailed;
  return Json::object({{"name", artifact.name},
                       {"sha256", artifact.sha256.hex()},
                       {"bytes", artifact.bytes},
                       {"file", artifact.file},
                       {"upload", ended ? std::string() : artifact.upload},
                       {"state", ended ? artifact.state : std::string(Artifact::kWaiting)},
                       {"reason", ended ? artifact.reason : std::string()}});
}

std::optional<Artifact> read_artifact(const Json& json) {
  const auto sha256 = Sha256::parse(json["sha256"].as_string());
  if (!sha256.ok() || json["name"].as_string().empty()) return std::nullopt;
  Artifact out;
  out.name = json["name"].as_string();
  out.sha256 = *sha256;
  out.bytes = static_cast<std::uint64_t>(std::max<std::int64_t>(json["bytes"].as_integer(), 0));
  out.file = json["file"].as_string();
  out.state = json["state"].as_string();
  out.reason = json["reason"].as_string();
  out.upload = json["upload"].as_string();
  if (out.state == Artifact::kUploaded) out.sent = out.bytes;
  return out;
}

/// Finds the uploaded artifact with the most similar beginning of the name; the newest wins a tie.
/// So weights-3 gets weights-2, although log-3 is newer.
std::optional<codec::Sha256> base_for(const Artifact& artifact, const std::vector<Artifact>& all) {
  std::optional<codec::Sha256> best;
  std::size_t best_length = 0;
  for (const Artifact& other : all) {
    if (other.state != Artifact::kUploaded) continue;
    const auto [mine, its] = std::mismatch(artifact.name.begin(), artifact.name.end(),
                                           other.name.begin(), other.name.end());
    const auto length = static_cast<std::size_t>(mine - artifact.name.begin());
    if (best && length < best_length) continue;
    best = other.sha256;
    best_length = length;
  }
  return best;
}

}  // namespace

struct ArtifactStore::Unfinished {
  Unfinished(std::string file_name, std::uint64_t total_bytes)
      : file(std::move(file_name)), total(total_bytes) {}
  const std::string file;
  const std::uint64_t total;
  Mutex mutex;
  std::uint64_t held GUARDED_BY(mutex) = 0;
  std::uint64_t writer GUARDED_BY(mutex) = 0;  // number of the piece that may write and finish
  bool finishing GUARDED_BY(mutex) = false;    // no other piece may take over
};

/// One piece being received.
class ArtifactStore::Piece final : public Upload {
 public:
  Piece(ArtifactStore& store, ArtifactOwner owner, ArtifactPiece piece,
        std::shared_ptr<Unfinished> upload, std::uint64_t number, std::unique_ptr<os::File> file)
      : store_(store),
        owner_(std::move(owner)),
        piece_(std::move(piece)),
        left_(piece_.length),
        upload_(std::move(upload)),
        number_(number),
        file_(std::move(file)) {}

  Status write(std::string_view bytes) override {
    const MutexLock lock(upload_->mutex);
    if (upload_->writer != number_) return newer_piece();
    if (bytes.size() > left_)
      return Error(Code::kInvalid, "the body is longer than the piece that it announced");
    TRY_VOID(as_unavailable(file_->write(bytes)));
    left_ -= bytes.size();
    upload_->held += bytes.size();
    return {};
  }
  Result<std::optional<Artifact>> finish() override {
    if (left_ > 0) return Error(Code::kInvalid, "the body is shorter than the piece");
    return store_.finish(owner_, piece_, *upload_, number_, *file_);
  }

 private:
  ArtifactStore& store_;
  const ArtifactOwner owner_;
  const ArtifactPiece piece_;
  std::uint64_t left_;
  const std::shared_ptr<Unfinished> upload_;
  const std::uint64_t number_;
  const std::unique_ptr<os::File> file_;
};

ArtifactStore::ArtifactStore(Options options, os::FileSystem& fs, core::StateStore& state_store)
    : options_(std::move(options)),
      clock_(options_.clock != nullptr ? *options_.clock : system_clock()),
      fs_(fs),
      state_store_(state_store) {}

void ArtifactStore::notify() {
  wakeup_.notify();
  if (options_.changed) options_.changed();
}

// ---- records

Status ArtifactStore::load() {
  TRY_VOID(fs_.make_directories(options_.root, 0700));
  TRY_VOID(fs_.sync_directory(options_.root.parent_path()));
  TRY(const Json last, state_store_.get(kArtifactBoot));
  const bool rebooted = options_.boot.empty() || last["id"].as_string() != options_.boot;
  TRY(const auto stored, state_store_.entries(std::string(kArtifactRecords)));
  TRY(const std::vector<std::string> names, fs_.list(options_.root));
  Records records;
  std::set<std::string> wanted, recorded;
  for (const auto& [key, json] : stored) {
    Record& record = records[key.substr(kArtifactRecords.size())];
    record.uid = json["uid"].as_string();
    for (const Json& item : json["artifacts"].as_array()) {
      auto artifact = read_artifact(item);
      if (!artifact) continue;
      recorded.insert(stem_of(key.substr(kArtifactRecords.size()), record.uid, artifact->name));
      if (artifact->state == Artifact::kWaiting) {
        TRY(const auto info, fs_.stat(path_of(artifact->file)));
        if (info && info->size_bytes == artifact->bytes) {
          wanted.insert(artifact->file);
        } else {
          artifact->state = Artifact::kFailed;
          artifact->reason = "the file is missing on the node's disk";
          artifact->file.clear();
        }
      }
      record.artifacts.push_back(std::move(*artifact));
    }
  }
  std::map<std::string, std::shared_ptr<Unfinished>> unfinished;
  for (const std::string& name : names) {
    if (wanted.contains(name)) continue;
    const std::size_t dash = name.find('-');
    const auto total = dash == std::string::npos
                           ? std::nullopt
                           : parse_integer<std::uint64_t>(name.substr(dash + 1));
    TRY(const auto info, fs_.stat(path_of(name)));
    const std::string stem = name.substr(0, dash);
    // A crash may leave the file of an uploaded artifact.
    if (rebooted || !total || !info || info->size_bytes > *total || recorded.contains(stem) ||
        unfinished.contains(stem)) {
      TRY_VOID(fs_.remove_all(path_of(name)));
      continue;
    }
    const auto upload = std::make_shared<Unfinished>(name, *total);
    const MutexLock upload_lock(upload->mutex);
    upload->held = info->size_bytes;
    unfinished.emplace(stem, upload);
  }
  if (rebooted) TRY_VOID(state_store_.put(kArtifactBoot, Json::object({{"id", options_.boot}})));
  const MutexLock lock(mutex_);
  records_ = std::move(records);
  unfinished_ = std::move(unfinished);
  loaded_ = true;
  return {};
}

bool ArtifactStore::loaded() const {
  const MutexLock lock(mutex_);
  return loaded_;
}

Status ArtifactStore::load_again() {
  const MutexLock writing(writing_);
  TRY_VOID(load());
  std::optional<std::vector<ArtifactOwner>> owners;
  {
    const MutexLock lock(mutex_);
    owners = std::exchange(early_owners_, std::nullopt);
  }
  if (owners) replace_owners(*owners);
  return {};
}

Status ArtifactStore::put(const std::string& key, const Record& record) {
  Json artifacts = Json::array();
  for (const Artifact& artifact : record.artifacts) artifacts.push_back(record_of(artifact));
  return state_store_.put_all(
      {{std::string(kArtifactRecords) + key,
        Json::object({{"uid", record.uid}, {"artifacts", std::move(artifacts)}})}});
}

void ArtifactStore::set_owners(const std::vector<ArtifactOwner>& owners) {
  const MutexLock writing(writing_);
  replace_owners(owners);
}

void ArtifactStore::replace_owners(const std::vector<ArtifactOwner>& owners) {
  std::map<std::string, Json> removals;
  std::vector<std::string> files;
  {
    const MutexLock lock(mutex_);
    if (!loaded_) early_owners_ = owners;
    if (!loaded_ || owners_ == owners) return;
    owners_ = owners;
    std::set<std::string> present;
    std::map<std::string, std::string> uids;
    for (const ArtifactOwner& owner : owners) {
      present.insert(who_of(owner.key, owner.uid));
      uids[owner.key] = owner.uid;
    }
    for (auto at = records_.begin(); at != records_.end();) {
      const auto uid = uids.find(at->first);
      if (uid != uids.end() && uid->second == at->second.uid) {
        for (Artifact& artifact : at->second.artifacts) artifact.retry_at = {};
        ++at;
        continue;
      }
      removals.emplace(std::string(kArtifactRecords) + at->first, Json());
      for (const Artifact& artifact : at->second.artifacts) {
        if (artifact.file.empty()) continue;
        files.push_back(artifact.file);
        if (artifact.state != Artifact::kUploaded)
          log::warn("artifact of a removed worker dropped before its upload",
                    {{"worker", at->first}, {"artifact", artifact.name}});
      }
      at = records_.erase(at);
    }
    for (auto at = unfinished_.begin(); at != unfinished_.end();) {
      if (present.contains(at->first.substr(0, kWhoDigits))) {
        ++at;
        continue;
      }
      const MutexLock upload_lock(at->second->mutex);
      ++at->second->writer;
      files.push_back(at->second->file);
      at = unfinished_.erase(at);
    }
  }
  Status removed = state_store_.put_all(removals);
  // After a failed write, load() removes the files with the records' next owners.
  for (const std::string& file : files)
    if (removed.ok()) removed = fs_.remove(path_of(file));
  if (!removed.ok())
    log::warn("artifacts of removed workers not removed", {{"error", removed.error()}});
  notify();
}

void ArtifactStore::adopt(const std::string& key, const std::string& uid, const Json& uploaded) {
  const MutexLock writing(writing_);
  Record record;
  {
    const MutexLock lock(mutex_);
    if (!loaded_ || !owners_ ||
        std::none_of(owners_->begin(), owners_->end(),
                     [&](const ArtifactOwner& one) { return one.key == key && one.uid == uid; }))
      return;
    if (const auto found = records_.find(key); found != records_.end() && found->second.uid == uid)
      record = found->second;
  }
  record.uid = uid;
  const std::size_t before = record.artifacts.size();
  for (const auto& [name, entry] : uploaded.as_object()) {
    // clang 14 captures no structured bindings.
    const bool present =
        std::any_of(record.artifacts.begin(), record.artifacts.end(),
                    [&wanted = name](const Artifact& one) { return one.name == wanted; });
    if (present || record.artifacts.size() >= kArtifactsMax) continue;
    Json item = entry;
    item.set("name", name);
    auto artifact = read_artifact(item);
    if (!artifact || artifact->state != Artifact::kUploaded) continue;
    artifact->file.clear();
    artifact->upload.clear();
    artifact->reason.clear();
    record.artifacts.push_back(std::move(*artifact));
  }
  if (record.artifacts.size() == before) return;
  // In memory in any case, since the worker's results are there, too.
  if (const Status written = put(key, record); !written.ok())
    log::warn("artifact record not written", {{"worker", key}, {"error", written.error()}});
  {
    const MutexLock lock(mutex_);
    records_[key] = std::move(record);
  }
  notify();
}

const Artifact* ArtifactStore::find_locked(const std::string& key, const std::string& uid,
                                           const std::string& name) const {
  const auto record = records_.find(key);
  if (record == records_.end() || record->second.uid != uid) return nullptr;
  const auto& all = record->second.artifacts;
  const auto found = std::find_if(all.begin(), all.end(),
                                  [&](const Artifact& artifact) { return artifact.name == name; });
  return found == all.end() ? nullptr : &*found;
}

std::optional<Artifact> ArtifactStore::find(const ArtifactOwner& owner,
                                            const std::string& name) const {
  const MutexLock lock(mutex_);
  const Artifact* found = find_locked(owner.key, owner.uid, name);
  return found == nullptr ? std::nullopt : std::optional(*found);
}

Json ArtifactStore::report(const std::string& key, const std::string& uid) const {
  Json out = Json::object();
  const MutexLock lock(mutex_);
  const auto record = records_.find(key);
  if (record == records_.end() || record->second.uid != uid) return out;
  for (const Artifact& artifact : record->second.artifacts) {
    Json one = Json::object({{"sha256", artifact.sha256.hex()},
                             {"bytes", artifact.bytes},
                             {"sent", artifact.sent},
                             {"state", artifact.state}});
    if (!artifact.reason.empty()) one.set("reason", artifact.reason);
    out.set(artifact.name, std::move(one));
  }
  return out;
}

// ---- receiving

std::optional<std::uint64_t> ArtifactStore::offset(const ArtifactOwner& owner,
                                                   const std::string& name) const {
  const MutexLock lock(mutex_);
  const auto at = unfinished_.find(stem_of(owner.key, owner.uid, name));
  if (at == unfinished_.end()) return std::nullopt;
  Unfinished& upload = *at->second;
  const MutexLock upload_lock(upload.mutex);
  // The last byte always remains to be sent: its piece is the request for the acknowledgement.
  return std::min(upload.held, std::max<std::uint64_t>(upload.total, 1) - 1);
}

Status ArtifactStore::check_room(const ArtifactOwner& owner, const ArtifactPiece& piece,
                                 const std::string& stem) const {
  if (owner.bytes_max == 0)
    return Error(Code::kForbidden,
                 "worker " + owner.key + " may not upload files: the worker's job has no uploads");
  if (piece.total > owner.bytes_max)
    return Error(Code::kExhausted, "the file has " + std::to_string(piece.total) +
                                       " bytes, and uploads.maxBytes of the job is " +
                                       std::to_string(owner.bytes_max));
  std::uint64_t waiting = piece.total;
  std::size_t count = 0;
  const auto record = records_.find(owner.key);
  if (record != records_.end() && record->second.uid == owner.uid) {
    for (const Artifact& artifact : record->second.artifacts) {
      if (artifact.file.empty()) continue;
      waiting += artifact.bytes;
      ++count;
    }
  }
  const std::string who = who_of(owner.key, owner.uid);
  for (const auto& [other, upload] : unfinished_) {
    if (other == stem || !other.starts_with(who)) continue;
    waiting += upload->total;
    ++count;
  }
  if (waiting > owner.bytes_max)
    return Error(Code::kUnavailable,
                 "files of the worker wait for their upload, and with this one they would exceed "
                 "uploads.maxBytes of the job, " +
                     std::to_string(owner.bytes_max) + "; try again later");
  if (count >= kArtifactsMax)
    return Error(Code::kUnavailable, std::to_string(count) +
                                         " files of the worker wait for their upload; try again "
                                         "later");
  return {};
}

Result<std::unique_ptr<ArtifactStore::Upload>> ArtifactStore::begin(const ArtifactOwner& owner,
                                                                    const ArtifactPiece& piece) {
  const std::string stem = stem_of(owner.key, owner.uid, piece.name);
  const MutexLock lock(mutex_);
  if (!loaded_) return Error(Code::kUnavailable, "the node's disk cannot take files now");
  if (!owners_ || std::none_of(owners_->begin(), owners_->end(), [&](const ArtifactOwner& one) {
        return one.key == owner.key && one.uid == owner.uid && one.bytes_max == owner.bytes_max;
      }))
    return Error(Code::kUnavailable, "the node's work list changes; try again");
  if (find_locked(owner.key, owner.uid, piece.name) != nullptr)
    return Error(Code::kAlreadyExists, "artifact " + piece.name + " is accepted already");
  TRY_VOID(check_room(owner, piece, stem));
  auto at = unfinished_.find(stem);
  if (at != unfinished_.end() && at->second->total != piece.total) {
    const MutexLock other_lock(at->second->mutex);
    if (at->second->finishing) return newer_piece();
    TRY_VOID(as_unavailable(fs_.remove(path_of(at->second->file))));
    ++at->second->writer;
    unfinished_.erase(at);
    at = unfinished_.end();
  }
  const auto upload =
      at != unfinished_.end()
          ? at->second
          : std::make_shared<Unfinished>(stem + "-" + std::to_string(piece.total), piece.total);
  const MutexLock upload_lock(upload->mutex);
  if (upload->finishing)
    return Error(Code::kUnavailable, "the last piece of this artifact is being written; try again");
  if (piece.first > upload->held)
    return Error(Code::kConflict, "the piece begins at " + std::to_string(piece.first) +
                                      ", but the next missing byte is " +
                                      std::to_string(upload->held));
  ++upload->writer;  // from here on, another piece must not write
  TRY(std::unique_ptr<os::File> file,
      as_unavailable(fs_.open(path_of(upload->file),
                              piece.first == 0 ? os::Open::kTruncate : os::Open::kCreate, 0600)));
  unfinished_[stem] = upload;
  TRY(const std::uint64_t size, as_unavailable(file->size()));
  if (size < piece.first) {  // cut by hand
    upload->held = size;
    return Error(Code::kConflict, "the next missing byte is " + std::to_string(size));
  }
  TRY_VOID(as_unavailable(file->truncate(piece.first)));
  TRY_VOID(as_unavailable(file->seek(piece.first)));
  upload->held = piece.first;
  return std::unique_ptr<Upload>(
      std::make_unique<Piece>(*this, owner, piece, upload, upload->writer, std::move(file)));
}

void ArtifactStore::drop(const std::string& stem, const Unfinished& upload, std::uint64_t number) {
  const MutexLock lock(mutex_);
  const auto at = unfinished_.find(stem);
  if (at == unfinished_.end() || at->second.get() != &upload) return;
  const std::shared_ptr<Unfinished> held = at->second;
  const MutexLock upload_lock(held->mutex);
  if (held->writer != number) return;
  held->held = 0;
  held->finishing = false;
  if (fs_.remove(path_of(held->file)).ok()) unfinished_.erase(at);
}

Result<std::optional<Artifact>> ArtifactStore::finish(const ArtifactOwner& owner,
                                                      const ArtifactPiece& piece,
                                                      Unfinished& upload, std::uint64_t number,
                                                      os::File& file) {
  const std::string stem = stem_of(owner.key, owner.uid, piece.name);
  bool complete = false;
  {
    const MutexLock lock(upload.mutex);
    if (upload.writer != number) return newer_piece();
    complete = upload.held == upload.total;
    upload.finishing = true;
  }
  const auto keep_for_retry = [&upload, number] {
    const MutexLock lock(upload.mutex);
    if (upload.writer == number) upload.finishing = false;
  };
  if (!complete) {
    keep_for_retry();
    return std::optional<Artifact>();
  }
  Status synced = file.sync();
  if (synced.ok()) synced = fs_.sync_directory(options_.root);
  if (!synced.ok()) {
    // The kernel may have dropped bytes, and a second sync would succeed without them.
    drop(stem, upload, number);
    return Error(Code::kUnavailable,
                 "the node's disk failed: " + synced.error().message() + "; start over");
  }
  const auto sha256 = sha256_of(file);
  if (!sha256.ok()) {
    keep_for_retry();
    return Error(Code::kUnavailable, "the node's disk failed: " + sha256.error().message());
  }
  Artifact artifact;
  artifact.name = piece.name;
  artifact.sha256 = *sha256;
  artifact.bytes = upload.total;
  artifact.file = upload.file;
  if (Status accepted = accept(owner, artifact); !accepted.ok()) {
    keep_for_retry();
    return std::move(accepted).error();
  }
  log::info("artifact accepted", {{"worker", owner.key},
                                  {"artifact", artifact.name},
                                  {"bytes", artifact.bytes},
                                  {"sha256", artifact.sha256.hex()}});
  notify();
  return std::optional(std::move(artifact));
}

Status ArtifactStore::accept(const ArtifactOwner& owner, const Artifact& artifact) {
  const MutexLock writing(writing_);
  Record record;
  {
    const MutexLock lock(mutex_);
    if (!owners_ || std::none_of(owners_->begin(), owners_->end(), [&](const ArtifactOwner& one) {
          return one.key == owner.key && one.uid == owner.uid;
        }))
      return Error(Code::kUnauthenticated,
                   "this node does not expect worker " + owner.key + " any more");
    record = records_[owner.key];
    if (record.uid != owner.uid) record = {.uid = owner.uid, .artifacts = {}};
  }
  auto& all = record.artifacts;
  all.push_back(artifact);
  const auto gone =
      std::find_if(all.begin(), all.end(), [](const Artifact& one) { return one.file.empty(); });
  if (all.size() > kArtifactsMax && gone != all.end()) all.erase(gone);
  if (const Status written = put(owner.key, record); !written.ok())
    return Error(Code::kUnavailable,
                 "the artifact cannot be recorded now: " + written.error().message());
  const MutexLock lock(mutex_);
  records_[owner.key] = std::move(record);
  unfinished_.erase(stem_of(owner.key, owner.uid, artifact.name));
  return {};
}

// ---- for the sender

std::optional<SteadyTime> ArtifactStore::due() const {
  const MutexLock lock(mutex_);
  std::optional<SteadyTime> first;
  if (!owners_) return first;
  for (const auto& [key, record] : records_) {
    for (const Artifact& artifact : record.artifacts) {
      if (artifact.state == Artifact::kWaiting)
        first = std::min(first.value_or(artifact.retry_at), artifact.retry_at);
    }
  }
  return first;
}

std::optional<ArtifactStore::Pending> ArtifactStore::take() {
  const SteadyTime now = clock_.now();
  const MutexLock lock(mutex_);
  if (!owners_) return std::nullopt;
  Artifact* first = nullptr;
  Pending out;
  for (auto& [key, record] : records_) {
    for (Artifact& artifact : record.artifacts) {
      if (artifact.state != Artifact::kWaiting || artifact.retry_at > now) continue;
      if (first != nullptr && first->retry_at <= artifact.retry_at) continue;
      first = &artifact;
      out.key = key;
      out.uid = record.uid;
    }
  }
  if (first == nullptr) return std::nullopt;
  first->state = Artifact::kUploading;
  out.artifact = *first;
  out.path = path_of(first->file);
  out.base = base_for(*first, records_[out.key].artifacts);
  for (const ArtifactOwner& owner : *owners_)
    if (owner.key == out.key && owner.uid == out.uid) out.bucket = owner.bucket;
  return out;
}

void ArtifactStore::change(const Pending& pending, const std::function<void(Artifact&)>& by) {
  {
    const MutexLock lock(mutex_);
    const auto record = records_.find(pending.key);
    if (record == records_.end() || record->second.uid != pending.uid) return;
    for (Artifact& artifact : record->second.artifacts)
      if (artifact.name == pending.artifact.name) by(artifact);
  }
  notify();
}

Status ArtifactStore::change_record(const Pending& pending,
                                    const std::function<void(Artifact&)>& by) {
  const MutexLock writing(writing_);
  Record record;
  {
    const MutexLock lock(mutex_);
    const auto found = records_.find(pending.key);
    if (found == records_.end() || found->second.uid != pending.uid) return {};
    record = found->second;
  }
  for (Artifact& artifact : record.artifacts)
    if (artifact.name == pending.artifact.name) by(artifact);
  TRY_VOID(put(pending.key, record));
  change(pending, by);
  return {};
}

void ArtifactStore::set_sent(const Pending& pending, std::uint64_t sent) {
  change(pending, [sent](Artifact& artifact) { artifact.sent = sent; });
}

Status ArtifactStore::set_upload(const Pending& pending, const std::string& id) {
  return change_record(pending, [&](Artifact& artifact) { artifact.upload = id; });
}

void ArtifactStore::set_waiting(const Pending& pending, std::string reason, SteadyTime retry_at) {
  change(pending, [&](Artifact& artifact) {
    artifact.state = Artifact::kWaiting;
    artifact.reason = reason;
    artifact.retry_at = retry_at;
  });
}

void ArtifactStore::set_uploaded(const Pending& pending) {
  const Status recorded = change_record(pending, [](Artifact& artifact) {
    artifact.state = Artifact::kUploaded;
    artifact.reason.clear();
    artifact.sent = artifact.bytes;
    artifact.file.clear();
  });
  if (!recorded.ok()) {
    // The registry answers the repeated upload at once.
    return set_waiting(pending, "the upload cannot be recorded: " + recorded.error().message(),
                       clock_.now() + std::chrono::seconds(30));
  }
  if (const Status removed = fs_.remove(pending.path); !removed.ok())
    log::warn("file of an uploaded artifact not removed",
              {{"file", pending.path.string()}, {"error", removed.error()}});
}

void ArtifactStore::set_failed(const Pending& pending, std::string reason) {
  const auto fail = [&](Artifact& artifact) {
    artifact.state = Artifact::kFailed;
    artifact.reason = reason;
    artifact.file.clear();
  };
  if (const Status recorded = change_record(pending, fail); !recorded.ok()) {
    log::warn("artifact record not written", {{"error", recorded.error()}});
    return change(pending, fail);
  }
  (void)fs_.remove(pending.path);
}

}  // namespace varda::agent::workers
