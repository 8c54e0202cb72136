#include "net/proxy_protocol.h"

#include <algorithm>
#include <cstring>
#include <netinet/in.h>

#include "net/certificates.h"
#include "net/internal/socket.h"

namespace varda::net {

namespace {

using internal::Address;

constexpr std::uint8_t kTypeNode = 0xE0, kTypeWorker = 0xE1, kTypeJob = 0xE2, kTypeExpiry = 0xE3,
                       kTypeSignature = 0xE4;
constexpr std::uint8_t kVersionLocal = 0x20, kVersionProxy = 0x21;
constexpr std::uint8_t kUnspecified = 0x00, kTcp4 = 0x11, kTcp6 = 0x21, kUnixStream = 0x31;
constexpr std::string_view kSignedPrefix = "varda-stream/1\n";
constexpr std::size_t kExpiryBytes = 8;
// Limits of EdgeNode.spec: the name of a node, NAMESPACE/NAME, and a uid.
constexpr std::size_t kNodeBytesMax = 253, kWorkerBytesMax = 317, kJobBytesMax = 64;

Error malformed(const char* what) {
  return Error(Code::kInvalid, std::string("PROXY header: ") + what);
}
Error not_believed(std::string what) {
  return Error(Code::kForbidden, "identity of a stream: " + std::move(what));
}

void append_u16(std::string& out, std::size_t number) {
  out += static_cast<char>(number >> 8);
  out += static_cast<char>(number & 0xff);
}
std::size_t u16_at(std::string_view bytes, std::size_t at) {
  return static_cast<std::size_t>(static_cast<unsigned char>(bytes[at])) << 8 |
         static_cast<unsigned char>(bytes[at + 1]);
}

void append_tlv(std::string& out, std::uint8_t type, std::string_view value) {
  out += static_cast<char>(type);
  append_u16(out, value.size());
  out += value;
}

/// The bytes of an address, IPv4 as 4 or (mapped) 16. "": not numeric.
std::string address_bytes(const std::string& text, bool as_v6, std::uint16_t& port_be) {
  if (text.empty() || text.starts_with("unix")) return {};
  const auto address = Address::parse(text);
  if (!address.ok()) return {};
  if (address->storage.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address->storage);
    port_be = v4.sin_port;
    std::string out = as_v6 ? std::string("\0\0\0\0\0\0\0\0\0\0\xff\xff", 12) : std::string();
    return out.append(reinterpret_cast<const char*>(&v4.sin_addr), 4);
  }
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address->storage);
  port_be = v6.sin6_port;
  return {reinterpret_cast<const char*>(&v6.sin6_addr), 16};
}

std::string address_text(std::string_view ip, std::string_view port_be) {
  Address address;
  if (ip.size() == 4) {
    auto& v4 = reinterpret_cast<sockaddr_in&>(address.storage);
    v4.sin_family = AF_INET;
    std::memcpy(&v4.sin_addr, ip.data(), 4);
    std::memcpy(&v4.sin_port, port_be.data(), 2);
    address.size = sizeof(v4);
  } else {
    auto& v6 = reinterpret_cast<sockaddr_in6&>(address.storage);
    v6.sin6_family = AF_INET6;
    std::memcpy(&v6.sin6_addr, ip.data(), 16);
    std::memcpy(&v6.sin6_port, port_be.data(), 2);
    address.size = sizeof(v6);
  }
  return address.str();
}

/// Fills in the family and the addresses of the rest after the fixed bytes.
void append_addresses(std::string& family, std::string& out, const ProxyHeader& header) {
  std::uint16_t from_port = 0, to_port = 0;
  std::string from = address_bytes(header.source, false, from_port);
  std::string to = address_bytes(header.destination, false, to_port);
  if (header.local || from.empty() || to.empty()) {
    family = static_cast<char>(kUnspecified);
    return;
  }
  if (from.size() != to.size()) {
    from = address_bytes(header.source, true, from_port);
    to = address_bytes(header.destination, true, to_port);
  }
  family = static_cast<char>(from.size() == 4 ? kTcp4 : kTcp6);
  out += from + to;
  out.append(reinterpret_cast<const char*>(&from_port), 2);
  out.append(reinterpret_cast<const char*>(&to_port), 2);
}

