// Returns unused memory of this process to the system.
#pragma once

#include <cstdint>
#include <optional>

#include "base/context.h"

namespace varda::os {

/// Returns memory that only the start needed: free heap pages, and unmodified pages of programs and
/// libraries. Pages in use return from the page cache on demand. Takes about a millisecond; any
/// thread, any time.
void trim_memory();

/// Calls trim_memory() soon after the start and after each spell of work. Checks resident memory
/// every few seconds, in microseconds. Blocks until the context is done.
void keep_memory_trimmed(const Context& ctx);

/// Decides when to trim. Not thread-safe.
class TrimPolicy {
 public:
  static constexpr std::uint64_t kGrowthBytesMin = 3 << 20;  // exceeds the growth while idle
  bool should_trim(std::uint64_t resident_bytes) const {
    return !floor_ || resident_bytes > *floor_ + kGrowthBytesMin;
  }
  /// Records the resident bytes right after a trim.
  void trimmed(std::uint64_t resident_bytes) { floor_ = resident_bytes; }

 private:
  std::optional<std::uint64_t> floor_;
};

/// Limits the number of heaps, for processes with mostly idle threads. Call before threads start.
void prefer_small_heap();

/// Resident bytes of this process; 0 if /proc is unavailable.
std::uint64_t resident_bytes();

}  // namespace varda::os
