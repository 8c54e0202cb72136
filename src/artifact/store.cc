#include "artifact/store.h"

#include <algorithm>
#include <atomic>
#include <map>

#include "artifact/internal/install.h"
#include "artifact/internal/names.h"
#include "artifact/internal/tree.h"
#include "artifact/layout.h"
#include "artifact/operator_requests.h"
#include "base/log.h"
#include "base/mutex.h"

namespace varda::artifact {
namespace {

const std::string kPart(kPartSuffix), kNotes(kNotesSuffix);

class StoreImpl final : public Store {
 public:
  StoreImpl(Options options, os::FileSystem& fs, net::HttpClient& http)
      : options_(std::move(options)),
        scratch_(options_.root / kScratchName),
        fs_(fs),
        http_(http),
        history_(options_.transport.clock != nullptr ? *options_.transport.clock : system_clock()) {
  }

  Status start() {
    TRY_VOID(fs_.make_directories(scratch_, 0700));
    TRY_VOID(fs_.make_directories(options_.root / kRecordsName, 0700));
    TRY_VOID(make_requests_directory(
        fs_, options_.root));  // created by us, so that we can remove marks that root creates
    TRY(const auto leftovers, fs_.list(scratch_));
    for (const std::string& name : leftovers)
      if (!resumable(name, leftovers)) TRY_VOID(fs_.remove_all(scratch_ / name));
    // A killed process may have renamed without a sync, and the names are about to be used. An
    // artifact must not survive a crash that loses the directory of its record.
    TRY_VOID(fs_.sync_directory(options_.root));
    TRY_VOID(fs_.sync_directory(options_.root.parent_path()));
    TRY_VOID(os::remove_leftovers(fs_, options_.root));
    TRY(auto archives, stored_archives());
    TRY(const auto names, fs_.list(options_.root));
    TRY(const auto damaged, marked(fs_, options_.root, Mark::kDamaged));
    std::multimap<std::chrono::system_clock::time_point, codec::Sha256> by_age;
    const MutexLock lock(mutex_);
    archives_ = std::move(archives);
    for (const std::string& name : names) {
      const auto digest = codec::Sha256::parse(name);
      if (!digest.ok()) continue;
      TRY(const auto info, fs_.stat(options_.root / name));
      if (!info || info->kind != os::FileKind::kDirectory) continue;
      TRY(const TreeUse use, tree_use(fs_, options_.root / name));
      artifacts_.emplace(*digest, Artifact{use.bytes, 0});
      by_age.emplace(info->modified, *digest);
    }
    // Unused artifacts are ordered by creation time. A clock jump only worsens the order.
    for (const auto& [made, digest] : by_age) artifacts_[digest].last_use = ++uses_;
    for (const codec::Sha256& digest : damaged)
      if (artifacts_.contains(digest)) damaged_.insert(digest);
    return drop_records();
  }

  Outcome<Installed> ensure(const Context& ctx, const Request& request,
                            const ProgressSink& progress) override {
    std::uint64_t received = 0;
    while (true) {
      if (auto installed = find(request.digest)) {
        installed->received = received;
        if (auto failure = check_layout(fs_, installed->directory, request.framework))
          return *failure;
        return *installed;
      }
      std::shared_ptr<Flight> flight;
      bool is_first = false;
      {
        const MutexLock lock(mutex_);
        auto& slot = flights_[request.digest];
        is_first = slot == nullptr;
        if (is_first) {
          slot = std::make_shared<Flight>();
          slot->sources = sources_of(request);
        }
        flight = slot;
      }
      if (is_first) {
        const ProgressSink note = [&](const Progress& now) {
          if (now.phase == Phase::kDownload) flight->total = now.total;
          if (progress) progress(now);
        };
        const Outcome<std::uint64_t> brought = bring(ctx, request, note);
        const auto failure =
            brought.ok() ? std::optional<Failure>() : std::optional<Failure>(brought.error());
        {
          const MutexLock lock(mutex_);
          flight->failure = failure;
          flight->done = true;
          flights_.erase(request.digest);
        }
        landed_.notify_all();
        if (failure) return *failure;
        received = *brought;
        continue;
      }
      if (Status status = wait(ctx, *flight); !status.ok())
        return Failure{Reason::kCancelled, status.error()};
      const MutexLock lock(mutex_);
      // The downloading caller was stopped or used other sources. Its failure does not apply here,
      // so this caller tries.
      if (flight->failure && flight->failure->reason != Reason::kCancelled &&
          flight->sources == sources_of(request))
        return *flight->failure;
    }
  }

