// Where a count of a file stopped, as text that can be kept: one line of JSON with a hash of itself.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "codec/json.h"
#include "dataset/format.h"
#include "dataset/internal/fingerprint.h"

namespace varda::dataset::internal {

struct State {
  static constexpr std::uint64_t kCheckedBytes = 64 << 10;  // at the beginning and before `offset`
  static constexpr int kVersion = 1;                        // another one is counted as a whole

  std::uint64_t device = 0, inode = 0;
  std::uint64_t offset = 0;  // what was counted ends here
  Hash head, tail;           // of its first and last kCheckedBytes
  Hash chain;                // of the fingerprint's whole blocks
  codec::Json scanner;

  std::string text(const Format& format, const FormatOptions& options) const;
  /// kCorrupt: damaged, or of another version, format or options; the message says which.
  static Result<State> parse(std::string_view text, const Format& format, const FormatOptions& options);
};

}  // namespace varda::dataset::internal
