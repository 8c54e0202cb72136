#include "replica/store.h"

#include <algorithm>
#include <set>

#include "replica/internal/bring.h"

namespace varda::replica {
namespace {

constexpr std::string_view kNew = ".new-";
constexpr std::string_view kOld = ".old-";
constexpr std::string_view kSuffix = ".snapshot";
constexpr const char* kCurrent = "current";
constexpr const char* kNextCurrent = ".current";
constexpr const char* kMetadata = "metadata.json";
constexpr std::size_t kKeyDepthMax = 4;

class StoreImpl final : public Store {
 public:
  StoreImpl(Options options, os::FileSystem& fs) : options_(std::move(options)), fs_(fs) {}

  Status start() {
    TRY_VOID(fs_.make_directories(options_.root, 0700));
    TRY_VOID(fs_.sync_directory(options_.root.parent_path()));
    for (const std::string& key : list()) TRY_VOID(sweep(key));
    return {};
  }

  Result<std::optional<Copy>> find(const std::string& key) override {
    TRY(const os::Path folder, folder_of(key));
    TRY(const auto id, current(folder));
    if (!id) return std::optional<Copy>();
    TRY(Snapshot snapshot, snapshot_of(folder, *id).context("replica " + key));
    os::Path path = folder / kCurrent;
    if (snapshot.files.size() == 1 && snapshot.files[0].path.empty()) path /= options_.file_name;
    return std::optional<Copy>(Copy{*id, std::move(path), std::move(snapshot)});
  }

  std::vector<std::string> list() override {
    std::vector<std::string> out;
    collect(options_.root, "", 0, out);
    return out;
  }

  Status bring(const Context& ctx, const std::string& key, const Snapshot& wanted,
               BlockSource& source, const std::function<void(const Progress&)>& progress) override {
    TRY(const os::Path folder, folder_of(key));
    TRY_VOID(make_folder(folder));
    const codec::Sha256 id = wanted.id();
    TRY(const auto before, current(folder));
    const bool readable = before && snapshot_of(folder, *before).ok();
    if (readable && *before == id) return {};
    if (!snapshot_of(folder, id).ok())
      TRY_VOID(make(ctx, folder, id, wanted, readable ? before : std::nullopt, source, progress));
    TRY_VOID(show(folder, id));
    return sweep(key, before);
  }

  Status put_metadata(const std::string& key, std::string_view text) override {
    TRY(const os::Path folder, folder_of(key));
    TRY(const auto existing, current(folder));
    if (!existing) return Error(Code::kNotFound, "no replica " + key);
    const os::Path file = folder / kMetadata;
    if (const auto before = os::read_file(fs_, file, text.size() + 1);
        before.ok() && *before == text)
      return {};
    return os::write_file_atomically(fs_, file, text);
  }

  Status remove(const std::string& key) override {
    TRY(const os::Path folder, folder_of(key));
    // Without `current`, no reader finds the rest, so a crash leaves no partial version. Its
    // removal must be durable first.
    TRY(const auto shown, current(folder));
    TRY_VOID(fs_.remove(folder / kCurrent));
    if (shown) TRY_VOID(fs_.sync_directory(folder));
    TRY(const auto existing, fs_.stat(folder));
    if (existing) TRY_VOID(discard(folder, {}));
    TRY_VOID(fs_.remove_all(folder));
    for (os::Path above = folder.parent_path(); above != options_.root;
         above = above.parent_path()) {
      const auto siblings = fs_.list(above);
      if (!siblings.ok() || !siblings->empty() || !fs_.remove(above).ok()) break;
    }
    return {};
  }

 private:
  Result<os::Path> folder_of(const std::string& key) const {
    std::string wrong = key.empty() ? "is empty" : check_path(key, options_.limits);
    if (wrong.empty() && (key[0] == '.' || key.find("/.") != std::string::npos))
      wrong = "has a component that begins with a dot";
    if (wrong.empty() &&
        std::count(key.begin(), key.end(), '/') >= static_cast<std::ptrdiff_t>(kKeyDepthMax))
      wrong = "has more than " + std::to_string(kKeyDepthMax) + " components";
    if (!wrong.empty()) return Error(Code::kInvalid, "replica key \"" + key + "\" " + wrong);
    return options_.root / key;
  }

