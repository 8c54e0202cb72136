#include "artifact/store.h"

#include <algorithm>
#include <condition_variable>
#include <map>

#include "artifact/internal/install.h"
#include "artifact/internal/tree.h"
#include "artifact/layout.h"
#include "base/log.h"
#include "base/mutex.h"

namespace varda::artifact {
namespace {

constexpr std::string_view kScratch = ".scratch", kTree = ".tree";
const std::string kPart = ".part", kNotes = ".notes";

class DiskStore final : public Store {
 public:
  DiskStore(Options options, os::FileSystem& fs, net::HttpClient& http)
      : options_(std::move(options)),
        scratch_(options_.root / kScratch),
        fs_(fs),
        http_(http),
        book_(options_.transport.clock != nullptr ? *options_.transport.clock : system_clock()) {}

  Status start() {
    TRY_VOID(fs_.make_directories(scratch_, 0700));
    TRY(const auto leftovers, fs_.list(scratch_));
    for (const std::string& name : leftovers)
      if (!resumable(name, leftovers)) TRY_VOID(fs_.remove_all(scratch_ / name));
    // What a process that was killed renamed into place may not be on the disk yet, and is about to be shown.
    TRY_VOID(fs_.sync_directory(options_.root));
    TRY_VOID(fs_.sync_directory(options_.root.parent_path()));
    TRY(const auto names, fs_.list(options_.root));
    const MutexLock lock(mutex_);
    for (const std::string& name : names) {
      const auto digest = codec::Sha256::parse(name);
      if (!digest.ok()) continue;
      TRY(const auto info, fs_.stat(options_.root / name));
      if (!info || info->kind != os::FileKind::kDirectory) continue;
      TRY(const TreeUse use, tree_use(fs_, options_.root / name));
      artifacts_.emplace(*digest, Artifact{use.bytes, 0});
    }
    return {};
  }

  Outcome<Installed> ensure(const Context& ctx, const Request& request, const ProgressSink& progress) override {
    while (true) {
      if (auto installed = find(request.digest)) {
        if (auto failure = check_layout(fs_, installed->directory, request.framework)) return *failure;
        return *installed;
      }
      std::shared_ptr<Flight> flight;
      bool mine = false;
      {
        const MutexLock lock(mutex_);
        auto& slot = flights_[request.digest];
        mine = slot == nullptr;
        if (mine) {
          slot = std::make_shared<Flight>();
          slot->sources = sources_of(request);
        }
        flight = slot;
      }
      if (mine) {
        std::optional<Failure> failure = bring(ctx, request, progress);
        {
          const MutexLock lock(mutex_);
          flight->failure = failure;
          flight->done = true;
          flights_.erase(request.digest);
        }
        landed_.notify_all();
        if (failure) return *failure;
        continue;
      }
      if (Status status = wait(ctx, *flight); !status.ok()) return Failure{Reason::kCancelled, status.error()};
      const MutexLock lock(mutex_);
      // Who downloaded was stopped, we are not; or asked elsewhere, which says nothing of our source: our turn.
      if (flight->failure && flight->failure->reason != Reason::kCancelled && flight->sources == sources_of(request))
        return *flight->failure;
    }
  }

  std::optional<Installed> find(const codec::Sha256& digest) override {
    const MutexLock lock(mutex_);
    const auto found = artifacts_.find(digest);
    if (found == artifacts_.end()) return std::nullopt;
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
    return sum;
  }

  void keep(std::set<codec::Sha256> wanted) override {
    std::set<codec::Sha256> busy;
    {
      const MutexLock lock(mutex_);
      kept_ = std::move(wanted);
      busy = kept_;
      for (const auto& [digest, flight] : flights_) busy.insert(digest);
    }
    const auto names = fs_.list(scratch_);
    if (!names.ok()) return;
    for (const std::string& name : *names) {
      if (!name.ends_with(kPart)) continue;
      const auto digest = codec::Sha256::parse(std::string_view(name).substr(0, name.size() - kPart.size()));
      if (digest.ok() && busy.contains(*digest)) continue;
      if (Status status = drop_spool(fs_, scratch_ / name); !status.ok())
        log::warn("cannot remove a partial download", {{"error", status.error()}});
    }
  }

  Result<std::uint64_t> evict(std::uint64_t wanted) override {
    std::uint64_t freed = 0;
    for (const codec::Sha256& digest : by_last_use()) {
      if (freed >= wanted) break;
      TRY(const std::uint64_t bytes, drop(digest));
      freed += bytes;
    }
    return freed;
  }

  Status remove(const codec::Sha256& digest) override {
    TRY(const TreeUse use, tree_use_or_none(digest));
    if (use.linked) return Error(Code::kConflict, "artifact " + digest.hex() + " is exposed");
    TRY_VOID(take_away(digest));
    return {};
  }

 private:
  struct Artifact {
    std::uint64_t bytes = 0;
    std::uint64_t last_use = 0;  // by uses_; 0: not since the store was opened
  };
  struct Flight {
    std::vector<std::string> sources;
    bool done = false;
    std::optional<Failure> failure;
  };

  /// All that may make one download fail where another does not.
  static std::vector<std::string> sources_of(const Request& request) {
    std::vector<std::string> out{request.credentials, request.url};
    out.insert(out.end(), request.mirrors.begin(), request.mirrors.end());
    return out;
  }

  /// A part, or the notes of a part that is there.
  static bool resumable(const std::string& name, const std::vector<std::string>& names) {
    if (name.ends_with(kPart)) return true;
    const auto stem = name.size() - std::min(name.size(), kNotes.size());
    return name.ends_with(kPart + kNotes) && std::find(names.begin(), names.end(), name.substr(0, stem)) != names.end();
  }

