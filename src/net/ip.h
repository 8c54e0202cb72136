// IP addresses and blocks of them.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

namespace varda::net {

struct Ip {
  std::array<unsigned char, 16> bytes{};  // IPv4: the first four
  int bits = 0;                           // 32 or 128; 0: no address
  std::string str() const;                // "" for no address
};

/// Numeric addresses only, IPv6 with or without brackets. `bits` is 0 for any other text.
Ip parse_ip(std::string_view text);
/// The IPv4 address that an IPv6 address stands for: mapped, compatible, or behind NAT64
/// (64:ff9b::/96). Others come back unchanged.
Ip without_ipv6_wrapping(const Ip& ip);

struct IpBlock {
  Ip base;
  int prefix = 0;  // bits that count
  bool contains(const Ip& ip) const;
};

/// Parses "10.0.0.0/8", "fd00::/8" or one address. Absent: `text` is not a block.
std::optional<IpBlock> parse_ip_block(std::string_view text);

}  // namespace varda::net