  /// Creates the folder and syncs all parents up to the root, so that a crash cannot remove them.
  Status make_folder(const os::Path& folder) {
    TRY_VOID(fs_.make_directories(folder));
    for (os::Path above = folder; above != options_.root;) {
      above = above.parent_path();
      TRY_VOID(fs_.sync_directory(above));
    }
    return {};
  }

  /// The target of `current`, if its folder exists.
  Result<std::optional<codec::Sha256>> current(const os::Path& folder) {
    const std::optional<codec::Sha256> none;
    TRY(const auto link, fs_.stat(folder / kCurrent));
    if (!link || link->kind != os::FileKind::kSymlink) return none;
    TRY(const std::string name, fs_.read_link(folder / kCurrent));
    const auto id = codec::Sha256::parse(name);
    if (!id.ok()) return none;
    TRY(const auto existing, fs_.stat(folder / name));
    if (!existing || existing->kind != os::FileKind::kDirectory) return none;
    return std::optional(*id);
  }

  /// Reads the snapshot of a complete version.
  Result<Snapshot> snapshot_of(const os::Path& folder, const codec::Sha256& id) {
    TRY(const auto existing, fs_.stat(folder / id.hex()));
    if (!existing || existing->kind != os::FileKind::kDirectory)
      return Error(Code::kNotFound, "no replica with the id " + id.hex());
    const auto text =
        os::read_file(fs_, folder / (id.hex() + std::string(kSuffix)), std::uint64_t{256} << 20);
    if (!text.ok()) return Error(Code::kCorrupt, text.error().message());
    if (codec::Sha256::of(*text) != id)
      return Error(Code::kCorrupt, id.hex() + std::string(kSuffix) + " is damaged");
    return Snapshot::decode(*text, options_.limits);
  }

  Status make(const Context& ctx, const os::Path& folder, const codec::Sha256& id,
              const Snapshot& wanted, const std::optional<codec::Sha256>& before,
              BlockSource& source, const std::function<void(const Progress&)>& progress) {
    const os::Path staging = folder / (std::string(kNew) + id.hex());
    std::vector<LocalFile> local;
    if (before) {
      TRY(const Snapshot previous, snapshot_of(folder, *before));
      for (const SnapshotFile& file : previous.block_bytes == wanted.block_bytes
                                          ? previous.files
                                          : std::vector<SnapshotFile>())
        local.push_back(
            {folder / before->hex() / (file.path.empty() ? options_.file_name : file.path), file});
    }
    // Complete parts of an interrupted version are not fetched again.
    TRY(const std::vector<std::string> names, fs_.list(folder));
    for (const std::string& name : names) {
      if (!name.starts_with(kNew) || folder / name == staging) continue;
      for (LocalFile& file : staged_files(fs_, folder / name, wanted.block_bytes, options_.limits))
        local.push_back(std::move(file));
    }
    TRY_VOID(fs_.make_directories(staging));
    const std::string text = wanted.encode();
    TRY_VOID(os::write_file_atomically(fs_, staging / "snapshot", text));
    TRY_VOID(Bring(ctx, fs_, staging, wanted, std::move(local), source, progress)
                 .run(options_.file_name));
    // Removes a version with a missing or damaged snapshot. Next to the correct snapshot, its
    // remains would count as complete.
    TRY_VOID(discard_one(folder, id.hex()));
    TRY_VOID(os::write_file_atomically(fs_, folder / (id.hex() + std::string(kSuffix)), text));
    TRY_VOID(fs_.rename(staging / "tree", folder / id.hex()));
    return fs_.sync_directory(folder);
  }

  Status show(const os::Path& folder, const codec::Sha256& id) {
    TRY_VOID(fs_.remove(folder / kNextCurrent));
    TRY_VOID(fs_.symlink(id.hex(), folder / kNextCurrent));
    TRY_VOID(fs_.rename(folder / kNextCurrent, folder / kCurrent));
    return fs_.sync_directory(folder);
  }

