#include "net/ip.h"

#include <algorithm>
#include <arpa/inet.h>
#include <cstring>

#include "base/text.h"

namespace varda::net {

std::string Ip::str() const {
  char text[INET6_ADDRSTRLEN] = "";
  if (bits != 0) inet_ntop(bits == 32 ? AF_INET : AF_INET6, bytes.data(), text, sizeof(text));
  return text;
}

Ip parse_ip(std::string_view text) {
  Ip ip;
  if (text.size() >= 2 && text.front() == '[' && text.back() == ']')
    text = text.substr(1, text.size() - 2);
  const std::string copy(text);
  if (inet_pton(AF_INET, copy.c_str(), ip.bytes.data()) == 1) {
    ip.bits = 32;
  } else if (inet_pton(AF_INET6, copy.c_str(), ip.bytes.data()) == 1) {
    ip.bits = 128;
  }
  return ip;
}

Ip without_ipv6_wrapping(const Ip& ip) {
  static const IpBlock kWrapped[] = {*parse_ip_block("::ffff:0:0/96"),
                                     *parse_ip_block("64:ff9b::/96"), *parse_ip_block("::/96")};
  if (ip.bits != 128) return ip;
  const bool wrapped = std::any_of(std::begin(kWrapped), std::end(kWrapped),
                                   [&](const IpBlock& block) { return block.contains(ip); });
  // "::" and "::1" are in ::/96 too, but have other meanings.
  const bool special = std::all_of(ip.bytes.begin(), ip.bytes.begin() + 15,
                                   [](unsigned char byte) { return byte == 0; });
  if (!wrapped || special) return ip;
  Ip out{.bytes = {}, .bits = 32};
  std::copy(ip.bytes.begin() + 12, ip.bytes.end(), out.bytes.begin());
  return out;
}

bool IpBlock::contains(const Ip& ip) const {
  if (base.bits == 0 || base.bits != ip.bits) return false;
  const auto whole = static_cast<std::size_t>(prefix / 8);
  if (std::memcmp(ip.bytes.data(), base.bytes.data(), whole) != 0) return false;
  const int odd_bits = prefix % 8;
  return odd_bits == 0 ||
         (ip.bytes[whole] >> (8 - odd_bits)) == (base.bytes[whole] >> (8 - odd_bits));
}

std::optional<IpBlock> parse_ip_block(std::string_view text) {
  const auto slash = text.find('/');
  IpBlock block{.base = parse_ip(text.substr(0, slash))};
  if (block.base.bits == 0) return std::nullopt;
  block.prefix = block.base.bits;
  if (slash == std::string_view::npos) return block;
  const auto prefix = parse_integer<decltype(block.prefix)>(text.substr(slash + 1));
  if (!prefix || *prefix < 0 || *prefix > block.base.bits) return std::nullopt;
  block.prefix = *prefix;
  return block;
}

}  // namespace varda::net