  std::optional<Installed> find(const codec::Sha256& digest) override {
    const MutexLock lock(mutex_);
    const auto found = artifacts_.find(digest);
    if (found == artifacts_.end() || damaged_.contains(digest)) return std::nullopt;
    found->second.last_use = ++uses_;
    return Installed{path_of(digest), found->second.bytes};
  }

  std::vector<codec::Sha256> list() const override {
    const MutexLock lock(mutex_);
    std::vector<codec::Sha256> digests;
    for (const auto& [digest, artifact] : artifacts_) digests.push_back(digest);
    return digests;
  }

  std::uint64_t bytes() const override {
    const MutexLock lock(mutex_);
    std::uint64_t sum = 0;
    for (const auto& [digest, artifact] : artifacts_) sum += artifact.bytes;
    for (const auto& [digest, size] : archives_) sum += size;
    return sum;
  }
  /// Excludes a damaged artifact that is about to be replaced.
  std::uint64_t other_bytes(const codec::Sha256& replaced) const {
    const std::uint64_t all = bytes();
    const MutexLock lock(mutex_);
    const auto found = artifacts_.find(replaced);
    return found == artifacts_.end() ? all : all - std::min(all, found->second.bytes);
  }

  void keep(std::set<codec::Sha256> wanted) override {
    std::set<codec::Sha256> busy;
    bool changed = false;
    {
      const MutexLock lock(mutex_);
      changed = !reported_ || protected_ != wanted;
      for (const codec::Sha256& digest : protected_)
        if (const auto found = artifacts_.find(digest);
            !wanted.contains(digest) && found != artifacts_.end())
          found->second.last_use = ++uses_;
      protected_ = std::move(wanted);
      busy = protected_;
      for (const auto& [digest, flight] : flights_) busy.insert(digest);
    }
    if (changed) write_protected_digests();
    const auto names = fs_.list(scratch_);
    if (!names.ok()) return;
    for (const std::string& name : *names) {
      if (!name.ends_with(kPart)) continue;
      const auto digest =
          codec::Sha256::parse(std::string_view(name).substr(0, name.size() - kPart.size()));
      if (digest.ok() && busy.contains(*digest)) continue;
      if (Status status = drop_spool(fs_, scratch_ / name); !status.ok())
        log::warn("cannot remove a partial download", {{"error", status.error()}});
    }
  }

  void keep_archives(std::set<codec::Sha256> wanted) override {
    std::vector<codec::Sha256> surplus;
    {
      const MutexLock lock(mutex_);
      archives_wanted_ = std::move(wanted);
      for (const auto& [digest, size] : archives_)
        if (!archives_wanted_.contains(digest)) surplus.push_back(digest);
    }
    for (const codec::Sha256& digest : surplus)
      if (const auto dropped = drop_archive(digest); !dropped.ok())
        log::warn("cannot remove unwanted archive", {{"error", dropped.error()}});
  }

  bool has_archive(const codec::Sha256& digest) const override {
    const MutexLock lock(mutex_);
    return archives_.contains(digest);
  }