  /// A tree with a name and a snapshot counts as a version, and removal deletes it entry by entry.
  /// After a crash, the remains next to the snapshot would pass as complete. So the tree is first
  /// renamed durably to a name that no version has.
  Status discard_one(const os::Path& folder, const std::string& id) {
    TRY_VOID(clear_discarded(folder));
    TRY(const auto existing, fs_.stat(folder / id));
    if (!existing) return {};
    TRY_VOID(fs_.rename(folder / id, folder / (std::string(kOld) + id)));
    return clear_discarded(folder);
  }

  /// Removes all trees except those in `keep`.
  Status discard(const os::Path& folder, const std::set<std::string>& keep) {
    TRY_VOID(clear_discarded(folder));
    TRY(const std::vector<std::string> names, fs_.list(folder));
    for (const std::string& name : names) {
      if (codec::Sha256::parse(name).ok() && !keep.contains(name))
        TRY_VOID(fs_.rename(folder / name, folder / (std::string(kOld) + name)));
    }
    return clear_discarded(folder);
  }

  Status clear_discarded(const os::Path& folder) {
    TRY(std::vector<std::string> names, fs_.list(folder));
    std::erase_if(names, [](const std::string& name) { return !name.starts_with(kOld); });
    if (names.empty()) return {};
    TRY_VOID(fs_.sync_directory(folder));
    for (const std::string& name : names) TRY_VOID(fs_.remove_all(folder / name));
    return {};
  }

  /// Removes everything except the current version and `before`, also unfinished versions.
  Status sweep(const std::string& key, const std::optional<codec::Sha256>& before) {
    TRY(const os::Path folder, folder_of(key));
    TRY(const auto now, current(folder));
    std::set<std::string> keep;
    for (const auto& id : {now, before}) {
      if (id) keep.insert({id->hex(), id->hex() + std::string(kSuffix)});
    }
    keep.insert({kCurrent, kMetadata});
    TRY_VOID(discard(folder, keep));
    TRY(const std::vector<std::string> names, fs_.list(folder));
    for (const std::string& name : names) {
      if (!keep.contains(name)) TRY_VOID(fs_.remove_all(folder / name));
    }
    return {};
  }

  /// After a crash: removes snapshots without a tree. The previous version is unknown, so all
  /// complete versions stay until the next sweep.
  Status sweep(const std::string& key) {
    TRY(const os::Path folder, folder_of(key));
    TRY_VOID(os::remove_leftovers(fs_, folder));
    TRY_VOID(fs_.remove(folder / kNextCurrent));
    TRY_VOID(clear_discarded(folder));
    TRY(const std::vector<std::string> names, fs_.list(folder));
    for (const std::string& name : names) {
      if (!name.ends_with(kSuffix)) continue;
      const std::string id = name.substr(0, name.size() - kSuffix.size());
      if (!std::binary_search(names.begin(), names.end(), id)) TRY_VOID(fs_.remove(folder / name));
    }
    return {};
  }

  void collect(const os::Path& folder, const std::string& key, std::size_t depth,
               std::vector<std::string>& out) {
    const auto names = fs_.list(folder);
    if (!names.ok()) return;
    const bool holds_copies =
        std::any_of(names->begin(), names->end(), [](const std::string& name) {
          return name == kCurrent || name.starts_with(kNew) || name.starts_with(kOld) ||
                 name.ends_with(kSuffix);
        });
    if (holds_copies && depth > 0) {
      out.push_back(key);
      return;
    }
    if (depth == kKeyDepthMax) return;
    for (const std::string& name : *names) {
      const auto info = fs_.stat(folder / name);
      if (info.ok() && *info && (*info)->kind == os::FileKind::kDirectory)
        collect(folder / name, key.empty() ? name : key + "/" + name, depth + 1, out);
    }
  }

  const Options options_;
  os::FileSystem& fs_;
};

}  // namespace

Result<std::unique_ptr<Store>> Store::open(Options options, os::FileSystem& fs) {
  if (const std::string wrong = check_path(options.file_name);
      !wrong.empty() || options.file_name.empty() ||
      options.file_name.find('/') != std::string::npos)
    return Error(Code::kInvalid, "the file name of replicas: must be one component");
  auto store = std::make_unique<StoreImpl>(std::move(options), fs);
  TRY_VOID(store->start());
  return std::unique_ptr<Store>(std::move(store));
}

}  // namespace varda::replica