/// The bytes under the signature. Nothing: a part is missing or occurs twice.
std::optional<std::string> signed_bytes(const ProxyHeader& header) {
  std::string out(kSignedPrefix);
  for (const std::uint8_t type : {kTypeNode, kTypeWorker, kTypeJob, kTypeExpiry}) {
    const auto value = header.find(type);
    if (!value) return std::nullopt;
    append_tlv(out, type, *value);
  }
  return out;
}

bool printable(std::string_view text, std::size_t bytes_max) {
  return !text.empty() && text.size() <= bytes_max &&
         std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c <= '~'; });
}

Status check_signed(const ProxyHeader& header, const StreamTrust& trust, WallTime now) {
  if (trust.authority_pem.empty())
    return not_believed("it is signed, but no authority is configured");
  const auto bytes = signed_bytes(header);
  const auto expiry = header.find(kTypeExpiry);
  if (!bytes || expiry->size() != kExpiryBytes) return not_believed("it is incomplete");
  TRY_VOID(check_signature(trust.authority_pem, *bytes, *header.find(kTypeSignature))
               .context("identity of a stream"));
  std::uint64_t seconds = 0;
  for (const char c : *expiry) seconds = seconds << 8 | static_cast<unsigned char>(c);
  const auto now_seconds =
      std::chrono::duration_cast<std::chrono::seconds>(now.time_since_epoch()).count();
  if (now_seconds > 0 && seconds <= static_cast<std::uint64_t>(now_seconds))
    return not_believed("it expired " +
                        std::to_string(static_cast<std::uint64_t>(now_seconds) - seconds) +
                        " s ago; a clock may be wrong");
  return {};
}

}  // namespace

std::optional<std::string_view> ProxyHeader::find(std::uint8_t type) const {
  std::optional<std::string_view> found;
  for (const auto& [number, value] : tlvs) {
    if (number != type) continue;
    if (found) return std::nullopt;
    found = value;
  }
  return found;
}

Result<std::string> write_proxy_header(const ProxyHeader& header) {
  std::string family, rest;
  append_addresses(family, rest, header);
  for (const auto& [type, value] : header.tlvs) {
    if (value.size() > kProxyHeaderBytesMax) return malformed("a value is too large");
    append_tlv(rest, type, value);
  }
  if (kProxyFixedBytes + rest.size() > kProxyHeaderBytesMax) return malformed("it is too large");
  std::string out(kProxySignature);
  out += static_cast<char>(header.local ? kVersionLocal : kVersionProxy);
  out += family;
  append_u16(out, rest.size());
  return out + rest;
}

