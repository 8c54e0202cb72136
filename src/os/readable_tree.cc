#include "os/readable_tree.h"

#include <algorithm>
#include <cerrno>
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

#include "os/internal/posix.h"

namespace varda::os {
namespace {

using internal::Descriptor;
using internal::errno_error;
using internal::retry;

std::int64_t nanoseconds(const timespec& time) {
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

FileFacts facts_of(const struct stat& raw) {
  FileFacts out;
  out.kind = S_ISREG(raw.st_mode)   ? FileKind::kFile
             : S_ISDIR(raw.st_mode) ? FileKind::kDirectory
             : S_ISLNK(raw.st_mode) ? FileKind::kSymlink
                                    : FileKind::kOther;
  out.size_bytes = static_cast<std::uint64_t>(raw.st_size);
  out.device = raw.st_dev;
  out.inode = raw.st_ino;
  out.modified_ns = nanoseconds(raw.st_mtim);
  out.changed_ns = nanoseconds(raw.st_ctim);
  return out;
}

Error failed(std::string_view what, const std::string& path) {
  const int number = errno;
  return errno_error(number, std::string(what) + " " + path);
}

Error not_a(std::string_view wanted, const std::string& path, FileKind kind) {
  const char* is = kind == FileKind::kDirectory ? "a directory"
                   : kind == FileKind::kFile    ? "a file"
                   : kind == FileKind::kSymlink ? "a link"
                                                : "a pipe, socket or device";
  return Error(Code::kInvalid, path + " is " + is + ", not " + std::string(wanted));
}

Result<FileFacts> facts_at(int fd, const std::string& path) {
  struct stat raw {};
  if (::fstat(fd, &raw) < 0) return failed("stat", path);
  return facts_of(raw);
}

class RealReadableFile final : public ReadableFile {
 public:
  RealReadableFile(Descriptor descriptor, std::string path)
      : descriptor_(std::move(descriptor)), path_(std::move(path)) {}

  Result<std::size_t> read(std::uint64_t offset, std::span<char> bytes) override {
    std::size_t done = 0;
    while (done < bytes.size()) {
      const ssize_t count = retry([&] {
        return ::pread(descriptor_.get(), bytes.data() + done, bytes.size() - done,
                       static_cast<off_t>(offset + done));
      });
      if (count < 0) return failed("read", path_);
      if (count == 0) break;
      done += static_cast<std::size_t>(count);
    }
    return done;
  }
  Result<FileFacts> facts() override { return facts_at(descriptor_.get(), path_); }

 private:
  const Descriptor descriptor_;
  const std::string path_;
};

/// A single name only: ".." or a path could leave the folder.
Status check_entry(const std::string& name) {
  if (name.empty() || name == "." || name == ".." || name.find('/') != std::string::npos)
    return Error(Code::kInvalid, "\"" + name + "\" is not a name of an entry");
  return {};
}

/// O_NONBLOCK prevents waiting on a pipe that replaced the file; regular files ignore it.
Result<std::unique_ptr<ReadableFile>> open_file_at(int directory, const std::string& name,
                                                   const std::string& path) {
  // Checked before opening, because opening a device may have effects.
  struct stat raw {};
  if (::fstatat(directory, name.c_str(), &raw, AT_SYMLINK_NOFOLLOW) < 0)
    return failed("open", path);
  if (!S_ISREG(raw.st_mode)) return not_a("a regular file", path, facts_of(raw).kind);
  Descriptor descriptor(retry([&] {
    return ::openat(directory, name.c_str(),
                    O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
  }));
  if (!descriptor.ok()) return failed("open", path);
  TRY(const FileFacts facts, facts_at(descriptor.get(), path));
  if (facts.kind != FileKind::kFile) return not_a("a regular file", path, facts.kind);
  return std::make_unique<RealReadableFile>(std::move(descriptor), path);
}

Result<Descriptor> open_directory_at(int directory, const std::string& name,
                                     const std::string& path) {
  Descriptor descriptor(retry([&] {
    return ::openat(directory, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  }));
  if (descriptor.ok()) return descriptor;
  if (errno == ENOTDIR || errno == ELOOP)
    return Error(Code::kInvalid, path + " is not a directory");
  return failed("open", path);
}

class RealReadableDirectory final : public ReadableDirectory {
 public:
  static Result<std::unique_ptr<ReadableDirectory>> create(Descriptor descriptor,
                                                           std::string path) {
    DIR* stream = ::fdopendir(descriptor.get());
    if (stream == nullptr) return failed("list", path);
    descriptor.release();
    return std::unique_ptr<ReadableDirectory>(new RealReadableDirectory(stream, std::move(path)));
  }
  ~RealReadableDirectory() override { ::closedir(stream_); }

  Result<std::optional<Entry>> next() override {
    for (;;) {
      errno = 0;
      const dirent* entry = ::readdir(stream_);
      if (entry == nullptr) {
        if (errno != 0) return failed("list", path_);
        return std::optional<Entry>();
      }
      const std::string_view name = entry->d_name;
      if (name == "." || name == "..") continue;
      struct stat raw {};
      if (::fstatat(::dirfd(stream_), entry->d_name, &raw, AT_SYMLINK_NOFOLLOW) < 0) {
        if (errno == ENOENT) continue;
        return failed("stat", path_ + "/" + entry->d_name);
      }
      return std::optional<Entry>(Entry{std::string(name), facts_of(raw)});
    }
  }
  Result<std::unique_ptr<ReadableFile>> open(const std::string& name) override {
    TRY_VOID(check_entry(name));
    return open_file_at(::dirfd(stream_), name, path_ + "/" + name);
  }
  Result<std::unique_ptr<ReadableDirectory>> descend(const std::string& name) override {
    TRY_VOID(check_entry(name));
    TRY(Descriptor descriptor, open_directory_at(::dirfd(stream_), name, path_ + "/" + name));
    return create(std::move(descriptor), path_ + "/" + name);
  }

 private:
  RealReadableDirectory(DIR* stream, std::string path) : stream_(stream), path_(std::move(path)) {}
  DIR* const stream_;
  const std::string path_;
};

struct Root {
  Path path;  // canonical
  Descriptor descriptor;
};

class RealReadableTree final : public ReadableTree {
 public:
  explicit RealReadableTree(std::vector<Root> roots) : roots_(std::move(roots)) {}

  Result<FileFacts> facts(const Path& path) override {
    TRY(const Place place, find(path));
    struct stat raw {};
    if (::fstatat(place.parent_fd(), place.name.c_str(), &raw, AT_SYMLINK_NOFOLLOW) < 0)
      return failed("stat", path.string());
    return facts_of(raw);
  }
  Result<std::unique_ptr<ReadableFile>> open(const Path& path) override {
    // A file without links on the way: most of them. Every failure is left to the other way, which
    // follows links below the roots and knows the reason.
    if (const auto place = find_plain(path)) {
      auto file = open_file_at(place->parent_fd(), place->name, path.string());
      if (file.ok()) return file;
    }
    TRY(const Place place, find(path));
    return open_file_at(place.parent_fd(), place.name, path.string());
  }
  Result<std::unique_ptr<ReadableDirectory>> list(const Path& path) override {
    TRY(const Place place, find(path));
    TRY(Descriptor descriptor, open_directory_at(place.parent_fd(), place.name, path.string()));
    return RealReadableDirectory::create(std::move(descriptor), path.string());
  }

 private:
  /// A name in an open folder, which cannot be replaced any more.
  struct Place {
    const Root* root = nullptr;
    Descriptor parent;  // unset: the root
    std::string name;
    int parent_fd() const { return parent.ok() ? parent.get() : root->descriptor.get(); }
  };

  Result<Place> find(const Path& path) const {
    std::error_code error;
    const Path real = std::filesystem::canonical(path, error);
    if (error) return errno_error(error.value(), path.string());
    TRY(auto place, below_root(real, path));
    if (place) return *std::move(place);
    return Error(Code::kForbidden, path.string() +
                                       (real == path ? "" : ", which is " + real.string() + ",") +
                                       " does not lie below a directory that may be read");
  }

  /// Without resolving the path first, which asks the kernel about each component. nullopt: the
  /// path needs to be resolved.
  std::optional<Place> find_plain(const Path& path) const {
    if (!is_plain(path.native())) return std::nullopt;
    auto place = below_root(path, path);
    if (!place.ok()) return std::nullopt;
    return std::move(place).value();
  }

  /// True for absolute paths without empty components, "." and "..".
  static bool is_plain(std::string_view path) {
    return path.starts_with('/') && !path.ends_with('/') &&
           path.find("//") == std::string_view::npos && path.find("/.") == std::string_view::npos;
  }

  /// Opens the parent folder by components from a root, without following links. nullopt: the path
  /// lies below no root.
  Result<std::optional<Place>> below_root(const Path& real, const Path& path) const {
    for (const Root& root : roots_) {
      const auto [end, rest] =
          std::mismatch(root.path.begin(), root.path.end(), real.begin(), real.end());
      if (end != root.path.end()) continue;
      Place place;
      place.root = &root;
      place.name = ".";
      for (auto component = rest; component != real.end(); ++component) {
        if (place.name != ".") {
          TRY(Descriptor next, open_directory_at(place.parent_fd(), place.name, path.string()));
          place.parent = std::move(next);
        }
        place.name = component->string();
      }
      return std::optional<Place>(std::move(place));
    }
    return std::optional<Place>();
  }

  const std::vector<Root> roots_;
};

}  // namespace

Result<std::unique_ptr<ReadableTree>> open_readable_tree(const std::vector<Path>& roots) {
  std::vector<Root> open;
  for (const Path& path : roots) {
    std::error_code error;
    Root root;
    root.path = std::filesystem::canonical(path, error);
    if (error) return Error(Code::kInvalid, path.string() + ": " + error.message());
    TRY(root.descriptor, open_directory_at(AT_FDCWD, root.path.string(), path.string()));
    open.push_back(std::move(root));
  }
  return std::unique_ptr<ReadableTree>(std::make_unique<RealReadableTree>(std::move(open)));
}

}  // namespace varda::os
