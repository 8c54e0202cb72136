// Memory that this process may still use.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace varda::os {

/// Bytes that can be used without swapping: the machine's estimate, or what the process's cgroup
/// (version 2) leaves, if that is less. Nothing: /proc cannot be read.
std::optional<std::uint64_t> available_memory();

/// The value of MemAvailable in the text of /proc/meminfo, in bytes. Nothing: the line is missing.
std::optional<std::uint64_t> parse_available_memory(std::string_view meminfo);

}  // namespace varda::os
