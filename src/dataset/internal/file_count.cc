#include "dataset/internal/file_count.h"

#include <algorithm>
#include <span>
#include <utility>

namespace varda::dataset::internal {
namespace {

constexpr std::size_t kReadBytes = 256 << 10;
constexpr std::uint64_t kProgressBytes = 8 << 20;

std::uint64_t head_end(std::uint64_t offset) { return std::min(offset, State::kCheckedBytes); }
std::uint64_t tail_begin(std::uint64_t offset) { return offset - head_end(offset); }

}  // namespace

FileCount::FileCount(const Format& format, const FormatOptions& options,
                     std::unique_ptr<os::ReadableFile> file)
    : format_(format),
      options_(options),
      file_(std::move(file)),
      buffer_(kReadBytes, '\0'),
      scanner_(format.stream(options)) {}

/// Passes [from, to) to `take` in large pieces. False if the file ends before.
template <typename Take>
Result<bool> FileCount::pieces(const Context& ctx, std::uint64_t from, std::uint64_t to,
                               const Take& take) {
  while (from < to) {
    TRY_VOID(ctx.check());
    const std::size_t wanted = std::min<std::uint64_t>(buffer_.size(), to - from);
    TRY(const std::size_t count, file_->read(from, std::span(buffer_.data(), wanted)));
    bytes_read_ += count;
    take(std::string_view(buffer_.data(), count));
    from += count;
    if (count < wanted) return false;
  }
  return true;
}

/// The hash of [from, to); absent if the file ends before.
Result<std::optional<Hash>> FileCount::hash(const Context& ctx, std::uint64_t from,
                                            std::uint64_t to) {
  std::string bytes;
  TRY(const bool whole, pieces(ctx, from, to, [&](std::string_view piece) { bytes += piece; }));
  if (!whole) return std::optional<Hash>();
  return std::optional(Hash::of(bytes));
}

/// True if a byte exists at `from`.
Result<bool> FileCount::continues_at(std::uint64_t from) {
  char byte = 0;
  TRY(const std::size_t count, file_->read(from, std::span(&byte, 1)));
  return count > 0;
}

/// Checks that the counted part is unchanged, by samples; "" or the reason.
Result<std::string> FileCount::changed(const Context& ctx, const State& state) {
  if (state.device != before_.device || state.inode != before_.inode)
    return std::string("another file has taken its place");
  if (before_.size_bytes < state.offset) return std::string("the file is shorter than it was");
  TRY(const auto head, hash(ctx, 0, head_end(state.offset)));
  if (!head || *head != state.head) return std::string("the beginning of the file has changed");
  TRY(const auto tail, hash(ctx, tail_begin(state.offset), state.offset));
  if (!tail || *tail != state.tail) return std::string("the end of the counted part has changed");
  return std::string();
}

Status FileCount::begin(const Context& ctx, const std::optional<State>& state) {
  TRY(before_, file_->facts());
  if (!state) return {};
  TRY(whole_because_, changed(ctx, *state));
  if (!whole_because_.empty()) return {};
  if (const Status restored = scanner_->restore(state->scanner); !restored.ok()) {
    scanner_ = format_.stream(options_);
    whole_because_ = "the state is damaged: " + restored.error().message();
    return {};
  }
  // The fingerprint's last partial block is hashed again.
  const std::uint64_t block = state->offset / ContentHash::kBlockBytes * ContentHash::kBlockBytes;
  content_ = ContentHash(state->chain, block);
  TRY(const bool whole,
      pieces(ctx, block, state->offset, [&](std::string_view piece) { content_.update(piece); }));
  if (whole) {
    at_ = from_ = state->offset;
  } else {  // the file shrinks at this moment
    content_ = ContentHash();
    scanner_ = format_.stream(options_);
    whole_because_ = "the file is shorter than it was";
  }
  return {};
}

Result<bool> FileCount::resume(const Context& ctx, std::uint64_t bytes_max,
                               const std::function<void(const Progress&)>& progress) {
  const std::uint64_t size = before_.size_bytes;
  const std::uint64_t most = bytes_max == 0 ? size : bytes_max;
  const std::uint64_t end = size - at_ > most ? at_ + most : size;
  std::uint64_t reported = at_;
  TRY(whole_, pieces(ctx, at_, end, [&](std::string_view piece) {
        content_.update(piece);
        scanner_->feed(piece);
        at_ += piece.size();
        if (progress && at_ - reported >= kProgressBytes)
          progress({.bytes = reported = at_, .bytes_total = size});
      }));
  if (progress) progress({.bytes = at_, .bytes_total = size});
  return end == size || !whole_;
}

Result<Counted> FileCount::finish(const Context& ctx) {
  out_.facts = before_;
  out_.complete = at_ == before_.size_bytes || !whole_;
  out_.tally = scanner_->end();
  out_.bytes = at_;
  out_.from_byte = from_;
  out_.whole_because = whole_because_;
  out_.fingerprint = "xxh3:" + content_.result().hex();
  TRY_VOID(keep(ctx));
  bool more = false;
  if (whole_ && out_.complete) {
    TRY(more, continues_at(at_));
  }
  TRY(const os::FileFacts after, file_->facts());
  judge(more, after);
  return std::move(out_);
}

Status FileCount::keep(const Context& ctx) {
  TRY(const auto head, hash(ctx, 0, head_end(at_)));
  TRY(const auto tail, hash(ctx, tail_begin(at_), at_));
  if (!head || !tail) return {};  // judge() reports the reason
  State state;
  state.device = before_.device;
  state.inode = before_.inode;
  state.offset = at_;
  state.head = *head;
  state.tail = *tail;
  state.chain = content_.chain();
  state.scanner = scanner_->save();
  state_ = std::move(state);
  return {};
}

/// `more`: the file has bytes after its size.
void FileCount::judge(bool more, const os::FileFacts& after) {
  std::string why;
  const std::string sizes = " from " + std::to_string(before_.size_bytes) + " to " +
                            std::to_string(after.size_bytes) + " bytes ";
  bool stateless = true;
  if (!whole_ && after.size_bytes >= before_.size_bytes) {
    why = "the file ended at byte " + std::to_string(at_) + " of " +
          std::to_string(before_.size_bytes);
  } else if (!whole_ || after.size_bytes < before_.size_bytes) {
    why = "the file shrank" + sizes + "while it was read";
  } else if (after.size_bytes > before_.size_bytes) {
    // The state stays valid if the next count finds the counted part unchanged.
    why = "the file grew" + sizes + "while it was read; the first " +
          std::to_string(before_.size_bytes) + " are counted";
    stateless = false;
  } else if (more) {  // as in /proc
    why = "the file continues after the " + std::to_string(before_.size_bytes) +
          " bytes of its reported size";
  } else if (!(after == before_)) {
    why = "the file was written to while it was read";
  }
  if (why.empty()) return;
  out_.tally.inexact = why;
  if (stateless) state_.reset();
}

}  // namespace varda::dataset::internal