  std::optional<Archive> archive(const codec::Sha256& digest) override {
    os::Path path = archive_path(digest);
    std::optional<std::uint64_t> total;
    {
      const MutexLock lock(mutex_);
      const auto flight = flights_.find(digest);
      if (const auto whole = archives_.find(digest); whole != archives_.end()) {
        total = whole->second;
      } else if (flight != flights_.end()) {
        path = scratch_ / (digest.hex() + kPart);
        total = flight->second->total.load();
      }
    }
    if (!total) return std::nullopt;
    Archive out{.file = nullptr, .bytes = 0, .total = *total};
    // The file may have moved or not exist yet; a later call finds it.
    if (auto file = fs_.open(path, os::Open::kRead); file.ok()) {
      const auto size = (*file)->size();
      if (size.ok())
        out = {.file = std::move(*file),
               .bytes = *total == 0 ? *size : std::min(*size, *total),
               .total = *total};
    }
    return out;
  }

  std::vector<codec::Sha256> read_requests() override {
    std::vector<codec::Sha256> again;
    const auto damaged = marked(fs_, options_.root, Mark::kDamaged);
    if (!damaged.ok()) return again;
    for (const codec::Sha256& digest : *damaged) {
      bool exists = false, is_protected = false;
      {
        const MutexLock lock(mutex_);
        exists = artifacts_.contains(digest);
        is_protected = protected_.contains(digest);
        if (exists && damaged_.insert(digest).second) {
          log::warn("artifact is damaged", {{"digest", digest.hex()}});
          if (is_protected) again.push_back(digest);
        }
      }
      // A damaged artifact is useless. Exposed files stay until the model drops them.
      const auto dropped =
          exists && !is_protected ? drop(digest) : Result<std::uint64_t>(std::uint64_t{0});
      if (!exists || (dropped.ok() && *dropped > 0))
        (void)clear_mark(fs_, options_.root, digest, Mark::kDamaged);
    }
    if (const auto collect = take_request_to_collect(fs_, options_.root);
        collect.ok() && *collect) {
      const auto freed = evict(UINT64_MAX);
      log::info("unused artifacts collected", {{"bytes", freed.value_or(0)}});
    }
    return again;
  }

  Result<std::uint64_t> evict(std::uint64_t wanted) override {
    std::uint64_t freed = 0;
    for (const codec::Sha256& digest : archives()) {
      if (freed >= wanted) break;
      TRY(const std::uint64_t bytes, drop_archive(digest));
      freed += bytes;
    }
    for (const codec::Sha256& digest : by_last_use()) {
      if (freed >= wanted) break;
      // Checked for each artifact, because removing the previous one may take long.
      TRY(const bool pinned, is_marked(fs_, options_.root, digest, Mark::kPinned));
      if (pinned) continue;
      TRY(const std::uint64_t bytes, drop(digest));
      freed += bytes;
    }
    return freed;
  }

  Status remove(const codec::Sha256& digest) override {
    TRY(const TreeUse use, tree_use_or_none(digest));
    if (use.linked) return Error(Code::kConflict, "artifact " + digest.hex() + " is exposed");
    TRY_VOID(remove_tree(digest));
    return {};
  }

 private:
  struct Artifact {
    std::uint64_t bytes = 0;
    std::uint64_t last_use = 0;  // value of uses_ at the last use; 0: unused since open()
  };
  struct Flight {
    std::vector<std::string> sources;
    std::atomic<std::uint64_t> total{0};  // size of the archive, once known
    bool done = false;
    std::optional<Failure> failure;
  };

  /// Everything that can make one download fail and another succeed.
  static std::vector<std::string> sources_of(const Request& request) {
    std::vector<std::string> out{request.credentials, request.url};
    out.insert(out.end(), request.mirrors.begin(), request.mirrors.end());
    for (const Peer& one : request.peers) out.push_back(one.url);
    return out;
  }

  os::Path archive_path(const codec::Sha256& digest) const {
    return options_.root / kArchivesName / digest.hex();
  }

