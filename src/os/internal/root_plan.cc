// Plans the private root of a child with mounts: a tmpfs on which every entry of the machine's "/" is bound again, plus the
// targets.
//
// A directory of the machine that lacks a target on the way to it is itself made on the tmpfs, with its entries bound one by one,
// so that nothing is ever created on the machine's own file systems.
#include <algorithm>
#include <filesystem>
#include <set>
#include <system_error>

#include "os/internal/spawn.h"

namespace varda::os::internal {
namespace {

namespace fs = std::filesystem;

// Binding a directory entry by entry is meant for small system directories.
constexpr std::size_t kEntriesMax = 512;

bool below(const Path& path, const Path& ancestor) {
  const auto [a, b] = std::mismatch(ancestor.begin(), ancestor.end(), path.begin(), path.end());
  return a == ancestor.end() && b != path.end();
}

struct Target {
  Path path;  // symlinks of the machine resolved
  const Mount* mount = nullptr;
  bool directory = true;
};

class Planner {
 public:
  explicit Planner(std::vector<Target> targets) : targets_(std::move(targets)) {}

  Result<std::vector<RootStep>> plan() {
    TRY_VOID(expand("/"));
    for (const Target& target : targets_) TRY_VOID(place(target));
    return std::move(steps_);
  }

 private:
  // The directory stands on the tmpfs; its entries come from the machine, one by one.
  Status expand(const Path& directory) {
    std::error_code error;
    std::vector<fs::directory_entry> entries;
    for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) entries.push_back(*it);
    if (error) return Error(Code::kUnsupported, "read " + directory.string() + ": " + error.message());
    if (entries.size() > kEntriesMax) {
      return Error(Code::kUnsupported, "a mount below " + directory.string() + " would need each of its " +
                                           std::to_string(entries.size()) + " entries bound");
    }
    for (const fs::directory_entry& entry : entries) {
      const Path& path = entry.path();
      made_.insert(path);
      if (entry.is_symlink(error)) {
        steps_.push_back(
            {.kind = RootStep::Kind::kSymlink, .source = fs::read_symlink(path, error).string(), .target = path.string()});
      } else if (!entry.is_directory(error)) {
        steps_.push_back({.kind = RootStep::Kind::kFile, .source = "", .target = path.string()});
        steps_.push_back(bind(path, path));
      } else {
        steps_.push_back({.kind = RootStep::Kind::kDirectory, .source = "", .target = path.string()});
        if (lacks_target(path)) {
          TRY_VOID(expand(path));
        } else {
          steps_.push_back(bind(path, path));
        }
      }
    }
    return {};
  }

  static RootStep bind(const Path& source, const Path& target) {
    return {.kind = RootStep::Kind::kBind, .source = source.string(), .target = target.string(), .optional = true};
  }

  bool lacks_target(const Path& directory) const {
    return std::any_of(targets_.begin(), targets_.end(), [&](const Target& target) {
      return below(target.path, directory) && !inside_other(target) && !fs::exists(target.path);
    });
  }

  // Inside another mount of the child: made there, when that one is in place.
  bool inside_other(const Target& target) const {
    return std::any_of(targets_.begin(), targets_.end(), [&](const Target& other) { return below(target.path, other.path); });
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
        steps_.push_back({.kind = last && !target.directory ? RootStep::Kind::kFile : RootStep::Kind::kDirectory,
                          .source = "",
                          .target = path.string()});
      }
    } else if (fs::is_directory(target.path) != target.directory) {
      return Error(Code::kUnsupported, "mount " + target.path.string() + ": " + target.mount->source.string() +
                                           " and what is there differ in kind (file, directory)");
    }
    steps_.push_back(std::move(step));
    return {};
  }

  const std::vector<Target> targets_;
  std::vector<RootStep> steps_;
  std::set<Path> made_;
};

}  // namespace

Result<std::vector<RootStep>> plan_root(const std::vector<Mount>& mounts) {
  std::vector<Target> targets;
  for (const Mount& mount : mounts) {
    Path path = Path(mount.target).lexically_normal();
    if (path.has_relative_path() && !path.has_filename()) path = path.parent_path();
    if (!path.is_absolute() || path == "/")
      return Error(Code::kInvalid, "mount target '" + mount.target + "' must be an absolute path below /");
    std::error_code error;
    path = fs::weakly_canonical(path, error);
    if (error) return Error(Code::kInvalid, "mount target " + mount.target + ": " + error.message());
    const fs::file_status source = fs::status(mount.source, error);
    if (error || !fs::exists(source)) return Error(Code::kNotFound, "mount source " + mount.source.string() + " does not exist");
    targets.push_back({.path = std::move(path), .mount = &mount, .directory = fs::is_directory(source)});
  }
  // A mount inside another one comes after it.
  std::stable_sort(targets.begin(), targets.end(), [](const Target& a, const Target& b) {
    return std::distance(a.path.begin(), a.path.end()) < std::distance(b.path.begin(), b.path.end());
  });
  return Planner(std::move(targets)).plan();
}

}  // namespace varda::os::internal
