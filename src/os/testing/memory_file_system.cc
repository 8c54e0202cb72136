#include "os/testing/memory_file_system.h"

#include <algorithm>
#include <atomic>
#include <set>

namespace varda::os::testing {

struct MemoryFileSystem::Node {
  FileKind kind = FileKind::kFile;
  std::string bytes;  // kSymlink: the target
  std::uint32_t mode = 0644;
  std::uint64_t links = 1;
  std::uint64_t inode = 0;
  WallTime modified;
};

namespace {

Error missing(const std::string& path) {
  return Error(Code::kNotFound, path + ": No such file or directory");
}
Error full() { return Error(Code::kExhausted, "write: No space left on device"); }
// Nearly every path is already normal, and the library checks this slowly.
bool is_normal(std::string_view path) {
  if (!path.starts_with('/')) return false;
  for (std::size_t at = 0; at < path.size();) {
    const std::size_t end = std::min(path.find('/', at + 1), path.size());
    const std::string_view part = path.substr(at + 1, end - at - 1);
    if (part.empty() || part == "." || part == "..") return false;
    at = end;
  }
  return true;
}
std::string normal_path(const Path& path) {
  if (is_normal(path.native())) return path.native();
  std::string text = (path.is_absolute() ? path : "/" / path).lexically_normal().string();
  while (text.size() > 1 && text.back() == '/') text.pop_back();
  return text;
}
// `path` must be normal.
std::string parent_of(const std::string& path) {
  return path.substr(0, std::max<std::size_t>(path.rfind('/'), 1));
}

}  // namespace

class MemoryFile final : public File {
 public:
  MemoryFile(MemoryFileSystem& fs, std::shared_ptr<MemoryFileSystem::Node> node, Path path,
             bool writable)
      : fs_(fs), node_(std::move(node)), path_(std::move(path)), writable_(writable) {}

  Status write(std::string_view bytes) override {
    TRY_VOID(fs_.enter("write", path_));
    if (!writable_)
      return Error(Code::kInvalid, "write " + path_.string() + ": opened for reading");
    MutexLock lock(fs_.mutex_);
    const std::size_t end = position_ + bytes.size();
    const std::size_t growth = end > node_->bytes.size() ? end - node_->bytes.size() : 0;
    if (fs_.used() + growth > fs_.capacity_bytes_) return full();
    if (growth > 0) node_->bytes.resize(end);
    node_->bytes.replace(position_, bytes.size(), bytes);
    position_ = end;
    node_->modified = system_clock().wall();
    return {};
  }
  Result<std::string> read(std::size_t max) override {
    TRY_VOID(fs_.enter("read", path_));
    MutexLock lock(fs_.mutex_);
    if (position_ >= node_->bytes.size()) return std::string();
    std::string piece = node_->bytes.substr(position_, max);
    position_ += piece.size();
    return piece;
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
    if (size > node_->bytes.size() && fs_.used() + size - node_->bytes.size() > fs_.capacity_bytes_)
      return full();
    node_->bytes.resize(size);
    return {};
  }
  Result<std::uint64_t> size() override {
    TRY_VOID(fs_.enter("size", path_));
    MutexLock lock(fs_.mutex_);
    return std::uint64_t{node_->bytes.size()};
  }
  Status sync() override { return fs_.enter("sync", path_); }

