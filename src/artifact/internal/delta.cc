#include "artifact/internal/delta.h"

#include <algorithm>
#include <numeric>

#include "artifact/internal/tree.h"
#include "base/log.h"

namespace varda::artifact {
namespace {

constexpr std::size_t kImagePieceBytes = 256 << 10;

/// The trees that are large enough for a delta.
std::vector<os::Path> usable_bases(os::FileSystem& fs, const std::vector<os::Path>& bases) {
  std::vector<os::Path> usable;
  for (const os::Path& base : bases) {
    const auto use = tree_use(fs, base);
    if (use.ok() && use->bytes >= codec::kDeltaBytesMin) usable.push_back(base);
  }
  return usable;
}

Result<codec::ChunkList> download_list(const Context& ctx, os::FileSystem& fs,
                                       net::HttpClient& http, SourceOptions options,
                                       const std::string& url, std::uint64_t& bytes) {
  options.url = chunk_list_url(url);
  options.spooled = false;
  options.progress = {};
  options.limits.archive_bytes_max = codec::kChunkListBytesMax;
  auto source = open_source(ctx, fs, http, std::move(options));
  if (!source.ok()) return source.error().error;
  std::string text;
  while (true) {
    Outcome<std::string> piece = (*source)->next();
    if (!piece.ok()) return piece.error().error;
    if (piece->empty()) break;
    text += *piece;
    bytes = text.size();
    // Some servers answer every path with a page.
    if (!text.starts_with(codec::kChunkListMagic.substr(0, text.size())))
      return Error(Code::kCorrupt, "not a chunk list");
  }
  return codec::parse_chunk_list(text);
}

Result<std::string> read_fully(TreeImage& image, std::uint64_t offset, std::size_t bytes) {
  std::string out;
  while (out.size() < bytes) {
    TRY(const std::string piece, image.read(offset + out.size(), bytes - out.size()));
    if (piece.empty()) return Error(Code::kUnavailable, "the tree became shorter");
    out += piece;
  }
  return out;
}

}  // namespace

std::string chunk_list_url(std::string_view url) {
  const std::size_t end = std::min(url.find_first_of("?#"), url.size());
  return std::string(url.substr(0, end)) + ".chunks" + std::string(url.substr(end));
}

Delta::Delta(codec::ChunkList list) : chunks_(std::move(list.chunks)), places_(chunks_.size()) {
  starts_.reserve(chunks_.size() + 1);
  std::uint64_t at = 0;
  for (const codec::Chunk& chunk : chunks_) {
    starts_.push_back(at);
    at += chunk.bytes;
  }
  starts_.push_back(at);
}

std::unique_ptr<Delta> Delta::find(const Context& ctx, os::FileSystem& fs, net::HttpClient& http,
                                   const SourceOptions& options) {
  const std::string url = options.url.empty() ? options.request.url : options.url;
  if (options.kind != SourceKind::kOrigin || options.bases.empty() || url.starts_with("file:"))
    return nullptr;
  const std::vector<os::Path> bases = usable_bases(fs, options.bases);
  if (bases.empty()) return nullptr;
  std::uint64_t list_bytes = 0;
  auto list = download_list(ctx, fs, http, options, url, list_bytes);
  if (!list.ok() || list->digest != options.request.digest ||
      list->bytes > options.limits.archive_bytes_max || list->bytes == 0) {
    log::debug("no delta",
               {{"url", shown_url(url)},
                {"why", list.ok() ? "the list is of another archive" : list.error().message()}});
    return nullptr;
  }
  std::unique_ptr<Delta> delta(new Delta(std::move(*list)));
  delta->list_bytes_ = list_bytes;
  for (const os::Path& base : bases) {
    if (ctx.done()) return nullptr;
    auto image = TreeImage::open(fs, base, options.limits);
    if (!image.ok()) continue;
    delta->images_.push_back(std::move(*image));
    delta->search(ctx, *delta->images_.back());
  }
  if (delta->held_bytes_ == 0) return nullptr;
  log::info("downloading the changes of an archive",
            {{"url", shown_url(url)}, {"bytes", delta->total()}, {"held", delta->held_bytes_}});
  return delta;
}

void Delta::search(const Context& ctx, TreeImage& image) {
  // Chunks by hash: a list may name any hashes, so a hash table could be made slow.
  std::vector<std::uint32_t> order(chunks_.size());
  std::iota(order.begin(), order.end(), 0U);
  const auto hash_of = [this](std::uint32_t index) { return chunks_[index].hash; };
  std::stable_sort(order.begin(), order.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return hash_of(a) < hash_of(b); });
  std::uint64_t offset = 0;
  codec::ChunkSplitter splitter([&](const codec::Chunk& chunk) {
    auto found = std::lower_bound(
        order.begin(), order.end(), chunk.hash,
        [&](std::uint32_t index, const codec::ChunkHash& hash) { return hash_of(index) < hash; });
    // All chunks with one hash are found together, so the first one stands for them.
    for (; found != order.end() && chunks_[*found] == chunk && places_[*found].image == nullptr;
         ++found) {
      places_[*found] = {&image, offset};
      held_bytes_ += chunk.bytes;
    }
    offset += chunk.bytes;
  });
  for (std::uint64_t at = 0; at < image.size() && !ctx.done();) {
    const auto piece = image.read(at, kImagePieceBytes);
    if (!piece.ok() || piece->empty()) return;  // a tree that is evicted now has nothing to give
    splitter.update(*piece);
    at += piece->size();
  }
  splitter.finish();
}

std::size_t Delta::index_at(std::uint64_t offset) const {
  const auto after = std::upper_bound(starts_.begin(), starts_.end(), offset);
  return static_cast<std::size_t>(after - starts_.begin()) - 1;
}

std::string Delta::read(std::uint64_t offset) {
  const std::size_t index = index_at(offset);
  Place& place = places_[index];
  if (place.image == nullptr) return "";
  auto bytes = read_fully(*place.image, place.offset, chunks_[index].bytes);
  if (!bytes.ok() || codec::chunk_hash(*bytes) != chunks_[index].hash) {
    place.image = nullptr;
    return "";
  }
  return std::move(*bytes).substr(offset - starts_[index]);
}

std::uint64_t Delta::missing_until(std::uint64_t offset) const {
  std::size_t index = index_at(offset);
  while (index < chunks_.size() && places_[index].image == nullptr) ++index;
  return starts_[index];
}

}  // namespace varda::artifact