  Result<std::map<codec::Sha256, std::uint64_t>> stored_archives() {
    std::map<codec::Sha256, std::uint64_t> out;
    TRY(const auto existing, fs_.stat(options_.root / kArchivesName));
    if (!existing) return out;
    TRY(const auto names, fs_.list(options_.root / kArchivesName));
    for (const std::string& name : names) {
      const auto digest = codec::Sha256::parse(name);
      TRY(const auto info, fs_.stat(options_.root / kArchivesName / name));
      if (digest.ok() && info && info->kind == os::FileKind::kFile)
        out.emplace(*digest, info->size_bytes);
    }
    return out;
  }

  std::vector<codec::Sha256> archives() const {
    const MutexLock lock(mutex_);
    std::vector<codec::Sha256> out;
    for (const auto& [digest, size] : archives_) out.push_back(digest);
    return out;
  }

  Result<std::uint64_t> drop_archive(const codec::Sha256& digest) {
    TRY_VOID(fs_.remove(archive_path(digest)));
    const MutexLock lock(mutex_);
    const auto found = archives_.find(digest);
    if (found == archives_.end()) return std::uint64_t{0};
    const std::uint64_t bytes = found->second;
    archives_.erase(found);
    return bytes;
  }

  /// Registers a new archive. One that is no longer wanted is removed at once.
  void note_archive(const codec::Sha256& digest) {
    const auto info = fs_.stat(archive_path(digest));
    if (!info.ok() || !*info) return;
    bool wanted = false;
    {
      const MutexLock lock(mutex_);
      archives_[digest] = (*info)->size_bytes;
      wanted = archives_wanted_.contains(digest);
    }
    if (!wanted) (void)drop_archive(digest);
  }

  /// True for a partial download, or the notes of one that exists.
  static bool resumable(const std::string& name, const std::vector<std::string>& names) {
    if (name.ends_with(kPart)) return true;
    const auto stem = name.size() - std::min(name.size(), kNotes.size());
    return name.ends_with(kPart + kNotes) &&
           std::find(names.begin(), names.end(), name.substr(0, stem)) != names.end();
  }

  os::Path path_of(const codec::Sha256& digest) const { return options_.root / digest.hex(); }

  Status wait(const Context& ctx, const Flight& flight) {
    const SteadyTime until = ctx.deadline().value_or(SteadyTime::max());
    const MutexLock lock(mutex_);
    while (!flight.done) {
      if (!landed_.wait_until(mutex_, ctx.stop_token(), until) && !flight.done) return ctx.check();
    }
    return {};
  }

  /// Returns the bytes received over the network.
  Outcome<std::uint64_t> bring(const Context& ctx, const Request& request,
                               const ProgressSink& progress) {
    const std::string hex = request.digest.hex();
    const os::Path into = scratch_ / (hex + std::string(kTreeSuffix));
    const os::Path record = scratch_ / (hex + std::string(kRecordSuffix));
    SourceOptions source;
    source.request = request;
    source.spool = scratch_ / (hex + kPart);
    source.record = record;
    source.archive = archive_path(request.digest);
    source.wants_archive = [this, digest = request.digest] {
      const MutexLock lock(mutex_);
      return archives_wanted_.contains(digest);
    };
    source.file_roots = options_.file_roots;
    source.limits = options_.limits;
    source.progress = progress;
    source.transport = options_.transport;
    source.history = &history_;
    for (const codec::Sha256& base : request.bases)
      if (const auto held = find(base)) source.bases.push_back(held->directory);
    const auto room = room_for(request.digest);
    if (!room.ok()) return disk_failure(room.error());
    source.tree_bytes_max = *room;
    Outcome<Tree> tree = install(ctx, fs_, http_, source, into);
    if (!tree.ok() && tree.error().reason == Reason::kDiskFull && !tree.error().error.terminal()) {
      // Unused artifacts make room.
      const auto freed = evict(UINT64_MAX);
      if (freed.ok() && *freed > 0) tree = install(ctx, fs_, http_, source, into);
    }
    if (!tree.ok()) {
      (void)fs_.remove(record);
      return tree.error();
    }
    note_archive(request.digest);
    std::optional<Failure> failure = publish(request.digest, *tree, record);
    if (Status status = fs_.remove_all(into); !status.ok() && !failure)
      log::warn("cannot clear scratch", {{"error", status.error()}});
    if (failure) return *failure;
    return tree->received;
  }

