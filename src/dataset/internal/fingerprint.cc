#include "dataset/internal/fingerprint.h"

#include <algorithm>
#include <cstring>
#include <xxhash.h>
#if defined(__x86_64__) && __has_include(<xxh_x86dispatch.h>)
#include <xxh_x86dispatch.h>  // the same functions with the widest instructions of this machine
#endif

#include "base/check.h"
#include "codec/digest.h"

namespace varda::dataset {
namespace {

Hash from(const XXH128_hash_t& raw) { return {raw.high64, raw.low64}; }

void put(std::string& out, std::uint64_t number) {
  for (int shift = 56; shift >= 0; shift -= 8) out += static_cast<char>(number >> shift & 0xFF);
}

Hash fold(const Hash& chain, const Hash& block, std::uint64_t size) {
  std::string bytes;
  for (const std::uint64_t number : {chain.high, chain.low, block.high, block.low, size})
    put(bytes, number);
  return Hash::of(bytes);
}

}  // namespace

Hash Hash::of(std::string_view bytes) { return from(XXH3_128bits(bytes.data(), bytes.size())); }

std::string Hash::hex() const {
  std::string bytes;
  put(bytes, high);
  put(bytes, low);
  return codec::hex(bytes);
}

Result<Hash> Hash::parse(std::string_view hex) {
  Hash out;
  if (hex.size() != 32) return Error(Code::kCorrupt, "a hash has 32 hex digits");
  for (std::size_t i = 0; i < hex.size(); ++i) {
    const char c = hex[i];
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (digit < 0) return Error(Code::kCorrupt, "a hash has 32 hex digits");
    std::uint64_t& half = i < 16 ? out.high : out.low;
    half = half << 4 | static_cast<std::uint64_t>(digit);
  }
  return out;
}

struct ContentHash::State {
  State() : raw(XXH3_createState()) {
    CHECK(raw != nullptr);
    XXH3_128bits_reset(raw);
  }
  ~State() { XXH3_freeState(raw); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  XXH3_state_t* const raw;
};

ContentHash::ContentHash() : block_(std::make_unique<State>()) {}
ContentHash::ContentHash(const Hash& chain, std::uint64_t offset)
    : chain_(chain), size_(offset), block_(std::make_unique<State>()) {
  CHECK(offset % kBlockBytes == 0);
}
ContentHash::~ContentHash() = default;
ContentHash::ContentHash(ContentHash&&) noexcept = default;
ContentHash& ContentHash::operator=(ContentHash&&) noexcept = default;

void ContentHash::update(std::string_view bytes) {
  while (!bytes.empty()) {
    const std::string_view part = bytes.substr(0, kBlockBytes - size_ % kBlockBytes);
    XXH3_128bits_update(block_->raw, part.data(), part.size());
    size_ += part.size();
    bytes.remove_prefix(part.size());
    if (size_ % kBlockBytes == 0) {
      chain_ = fold(chain_, from(XXH3_128bits_digest(block_->raw)), size_);
      XXH3_128bits_reset(block_->raw);
    }
  }
}

Hash ContentHash::result() const {
  if (size_ % kBlockBytes == 0) return chain_;
  return fold(chain_, from(XXH3_128bits_digest(block_->raw)), size_);
}

void SetHash::add(const Hash& member) {
  sum_.low += member.low;
  sum_.high += member.high + (sum_.low < member.low ? 1 : 0);
}

}  // namespace varda::dataset
