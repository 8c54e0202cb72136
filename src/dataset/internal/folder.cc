#include "dataset/internal/folder.h"

#include <algorithm>

#include "base/text.h"

namespace varda::dataset {
bool has_extension(std::string_view name, std::string_view extension) {
  if (name.size() <= extension.size()) return false;
  return equal_ignoring_case(name.substr(name.size() - extension.size()), extension);
}

void FolderTally::malformed(const std::string& file, std::string why, std::uint64_t line,
                            std::uint64_t byte) {
  ++tally_.malformed;
  if (tally_.first_malformed && tally_.first_malformed->file <= file) return;
  tally_.first_malformed = Malformed{file, line, byte, std::move(why)};
}

void FolderTally::inexact(const std::string& file, std::string_view why) {
  if (!tally_.inexact.empty() && inexact_file_ <= file) return;
  inexact_file_ = file;
  tally_.inexact = file + ": " + std::string(why);
}

void FolderTally::add(const std::string& file, const Tally& tally) {
  tally_.samples += tally.samples;
  if (tally.first_malformed) {
    const Malformed& first = *tally.first_malformed;
    malformed(file, first.why, first.line, first.byte);
    tally_.malformed += tally.malformed - 1;
  }
  if (!tally.inexact.empty()) inexact(file, tally.inexact);
  if (tally.header.empty() || headers_differ_) return;
  headers_differ_ = !tally_.header.empty() && tally_.header != tally.header;
  tally_.header = headers_differ_ ? "" : tally.header;
}

Walk::Walk(const TreeScan::Surroundings& around, WalkOptions options, FolderTally& tally,
           Visit visit)
    : around_(around), options_(std::move(options)), tally_(tally), visit_(std::move(visit)) {}
Walk::~Walk() = default;

Status Walk::begin() {
  TRY(auto directory,
      around_.tree.list(options_.below.empty() ? around_.root : around_.root / options_.below));
  push(std::move(directory), options_.below);
  return {};
}

Result<bool> Walk::resume(const Context& ctx, std::uint64_t steps) {
  for (std::uint64_t taken = 0; !levels_.empty(); ++taken) {
    TRY_VOID(ctx.check());
    if (taken >= steps) return false;
    TRY(const auto entry, levels_.back().directory->next());
    if (!entry) {
      pop();
    } else if (!entry->name.starts_with('.')) {
      ++entries_;
      taken += visit(*entry) / TreeScan::kStepBytes;
    }
  }
  return true;
}

void Walk::push(std::unique_ptr<os::ReadableDirectory> directory, std::string path) {
  auto facts = around_.tree.facts(around_.root / path);
  if (!facts.ok()) tally_.inexact(path, facts.error().message());
  levels_.push_back({std::move(directory), std::move(path), facts.ok() ? *facts : os::FileFacts()});
}

void Walk::pop() {
  const Level& level = levels_.back();
  // Entries added or removed meanwhile may or may not be counted.
  if (const auto now = around_.tree.facts(around_.root / level.path);
      !now.ok() || !(*now == level.facts))
    tally_.inexact(level.path.empty() ? "." : level.path,
                   "the folder changed while it was counted");
  levels_.pop_back();
}

/// Returns the number of bytes read.
std::uint64_t Walk::visit(const os::ReadableDirectory::Entry& entry) {
  const Level& level = levels_.back();
  FolderEntry found{.path = level.path.empty() ? entry.name : level.path + "/" + entry.name,
                    .facts = entry.facts,
                    .directory = level.directory.get(),
                    .name = entry.name,
                    .absolute = {}};
  if (entry.facts.kind == os::FileKind::kSymlink) {
    if (!follow(found)) return 0;
  } else if (entry.facts.kind == os::FileKind::kDirectory) {
    enter(found);
    return 0;
  }
  if (!options_.wanted(found.name)) return 0;
  if (found.facts.kind == os::FileKind::kFile) return visit_(found);
  tally_.malformed(found.path, "a pipe, socket or device");
  return 0;
}

void Walk::enter(const FolderEntry& found) {
  if (options_.depth_max == 0) return;
  if (levels_.size() > options_.depth_max)
    return tally_.inexact(found.path,
                          "deeper than " + std::to_string(options_.depth_max) + " folders");
  auto below = found.directory->descend(found.name);
  if (below.ok()) {
    push(std::move(*below), found.path);
  } else if (below.error().code() != Code::kNotFound) {
    tally_.inexact(found.path, below.error().message());
  }
}

/// True if the link leads to a file.
bool Walk::follow(FolderEntry& found) {
  found.directory = nullptr;
  found.absolute = around_.root / found.path;
  const auto facts = around_.tree.facts(found.absolute);
  if (facts.ok() && facts->kind == os::FileKind::kDirectory) {
    if (options_.depth_max > 0)
      tally_.inexact(found.path, "a link to a folder, which is not entered");
    return false;
  }
  if (facts.ok()) {
    found.facts = *facts;
    return true;
  }
  if (options_.wanted(found.name))
    tally_.malformed(found.path, "a link that is broken or leads out: " + facts.error().message());
  return false;
}

}  // namespace varda::dataset
