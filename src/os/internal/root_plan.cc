// Plans the private root of a child with mounts: a tmpfs with every entry of the machine's "/"
// bound, plus the targets.
//
// A directory that lacks a target is created on the tmpfs, and its entries are bound one by one.
// Nothing is created on the machine's file systems. An empty tmpfs covers a hidden directory;
// mounts below it are created there.
#include <algorithm>
#include <filesystem>
#include <set>
#include <system_error>

#include "os/internal/spawn.h"

namespace varda::os::internal {
namespace {

namespace fs = std::filesystem;

// Limits directories that are bound entry by entry; meant for small system directories.
constexpr std::size_t kEntriesMax = 512;

bool below(const Path& path, const Path& ancestor) {
  const auto [a, b] = std::mismatch(ancestor.begin(), ancestor.end(), path.begin(), path.end());
  return a == ancestor.end() && b != path.end();
}

// Files that change the machine for everyone. Their owner is root, so a child of user 0 could write
// them without any capability.
constexpr const char* kKernelSettings[] = {"/proc/sys", "/proc/sysrq-trigger", "/proc/irq",
                                           "/proc/bus", "/proc/fs"};

struct Target {
  Path path;  // symlinks of the machine resolved
  const Mount* mount = nullptr;
  bool directory = true;
};

class Planner {
 public:
  Planner(std::vector<Target> targets, std::vector<Path> hidden, bool read_only)
      : targets_(std::move(targets)), hidden_(std::move(hidden)), read_only_(read_only) {}

  Result<std::vector<RootStep>> plan() {
    TRY_VOID(expand("/"));
    for (const char* path : kKernelSettings) steps_.push_back(read_only(path));
    for (const Path& path : hidden_) hide(path);
    for (const Target& target : targets_) TRY_VOID(place(target));
    return std::move(steps_);
  }

 private:
  // The directory is on the tmpfs; its entries are bound from the machine one by one.
  Status expand(const Path& directory) {
    std::error_code error;
    std::vector<fs::directory_entry> entries;
    for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error))
      entries.push_back(*it);
    if (error)
      return Error(Code::kUnsupported, "read " + directory.string() + ": " + error.message());
    if (entries.size() > kEntriesMax) {
      return Error(Code::kUnsupported, "a mount below " + directory.string() +
                                           " would need each of its " +
                                           std::to_string(entries.size()) + " entries bound");
    }
    for (const fs::directory_entry& entry : entries) {
      const Path& path = entry.path();
      made_.insert(path);
      if (entry.is_symlink(error)) {
        steps_.push_back({.kind = RootStep::Kind::kSymlink,
                          .source = fs::read_symlink(path, error).string(),
                          .target = path.string()});
      } else if (!entry.is_directory(error)) {
        steps_.push_back({.kind = RootStep::Kind::kFile, .source = "", .target = path.string()});
        steps_.push_back(bind(path, path));
      } else {
        steps_.push_back(
            {.kind = RootStep::Kind::kDirectory, .source = "", .target = path.string()});
        if (lacks_target(path)) {
          TRY_VOID(expand(path));
        } else {
          steps_.push_back(bind(path, path));
        }
      }
    }
    return {};
  }

  static RootStep read_only(const char* path) {
    return {.kind = RootStep::Kind::kBind,
            .source = path,
            .target = path,
            .read_only = true,
            .optional = true};
  }

  // /dev and /proc stay writable: devices must work, and processes write below /proc/self.
  RootStep bind(const Path& source, const Path& target) const {
    const Path top = *std::next(target.begin());
    return {.kind = RootStep::Kind::kBind,
            .source = source.string(),
            .target = target.string(),
            .read_only = read_only_ && top != "dev" && top != "proc",
            .optional = true};
  }

  void hide(const Path& path) {
    if (fs::is_directory(path)) {
      steps_.push_back({.kind = RootStep::Kind::kHide, .source = "", .target = path.string()});
    } else {
      steps_.push_back(
          {.kind = RootStep::Kind::kBind, .source = "/dev/null", .target = path.string()});
    }
  }

