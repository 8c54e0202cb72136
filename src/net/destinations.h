// Limits the addresses a client may connect to when users choose the URL.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "net/ip.h"

namespace varda::net {

/// Refuses addresses that reach this machine, its link or its cloud's metadata service: loopback,
/// link-local, unspecified, multicast, reserved. An IPv6 address that wraps an IPv4 address counts
/// as that address. Private networks are allowed.
class Destinations {
 public:
  /// `allowed` holds blocks such as "127.0.0.0/8" that are not refused. kInvalid quotes the first
  /// malformed block.
  static Result<Destinations> create(const std::vector<std::string>& allowed);

  /// "127.0.0.1 is a loopback address"; "" if a client may connect there.
  std::string refusal(const Ip& ip) const;

 private:
  std::vector<IpBlock> allowed_;
};

}  // namespace varda::net