  os::Path path_of(const codec::Sha256& digest) const { return options_.root / digest.hex(); }

  Status wait(const Context& ctx, const Flight& flight) NO_THREAD_SAFETY_ANALYSIS {
    std::unique_lock<Mutex> lock(mutex_);
    const auto done = [&flight] { return flight.done; };
    if (ctx.deadline()) {
      if (landed_.wait_until(lock, ctx.stop_token(), *ctx.deadline(), done)) return {};
    } else if (landed_.wait(lock, ctx.stop_token(), done)) {
      return {};
    }
    return ctx.check();
  }

  std::optional<Failure> bring(const Context& ctx, const Request& request, const ProgressSink& progress) {
    const std::string hex = request.digest.hex();
    const os::Path into = scratch_ / (hex + std::string(kTree));
    SourceOptions source;
    source.request = request;
    source.spool = scratch_ / (hex + kPart);
    source.file_roots = options_.file_roots;
    source.limits = options_.limits;
    source.progress = progress;
    source.transport = options_.transport;
    source.book = &book_;
    Outcome<Tree> tree = install(ctx, fs_, http_, source, into);
    if (!tree.ok() && tree.failure().reason == Reason::kDiskFull) {
      // Whatever nobody uses has had its time.
      const auto freed = evict(UINT64_MAX);
      if (freed.ok() && *freed > 0) tree = install(ctx, fs_, http_, source, into);
    }
    if (!tree.ok()) return tree.failure();
    std::optional<Failure> failure = publish(request.digest, *tree);
    if (Status status = fs_.remove_all(into); !status.ok() && !failure)
      log::warn("cannot clear scratch", {{"error", status.error()}});
    return failure;
  }

  std::optional<Failure> publish(const codec::Sha256& digest, const Tree& tree) {
    if (options_.capacity_bytes != 0) {
      const std::uint64_t used = bytes();
      if (used + tree.bytes > options_.capacity_bytes) {
        const auto freed = evict(used + tree.bytes - options_.capacity_bytes);
        if (!freed.ok()) return disk_failure(freed.error());
        if (used - *freed + tree.bytes > options_.capacity_bytes)
          return Failure{Reason::kDiskFull,
                         Error(Code::kExhausted, "artifacts may use " + std::to_string(options_.capacity_bytes) + " bytes; " +
                                                     std::to_string(used - *freed) + " are in use and " +
                                                     std::to_string(tree.bytes) + " more are needed")};
      }
    }
    if (Status status = fs_.rename(tree.root, path_of(digest)); !status.ok()) return disk_failure(status.error());
    if (Status status = fs_.sync_directory(options_.root); !status.ok()) return disk_failure(status.error());
    const MutexLock lock(mutex_);
    artifacts_[digest] = Artifact{tree.bytes, ++uses_};
    return std::nullopt;
  }

  std::vector<codec::Sha256> by_last_use() const {
    const MutexLock lock(mutex_);
    std::multimap<std::uint64_t, codec::Sha256> order;
    for (const auto& [digest, artifact] : artifacts_)
      if (!kept_.contains(digest)) order.emplace(artifact.last_use, digest);
    std::vector<codec::Sha256> digests;
    for (const auto& [use, digest] : order) digests.push_back(digest);
    return digests;
  }

  Result<TreeUse> tree_use_or_none(const codec::Sha256& digest) {
    TRY(const auto info, fs_.stat(path_of(digest)));
    if (!info) return TreeUse{};
    return tree_use(fs_, path_of(digest));
  }

  // 0: it is exposed and stays.
  Result<std::uint64_t> drop(const codec::Sha256& digest) {
    TRY(const TreeUse use, tree_use_or_none(digest));
    if (use.linked) return std::uint64_t{0};
    TRY_VOID(take_away(digest));
    log::info("artifact evicted", {{"digest", digest.hex()}, {"bytes", use.bytes}});
    return use.bytes;
  }

  // Renamed first: it must not be seen, nor found after a crash, with half of its files.
  Status take_away(const codec::Sha256& digest) {
    {
      const MutexLock lock(mutex_);
      artifacts_.erase(digest);
    }
    TRY(const auto info, fs_.stat(path_of(digest)));
    if (!info) return {};
    const os::Path doomed = scratch_ / ("gone-" + digest.hex() + std::string(kTree));
    TRY_VOID(fs_.remove_all(doomed));
    TRY_VOID(fs_.rename(path_of(digest), doomed));
    TRY_VOID(fs_.sync_directory(options_.root));
    return fs_.remove_all(doomed);
  }

  const Options options_;
  const os::Path scratch_;
  os::FileSystem& fs_;
  net::HttpClient& http_;
  SourceBook book_;
  mutable Mutex mutex_;
  std::condition_variable_any landed_;
  std::map<codec::Sha256, Artifact> artifacts_ GUARDED_BY(mutex_);
  std::map<codec::Sha256, std::shared_ptr<Flight>> flights_ GUARDED_BY(mutex_);
  std::set<codec::Sha256> kept_ GUARDED_BY(mutex_);
  std::uint64_t uses_ GUARDED_BY(mutex_) = 0;
};

}  // namespace

Result<std::unique_ptr<Store>> Store::open(Options options, os::FileSystem& fs, net::HttpClient& http) {
  const std::string root = options.root.string();
  auto store = std::make_unique<DiskStore>(std::move(options), fs, http);
  TRY_VOID(store->start().context("artifact store " + root));
  return std::unique_ptr<Store>(std::move(store));
}

}  // namespace varda::artifact
