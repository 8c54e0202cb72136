#include "dataset/count.h"

#include <algorithm>
#include <memory>
#include <optional>

#include "base/check.h"
#include "dataset/internal/fingerprint.h"
#include "dataset/internal/scanner.h"
#include "dataset/internal/state.h"

namespace varda::dataset {
namespace {

constexpr std::size_t kReadBytes = 256 << 10;
constexpr std::uint64_t kProgressBytes = 8 << 20;
constexpr std::uint64_t kProgressSteps = 1000;

using internal::State;

/// Reads a file in order, in large pieces.
class Reader {
 public:
  Reader(const Context& ctx, os::ReadableFile& file)
      : ctx_(ctx), file_(file), buffer_(kReadBytes, '\0') {}

  /// Passes [from, to) to `take`. False if the file ends before.
  template <typename Take>
  Result<bool> pieces(std::uint64_t from, std::uint64_t to, const Take& take) {
    while (from < to) {
      TRY_VOID(ctx_.check());
      const std::size_t wanted = std::min<std::uint64_t>(buffer_.size(), to - from);
      TRY(const std::size_t count, file_.read(from, std::span(buffer_.data(), wanted)));
      take(std::string_view(buffer_.data(), count));
      from += count;
      if (count < wanted) return false;
    }
    return true;
  }

  /// True if a byte exists at `from`.
  Result<bool> continues_at(std::uint64_t from) {
    char byte = 0;
    TRY(const std::size_t count, file_.read(from, std::span(&byte, 1)));
    return count > 0;
  }

  /// The hash of [from, to); absent if the file ends before.
  Result<std::optional<Hash>> hash(std::uint64_t from, std::uint64_t to) {
    std::string bytes;
    TRY(const bool whole, pieces(from, to, [&](std::string_view piece) { bytes += piece; }));
    if (!whole) return std::optional<Hash>();
    return std::optional(Hash::of(bytes));
  }

 private:
  const Context& ctx_;
  os::ReadableFile& file_;
  std::string buffer_;
};

std::uint64_t head_end(std::uint64_t offset) { return std::min(offset, State::kCheckedBytes); }
std::uint64_t tail_begin(std::uint64_t offset) { return offset - head_end(offset); }

/// Checks that the counted part is unchanged, by samples; "" or the reason.
Result<std::string> changed(Reader& reader, const State& state, const os::FileFacts& facts) {
  if (state.device != facts.device || state.inode != facts.inode)
    return std::string("another file has taken its place");
  if (facts.size_bytes < state.offset) return std::string("the file is shorter than it was");
  TRY(const auto head, reader.hash(0, head_end(state.offset)));
  if (!head || *head != state.head) return std::string("the beginning of the file has changed");
  TRY(const auto tail, reader.hash(tail_begin(state.offset), state.offset));
  if (!tail || *tail != state.tail) return std::string("the end of the counted part has changed");
  return std::string();
}

class FileCount {
 public:
  FileCount(const Context& ctx, const Request& request, os::ReadableFile& file)
      : request_(request),
        file_(file),
        reader_(ctx, file),
        scanner_(request.format->stream(request.options)) {}

  Result<Counted> run() {
    TRY(const os::FileFacts before, file_.facts());
    TRY_VOID(resume(before));
    std::uint64_t at = out_.from_byte, reported = at;
    const std::uint64_t most = request_.bytes_max == 0 ? before.size_bytes : request_.bytes_max;
    const std::uint64_t end = before.size_bytes - at > most ? at + most : before.size_bytes;
    TRY(const bool whole, reader_.pieces(at, end, [&](std::string_view piece) {
      content_.update(piece);
      scanner_->feed(piece);
      at += piece.size();
      if (request_.progress && at - reported >= kProgressBytes)
        request_.progress({.bytes = reported = at, .bytes_total = before.size_bytes});
    }));
    if (request_.progress) request_.progress({.bytes = at, .bytes_total = before.size_bytes});
    out_.facts = before;
    out_.complete = end == before.size_bytes || !whole;
    out_.tally = scanner_->end();
    out_.bytes = at;
    out_.fingerprint = "xxh3:" + content_.result().hex();
    TRY_VOID(keep(at, before));
    bool more = false;
    if (whole && out_.complete) {
      TRY(more, reader_.continues_at(at));
    }
    TRY(const os::FileFacts after, file_.facts());
    judge({.at = at, .whole = whole, .more = more}, before, after);
    return std::move(out_);
  }

