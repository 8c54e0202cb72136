#include "dataset/count.h"

#include <algorithm>
#include <memory>
#include <optional>

#include "base/check.h"
#include "dataset/internal/file_count.h"
#include "dataset/internal/files_scan.h"
#include "dataset/internal/scanner.h"
#include "dataset/internal/state.h"

namespace varda::dataset {
namespace {

constexpr std::uint64_t kProgressSteps = 1000;

using internal::FileCount;
using internal::State;

Result<Counted> count_file(const Context& ctx, os::ReadableTree& tree, const Request& request) {
  TRY(auto file, tree.open(request.path));
  std::optional<State> state;
  std::string unusable;
  if (!request.state.empty()) {
    if (auto parsed = State::parse(request.state, *request.format, request.options); parsed.ok()) {
      state = std::move(*parsed);
    } else {
      unusable = parsed.error().message();
    }
  }
  FileCount file_count(*request.format, request.options, std::move(file));
  TRY_VOID(file_count.begin(ctx, state));
  TRY_VOID(file_count.resume(ctx, request.bytes_max, request.progress));
  TRY(Counted out, file_count.finish(ctx));
  if (!unusable.empty()) out.whole_because = unusable;
  if (file_count.state()) out.state = file_count.state()->text(*request.format, request.options);
  return out;
}

std::unique_ptr<TreeScan> scan_of(const Request& request) {
  const Format& format = *request.format;
  if (format.tree != nullptr) return format.tree(request.options);
  return std::make_unique<internal::FilesScan>(format, request.options, request.state);
}

class RealFolderCount final : public FolderCount {
 public:
  RealFolderCount(os::ReadableTree& tree, const os::Path& path, const os::FileFacts& facts,
                  std::unique_ptr<TreeScan> scan)
      : around_{tree, path}, facts_(facts), scan_(std::move(scan)) {}
  Status begin() { return scan_->begin(around_); }

  Result<std::optional<Counted>> resume(const Context& ctx, std::uint64_t steps) override {
    TRY(const bool all, scan_->resume(ctx, steps));
    if (!all) return std::optional<Counted>();
    const TreeScan::Found& found = scan_->found();
    Counted out;
    out.tally = found.tally;
    out.bytes = found.bytes;
    out.from_byte = found.bytes_reused;
    out.whole_because = found.whole_because;
    out.fingerprint = "xxh3:" + found.fingerprint;
    out.facts = facts_;
    out.state = found.state;
    return std::optional(std::move(out));
  }
  Progress progress() const override { return {.entries = scan_->found().entries}; }

 private:
  const TreeScan::Surroundings around_;
  const os::FileFacts facts_;
  const std::unique_ptr<TreeScan> scan_;
};

}  // namespace

Result<std::unique_ptr<FolderCount>> FolderCount::begin(os::ReadableTree& tree,
                                                        const Request& request) {
  const os::Path& path = request.path;
  CHECK(request.format->counts_folders());
  TRY(const os::FileFacts facts, tree.facts(path));
  if (facts.kind != os::FileKind::kDirectory)
    return Error(Code::kInvalid, path.string() + " is not a folder; " +
                                     std::string(request.format->name) + " is counted in a folder");
  auto out = std::make_unique<RealFolderCount>(tree, path, facts, scan_of(request));
  TRY_VOID(out->begin());
  return std::unique_ptr<FolderCount>(std::move(out));
}

Result<Counted> count(const Context& ctx, os::ReadableTree& tree, const Request& request) {
  TRY_VOID(ctx.check());
  const Format& format = *request.format;
  TRY(const os::FileFacts facts, tree.facts(request.path));
  const bool is_folder = facts.kind == os::FileKind::kDirectory;
  if (is_folder && !format.counts_folders())
    return Error(Code::kInvalid, request.path.string() + " is a folder; " +
                                     std::string(format.name) + " is counted in one file");
  if (!is_folder && format.tree == nullptr) return count_file(ctx, tree, request);
  TRY(const auto folder, FolderCount::begin(tree, request));
  for (;;) {
    TRY(auto counted, folder->resume(ctx, kProgressSteps));
    if (request.progress) request.progress(folder->progress());
    if (!counted) continue;
    if (format.tree != nullptr && !request.state.empty())
      counted->whole_because = "a folder of " + std::string(format.name) + " is counted as a whole";
    return std::move(*counted);
  }
}

codec::Json to_json(const Counted& counted) {
  const Tally& tally = counted.tally;
  codec::Json out = codec::Json::object(
      {{"samples", tally.samples}, {"bytes", counted.bytes}, {"exact", tally.inexact.empty()}});
  if (!tally.inexact.empty()) out.set("inexactBecause", tally.inexact);
  out.set("malformed", tally.malformed);
  if (tally.first_malformed) {
    const Malformed& first = *tally.first_malformed;
    codec::Json at = codec::Json::object();
    if (!first.file.empty()) at.set("file", first.file);
    if (first.line > 0) at.set("line", first.line);
    at.set("byte", first.byte);
    at.set("why", first.why);
    out.set("firstMalformed", std::move(at));
  }
  if (tally.has_classes) {
    codec::Json classes = codec::Json::object();
    for (const auto& [name, count] : tally.classes)
      classes.object_members().emplace_back(name, count);
    out.set("classes", std::move(classes));
    if (tally.further_classes > 0) out.set("furtherClasses", tally.further_classes);
  }
  if (!tally.header.empty()) out.set("header", tally.header);
  out.set("fingerprint", counted.fingerprint);
  out.set("fromByte", counted.from_byte);
  return out;
}

}  // namespace varda::dataset