  std::optional<Failure> publish(const codec::Sha256& digest, const Tree& tree,
                                 const os::Path& record) {
    if (options_.capacity_bytes != 0) {
      const std::uint64_t used = other_bytes(digest);
      if (used + tree.bytes > options_.capacity_bytes) {
        // Another download may have taken the room meanwhile. Evicts only if the tree then fits.
        const auto room = room_for(digest);
        if (!room.ok()) return disk_failure(room.error());
        const auto freed = tree.bytes <= *room ? evict(used + tree.bytes - options_.capacity_bytes)
                                               : Result<std::uint64_t>(std::uint64_t{0});
        if (!freed.ok()) return disk_failure(freed.error());
        if (used - *freed + tree.bytes > options_.capacity_bytes)
          return Failure{
              Reason::kDiskFull,
              Error(Code::kExhausted,
                    "artifacts may use " + std::to_string(options_.capacity_bytes) + " bytes; " +
                        std::to_string(options_.capacity_bytes - *room) + " are in use and " +
                        std::to_string(tree.bytes) + " more are needed")};
      }
    }
    if (Status status = put_in_place(digest, tree.root, record); !status.ok())
      return disk_failure(status.error());
    const MutexLock lock(mutex_);
    artifacts_[digest] = Artifact{tree.bytes, ++uses_};
    damaged_.erase(digest);
    return std::nullopt;
  }

  /// The room for a tree of that digest under capacity_bytes, after all possible evictions.
  Result<std::uint64_t> room_for(const codec::Sha256& digest) {
    if (options_.capacity_bytes == 0) return UINT64_MAX;
    std::uint64_t staying = other_bytes(digest);
    {
      const MutexLock lock(mutex_);
      for (const auto& [archived, size] : archives_) staying -= std::min(staying, size);
    }
    for (const codec::Sha256& other : by_last_use()) {
      if (other == digest) continue;
      TRY(const bool pinned, is_marked(fs_, options_.root, other, Mark::kPinned));
      TRY(const TreeUse use, tree_use_or_none(other));
      if (!pinned && !use.linked) staying -= std::min(staying, use.bytes);
    }
    return options_.capacity_bytes - std::min(options_.capacity_bytes, staying);
  }

  // The record is renamed first, because a tree without one cannot be verified. A record without a
  // tree is removed at the next start. The mark is removed while no tree is in place. So a crash
  // cannot mark the new tree as damaged.
  Status put_in_place(const codec::Sha256& digest, const os::Path& root, const os::Path& record) {
    TRY_VOID(fs_.rename(record, options_.root / kRecordsName / digest.hex()));
    TRY_VOID(fs_.sync_directory(options_.root / kRecordsName));
    TRY_VOID(move_away(digest));  // the damaged tree
    TRY_VOID(clear_mark(fs_, options_.root, digest, Mark::kDamaged));
    TRY_VOID(fs_.rename(root, path_of(digest)));
    return fs_.sync_directory(options_.root);
  }

  /// Removes records without a tree, which a crash may leave.
  Status drop_records() REQUIRES(mutex_) {
    TRY(const auto names, fs_.list(options_.root / kRecordsName));
    for (const std::string& name : names) {
      const auto digest = codec::Sha256::parse(name);
      if (digest.ok() && artifacts_.contains(*digest)) continue;
      TRY_VOID(fs_.remove(options_.root / kRecordsName / name));
    }
    return {};
  }

