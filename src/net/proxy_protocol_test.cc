#include "net/proxy_protocol.h"

#include <gtest/gtest.h>

#include "net/certificates.h"

namespace varda::net {
namespace proxy_protocol_test {

using namespace std::chrono_literals;

const KeyPair& edge_ca() {
  static const KeyPair made = *make_ca("edge", 24h);
  return made;
}
const WallTime kNow = std::chrono::system_clock::time_point(1'800'000'000s);

StreamIdentity trainer() {
  return {.node = "line7", .worker = "default/digits-train-1f2e", .job_uid = "5f1c-77"};
}
ProxyHeader signed_header(WallTime now = kNow) {
  ProxyHeader header{.source = "198.51.100.7:40000", .destination = "10.42.0.7:7363"};
  add_identity(header, trainer());
  EXPECT_TRUE(sign_identity(header, edge_ca().key_pem, now).ok());
  return header;
}
Result<std::optional<StreamIdentity>> check(const ProxyHeader& header, WallTime now = kNow) {
  return check_identity(header, {.authority_pem = edge_ca().certificate_pem}, false, now);
}
/// Replaces the value of a TLV.
ProxyHeader with(ProxyHeader header, std::uint8_t type, const std::string& value) {
  for (auto& [number, text] : header.tlvs)
    if (number == type) text = value;
  return header;
}

TEST(ProxyProtocol, BytesAreThoseOfTheSpecification) {
  const auto v4 = write_proxy_header({.source = "192.0.2.7:4711", .destination = "10.0.0.1:80"});
  ASSERT_TRUE(v4.ok());
  EXPECT_EQ(
      *v4, std::string(kProxySignature) +
               std::string("\x21\x11\x00\x0c\xc0\x00\x02\x07\x0a\x00\x00\x01\x12\x67\x00\x50", 16));
  ProxyHeader local{.local = true, .source = "192.0.2.7:4711"};
  local.tlvs.emplace_back(0xE0, "n");
  EXPECT_EQ(*write_proxy_header(local),
            std::string(kProxySignature) + std::string("\x20\x00\x00\x04\xe0\x00\x01n", 8));
}

TEST(ProxyProtocol, WrittenHeaderIsReadBack) {
  for (const auto& [source, destination] : std::vector<std::pair<std::string, std::string>>{
           {"192.0.2.7:4711", "10.0.0.1:80"}, {"[2001:db8::1]:1", "[::1]:65535"}, {"", ""}}) {
    ProxyHeader header{.source = source, .destination = destination};
    header.tlvs = {{0xE0, "node"}, {0x04, ""}, {0xE0, "again"}};
    const std::string bytes = write_proxy_header(header).value();
    const auto parsed = parse_proxy_header(bytes + "GET /");
    ASSERT_TRUE(parsed.ok() && *parsed);
    EXPECT_EQ((*parsed)->bytes, bytes.size());
    EXPECT_EQ((*parsed)->header, header);
  }
  const auto mixed = parse_proxy_header(
      write_proxy_header({.source = "192.0.2.7:4711", .destination = "[::1]:80"}).value());
  EXPECT_EQ((*mixed)->header.source, "[::ffff:192.0.2.7]:4711");
}

TEST(ProxyProtocol, EveryPrefixOfAHeaderAsksForMoreBytes) {
  const std::string bytes = write_proxy_header(signed_header()).value();
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    const auto parsed = parse_proxy_header(std::string_view(bytes).substr(0, size));
    ASSERT_TRUE(parsed.ok()) << size;
    EXPECT_FALSE(*parsed) << size;
  }
  EXPECT_TRUE(*parse_proxy_header(bytes));
}

TEST(ProxyProtocol, MalformedHeadersAreInvalid) {
  const std::string start(kProxySignature);
  for (const std::string& rest :
       {std::string("\x31\x11\x00\x0c", 4), std::string("\x22\x11\x00\x0c", 4),
        std::string("\x21\x12\x00\x0c", 4), std::string("\x21\x11\x00\x0b", 4),
        std::string("\x21\x00\xff\xff", 4), std::string("\x21\x00\x00\x02\xe0\x00", 6),
        std::string("\x21\x00\x00\x04\xe0\x00\x02n", 8)}) {
    const auto parsed = parse_proxy_header(start + rest);
    EXPECT_EQ(parsed.ok() ? Code::kInternal : parsed.error().code(), Code::kInvalid) << rest;
  }
  EXPECT_FALSE(parse_proxy_header("GET / HTTP/1.1\r\n").ok());
  EXPECT_FALSE(parse_proxy_header("\r\n\r\nX").ok());
}

TEST(ProxyProtocol, SignedIdentityIsBelievedForAMinute) {
  const auto identity = check(signed_header());
  ASSERT_TRUE(identity.ok()) << identity.error();
  StreamIdentity wanted = trainer();
  wanted.is_signed = true;
  EXPECT_EQ(*identity, wanted);
  EXPECT_TRUE(check(signed_header(), kNow + 59s).ok());
  EXPECT_EQ(check(signed_header(), kNow + 60s).error().code(), Code::kForbidden);
}

TEST(ProxyProtocol, ChangedIdentityIsNotBelieved) {
  const ProxyHeader good = signed_header();
  EXPECT_FALSE(check(with(good, 0xE0, "line8")).ok());
  EXPECT_FALSE(check(with(good, 0xE1, "default/other")).ok());
  EXPECT_FALSE(check(with(good, 0xE2, "another-job")).ok());
  EXPECT_FALSE(check(with(good, 0xE3, std::string(8, '\x7f'))).ok());
  EXPECT_FALSE(check(with(good, 0xE4, "")).ok());
  // Bytes that move from one value into the next keep no signature either.
  EXPECT_FALSE(check(with(with(good, 0xE0, "line7d"), 0xE1, "efault/digits-train-1f2e")).ok());
  ProxyHeader twice = good;
  twice.tlvs.emplace_back(0xE0, "line8");
  EXPECT_FALSE(check(twice).ok());
  ProxyHeader two_signatures = good;
  two_signatures.tlvs.emplace_back(0xE4, "x");
  EXPECT_FALSE(check(two_signatures).ok());
  const KeyPair other = *make_ca("edge", 24h);
  EXPECT_FALSE(check_identity(good, {.authority_pem = other.certificate_pem}, false, kNow).ok());
  EXPECT_FALSE(check_identity(good, {.trust_unsigned_loopback = true}, true, kNow).ok())
      << "a signature that cannot be verified is not ignored";
}

TEST(ProxyProtocol, UnsignedIdentityIsBelievedFromLoopbackOnly) {
  ProxyHeader header;
  add_identity(header, trainer());
  const StreamTrust loopback{.trust_unsigned_loopback = true};
  EXPECT_EQ(*check_identity(header, loopback, true, kNow), trainer());
  EXPECT_FALSE(check_identity(header, loopback, false, kNow).ok());
  EXPECT_FALSE(
      check_identity(header, {.authority_pem = edge_ca().certificate_pem}, true, kNow).ok());
  EXPECT_FALSE(check_identity(with(header, 0xE2, ""), loopback, true, kNow).ok());
  EXPECT_FALSE(check_identity(with(header, 0xE0, "a\nb"), loopback, true, kNow).ok());
}

TEST(ProxyProtocol, HeaderWithoutIdentityNamesNoWorker) {
  EXPECT_EQ(check({.source = "192.0.2.7:1", .destination = "192.0.2.8:1"}).value(), std::nullopt);
  ProxyHeader local{.local = true};
  add_identity(local, trainer());
  EXPECT_EQ(check(local).value(), std::nullopt);
}

TEST(Signatures, EveryKindOfKeySignsAndVerifies) {
  const std::string signature = *sign_bytes(edge_ca().key_pem, "text");
  EXPECT_TRUE(check_signature(edge_ca().certificate_pem, "text", signature).ok());
  EXPECT_EQ(check_signature(edge_ca().certificate_pem, "texT", signature).error().code(),
            Code::kForbidden);
  EXPECT_FALSE(check_signature(edge_ca().certificate_pem, "text", "").ok());
  EXPECT_EQ(sign_bytes("no key", "text").error().code(), Code::kInvalid);
  EXPECT_EQ(check_signature("none", "text", signature).error().code(), Code::kInvalid);
}

}  // namespace proxy_protocol_test
}  // namespace varda::net