 private:
  MemoryFileSystem& fs_;
  const std::shared_ptr<MemoryFileSystem::Node> node_;
  const Path path_;
  const bool writable_;
  std::size_t position_ = 0;
};

MemoryFileSystem::MemoryFileSystem(std::uint64_t capacity_bytes) : capacity_bytes_(capacity_bytes) {
  nodes_["/"] = std::make_shared<Node>(
      Node{.kind = FileKind::kDirectory, .bytes = "", .mode = 0755, .inode = 1, .modified = {}});
}
MemoryFileSystem::~MemoryFileSystem() = default;

void MemoryFileSystem::on_call(Hook hook) {
  MutexLock lock(mutex_);
  hook_ = std::move(hook);
}

void MemoryFileSystem::fail_nth(int nth, std::string call, Error error) {
  auto left = std::make_shared<std::atomic<int>>(nth);
  on_call([left, call = std::move(call), error = std::move(error)](std::string_view name,
                                                                   const Path&) -> Status {
    if ((call.empty() || call == name) && left->fetch_sub(1) == 1) return error;
    return {};
  });
}

void MemoryFileSystem::set_capacity(std::uint64_t capacity_bytes) {
  MutexLock lock(mutex_);
  capacity_bytes_ = capacity_bytes;
}

std::uint64_t MemoryFileSystem::calls() const {
  MutexLock lock(mutex_);
  return calls_;
}

Status MemoryFileSystem::enter(std::string_view call, const Path& path) {
  Hook hook;
  {
    MutexLock lock(mutex_);
    ++calls_;
    hook = hook_;
  }
  return hook ? hook(call, path) : Status();
}

Result<std::string> MemoryFileSystem::resolve(const Path& path) {
  if (!symlinks_) return normal_path(path);
  Path rest = normal_path(path);
  for (int hops = 0; hops < 40; ++hops) {
    Path done;
    bool followed = false;
    for (auto part = rest.begin(); part != rest.end(); ++part) {
      done /= *part;
      const auto node = at(normal_path(done));
      if (std::next(part) == rest.end() || node == nullptr || node->kind != FileKind::kSymlink)
        continue;
      Path target =
          Path(node->bytes).is_absolute() ? Path(node->bytes) : done.parent_path() / node->bytes;
      for (auto tail = std::next(part); tail != rest.end(); ++tail) target /= *tail;
      rest = normal_path(target);
      followed = true;
      break;
    }
    if (!followed) return normal_path(rest);
  }
  return Error(Code::kInvalid, path.string() + ": Too many levels of symbolic links");
}

Result<std::string> MemoryFileSystem::resolve_parent(const Path& path) {
  TRY(std::string name, resolve(path));
  const auto parent = at(parent_of(name));
  if (parent == nullptr) return missing(path.string());
  if (parent->kind != FileKind::kDirectory)
    return Error(Code::kInvalid, path.string() + ": Not a directory");
  return name;
}

std::shared_ptr<MemoryFileSystem::Node> MemoryFileSystem::at(const std::string& path) {
  const auto found = nodes_.find(path);
  return found == nodes_.end() ? nullptr : found->second;
}

bool MemoryFileSystem::has_children(const std::string& path) {
  const std::string prefix = path == "/" ? path : path + "/";
  const auto next = nodes_.upper_bound(prefix);
  return next != nodes_.end() && next->first.starts_with(prefix);
}

std::uint64_t MemoryFileSystem::used() const {
  std::uint64_t sum = 0;
  std::set<const Node*> seen;
  for (const auto& [path, node] : nodes_) {
    if (node->kind == FileKind::kFile && seen.insert(node.get()).second) sum += node->bytes.size();
  }
  return sum;
}

Result<std::unique_ptr<File>> MemoryFileSystem::open(const Path& path, Open how,
                                                     std::uint32_t mode) {
  TRY_VOID(enter("open", path));
  MutexLock lock(mutex_);
  TRY(const std::string name, resolve_parent(path));
  auto node = at(name);
  if (node == nullptr) {
    if (how == Open::kRead) return missing(path.string());
    node = std::make_shared<Node>(
        Node{.bytes = "", .mode = mode, .inode = ++inodes_, .modified = system_clock().wall()});
    nodes_[name] = node;
  } else {
    if (how == Open::kExclusive)
      return Error(Code::kAlreadyExists, path.string() + ": File exists");
    if (node->kind != FileKind::kFile) return Error(Code::kInvalid, path.string() + ": not a file");
    if (how == Open::kTruncate) node->bytes.clear();
  }
  return std::make_unique<MemoryFile>(*this, node, path, how != Open::kRead);
}

Result<std::optional<FileInfo>> MemoryFileSystem::stat(const Path& path) {
  TRY_VOID(enter("stat", path));
  MutexLock lock(mutex_);
  TRY(const std::string name, resolve(path));
  const auto node = at(name);
  if (node == nullptr) return std::optional<FileInfo>();
  return std::optional(FileInfo{.kind = node->kind,
                                .size_bytes = node->bytes.size(),
                                .mode = node->mode,
                                .links = node->links,
                                .inode = node->inode,
                                .modified = node->modified});
}

Result<std::vector<std::string>> MemoryFileSystem::list(const Path& directory) {
  TRY_VOID(enter("list", directory));
  MutexLock lock(mutex_);
  TRY(const std::string name, resolve(directory));
  const auto node = at(name);
  if (node == nullptr) return missing(directory.string());
  if (node->kind != FileKind::kDirectory)
    return Error(Code::kInvalid, directory.string() + ": Not a directory");
  const std::string prefix = name == "/" ? name : name + "/";
  std::set<std::string> names;
  for (auto it = nodes_.upper_bound(prefix); it != nodes_.end() && it->first.starts_with(prefix);
       ++it) {
    names.insert(
        it->first.substr(prefix.size(), it->first.find('/', prefix.size()) - prefix.size()));
  }
  return std::vector<std::string>(names.begin(), names.end());
}

Status MemoryFileSystem::make_directories(const Path& path, std::uint32_t mode) {
  TRY_VOID(enter("mkdir", path));
  MutexLock lock(mutex_);
  TRY(const std::string name, resolve(path));
  Path done;
  for (const Path& part : Path(name)) {
    done /= part;
    const std::string prefix = normal_path(done);
    const auto node = at(prefix);
    if (node == nullptr) {
      nodes_[prefix] = std::make_shared<Node>(Node{.kind = FileKind::kDirectory,
                                                   .bytes = "",
                                                   .mode = mode,
                                                   .inode = ++inodes_,
                                                   .modified = system_clock().wall()});
    } else if (node->kind == FileKind::kFile) {
      return Error(Code::kAlreadyExists, path.string() + ": a file is in the way");
    }
  }
  return {};
}

Status MemoryFileSystem::rename(const Path& from, const Path& to) {
  TRY_VOID(enter("rename", from));
  MutexLock lock(mutex_);
  TRY(const std::string source, resolve(from));
  TRY(const std::string target, resolve_parent(to));
  const auto node = at(source);
  if (node == nullptr) return missing(from.string());
  if (source == target) return {};
  if (const auto old = at(target); old != nullptr) {
    if (old == node) return {};  // two names of one file: POSIX leaves both
    if (old->kind == FileKind::kDirectory && node->kind != FileKind::kDirectory)
      return Error(Code::kInvalid, to.string() + ": Is a directory");
    if (old->kind != FileKind::kDirectory && node->kind == FileKind::kDirectory)
      return Error(Code::kInvalid, to.string() + ": Not a directory");
    if (has_children(target))
      return Error(Code::kAlreadyExists, to.string() + ": Directory not empty");
    --old->links;
  }
  if (target.starts_with(source + "/"))
    return Error(Code::kInvalid, to.string() + ": Invalid argument");
  Nodes moved;
  for (auto it = nodes_.begin(); it != nodes_.end();) {
    if (it->first == source || it->first.starts_with(source + "/")) {
      moved[target + it->first.substr(source.size())] = it->second;
      it = nodes_.erase(it);
    } else {
      ++it;
    }
  }
  for (auto& [path, moved_node] : moved) nodes_[path] = moved_node;
  return {};
}

Status MemoryFileSystem::link(const Path& existing, const Path& name) {
  TRY_VOID(enter("link", name));
  MutexLock lock(mutex_);
  TRY(const std::string source, resolve(existing));
  TRY(const std::string target, resolve_parent(name));
  const auto node = at(source);
  if (node == nullptr) return missing(existing.string());
  if (node->kind == FileKind::kDirectory)
    return Error(Code::kForbidden, existing.string() + ": a directory has one name");
  if (at(target) != nullptr) return Error(Code::kAlreadyExists, name.string() + ": File exists");
  ++node->links;
  nodes_[target] = node;
  return {};
}

Status MemoryFileSystem::symlink(const std::string& target, const Path& name) {
  TRY_VOID(enter("symlink", name));
  MutexLock lock(mutex_);
  TRY(const std::string path, resolve_parent(name));
  if (at(path) != nullptr) return Error(Code::kAlreadyExists, name.string() + ": File exists");
  symlinks_ = true;
  nodes_[path] = std::make_shared<Node>(Node{.kind = FileKind::kSymlink,
                                             .bytes = target,
                                             .mode = 0777,
                                             .inode = ++inodes_,
                                             .modified = system_clock().wall()});
  return {};
}

Result<std::string> MemoryFileSystem::read_link(const Path& path) {
  TRY_VOID(enter("read_link", path));
  MutexLock lock(mutex_);
  TRY(const std::string name, resolve(path));
  const auto node = at(name);
  if (node == nullptr) return missing(path.string());
  if (node->kind != FileKind::kSymlink)
    return Error(Code::kInvalid, path.string() + ": no symlink");
  return node->bytes;
}

Status MemoryFileSystem::remove(const Path& path) {
  TRY_VOID(enter("remove", path));
  MutexLock lock(mutex_);
  TRY(const std::string name, resolve(path));
  const auto node = at(name);
  if (node == nullptr) return {};
  if (node->kind == FileKind::kDirectory && has_children(name))
    return Error(Code::kAlreadyExists, path.string() + ": Directory not empty");
  --node->links;
  nodes_.erase(name);
  return {};
}

Status MemoryFileSystem::remove_all(const Path& path) {
  TRY_VOID(enter("remove_all", path));
  MutexLock lock(mutex_);
  TRY(const std::string name, resolve(path));
  std::erase_if(nodes_, [&](auto& item) {
    const bool removed = item.first == name || item.first.starts_with(name + "/");
    if (removed) --item.second->links;
    return removed;
  });
  return {};
}

Status MemoryFileSystem::set_mode(const Path& path, std::uint32_t mode) {
  TRY_VOID(enter("set_mode", path));
  MutexLock lock(mutex_);
  TRY(const std::string name, resolve(path));
  const auto node = at(name);
  if (node == nullptr) return missing(path.string());
  node->mode = mode;
  return {};
}

Status MemoryFileSystem::sync_directory(const Path& path) {
  TRY_VOID(enter("sync_directory", path));
  MutexLock lock(mutex_);
  TRY(const std::string name, resolve(path));
  return at(name) == nullptr ? Status(missing(path.string())) : Status();
}

Result<Space> MemoryFileSystem::space(const Path& path) {
  TRY_VOID(enter("space", path));
  MutexLock lock(mutex_);
  return Space{.capacity_bytes = capacity_bytes_,
               .available_bytes = capacity_bytes_ - std::min(capacity_bytes_, used())};
}

Status MemoryFileSystem::allocate(const Path& path, std::uint64_t bytes, std::uint32_t mode) {
  TRY_VOID(enter("allocate", path));
  const auto make = [&]() -> Status {
    TRY(const std::unique_ptr<File> file, open(path, Open::kTruncate, mode));
    return file->truncate(bytes);
  };
  Status made = make();
  if (!made.ok()) (void)remove(path);
  return made;
}

}  // namespace varda::os::testing