Result<std::optional<ParsedProxyHeader>> parse_proxy_header(std::string_view bytes) {
  const std::size_t known = std::min(bytes.size(), kProxySignature.size());
  if (bytes.substr(0, known) != kProxySignature.substr(0, known))
    return malformed("the connection does not begin with one");
  if (bytes.size() < kProxyFixedBytes) return std::optional<ParsedProxyHeader>();
  const auto version = static_cast<std::uint8_t>(bytes[12]);
  const auto family = static_cast<std::uint8_t>(bytes[13]);
  if (version != kVersionLocal && version != kVersionProxy)
    return malformed("the version is not 2, or the command is unknown");
  const std::size_t size = kProxyFixedBytes + u16_at(bytes, 14);
  if (size > kProxyHeaderBytesMax) return malformed("it is too large");
  std::size_t address_bytes = 0;
  switch (family) {
    case kUnspecified:
      break;
    case kTcp4:
      address_bytes = 12;
      break;
    case kTcp6:
      address_bytes = 36;
      break;
    case kUnixStream:
      address_bytes = 216;
      break;
    default:
      return malformed("the protocol is not TCP");
  }
  if (size < kProxyFixedBytes + address_bytes) return malformed("the addresses are cut off");
  if (bytes.size() < size) return std::optional<ParsedProxyHeader>();
  ParsedProxyHeader out;
  out.bytes = size;
  out.header.local = version == kVersionLocal;
  std::string_view rest = bytes.substr(kProxyFixedBytes, size - kProxyFixedBytes);
  if (!out.header.local && (family == kTcp4 || family == kTcp6)) {
    const std::size_t ip = family == kTcp4 ? 4 : 16;
    out.header.source = address_text(rest.substr(0, ip), rest.substr(2 * ip, 2));
    out.header.destination = address_text(rest.substr(ip, ip), rest.substr(2 * ip + 2, 2));
  }
  rest.remove_prefix(address_bytes);
  while (!rest.empty()) {
    if (rest.size() < 3) return malformed("a value is cut off");
    const std::size_t length = u16_at(rest, 1);
    if (rest.size() < 3 + length) return malformed("a value is cut off");
    out.header.tlvs.emplace_back(static_cast<std::uint8_t>(rest[0]), rest.substr(3, length));
    rest.remove_prefix(3 + length);
  }
  return std::optional(std::move(out));
}

void add_identity(ProxyHeader& header, const StreamIdentity& identity) {
  header.tlvs.emplace_back(kTypeNode, identity.node);
  header.tlvs.emplace_back(kTypeWorker, identity.worker);
  header.tlvs.emplace_back(kTypeJob, identity.job_uid);
}

Status sign_identity(ProxyHeader& header, const std::string& authority_key_pem, WallTime now) {
  const auto expiry =
      std::chrono::duration_cast<std::chrono::seconds>((now + kIdentityValid).time_since_epoch())
          .count();
  std::string text;
  for (std::size_t i = 0; i < kExpiryBytes; ++i)
    text += static_cast<char>(static_cast<std::uint64_t>(expiry) >> (8 * (kExpiryBytes - 1 - i)));
  header.tlvs.emplace_back(kTypeExpiry, text);
  const auto bytes = signed_bytes(header);
  if (!bytes) return malformed("no identity to sign");
  TRY(std::string signature, sign_bytes(authority_key_pem, *bytes));
  header.tlvs.emplace_back(kTypeSignature, std::move(signature));
  return {};
}

Result<std::optional<StreamIdentity>> check_identity(const ProxyHeader& header,
                                                     const StreamTrust& trust, bool from_loopback,
                                                     WallTime now) {
  const bool names_worker =
      std::any_of(header.tlvs.begin(), header.tlvs.end(),
                  [](const auto& tlv) { return tlv.first >= 0xE0 && tlv.first <= 0xE4; });
  if (header.local || !names_worker) return std::optional<StreamIdentity>();
  StreamIdentity out;
  const auto node = header.find(kTypeNode), worker = header.find(kTypeWorker),
             job = header.find(kTypeJob);
  if (!node || !worker || !job || !printable(*node, kNodeBytesMax) ||
      !printable(*worker, kWorkerBytesMax) || !printable(*job, kJobBytesMax))
    return not_believed("it is incomplete");
  out.node = *node;
  out.worker = *worker;
  out.job_uid = *job;
  const bool has_signature =
      std::any_of(header.tlvs.begin(), header.tlvs.end(),
                  [](const auto& tlv) { return tlv.first == kTypeSignature; });
  if (has_signature) {
    if (!header.find(kTypeSignature)) return not_believed("it has two signatures");
    TRY_VOID(check_signed(header, trust, now));
    out.is_signed = true;
  } else if (!trust.trust_unsigned_loopback || !from_loopback) {
    return not_believed("it has no signature");
  }
  return std::optional(std::move(out));
}

}  // namespace varda::net
