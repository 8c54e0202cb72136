// Identifies the content of a dataset by XXH3 (128 bits). Protects against accidents, not against
// forgery.
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

/// Hashes bytes in pieces. The hash of every whole block is folded into the hash of its
/// predecessors, so hashing can resume at the start of a block. Not thread-safe.
class ContentHash {
 public:
  static constexpr std::uint64_t kBlockBytes = 1 << 20;

  ContentHash();
  /// Resumes at the start of block `offset` / kBlockBytes; `chain` is the hash of the blocks
  /// before.
  ContentHash(const Hash& chain, std::uint64_t offset);
  ~ContentHash();
  ContentHash(ContentHash&&) noexcept;
  ContentHash& operator=(ContentHash&&) noexcept;
  void update(std::string_view bytes);
  const Hash& chain() const { return chain_; }  // of the whole blocks
  /// The hash of all bytes so far, including their number.
  Hash result() const;

 private:
  struct State;
  Hash chain_;
  std::uint64_t size_ = 0;
  std::unique_ptr<State> block_;
};

/// The hash of a folder: independent of the order of its members.
class SetHash {
 public:
  void add(const Hash& member);
  std::string hex() const { return sum_.hex(); }

 private:
  Hash sum_;
};

}  // namespace varda::dataset
