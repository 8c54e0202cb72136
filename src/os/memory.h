// Memory of this process, given back where nobody misses it.
#pragma once

#include <cstdint>
#include <optional>

#include "base/context.h"

namespace varda::os {

/// Returns what starting up needed and staying up does not: freed heap pages, and pages of programs and libraries that are as they
/// are on disk. What is used again comes back by itself, from the page cache. Takes about a millisecond; any thread, any time.
void trim_memory();

/// trim_memory() soon after a start, and after each spell of work: looks every few seconds, for microseconds, whether there is more
/// than there was at rest. Blocks until the context is done.
void keep_memory_trimmed(const Context& ctx);

/// When that is worth it. Not thread-safe.
class TrimPolicy {
 public:
  static constexpr std::uint64_t kWorthBytes = 3 << 20;  // more than comes back by itself at rest
  bool worth_it(std::uint64_t resident_bytes) const { return !floor_ || resident_bytes > *floor_ + kWorthBytes; }
  /// What is resident right behind a trim.
  void trimmed(std::uint64_t resident_bytes) { floor_ = resident_bytes; }

 private:
  std::optional<std::uint64_t> floor_;
};

/// Few heaps for many threads: for processes whose threads mostly wait. Call before threads start.
void prefer_small_heap();

/// Bytes of this process that are in memory now; 0 where /proc does not tell.
std::uint64_t resident_bytes();

}  // namespace varda::os
