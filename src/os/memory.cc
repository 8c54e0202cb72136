#include "os/memory.h"

#include <cstdio>
#include <cstdlib>
#include <malloc.h>
#include <sstream>
#include <string>
#include <sys/mman.h>
#include <unistd.h>

#include "os/file_system.h"

namespace varda::os {
namespace {

struct Mapping {
  std::uintptr_t begin = 0, end = 0;
  bool droppable = false;  // private file mapping, never written by this process
};

// "55d0c0a00000-55d0c0c00000 r-xp 00000000 fd:00 1234   /usr/bin/varda". False: no such line.
bool parse_head(const std::string& line, Mapping& mapping) {
  unsigned long begin = 0, end = 0;
  char permissions[5] = {}, path[2] = {};
  if (std::sscanf(line.c_str(), "%lx-%lx %4s %*s %*s %*s %1s", &begin, &end, permissions, path) < 3)
    return false;
  mapping = {.begin = begin,
             .end = end,
             .droppable = permissions[0] == 'r' && permissions[1] == '-' && permissions[3] == 'p' &&
                          path[0] == '/'};
  return true;
}

void drop(const Mapping& mapping) {
  if (!mapping.droppable || mapping.begin == 0) return;
  // NOLINTNEXTLINE(performance-no-int-to-ptr): /proc has addresses as numbers
  (void)::madvise(reinterpret_cast<void*>(mapping.begin), mapping.end - mapping.begin,
                  MADV_DONTNEED);
}

}  // namespace

void trim_memory() {
  (void)::malloc_trim(0);
  const auto text = read_file(real_file_system(), "/proc/self/smaps");
  if (!text.ok()) return;
  std::istringstream lines(*text);
  Mapping mapping;
  for (std::string line; std::getline(lines, line);) {
    if (Mapping next; parse_head(line, next)) {
      drop(mapping);
      mapping = next;
    } else if (line.starts_with("Anonymous:") &&
               std::strtoul(line.c_str() + 10, nullptr, 10) != 0) {
      mapping.droppable = false;  // relocated pages exist in no file
    }
  }
  drop(mapping);
}

void keep_memory_trimmed(const Context& ctx) {
  constexpr std::chrono::seconds kAfterStart{2}, kPeriod{10};
  TrimPolicy policy;
  for (Duration pause = kAfterStart; ctx.sleep_for(pause).ok(); pause = kPeriod) {
    if (!policy.should_trim(resident_bytes())) continue;
    trim_memory();
    policy.trimmed(resident_bytes());
  }
}

void prefer_small_heap() { (void)::mallopt(M_ARENA_MAX, 2); }

std::uint64_t resident_bytes() {
  const auto text = read_file(real_file_system(), "/proc/self/statm");
  unsigned long size = 0, resident = 0;
  if (!text.ok() || std::sscanf(text->c_str(), "%lu %lu", &size, &resident) != 2) return 0;
  return std::uint64_t{resident} * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace varda::os
