#include "os/testing/crashing_file_system.h"

#include <algorithm>
#include <array>

namespace varda::os::testing {
namespace {

Error missing(const Path& path) {
  return {Code::kNotFound, path.string() + ": No such file or directory"};
}
Error already_exists(const Path& path) {
  return {Code::kAlreadyExists, path.string() + ": File exists"};
}
Error no_directory(const Path& path) {
  return {Code::kInvalid, path.string() + ": Not a directory"};
}
Error full(const Path& path) {
  return {Code::kExhausted, "write " + path.string() + ": No space left on device"};
}

// Calls that fail on a broken or full disk.
bool needs_disk(std::string_view call) {
  constexpr std::array<std::string_view, 9> kCalls{"write",   "truncate",       "sync",
                                                   "mkdir",   "rename",         "link",
                                                   "symlink", "sync_directory", "allocate"};
  return std::find(kCalls.begin(), kCalls.end(), call) != kCalls.end();
}

Path normal(const Path& path) {
  return (path.is_absolute() ? path : "/" / path).lexically_normal();
}

}  // namespace

class CrashingFile final : public File {
 public:
  CrashingFile(CrashingFileSystem& fs, CrashDisk::Inode inode, Path path, bool writable)
      : fs_(fs), inode_(inode), path_(std::move(path)), writable_(writable) {}

  Status write(std::string_view bytes) override {
    std::size_t done = bytes.size();
    Status entered = fs_.enter("write", path_);
    if (!writable_)
      return Error(Code::kInvalid, "write " + path_.string() + ": opened for reading");
    MutexLock lock(fs_.mutex_);
    if (!entered.ok()) done = fs_.fault_ ? std::min(bytes.size(), fs_.fault_->write_bytes) : 0;
    const std::uint64_t size = fs_.disk_.at(inode_).image.size();
    const std::uint64_t end = position_ + done;
    if (end > size && !fs_.fits(end - size)) return full(path_);
    if (done > 0) fs_.disk_.write(inode_, position_, bytes.substr(0, done));
    position_ = end;
    return entered;
  }
  Result<std::string> read(std::size_t max) override {
    TRY_VOID(fs_.enter("read", path_));
    MutexLock lock(fs_.mutex_);
    std::string bytes = fs_.disk_.at(inode_).image.read(position_, max);
    position_ += bytes.size();
    return bytes;
  }
  Status seek(std::uint64_t offset) override {
    TRY_VOID(fs_.enter("seek", path_));
    position_ = offset;
    return {};
  }
  Status truncate(std::uint64_t size) override {
    TRY_VOID(fs_.enter("truncate", path_));
    if (!writable_)
      return Error(Code::kInvalid, "truncate " + path_.string() + ": opened for reading");
    MutexLock lock(fs_.mutex_);
    const std::uint64_t now = fs_.disk_.at(inode_).image.size();
    if (size > now && !fs_.fits(size - now)) return full(path_);
    fs_.disk_.truncate(inode_, size);
    return {};
  }
  Result<std::uint64_t> size() override {
    TRY_VOID(fs_.enter("size", path_));
    MutexLock lock(fs_.mutex_);
    return fs_.disk_.at(inode_).image.size();
  }
  Status sync() override {
    Status entered = fs_.enter("sync", path_);
    MutexLock lock(fs_.mutex_);
    entered.ok() ? fs_.disk_.sync(inode_) : fs_.disk_.lose(inode_, *fs_.losses_);
    return entered;
  }

