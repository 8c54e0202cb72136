#include "dataset/internal/folder.h"

#include <algorithm>

namespace varda::dataset {
namespace {

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }

class Walk {
 public:
  Walk(const Context& ctx, const TreeScan::Surroundings& around, const WalkOptions& options, FolderTally& tally,
       const std::function<void(const FolderEntry&)>& visit)
      : ctx_(ctx), around_(around), options_(options), tally_(tally), visit_(visit) {}

  /// As deep as depth_max at most, with one open folder a level.
  Status folder(os::ReadableDirectory& directory, const std::string& path, std::size_t depth) {
    for (;;) {
      TRY_VOID(ctx_.check());
      TRY(const auto entry, directory.next());
      if (!entry) return {};
      if (entry->name.starts_with('.')) continue;
      FolderEntry found{.path = path.empty() ? entry->name : path + "/" + entry->name,
                        .facts = entry->facts,
                        .directory = &directory,
                        .name = entry->name,
                        .absolute = {}};
      if (entry->facts.kind == os::FileKind::kSymlink) {
        if (!follow(found)) continue;
      } else if (entry->facts.kind == os::FileKind::kDirectory) {
        TRY_VOID(enter(directory, found, depth));
        continue;
      }
      if (!options_.wanted(found.name)) continue;
      if (found.facts.kind == os::FileKind::kFile) {
        visit_(found);
      } else {
        tally_.malformed(found.path, "a pipe, socket or device");
      }
    }
  }

 private:
  Status enter(os::ReadableDirectory& directory, const FolderEntry& found, std::size_t depth) {
    if (options_.depth_max == 0) return {};
    if (depth >= options_.depth_max) {
      tally_.inexact(found.path, "deeper than " + std::to_string(options_.depth_max) + " folders");
      return {};
    }
    auto below = directory.descend(found.name);
    if (!below.ok()) {
      if (below.error().code() != Code::kNotFound) tally_.inexact(found.path, below.error().message());
      return {};
    }
    return folder(**below, found.path, depth + 1);
  }

  /// Whether the link leads to something that can be judged.
  bool follow(FolderEntry& found) {
    found.directory = nullptr;
    found.absolute = around_.root / found.path;
    const auto facts = around_.tree.facts(found.absolute);
    if (facts.ok() && facts->kind == os::FileKind::kDirectory) {
      if (options_.depth_max > 0) tally_.inexact(found.path, "a link to a folder, which is not entered");
      return false;
    }
    if (facts.ok()) {
      found.facts = *facts;
      return true;
    }
    if (options_.wanted(found.name)) tally_.malformed(found.path, "a link that leads nowhere or out: " + facts.error().message());
    return false;
  }

  const Context& ctx_;
  const TreeScan::Surroundings& around_;
  const WalkOptions& options_;
  FolderTally& tally_;
  const std::function<void(const FolderEntry&)>& visit_;
};

}  // namespace

bool has_extension(std::string_view name, std::string_view extension) {
  if (name.size() <= extension.size()) return false;
  const std::string_view end = name.substr(name.size() - extension.size());
  return std::equal(end.begin(), end.end(), extension.begin(), [](char a, char b) { return lower(a) == b; });
}

void FolderTally::malformed(const std::string& file, std::string why, std::uint64_t line, std::uint64_t byte) {
  ++tally_.malformed;
  if (tally_.first_malformed && tally_.first_malformed->file <= file) return;
  tally_.first_malformed = Malformed{file, line, byte, std::move(why)};
}

void FolderTally::inexact(const std::string& file, std::string_view why) {
  if (!tally_.inexact.empty() && inexact_file_ <= file) return;
  inexact_file_ = file;
  tally_.inexact = file + ": " + std::string(why);
}

Status walk(const Context& ctx, const TreeScan::Surroundings& around, const WalkOptions& options, FolderTally& tally,
            const std::function<void(const FolderEntry&)>& visit) {
  TRY(const auto directory, around.tree.list(options.below.empty() ? around.root : around.root / options.below));
  return Walk(ctx, around, options, tally, visit).folder(*directory, options.below, 0);
}

}  // namespace varda::dataset
