#include "artifact/numbered_view.h"

#include <algorithm>
#include <optional>

#include "artifact/internal/tree.h"

namespace varda::artifact {
namespace {

class View {
 public:
  View(os::FileSystem& fs, os::Path directory) : fs_(fs), directory_(std::move(directory)) {}

  Status open() {
    TRY_VOID(fs_.make_directories(directory_, 0755));
    TRY(const auto names, fs_.list(directory_));
    for (const std::string& name : names)
      if (name.front() == '.') TRY_VOID(fs_.remove_all(directory_ / name));
    return {};
  }

  Result<std::vector<std::uint64_t>> numbers() const {
    std::vector<std::uint64_t> out;
    TRY(const auto names, fs_.list(directory_));
    for (const std::string& name : names) {
      const bool digits = name.size() <= 18 && std::all_of(name.begin(), name.end(), [](char c) {
                            return c >= '0' && c <= '9';
                          });
      if (digits) out.push_back(std::stoull(name));
    }
    return out;
  }

  /// Returns the number under which `version` is shown; shows it if needed.
  Result<std::uint64_t> show(const os::Path& version, const NumberedOptions::Numbers& numbers) {
    for (const std::uint64_t number : {numbers.by_archive, numbers.by_name}) {
      TRY(const auto existing, fs_.stat(at(number)));
      if (!existing) continue;
      TRY(const bool same, same_tree(fs_, version, at(number)));
      if (same) return number;
    }
    TRY(const auto taken, fs_.stat(at(numbers.by_name)));
    const std::uint64_t number = taken ? numbers.by_archive : numbers.by_name;
    // The same archive, installed again on this disk: its number stays.
    TRY_VOID(hide(number));
    const os::Path fresh = directory_ / (".new-" + std::to_string(number));
    TRY_VOID(link_tree(fs_, version, fresh));
    TRY_VOID(fs_.rename(fresh, at(number)));
    TRY_VOID(fs_.sync_directory(directory_));
    return number;
  }

  Status show_extra_file(const os::Path& version, const std::string& name) {
    const os::Path place = directory_ / name;
    TRY(const auto wanted, fs_.stat(version / name));
    TRY(const auto existing, fs_.stat(place));
    if (!wanted || wanted->kind != os::FileKind::kFile) {
      if (!existing) return {};
      TRY_VOID(fs_.remove_all(place));
      return fs_.sync_directory(directory_);
    }
    if (existing && existing->inode == wanted->inode) return {};
    const os::Path fresh = directory_ / ".new-beside";
    TRY_VOID(fs_.link(version / name, fresh));
    TRY_VOID(fs_.rename(fresh, place));
    return fs_.sync_directory(directory_);
  }

  // Renamed first, so that a half-removed directory is never visible under its number.
  Status hide(std::uint64_t number) {
    TRY(const auto existing, fs_.stat(at(number)));
    if (!existing) return {};
    const os::Path old = directory_ / (".old-" + std::to_string(number));
    TRY_VOID(fs_.rename(at(number), old));
    TRY_VOID(fs_.sync_directory(directory_));
    return fs_.remove_all(old);
  }

 private:
  os::Path at(std::uint64_t number) const { return directory_ / std::to_string(number); }

  os::FileSystem& fs_;
  const os::Path directory_;
};

}  // namespace

Result<NumberedVersions> show_numbered(os::FileSystem& fs, const ModelTree& tree,
                                       std::string_view key, const NumberedOptions& options) {
  TRY(const auto target, tree.target(key));
  const auto active = target ? options.versions.find(*target) : options.versions.end();
  if (active == options.versions.end())
    return Error(Code::kNotFound, std::string(key) + ": no version is active");
  const os::Path model = tree.directory(key);
  View view(fs, model / kNumberedView);
  TRY_VOID(view.open());
  NumberedVersions out;
  TRY(out.active, view.show(model / *target, active->second));
  for (const std::string& name : options.extra_files)
    TRY_VOID(view.show_extra_file(model / *target, name));
  TRY(const auto shown, tree.versions(key));
  out.names[out.active] = *target;
  for (const auto& [name, numbers] : options.versions) {
    if (name == *target || std::find(shown.begin(), shown.end(), name) == shown.end()) continue;
    out.names.emplace(numbers.by_name, name);
    out.names.emplace(numbers.by_archive, name);
  }
  TRY(const auto numbers, view.numbers());
  for (const std::uint64_t number : numbers)
    if (number > out.active || !out.names.contains(number)) TRY_VOID(view.hide(number));
  return out;
}

Status remove_numbered(os::FileSystem& fs, const ModelTree& tree, std::string_view key) {
  const os::Path view = tree.directory(key) / kNumberedView;
  TRY(const auto existing, fs.stat(view));
  return existing ? fs.remove_all(view) : ok_status();
}

}  // namespace varda::artifact
