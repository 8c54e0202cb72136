#include "registry/upload_plan.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "registry/request.h"

namespace varda::registry {
namespace {

constexpr std::size_t kFilePieceBytes = 256 << 10;
// The registry computes a list at its first request, which reads the blob.
constexpr std::chrono::seconds kListPatience{60}, kListPause{1};
constexpr int kListAttempts = 3;

/// Finds chunks of a base by their hashes. A list may name any hashes, so a hash table could be
/// made slow.
class ChunkIndex {
 public:
  explicit ChunkIndex(const codec::ChunkList& list)
      : chunks_(list.chunks), starts_(chunks_.size()), order_(chunks_.size()) {
    std::uint64_t at = 0;
    for (std::size_t i = 0; i < chunks_.size(); ++i) {
      starts_[i] = at;
      at += chunks_[i].bytes;
    }
    std::iota(order_.begin(), order_.end(), 0U);
    std::stable_sort(order_.begin(), order_.end(), [this](std::uint32_t a, std::uint32_t b) {
      return chunks_[a].hash < chunks_[b].hash;
    });
  }

  /// Where the base has the chunk. Prefers the place behind the chunk found before, so that equal
  /// chunks in a row make one part.
  std::optional<std::uint64_t> find(const codec::Chunk& chunk) {
    if (next_ < chunks_.size() && chunks_[next_] == chunk) return starts_[next_++];
    const auto found = std::lower_bound(
        order_.begin(), order_.end(), chunk.hash,
        [this](std::uint32_t i, const codec::ChunkHash& hash) { return chunks_[i].hash < hash; });
    if (found == order_.end() || chunks_[*found] != chunk) return std::nullopt;
    next_ = *found + 1;
    return starts_[*found];
  }

 private:
  const std::vector<codec::Chunk>& chunks_;
  std::vector<std::uint64_t> starts_;
  std::vector<std::uint32_t> order_;  // of the chunks, by hash
  std::size_t next_ = 0;
};

/// One piece of the list, and the size of the whole list.
Result<std::string> download_piece(const Context& ctx, net::HttpClient& http,
                                   net::ClientRequest request, std::uint64_t first,
                                   std::uint64_t length, std::uint64_t& total) {
  request.headers.add("Range",
                      "bytes=" + std::to_string(first) + "-" + std::to_string(first + length - 1));
  request.max_response_bytes = length + (64 << 10);  // a refusal has a body of its own
  TRY(auto answer, http.call(ctx.with_timeout(kListPatience), std::move(request)));
  if (answer.status >= 500)
    return Error(Code::kUnavailable,
                 "the list of chunks is not available: " + std::to_string(answer.status));
  const auto range = parse_content_range(answer.headers.find("Content-Range").value_or(""));
  if (answer.status != 206 || !range.ok())
    return Error(Code::kNotFound, "there is no list of chunks: " + std::to_string(answer.status));
  if (range->first != first || answer.body.empty() || answer.body.size() != range->length ||
      range->length > length || range->total > codec::kChunkListBytesMax ||
      (total != 0 && range->total != total))
    return Error(Code::kCorrupt, "the list of chunks is unusable");
  total = range->total;
  return std::move(answer.body);
}

}  // namespace

Result<codec::ChunkList> download_chunk_list(const Context& ctx, net::HttpClient& http,
                                             const Target& target, const codec::Sha256& blob,
                                             std::uint64_t piece_bytes) {
  const net::ClientRequest request{
      .method = "GET", .url = chunks_url(target, blob), .headers = headers_of(target), .body = ""};
  std::string text;
  std::uint64_t total = 0;
  for (int failures = 0; total == 0 || text.size() < total;) {
    auto piece = download_piece(ctx, http, request, text.size(), piece_bytes, total);
    if (piece.ok()) {
      text += *piece;
      continue;
    }
    if (piece.error().code() != Code::kUnavailable || ++failures == kListAttempts)
      return piece.error();
    TRY_VOID(ctx.sleep_for(kListPause));
  }
  TRY(codec::ChunkList list, codec::parse_chunk_list(text));
  if (list.digest != blob) return Error(Code::kCorrupt, "the list describes another blob");
  return list;
}

Result<std::vector<SharedPart>> find_shared_parts(const Context& ctx, const ReadAt& read,
                                                  std::uint64_t total,
                                                  const codec::ChunkList& base) {
  std::vector<SharedPart> parts;
  std::uint64_t at = 0;
  ChunkIndex index(base);
  const auto drop_short_part = [&parts] {
    if (!parts.empty() && parts.back().length < kSharedBytesMin) parts.pop_back();
  };
  codec::ChunkSplitter splitter([&](const codec::Chunk& chunk) {
    const std::uint64_t first = at;
    at += chunk.bytes;
    const auto found = index.find(chunk);
    if (!found) return;
    if (!parts.empty() && parts.back().end() == first &&
        parts.back().base_first + parts.back().length == *found) {
      parts.back().length += chunk.bytes;
      return;
    }
    drop_short_part();
    parts.push_back({.first = first, .base_first = *found, .length = chunk.bytes});
  });
  for (std::uint64_t done = 0; done < total; done += kFilePieceBytes) {
    TRY_VOID(ctx.check());
    TRY(const std::string bytes,
        read(done, std::min<std::uint64_t>(kFilePieceBytes, total - done)));
    splitter.update(bytes);
  }
  splitter.finish();
  drop_short_part();
  return parts;
}

UploadStep next_step(const std::vector<SharedPart>& parts, std::uint64_t offset,
                     std::uint64_t total, std::uint64_t piece_bytes) {
  UploadStep step{.length = std::min(piece_bytes, total - offset)};
  // The first part of which a byte remains behind the one that must be sent.
  const auto part = std::partition_point(
      parts.begin(), parts.end(), [&](const SharedPart& p) { return p.end() <= offset + 1; });
  if (part == parts.end()) return step;
  const std::uint64_t begin = std::max(part->first, offset + 1);
  if (begin - offset > step.length) return step;
  step.length = begin - offset;
  step.copied = std::min(part->end() - begin, kCopyBytesMax);
  step.copy_first = part->base_first + (begin - part->first);
  return step;
}

}  // namespace varda::registry
