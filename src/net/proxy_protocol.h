// PROXY protocol, version 2 (haproxy.org/download/3.0/doc/proxy-protocol.txt): a header that a
// forwarder writes before the first byte of a connection. Ours also names the worker behind a
// stream (docs/design/029-streams.md). Pure, except for the signature's key.
//
//   TRY(const auto parsed, parse_proxy_header(bytes));       // nothing: read more bytes
//   TRY(const auto identity, check_identity(parsed->header, trust, peer_is_loopback, now));
//   bytes.erase(0, parsed->bytes);
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace varda::net {

/// The header begins with these bytes, which no HTTP request and no TLS handshake begins with.
inline constexpr std::string_view kProxySignature("\r\n\r\n\0\r\nQUIT\n", 12);
inline constexpr std::size_t kProxyFixedBytes = 16;        // the signature, 2 bytes, a length
inline constexpr std::size_t kProxyHeaderBytesMax = 4096;  // larger headers are kInvalid

struct ProxyHeader {
  bool local = false;               // LOCAL: the forwarder itself connects, such as a health check
  std::string source, destination;  // "192.0.2.7:40000", "[2001:db8::1]:443"; "": not given
  std::vector<std::pair<std::uint8_t, std::string>> tlvs = {};  // in order
  friend bool operator==(const ProxyHeader&, const ProxyHeader&) = default;
  /// The only TLV of the type. Nothing: none, or several.
  std::optional<std::string_view> find(std::uint8_t type) const;
};
/// Addresses that are not numeric are left out. If only one is IPv4, it is written as a mapped IPv6
/// address. kInvalid: the header is too large.
Result<std::string> write_proxy_header(const ProxyHeader& header);

struct ParsedProxyHeader {
  ProxyHeader header;
  std::size_t bytes = 0;  // length of the header
};
/// Nothing: the bytes are the beginning of a header. kInvalid: they are not, or the header is
/// malformed or too large.
Result<std::optional<ParsedProxyHeader>> parse_proxy_header(std::string_view bytes);

/// The worker behind a stream.
struct StreamIdentity {
  std::string node;
  std::string worker;      // NAMESPACE/NAME
  std::string job_uid;     // the target compares it with the uid of its own job
  bool is_signed = false;  // by the authority; else the sender was a loopback address
  friend bool operator==(const StreamIdentity&, const StreamIdentity&) = default;
};

inline constexpr std::chrono::seconds kIdentityValid{60};

/// Adds the identity's TLVs: 0xE0 node, 0xE1 worker, 0xE2 job.
void add_identity(ProxyHeader& header, const StreamIdentity& identity);
/// Adds 0xE3, the expiry, and 0xE4, the signature of the TLVs 0xE0 to 0xE3 by the key of the
/// authority. Call it after add_identity(). kInvalid: no private key.
Status sign_identity(ProxyHeader& header, const std::string& authority_key_pem, WallTime now);

/// Whom a target believes.
struct StreamTrust {
  std::string authority_pem = {};  // its key has signed the header; "": no signature is valid
  /// Also headers without a signature, from loopback addresses: every program on this machine can
  /// then name any worker. For `varda up`, which is one machine.
  bool trust_unsigned_loopback = false;
};
/// Nothing: the header names no worker. kForbidden: not believed, expired, or incomplete.
Result<std::optional<StreamIdentity>> check_identity(const ProxyHeader& header,
                                                     const StreamTrust& trust, bool from_loopback,
                                                     WallTime now);

}  // namespace varda::net