 private:
  CrashingFileSystem& fs_;
  const CrashDisk::Inode inode_;
  const Path path_;
  const bool writable_;
  std::uint64_t position_ = 0;
};

CrashingFileSystem::CrashingFileSystem(std::uint64_t seed, std::uint64_t capacity_bytes)
    : losses_(seeded_rng(seed)), capacity_bytes_(capacity_bytes) {}
CrashingFileSystem::CrashingFileSystem(CrashDisk disk, std::uint64_t seed,
                                       std::uint64_t capacity_bytes)
    : disk_(std::move(disk)), losses_(seeded_rng(seed)), capacity_bytes_(capacity_bytes) {}
CrashingFileSystem::~CrashingFileSystem() = default;

std::unique_ptr<CrashingFileSystem> CrashingFileSystem::crashed(std::uint64_t seed) const {
  const auto rng = seeded_rng(seed);
  MutexLock lock(mutex_);
  return std::unique_ptr<CrashingFileSystem>(
      new CrashingFileSystem(disk_.crashed(*rng), rng->next(), capacity_bytes_));
}

std::unique_ptr<CrashingFileSystem> CrashingFileSystem::killed() const {
  MutexLock lock(mutex_);
  return std::unique_ptr<CrashingFileSystem>(
      new CrashingFileSystem(disk_, losses_->next(), capacity_bytes_));
}

void CrashingFileSystem::on_call(Hook hook) {
  MutexLock lock(mutex_);
  hook_ = std::move(hook);
}

void CrashingFileSystem::set_fault(std::optional<Fault> fault) {
  MutexLock lock(mutex_);
  fault_ = std::move(fault);
  hit_.clear();
}

std::string CrashingFileSystem::hit() const {
  MutexLock lock(mutex_);
  return hit_;
}

void CrashingFileSystem::set_capacity(std::uint64_t capacity_bytes) {
  MutexLock lock(mutex_);
  capacity_bytes_ = capacity_bytes;
}

std::uint64_t CrashingFileSystem::used_bytes() const {
  MutexLock lock(mutex_);
  return disk_.used_bytes();
}

std::uint64_t CrashingFileSystem::calls() const {
  MutexLock lock(mutex_);
  return calls_;
}

std::uint64_t CrashingFileSystem::changes() const {
  MutexLock lock(mutex_);
  return disk_.changes();
}

bool CrashingFileSystem::pending() const {
  MutexLock lock(mutex_);
  return disk_.pending();
}

Status CrashingFileSystem::enter(std::string_view call, const Path& path) {
  Hook hook;
  {
    MutexLock lock(mutex_);
    const std::uint64_t number = calls_++;
    if (fault_ && (number == fault_->call ||
                   (fault_->lasting && number > fault_->call && needs_disk(call)))) {
      if (hit_.empty()) hit_ = std::string(call) + " " + path.string();
      return fault_->error;
    }
    hook = hook_;
  }
  return hook ? hook(call, path) : Status();
}

Result<CrashingFileSystem::Place> CrashingFileSystem::find(const Path& path) const {
  Path rest = normal(path);
  for (int hops = 0; hops < 40; ++hops) {
    Place place{.directory = CrashDisk::kRoot, .name = "", .inode = CrashDisk::kRoot};
    Path done = "/";
    bool followed = false;
    for (auto part = std::next(rest.begin()); part != rest.end() && !followed; ++part) {
      if (part->empty()) continue;  // a trailing slash
      if (place.inode == 0) return missing(path);
      const CrashDisk::Node& directory = disk_.at(place.inode);
      if (directory.kind == FileKind::kSymlink) {
        const Path target(directory.link_target);
        Path next = target.is_absolute() ? target : done.parent_path() / target;
        for (; part != rest.end(); ++part) next /= *part;
        rest = normal(next);
        followed = true;
        break;
      }
      if (directory.kind != FileKind::kDirectory) return no_directory(path);
      const auto entry = directory.entries.find(part->string());
      place = {.directory = place.inode,
               .name = part->string(),
               .inode = entry == directory.entries.end() ? 0 : entry->second};
      done /= *part;
    }
    if (!followed) return place;
  }
  return Error(Code::kInvalid, path.string() + ": Too many levels of symbolic links");
}

Result<CrashingFileSystem::Place> CrashingFileSystem::find_existing(const Path& path) const {
  TRY(const Place place, find(path));
  if (place.inode == 0) return missing(path);
  return place;
}

Result<std::unique_ptr<File>> CrashingFileSystem::open(const Path& path, Open how,
                                                       std::uint32_t mode) {
  TRY_VOID(enter("open", path));
  MutexLock lock(mutex_);
  TRY(Place place, find(path));
  if (place.inode == 0) {
    if (how == Open::kRead) return missing(path);
    if (!fits(1)) return full(path);
    place.inode = disk_.make(FileKind::kFile, mode);
    disk_.change({{place.directory, place.name, place.inode}});
  } else {
    if (how == Open::kExclusive) return already_exists(path);
    if (disk_.at(place.inode).kind != FileKind::kFile)
      return Error(Code::kInvalid, path.string() + ": not a file");
    if (how == Open::kTruncate) disk_.truncate(place.inode, 0);
  }
  return std::make_unique<CrashingFile>(*this, place.inode, path, how != Open::kRead);
}

Result<std::optional<FileInfo>> CrashingFileSystem::stat(const Path& path) {
  TRY_VOID(enter("stat", path));
  MutexLock lock(mutex_);
  const Result<Place> place = find(path);
  if (!place.ok() || place->inode == 0) return std::optional<FileInfo>();
  const CrashDisk::Node& node = disk_.at(place->inode);
  return std::optional(FileInfo{.kind = node.kind,
                                .size_bytes = node.image.size(),
                                .mode = node.mode,
                                .links = node.links,
                                .inode = place->inode,
                                .modified = node.modified});
}

Result<std::vector<std::string>> CrashingFileSystem::list(const Path& directory) {
  TRY_VOID(enter("list", directory));
  MutexLock lock(mutex_);
  TRY(const Place place, find_existing(directory));
  const CrashDisk::Node& node = disk_.at(place.inode);
  if (node.kind != FileKind::kDirectory) return no_directory(directory);
  std::vector<std::string> names;
  for (const auto& [name, inode] : node.entries) names.push_back(name);
  return names;
}

Status CrashingFileSystem::make_directories(const Path& path, std::uint32_t mode) {
  TRY_VOID(enter("mkdir", path));
  MutexLock lock(mutex_);
  Path done = "/";
  for (const Path& part : normal(path)) {
    if (part.empty()) continue;
    done /= part;
    TRY(const Place place, find(done));
    if (place.inode == 0) {
      if (!fits(1)) return full(path);
      disk_.change({{place.directory, place.name, disk_.make(FileKind::kDirectory, mode)}});
    } else if (disk_.at(place.inode).kind == FileKind::kFile) {
      return Error(Code::kAlreadyExists, path.string() + ": a file is in the way");
    }
  }
  return {};
}

Status CrashingFileSystem::rename(const Path& from, const Path& to) {
  TRY_VOID(enter("rename", from));
  MutexLock lock(mutex_);
  TRY(const Place source, find_existing(from));
  TRY(const Place target, find(to));
  if (source.inode == target.inode)
    return {};  // itself, or two names of one file: POSIX leaves both
  const bool directory = disk_.at(source.inode).kind == FileKind::kDirectory;
  if (target.inode != 0) {
    const CrashDisk::Node& old = disk_.at(target.inode);
    if (old.kind == FileKind::kDirectory && !directory)
      return Error(Code::kInvalid, to.string() + ": Is a directory");
    if (old.kind != FileKind::kDirectory && directory) return no_directory(to);
    if (!old.entries.empty())
      return Error(Code::kAlreadyExists, to.string() + ": Directory not empty");
  }
  if (directory && normal(to).string().starts_with(normal(from).string() + "/"))
    return Error(Code::kInvalid, to.string() + ": Invalid argument");
  disk_.change({{target.directory, target.name, source.inode}, {source.directory, source.name, 0}});
  return {};
}

Status CrashingFileSystem::link(const Path& existing, const Path& name) {
  TRY_VOID(enter("link", name));
  MutexLock lock(mutex_);
  TRY(const Place source, find_existing(existing));
  TRY(const Place target, find(name));
  if (disk_.at(source.inode).kind == FileKind::kDirectory)
    return Error(Code::kForbidden, existing.string() + ": a directory has one name");
  if (target.inode != 0) return already_exists(name);
  disk_.change({{target.directory, target.name, source.inode}});
  return {};
}

Status CrashingFileSystem::symlink(const std::string& target, const Path& name) {
  TRY_VOID(enter("symlink", name));
  MutexLock lock(mutex_);
  TRY(const Place place, find(name));
  if (place.inode != 0) return already_exists(name);
  disk_.change({{place.directory, place.name, disk_.make(FileKind::kSymlink, 0777, target)}});
  return {};
}

Result<std::string> CrashingFileSystem::read_link(const Path& path) {
  TRY_VOID(enter("read_link", path));
  MutexLock lock(mutex_);
  TRY(const Place place, find_existing(path));
  if (disk_.at(place.inode).kind != FileKind::kSymlink)
    return Error(Code::kInvalid, path.string() + ": no symlink");
  return disk_.at(place.inode).link_target;
}

Status CrashingFileSystem::remove(const Path& path) {
  TRY_VOID(enter("remove", path));
  MutexLock lock(mutex_);
  const Result<Place> place = find(path);
  if (!place.ok() || place->inode == 0) return {};
  if (!disk_.at(place->inode).entries.empty())
    return Error(Code::kAlreadyExists, path.string() + ": Directory not empty");
  disk_.change({{place->directory, place->name, 0}});
  return {};
}

// Removes entries one by one, because removing a tree is not atomic.
void CrashingFileSystem::clear(Inode directory) {
  const std::map<std::string, Inode> entries = disk_.at(directory).entries;
  for (const auto& [name, inode] : entries) {
    if (disk_.at(inode).kind == FileKind::kDirectory) clear(inode);
    disk_.change({{directory, name, 0}});
  }
}

Status CrashingFileSystem::remove_all(const Path& path) {
  TRY_VOID(enter("remove_all", path));
  MutexLock lock(mutex_);
  const Result<Place> place = find(path);
  if (!place.ok() || place->inode == 0) return {};
  if (disk_.at(place->inode).kind == FileKind::kDirectory) clear(place->inode);
  disk_.change({{place->directory, place->name, 0}});
  return {};
}

Status CrashingFileSystem::set_mode(const Path& path, std::uint32_t mode) {
  TRY_VOID(enter("set_mode", path));
  MutexLock lock(mutex_);
  TRY(const Place place, find_existing(path));
  disk_.set_mode(place.inode, mode);
  return {};
}

Status CrashingFileSystem::sync_directory(const Path& path) {
  TRY_VOID(enter("sync_directory", path));
  MutexLock lock(mutex_);
  TRY(const Place place, find_existing(path));
  if (disk_.at(place.inode).kind != FileKind::kDirectory) return no_directory(path);
  disk_.sync_directory(place.inode);
  return {};
}

Result<Space> CrashingFileSystem::space(const Path& path) {
  TRY_VOID(enter("space", path));
  MutexLock lock(mutex_);
  return Space{.capacity_bytes = capacity_bytes_,
               .available_bytes = capacity_bytes_ - std::min(capacity_bytes_, disk_.used_bytes())};
}

Status CrashingFileSystem::allocate(const Path& path, std::uint64_t bytes, std::uint32_t mode) {
  TRY_VOID(enter("allocate", path));
  MutexLock lock(mutex_);
  TRY(Place place, find(path));
  const std::uint64_t before = place.inode == 0 ? 0 : disk_.at(place.inode).image.size();
  if (bytes > before && !fits(bytes - before)) return full(path);
  if (place.inode == 0) {
    place.inode = disk_.make(FileKind::kFile, mode);
    disk_.change({{place.directory, place.name, place.inode}});
  }
  disk_.truncate(place.inode, 0);
  disk_.truncate(place.inode, bytes);
  return {};
}

}  // namespace varda::os::testing
