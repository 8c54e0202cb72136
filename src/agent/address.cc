#include "agent/address.h"

#include <arpa/inet.h>
#include <array>
#include <cstdio>
#include <ifaddrs.h>
#include <sys/socket.h>
#include <unistd.h>

namespace varda::agent {
namespace {

bool can_listen_at(const in_addr& address) {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (socket < 0) return false;
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr = address;
  const bool bound = ::bind(socket, reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0;
  ::close(socket);
  return bound;
}

/// "192.168.1.5, 10.0.0.3 and 127.0.0.0/8"
std::string addresses_of_this_machine() {
  std::string out;
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) == 0) {
    for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
      if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET) continue;
      char text[INET_ADDRSTRLEN] = "";
      ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(one->ifa_addr)->sin_addr, text, sizeof text);
      if (!std::string_view(text).starts_with("127.")) out += (out.empty() ? "" : ", ") + std::string(text);
    }
    ::freeifaddrs(all);
  }
  return (out.empty() ? "" : out + " and ") + "127.0.0.0/8";
}

}  // namespace

bool address_in_use(std::string_view table, std::string_view address) {
  std::array<unsigned, 4> parts{};
  if (std::sscanf(std::string(address).c_str(), "%u.%u.%u.%u", &parts[0], &parts[1], &parts[2], &parts[3]) != 4) return false;
  char hex[10];  // the kernel prints the bytes in memory order: little-endian
  std::snprintf(hex, sizeof hex, "%02X%02X%02X%02X:", parts[3] & 255, parts[2] & 255, parts[1] & 255, parts[0] & 255);
  return table.find(" " + std::string(hex)) != std::string_view::npos;
}

Status check_node_address(const std::string& address, PodsListen pods) {
  const auto refused = [&](const std::string& why) {
    return Error(Code::kInvalid, address + " " + why + "; this machine has " + addresses_of_this_machine());
  };
  in_addr parsed{};
  const bool v4 = ::inet_pton(AF_INET, address.c_str(), &parsed) == 1;
  const std::uint32_t number = ntohl(parsed.s_addr);
  if (address == "::" || (v4 && (number == 0 || number >= 0xe0000000))) return refused("is no address that clients can connect to");
  if (pods == PodsListen::kElsewhere) return {};
  if (!v4) return refused("is no IPv4 address");
  if (!can_listen_at(parsed)) return refused("is not an address of this machine");
  return {};
}

Result<std::string> node_address(const std::string& wanted, Journal& journal, Rng& rng, os::FileSystem& fs) {
  constexpr std::string_view kKey = "address";
  if (!wanted.empty()) return wanted;
  TRY(const codec::Json kept, journal.get(kKey));
  if (kept.as_string().starts_with("127.")) return kept.as_string();  // earlier versions kept configured ones, too
  const auto table = os::read_file(fs, "/proc/net/tcp");
  for (int attempt = 0; attempt < 100; ++attempt) {
    // Skips 127.0.x.y, which people use for manual assignments.
    const std::string address = "127." + std::to_string(1 + rng.below(254)) + "." + std::to_string(rng.below(256)) + "." +
                                std::to_string(1 + rng.below(254));
    if (table.ok() && address_in_use(*table, address)) continue;
    TRY_VOID(journal.put(kKey, codec::Json(address)));
    return address;
  }
  return Error(Code::kExhausted, "no free loopback address found");
}

}  // namespace varda::agent
