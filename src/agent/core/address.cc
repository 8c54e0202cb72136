#include "agent/core/address.h"

#include <arpa/inet.h>
#include <array>
#include <cstdio>
#include <cstring>
#include <ifaddrs.h>
#include <sys/socket.h>
#include <unistd.h>

#include "meta/node_address.h"
#include "net/ip.h"

namespace varda::agent::core {
namespace {

bool can_listen_at(const net::Ip& address) {
  sockaddr_storage at{};
  socklen_t size = 0;
  if (address.bits == 32) {
    auto& v4 = reinterpret_cast<sockaddr_in&>(at);
    v4.sin_family = AF_INET;
    std::memcpy(&v4.sin_addr, address.bytes.data(), sizeof v4.sin_addr);
    size = sizeof v4;
  } else {
    auto& v6 = reinterpret_cast<sockaddr_in6&>(at);
    v6.sin6_family = AF_INET6;
    std::memcpy(&v6.sin6_addr, address.bytes.data(), sizeof v6.sin6_addr);
    size = sizeof v6;
  }
  const int socket = ::socket(at.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (socket < 0) return false;
  const bool bound = ::bind(socket, reinterpret_cast<const sockaddr*>(&at), size) == 0;
  ::close(socket);
  return bound;
}

/// "" for an address of another kind.
std::string text_of(const sockaddr& address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address.sa_family == AF_INET) {
    ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in&>(address).sin_addr, text,
                sizeof text);
  } else if (address.sa_family == AF_INET6) {
    ::inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6&>(address).sin6_addr, text,
                sizeof text);
  }
  return text;
}

/// "192.168.1.5, 2001:db8::5 and 127.0.0.0/8"
std::string addresses_of_this_machine() {
  std::string out;
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) == 0) {
    for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
      const std::string text = one->ifa_addr == nullptr ? "" : text_of(*one->ifa_addr);
      const auto scope = meta::address_scope(text);
      const bool named = scope == meta::AddressScope::kOrdinary || text == "::1";
      if (named) out += (out.empty() ? "" : ", ") + text;
    }
    ::freeifaddrs(all);
  }
  return (out.empty() ? "" : out + " and ") + "127.0.0.0/8";
}

}  // namespace

bool address_in_use(std::string_view table, std::string_view address) {
  std::array<unsigned, 4> parts{};
  if (std::sscanf(std::string(address).c_str(), "%u.%u.%u.%u", &parts[0], &parts[1], &parts[2],
                  &parts[3]) != 4)
    return false;
  char hex[10];  // the kernel prints the bytes in memory order: little-endian
  std::snprintf(hex, sizeof hex, "%02X%02X%02X%02X:", parts[3] & 255, parts[2] & 255,
                parts[1] & 255, parts[0] & 255);
  return table.find(" " + std::string(hex)) != std::string_view::npos;
}

Status check_node_address(const std::string& address, PodsListen pods) {
  const auto refused = [&](const std::string& why) {
    return Error(Code::kInvalid,
                 address + " " + why + "; this machine has " + addresses_of_this_machine());
  };
  // Link-local addresses are among those that lead nowhere: they need the name of an interface,
  // which no URL has.
  const auto scope = meta::address_scope(address);
  if (scope == meta::AddressScope::kNowhere)
    return refused("is not an address that clients can connect to");
  if (pods == PodsListen::kElsewhere) return {};
  if (!scope) return refused("is not an IP address");
  if (!can_listen_at(net::parse_ip(address))) return refused("is not an address of this machine");
  return {};
}

Result<std::string> node_address(const std::string& wanted, StateStore& state_store, Rng& rng,
                                 os::FileSystem& fs) {
  constexpr std::string_view kKey = "address";
  if (!wanted.empty()) return wanted;
  TRY(const codec::Json stored, state_store.get(kKey));
  if (stored.as_string().starts_with("127."))
    return stored.as_string();  // earlier versions kept configured ones, too
  const auto table = os::read_file(fs, "/proc/net/tcp");
  for (int attempt = 0; attempt < 100; ++attempt) {
    // Skips 127.0.x.y, which people use for manual assignments.
    const std::string address = "127." + std::to_string(1 + rng.below(254)) + "." +
                                std::to_string(rng.below(256)) + "." +
                                std::to_string(1 + rng.below(254));
    if (table.ok() && address_in_use(*table, address)) continue;
    TRY_VOID(state_store.put(kKey, codec::Json(address)));
    return address;
  }
  return Error(Code::kExhausted, "no free loopback address found");
}

}  // namespace varda::agent::core
