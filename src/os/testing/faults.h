// Faults of a disk at one call, for tests of every call of a workload.
//
// Environment: VARDA_FAULT_EVERY=1 tests every call; by default each test picks some calls.
#pragma once

#include <cstdlib>
#include <string>
#include <vector>

#include "os/testing/crashing_file_system.h"

namespace varda::os::testing {

struct NamedFault {
  std::string name;
  CrashingFileSystem::Fault fault;
};

/// Faults at that call: an I/O error and a full disk, once and permanently, and a partial write.
inline std::vector<NamedFault> faults_at(std::uint64_t call) {
  const Error broken(Code::kInternal, "Input/output error"),
      full(Code::kExhausted, "No space left on device");
  const std::string at = " at call " + std::to_string(call);
  return {
      {"EIO" + at, {.call = call, .error = broken}},
      {"ENOSPC" + at, {.call = call, .error = full}},
      {"a short write" + at, {.call = call, .error = full, .write_bytes = 700}},
      {"EIO from then on" + at, {.call = call, .error = broken, .lasting = true}},
      {"ENOSPC from then on" + at, {.call = call, .error = full, .lasting = true}},
  };
}

inline std::uint64_t fault_every(std::uint64_t usual) {
  const char* text = std::getenv("VARDA_FAULT_EVERY");
  return text == nullptr || *text == '\0' ? usual : std::strtoull(text, nullptr, 10);
}

}  // namespace varda::os::testing
