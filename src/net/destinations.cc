#include "net/destinations.h"

#include <algorithm>

namespace varda::net {
namespace {

struct RefusedBlock {
  IpBlock block;
  std::string_view kind;
};

// The first match names the kind.
const std::vector<RefusedBlock>& refused_blocks() {
  static constexpr std::string_view kMetadata = "a metadata service of clouds";
  static const auto& blocks = *new std::vector<RefusedBlock>{
      {*parse_ip_block("169.254.169.254"), kMetadata},
      {*parse_ip_block("100.100.100.200"), kMetadata},  // Alibaba
      {*parse_ip_block("168.63.129.16"), kMetadata},    // Azure
      {*parse_ip_block("192.0.0.192"), kMetadata},      // Oracle
      {*parse_ip_block("fd00:ec2::254"), kMetadata},    // AWS
      {*parse_ip_block("fd20:ce::254"), kMetadata},     // Google
      {*parse_ip_block("127.0.0.0/8"), "a loopback address"},
      {*parse_ip_block("::1"), "a loopback address"},
      {*parse_ip_block("169.254.0.0/16"), "a link-local address"},
      {*parse_ip_block("fe80::/10"), "a link-local address"},
      {*parse_ip_block("0.0.0.0/8"), "an unspecified address"},
      {*parse_ip_block("::"), "an unspecified address"},
      {*parse_ip_block("224.0.0.0/4"), "a multicast address"},
      {*parse_ip_block("ff00::/8"), "a multicast address"},
      {*parse_ip_block("240.0.0.0/4"), "a reserved address"},
  };
  return blocks;
}

}  // namespace

Result<Destinations> Destinations::create(const std::vector<std::string>& allowed) {
  Destinations out;
  for (const std::string& text : allowed) {
    const auto block = parse_ip_block(text);
    if (!block)
      return Error(Code::kInvalid,
                   "\"" + text + "\": expected an address, or a block such as 10.0.0.0/8");
    out.allowed_.push_back(*block);
  }
  return out;
}

std::string Destinations::refusal(const Ip& ip) const {
  const Ip plain = without_ipv6_wrapping(ip);
  const auto allows = [&](const IpBlock& block) {
    return block.contains(plain) || block.contains(ip);
  };
  if (std::any_of(allowed_.begin(), allowed_.end(), allows)) return "";
  for (const auto& [block, kind] : refused_blocks())
    if (block.contains(plain)) return ip.str() + " is " + std::string(kind);
  return "";
}

}  // namespace varda::net
