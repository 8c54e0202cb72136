// Memory of this process, given back where nobody misses it.
#pragma once

#include <cstdint>

namespace varda::os {

/// Returns what starting up needed and staying up does not: freed heap pages, and pages of programs and libraries that are as they
/// are on disk. What is used again comes back by itself, from the page cache. Takes about a millisecond; any thread, any time.
void trim_memory();

/// Few heaps for many threads: for processes whose threads mostly wait. Call before threads start.
void prefer_small_heap();

/// Bytes of this process that are in memory now; 0 where /proc does not tell.
std::uint64_t resident_bytes();

}  // namespace varda::os
