#include "agent/address.h"

#include <array>
#include <cstdio>

namespace varda::agent {

bool address_in_use(std::string_view table, std::string_view address) {
  std::array<unsigned, 4> parts{};
  if (std::sscanf(std::string(address).c_str(), "%u.%u.%u.%u", &parts[0], &parts[1], &parts[2], &parts[3]) != 4) return false;
  char hex[10];  // the kernel prints the address as it lies in memory: little-endian
  std::snprintf(hex, sizeof hex, "%02X%02X%02X%02X:", parts[3] & 255, parts[2] & 255, parts[1] & 255, parts[0] & 255);
  return table.find(" " + std::string(hex)) != std::string_view::npos;
}

Result<std::string> node_address(const std::string& wanted, Journal& journal, Rng& rng, os::FileSystem& fs) {
  constexpr std::string_view kKey = "address";
  if (!wanted.empty()) {
    TRY_VOID(journal.put(kKey, codec::Json(wanted)));
    return wanted;
  }
  TRY(const codec::Json kept, journal.get(kKey));
  if (!kept.as_string().empty()) return kept.as_string();
  const auto table = os::read_file(fs, "/proc/net/tcp");
  for (int attempt = 0; attempt < 100; ++attempt) {
    // 127.0.x.y is where people put things by hand.
    const std::string address = "127." + std::to_string(1 + rng.below(254)) + "." + std::to_string(rng.below(256)) + "." +
                                std::to_string(1 + rng.below(254));
    if (table.ok() && address_in_use(*table, address)) continue;
    TRY_VOID(journal.put(kKey, codec::Json(address)));
    return address;
  }
  return Error(Code::kExhausted, "no free loopback address found");
}

}  // namespace varda::agent
