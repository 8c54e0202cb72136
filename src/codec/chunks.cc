#include "codec/chunks.h"

#include <algorithm>
#include <utility>

namespace varda::codec {
namespace {

constexpr std::size_t kWindow = 64;  // bytes that the gear hash remembers
constexpr std::size_t kHeadBytes = 48, kRecordBytes = 20;

// A cut needs more zero bits before the average size than after it ("normalized chunking" in the
// paper), which keeps sizes near the average. A larger difference delays the first common cut after
// a change: 17 and 13 bits cost a quarter more than 16 and 14.
constexpr int kBitsBefore = 15, kBitsAfter = 13;

// SplitMix64 of 1 to 256 (https://prng.di.unimi.it/splitmix64.c, public domain). Another table cuts
// elsewhere, and then no list of an earlier version fits.
constexpr std::array<std::uint64_t, 256> kGear = [] {
  std::array<std::uint64_t, 256> table{};
  std::uint64_t state = 0;
  for (std::uint64_t& entry : table) {
    state += 0x9e3779b97f4a7c15;
    std::uint64_t mixed = state;
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111eb;
    entry = mixed ^ (mixed >> 31);
  }
  return table;
}();

ChunkHash first_half(const Sha256& digest) {
  ChunkHash hash;
  std::copy_n(digest.bytes.begin(), hash.size(), hash.begin());
  return hash;
}

void put_number(std::string& out, std::uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out += static_cast<char>((value >> (8 * i)) & 0xff);
}

std::uint64_t number_at(std::string_view text, std::size_t at, std::size_t bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = bytes; i > 0; --i)
    value = value << 8 | static_cast<std::uint8_t>(text[at + i - 1]);
  return value;
}

Error broken(const char* why) {
  return Error(Code::kCorrupt, std::string("not a usable chunk list: ") + why);
}

}  // namespace

ChunkHash chunk_hash(std::string_view bytes) { return first_half(Sha256::of(bytes)); }

void ChunkSplitter::update(std::string_view bytes) {
  while (!bytes.empty()) {
    const std::size_t end = std::min(bytes.size(), kChunkBytesMax - bytes_);
    // No cut is allowed before the minimum, so only the last bytes before it enter the hash.
    std::size_t at =
        bytes_ < kChunkBytesMin - kWindow ? std::min(end, kChunkBytesMin - kWindow - bytes_) : 0;
    bool cut = false;
    while (at < end && !cut) {
      gear_ = (gear_ << 1) + kGear[static_cast<std::uint8_t>(bytes[at])];
      ++at;
      const std::size_t size = bytes_ + at;
      const int bits = size < kChunkBytesAverage ? kBitsBefore : kBitsAfter;
      cut = size >= kChunkBytesMin && gear_ >> (64 - bits) == 0;
    }
    hash_->update(bytes.substr(0, at));
    bytes_ += at;
    bytes.remove_prefix(at);
    if (cut || bytes_ == kChunkBytesMax) end_chunk();
  }
}

void ChunkSplitter::finish() {
  if (bytes_ > 0) end_chunk();
}

void ChunkSplitter::end_chunk() {
  const Chunk chunk{static_cast<std::uint32_t>(bytes_), first_half(hash_->finish())};
  hash_.emplace();
  bytes_ = 0;
  gear_ = 0;
  sink_(chunk);
}

std::string chunk_list_head(std::uint64_t archive_bytes, const Sha256& digest) {
  std::string out(kChunkListMagic);
  put_number(out, archive_bytes, 8);
  out.append(digest.bytes.begin(), digest.bytes.end());
  return out;
}

void append_chunk(std::string& out, const Chunk& chunk) {
  put_number(out, chunk.bytes, 4);
  out.append(chunk.hash.begin(), chunk.hash.end());
}

std::string write_chunk_list(const ChunkList& list) {
  std::string out = chunk_list_head(list.bytes, list.digest);
  out.reserve(kHeadBytes + list.chunks.size() * kRecordBytes);
  for (const Chunk& chunk : list.chunks) append_chunk(out, chunk);
  return out;
}

Result<ChunkList> parse_chunk_list(std::string_view text) {
  if (!text.starts_with(kChunkListMagic)) return broken("unknown format");
  if (text.size() < kHeadBytes || (text.size() - kHeadBytes) % kRecordBytes != 0)
    return broken("truncated");
  ChunkList list;
  list.bytes = number_at(text, 8, 8);
  std::copy_n(text.begin() + 16, list.digest.bytes.size(), list.digest.bytes.begin());
  const std::size_t count = (text.size() - kHeadBytes) / kRecordBytes;
  list.chunks.resize(count);
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t at = kHeadBytes + i * kRecordBytes;
    Chunk& chunk = list.chunks[i];
    chunk.bytes = static_cast<std::uint32_t>(number_at(text, at, 4));
    const std::size_t min = i + 1 < count ? kChunkBytesMin : 1;
    if (chunk.bytes < min || chunk.bytes > kChunkBytesMax) return broken("size of a chunk");
    std::copy_n(text.begin() + static_cast<std::ptrdiff_t>(at) + 4, chunk.hash.size(),
                chunk.hash.begin());
    sum += chunk.bytes;
  }
  if (sum != list.bytes) return broken("the chunks do not add up to the archive");
  return list;
}

}  // namespace varda::codec
