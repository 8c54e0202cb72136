// What tells the content of one dataset from another: XXH3 (128 bits) of it. Against accidents, not against forgers.
// https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

namespace varda::dataset {

struct Hash {
  std::uint64_t high = 0, low = 0;
  static Hash of(std::string_view bytes);
  static Result<Hash> parse(std::string_view hex);  // 32 hex digits; kCorrupt
  std::string hex() const;
  friend bool operator==(const Hash&, const Hash&) = default;
};

/// Of bytes that come in pieces. It can be gone on from where a block of it began: the hash of every whole block is folded into
/// that of those before. Not thread-safe.
class ContentHash {
 public:
  static constexpr std::uint64_t kBlockBytes = 1 << 20;

  ContentHash();
  /// At the beginning of block `offset` / kBlockBytes, whose predecessors have `chain`.
  ContentHash(const Hash& chain, std::uint64_t offset);
  ~ContentHash();
  ContentHash(ContentHash&&) noexcept;
  ContentHash& operator=(ContentHash&&) noexcept;
  void update(std::string_view bytes);
  const Hash& chain() const { return chain_; }  // of the whole blocks
  /// Of all bytes so far, their number included.
  Hash result() const;

 private:
  struct State;
  Hash chain_;
  std::uint64_t size_ = 0;
  std::unique_ptr<State> block_;
};

/// Of a folder: what was added, in whatever order.
class SetHash {
 public:
  void add(const Hash& member);
  std::string hex() const { return sum_.hex(); }

 private:
  Hash sum_;
};

}  // namespace varda::dataset