 private:
  /// Restores the state, or starts at the beginning.
  Status resume(const os::FileFacts& facts) {
    if (request_.state.empty()) return {};
    auto state = State::parse(request_.state, *request_.format, request_.options);
    if (!state.ok()) {
      out_.whole_because = state.error().message();
      return {};
    }
    TRY(out_.whole_because, changed(reader_, *state, facts));
    if (!out_.whole_because.empty()) return {};
    if (const Status restored = scanner_->restore(state->scanner); !restored.ok()) {
      scanner_ = request_.format->stream(request_.options);
      out_.whole_because = "the state is damaged: " + restored.error().message();
      return {};
    }
    // The fingerprint's last partial block is hashed again.
    const std::uint64_t block = state->offset / ContentHash::kBlockBytes * ContentHash::kBlockBytes;
    content_ = ContentHash(state->chain, block);
    TRY(const bool whole, reader_.pieces(block, state->offset,
                                         [&](std::string_view piece) { content_.update(piece); }));
    if (whole) {
      out_.from_byte = state->offset;
    } else {  // the file shrinks at this moment
      content_ = ContentHash();
      scanner_ = request_.format->stream(request_.options);
      out_.whole_because = "the file is shorter than it was";
    }
    return {};
  }

  Status keep(std::uint64_t offset, const os::FileFacts& facts) {
    TRY(const auto head, reader_.hash(0, head_end(offset)));
    TRY(const auto tail, reader_.hash(tail_begin(offset), offset));
    if (!head || !tail) return {};  // judge() reports the reason
    State state;
    state.device = facts.device;
    state.inode = facts.inode;
    state.offset = offset;
    state.head = *head;
    state.tail = *tail;
    state.chain = content_.chain();
    state.scanner = scanner_->save();
    out_.state = state.text(*request_.format, request_.options);
    return {};
  }

  struct End {
    std::uint64_t at = 0;
    bool whole = true;  // everything up to the planned end was read
    bool more = false;  // the file had even more
  };
  void judge(const End& end, const os::FileFacts& before, const os::FileFacts& after) {
    std::string why;
    const std::string sizes = " from " + std::to_string(before.size_bytes) + " to " +
                              std::to_string(after.size_bytes) + " bytes ";
    if (!end.whole && after.size_bytes >= before.size_bytes) {
      why = "the file ended at byte " + std::to_string(end.at) + " of " +
            std::to_string(before.size_bytes);
      out_.state.clear();
    } else if (!end.whole || after.size_bytes < before.size_bytes) {
      why = "the file shrank" + sizes + "while it was read";
      out_.state.clear();
    } else if (after.size_bytes > before.size_bytes) {
      // The state stays valid if the next count finds the counted part unchanged.
      why = "the file grew" + sizes + "while it was read; the first " +
            std::to_string(before.size_bytes) + " are counted";
    } else if (end.more) {  // as in /proc
      why = "the file continues after the " + std::to_string(before.size_bytes) +
            " bytes of its reported size";
      out_.state.clear();
    } else if (!(after == before)) {
      why = "the file was written to while it was read";
      out_.state.clear();
    }
    if (!why.empty()) out_.tally.inexact = why;
  }

  const Request& request_;
  os::ReadableFile& file_;
  Reader reader_;
  std::unique_ptr<StreamScanner> scanner_;
  ContentHash content_;
  Counted out_;
};

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
    out.fingerprint = "xxh3:" + found.fingerprint;
    out.facts = facts_;
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
                                                        const os::Path& path, const Format& format,
                                                        const FormatOptions& options) {
  CHECK(format.tree != nullptr);
  TRY(const os::FileFacts facts, tree.facts(path));
  if (facts.kind != os::FileKind::kDirectory)
    return Error(Code::kInvalid, path.string() + " is not a folder; " + std::string(format.name) +
                                     " is counted in a folder");
  auto out = std::make_unique<RealFolderCount>(tree, path, facts, format.tree(options));
  TRY_VOID(out->begin());
  return std::unique_ptr<FolderCount>(std::move(out));
}

Result<Counted> count(const Context& ctx, os::ReadableTree& tree, const Request& request) {
  TRY_VOID(ctx.check());
  if (request.format->tree != nullptr) {
    TRY(const auto folder,
        FolderCount::begin(tree, request.path, *request.format, request.options));
    for (;;) {
      TRY(auto counted, folder->resume(ctx, kProgressSteps));
      if (request.progress) request.progress(folder->progress());
      if (!counted) continue;
      if (!request.state.empty()) counted->whole_because = "folders are counted as a whole";
      return std::move(*counted);
    }
  }
  TRY(const os::FileFacts facts, tree.facts(request.path));
  if (facts.kind == os::FileKind::kDirectory)
    return Error(Code::kInvalid, request.path.string() + " is a folder; " +
                                     std::string(request.format->name) + " is counted in one file");
  TRY(const auto file, tree.open(request.path));
  return FileCount(ctx, request, *file).run();
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