  void write_protected_digests() {
    std::set<codec::Sha256> digests;
    {
      const MutexLock lock(mutex_);
      digests = protected_;
      reported_ = true;
    }
    if (Status status = write_protected(fs_, options_.root, digests); !status.ok()) {
      log::warn("wanted artifacts not persisted", {{"error", status.error()}});
      const MutexLock lock(mutex_);
      reported_ = false;
    }
  }

  std::vector<codec::Sha256> by_last_use() const {
    const MutexLock lock(mutex_);
    std::multimap<std::uint64_t, codec::Sha256> order;
    for (const auto& [digest, artifact] : artifacts_)
      if (!protected_.contains(digest)) order.emplace(artifact.last_use, digest);
    std::vector<codec::Sha256> digests;
    for (const auto& [use, digest] : order) digests.push_back(digest);
    return digests;
  }

  Result<TreeUse> tree_use_or_none(const codec::Sha256& digest) {
    TRY(const auto info, fs_.stat(path_of(digest)));
    if (!info) return TreeUse{};
    return tree_use(fs_, path_of(digest));
  }

  // 0: the artifact is exposed and stays.
  Result<std::uint64_t> drop(const codec::Sha256& digest) {
    TRY(const TreeUse use, tree_use_or_none(digest));
    if (use.linked) return std::uint64_t{0};
    TRY_VOID(remove_tree(digest));
    log::info("artifact evicted", {{"digest", digest.hex()}, {"bytes", use.bytes}});
    return use.bytes;
  }

  // Renamed first, so that a half-removed artifact is never visible, even after a crash.
  Status remove_tree(const codec::Sha256& digest) {
    {
      const MutexLock lock(mutex_);
      artifacts_.erase(digest);
      damaged_.erase(digest);
    }
    TRY_VOID(move_away(digest));
    return fs_.remove(options_.root / kRecordsName / digest.hex());
  }

  Status move_away(const codec::Sha256& digest) {
    TRY(const auto info, fs_.stat(path_of(digest)));
    if (!info) return {};
    const os::Path doomed = scratch_ / ("gone-" + digest.hex() + std::string(kTreeSuffix));
    TRY_VOID(fs_.remove_all(doomed));
    TRY_VOID(fs_.rename(path_of(digest), doomed));
    TRY_VOID(fs_.sync_directory(options_.root));
    return fs_.remove_all(doomed);
  }

  const Options options_;
  const os::Path scratch_;
  os::FileSystem& fs_;
  net::HttpClient& http_;
  SourceHistory history_;
  mutable Mutex mutex_;
  CondVar landed_;
  std::map<codec::Sha256, Artifact> artifacts_ GUARDED_BY(mutex_);
  std::map<codec::Sha256, std::shared_ptr<Flight>> flights_ GUARDED_BY(mutex_);
  std::set<codec::Sha256> protected_ GUARDED_BY(mutex_);
  std::map<codec::Sha256, std::uint64_t> archives_ GUARDED_BY(mutex_);  // kept archives, with sizes
  std::set<codec::Sha256> archives_wanted_ GUARDED_BY(mutex_);
  std::set<codec::Sha256> damaged_ GUARDED_BY(mutex_);  // present, but unusable
  bool reported_ GUARDED_BY(mutex_) = false;            // protected_ is written to the file
  std::uint64_t uses_ GUARDED_BY(mutex_) = 0;
};

}  // namespace

Result<std::unique_ptr<Store>> Store::open(Options options, os::FileSystem& fs,
                                           net::HttpClient& http) {
  const std::string root = options.root.string();
  auto store = std::make_unique<StoreImpl>(std::move(options), fs, http);
  TRY_VOID(store->start().context("artifact store " + root));
  return std::unique_ptr<Store>(std::move(store));
}

}  // namespace varda::artifact