  bool lacks_target(const Path& directory) const {
    return std::any_of(targets_.begin(), targets_.end(), [&](const Target& target) {
      return below(target.path, directory) && !inside_other(target) && !fs::exists(target.path);
    });
  }

  // Inside another mount of the child or a hidden directory: created there later.
  bool inside_other(const Target& target) const {
    return std::any_of(targets_.begin(), targets_.end(),
                       [&](const Target& other) { return below(target.path, other.path); }) ||
           std::any_of(hidden_.begin(), hidden_.end(),
                       [&](const Path& hidden) { return below(target.path, hidden); });
  }

  Status place(const Target& target) {
    RootStep step{.kind = RootStep::Kind::kBind,
                  .source = target.mount->source.string(),
                  .target = target.path.string(),
                  .read_only = target.mount->read_only};
    if (inside_other(target)) {
      step.make_target = true;
      step.directory = target.directory;
    } else if (!fs::exists(target.path)) {
      Path path;
      for (const Path& part : target.path) {
        path /= part;
        if (path == "/" || fs::exists(path) || !made_.insert(path).second) continue;
        const bool last = path == target.path;
        steps_.push_back(
            {.kind = last && !target.directory ? RootStep::Kind::kFile : RootStep::Kind::kDirectory,
             .source = "",
             .target = path.string()});
      }
    } else if (fs::is_directory(target.path) != target.directory) {
      return Error(Code::kUnsupported, "mount " + target.path.string() + ": " +
                                           target.mount->source.string() +
                                           " and what is there differ in kind (file, directory)");
    }
    steps_.push_back(std::move(step));
    return {};
  }

  const std::vector<Target> targets_;
  const std::vector<Path> hidden_;
  const bool read_only_;
  std::vector<RootStep> steps_;
  std::set<Path> made_;
};

// The existing paths, without those covered by a mount or below another path.
std::vector<Path> outermost(const std::vector<Path>& paths, const std::vector<Target>& targets) {
  std::vector<Path> present;
  for (const Path& path : paths) {
    std::error_code error;
    const Path real = fs::canonical(path, error);
    if (!error && real != "/") present.push_back(real);
  }
  std::vector<Path> outer;
  for (const Path& path : present) {
    const bool covered = std::any_of(present.begin(), present.end(),
                                     [&](const Path& other) { return below(path, other); }) ||
                         std::any_of(targets.begin(), targets.end(),
                                     [&](const Target& target) { return target.path == path; });
    if (!covered && std::find(outer.begin(), outer.end(), path) == outer.end())
      outer.push_back(path);
  }
  return outer;
}

}  // namespace

Result<std::vector<RootStep>> plan_root(const ProcessOptions& options) {
  std::vector<Target> targets;
  if (options.mounts.empty() && options.hidden.empty() && !options.read_only_root)
    return std::vector<RootStep>();
  for (const Mount& mount : options.mounts) {
    Path path = Path(mount.target).lexically_normal();
    if (path.has_relative_path() && !path.has_filename()) path = path.parent_path();
    if (!path.is_absolute() || path == "/")
      return Error(Code::kInvalid,
                   "mount target '" + mount.target + "' must be an absolute path below /");
    std::error_code error;
    path = fs::weakly_canonical(path, error);
    if (error)
      return Error(Code::kInvalid, "mount target " + mount.target + ": " + error.message());
    const fs::file_status source = fs::status(mount.source, error);
    if (error || !fs::exists(source))
      return Error(Code::kNotFound, "mount source " + mount.source.string() + " does not exist");
    targets.push_back(
        {.path = std::move(path), .mount = &mount, .directory = fs::is_directory(source)});
  }
  // Outer mounts come before inner ones.
  std::stable_sort(targets.begin(), targets.end(), [](const Target& a, const Target& b) {
    return std::distance(a.path.begin(), a.path.end()) <
           std::distance(b.path.begin(), b.path.end());
  });
  std::vector<Path> hidden = outermost(options.hidden, targets);
  return Planner(std::move(targets), std::move(hidden), options.read_only_root).plan();
}

}  // namespace varda::os::internal
