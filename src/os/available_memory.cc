#include "os/available_memory.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <string>

namespace varda::os {
namespace {

std::optional<std::string> small_file(const std::string& path) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(file), {});
}

std::optional<std::uint64_t> leading_number(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() ? std::optional(value) : std::nullopt;
}

// The memory that the process's own cgroup leaves. File pages count as free: the kernel reclaims
// them first.
std::optional<std::uint64_t> cgroup_leaves() {
  const auto line = small_file("/proc/self/cgroup");
  if (!line || !line->starts_with("0::/")) return std::nullopt;
  const std::string directory =
      "/sys/fs/cgroup" + line->substr(3, line->find('\n') - 3) + "/memory.";
  const auto limit = small_file(directory + "max"), used = small_file(directory + "current"),
             parts = small_file(directory + "stat");
  const auto most = limit ? leading_number(*limit) : std::nullopt;  // "max": no limit
  const auto now = used ? leading_number(*used) : std::nullopt;
  if (!most || !now) return std::nullopt;
  constexpr std::string_view kFile = "inactive_file ";
  const std::size_t at = parts ? parts->find(kFile) : std::string::npos;
  const std::uint64_t pages =
      at == std::string::npos
          ? 0
          : leading_number(std::string_view(*parts).substr(at + kFile.size())).value_or(0);
  const std::uint64_t held = *now > pages ? *now - pages : 0;
  return *most > held ? *most - held : 0;
}

}  // namespace

std::optional<std::uint64_t> parse_available_memory(std::string_view meminfo) {
  constexpr std::string_view kName = "MemAvailable:";
  const std::size_t at = meminfo.find(kName);
  if (at == std::string_view::npos) return std::nullopt;
  std::string_view rest = meminfo.substr(at + kName.size());
  rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
  const auto kibibytes = leading_number(rest);
  return kibibytes ? std::optional(*kibibytes << 10) : std::nullopt;
}

std::optional<std::uint64_t> available_memory() {
  const auto text = small_file("/proc/meminfo");
  const auto machine = text ? parse_available_memory(*text) : std::nullopt;
  const auto group = cgroup_leaves();
  if (!machine || !group) return machine ? machine : group;
  return std::min(*machine, *group);
}

}  // namespace varda::os
