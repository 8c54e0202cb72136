#include "meta/node_address.h"

#include <algorithm>
#include <arpa/inet.h>
#include <cstdint>
#include <netinet/in.h>
#include <utility>

namespace varda::meta {
namespace {

using codec::Json;

std::optional<std::uint32_t> ipv4_of(std::string_view text) {
  const std::string copy(text);
  if (copy.find('\0') != std::string::npos) return std::nullopt;
  in_addr v4{};
  if (inet_pton(AF_INET, copy.c_str(), &v4) == 1) return ntohl(v4.s_addr);
  in6_addr v6{};
  if (inet_pton(AF_INET6, copy.c_str(), &v6) != 1) return std::nullopt;
  static constexpr unsigned char kNat64[12] = {0, 0x64, 0xff, 0x9b};  // RFC 6052
  if (!IN6_IS_ADDR_V4MAPPED(&v6) && !std::equal(std::begin(kNat64), std::end(kNat64), v6.s6_addr))
    return std::nullopt;
  return std::uint32_t{v6.s6_addr[12]} << 24 | std::uint32_t{v6.s6_addr[13]} << 16 |
         std::uint32_t{v6.s6_addr[14]} << 8 | v6.s6_addr[15];
}

// Metadata services of clouds outside the link-local block: Alibaba, Azure, Oracle. As
// net::Destinations has them.
constexpr std::uint32_t kMetadata[] = {0x646464c8, 0xa83f8110, 0xc00000c0};
constexpr std::string_view kMetadata6[] = {"fd00:ec2::254", "fd20:ce::254"};  // AWS, Google

AddressScope scope_of(std::uint32_t v4) {
  const std::uint32_t first = v4 >> 24;
  if (first == 127) return AddressScope::kLoopback;
  const bool metadata =
      std::find(std::begin(kMetadata), std::end(kMetadata), v4) != std::end(kMetadata);
  const bool nowhere = first == 0 || v4 >> 16 == 0xa9fe || first >= 224 || metadata;
  return nowhere ? AddressScope::kNowhere : AddressScope::kOrdinary;
}

class AddressCheck {
 public:
  explicit AddressCheck(Reporter reporter) : reporter_(reporter) {}

  enum class Of { kNode, kPod };
  void check(const std::string& field, const Json& value, Of of) {
    const std::string& text = value.as_string();
    if (text.empty()) return;
    const auto scope = address_scope(text);
    if (!scope) {
      add(field, text, "must be an IP address");
    } else if (*scope == AddressScope::kNowhere) {
      add(field, text,
          "may not be an unspecified, link-local, multicast, reserved or metadata address");
    } else if (*scope == AddressScope::kLoopback && reporter_ == Reporter::kAnotherMachine &&
               !(of == Of::kPod && is_drawn_loopback(text))) {
      add(field, text,
          "may not be a loopback address of another machine; give the agent --address");
    }
  }
  void check_each(const std::string& field, const Json& list, Of of) {
    std::size_t i = 0;
    for (const Json& item : list.as_array())
      check(field + "[" + std::to_string(i++) + "].ip", item["ip"], of);
  }
  std::vector<AddressProblem> take() { return std::move(problems_); }

 private:
  void add(const std::string& field, const std::string& value, std::string message) {
    problems_.push_back({field, value, std::move(message)});
  }
  const Reporter reporter_;
  std::vector<AddressProblem> problems_;
};

}  // namespace

std::optional<AddressScope> address_scope(std::string_view text) {
  if (const auto v4 = ipv4_of(text)) return scope_of(*v4);
  const std::string copy(text);
  in6_addr v6{};
  if (copy.find('\0') != std::string::npos || inet_pton(AF_INET6, copy.c_str(), &v6) != 1)
    return std::nullopt;
  if (IN6_IS_ADDR_LOOPBACK(&v6)) return AddressScope::kLoopback;
  const auto is = [&](std::string_view known) {
    in6_addr other{};
    return inet_pton(AF_INET6, std::string(known).c_str(), &other) == 1 &&
           IN6_ARE_ADDR_EQUAL(&v6, &other);
  };
  const bool metadata = std::any_of(std::begin(kMetadata6), std::end(kMetadata6), is);
  const bool nowhere = IN6_IS_ADDR_UNSPECIFIED(&v6) || IN6_IS_ADDR_LINKLOCAL(&v6) ||
                       IN6_IS_ADDR_MULTICAST(&v6) || metadata;
  return nowhere ? AddressScope::kNowhere : AddressScope::kOrdinary;
}

bool is_drawn_loopback(std::string_view text) {
  const auto v4 = ipv4_of(text);
  return v4 && *v4 >> 24 == 127 && *v4 >> 16 != 0x7f00;
}

std::vector<AddressProblem> address_problems(std::string_view kind, const Json& status,
                                             Reporter reporter) {
  using Of = AddressCheck::Of;
  AddressCheck check(reporter);
  if (kind == "Pod") {
    check.check("status.hostIP", status["hostIP"], Of::kNode);
    check.check_each("status.hostIPs", status["hostIPs"], Of::kNode);
    check.check("status.podIP", status["podIP"], Of::kPod);
    check.check_each("status.podIPs", status["podIPs"], Of::kPod);
  } else if (kind == "EdgeNode") {
    check.check("status.address", status["address"], Of::kNode);
  } else if (kind == "Node") {
    std::size_t i = 0;
    for (const Json& item : status["addresses"].as_array()) {
      const std::string field = "status.addresses[" + std::to_string(i++) + "].address";
      const std::string& type = item["type"].as_string();
      const bool ip = type == "InternalIP" || type == "ExternalIP" ||
                      address_scope(item["address"].as_string()).has_value();
      if (ip) check.check(field, item["address"], Of::kNode);
    }
  }
  return check.take();
}

std::vector<AddressProblem> added_address_problems(std::string_view kind, const Json& old,
                                                   const Json& status) {
  auto problems = address_problems(kind, status, Reporter::kThisMachine);
  if (problems.empty()) return problems;
  const auto before = address_problems(kind, old, Reporter::kThisMachine);
  std::erase_if(problems, [&](const AddressProblem& one) {
    return std::any_of(before.begin(), before.end(), [&](const AddressProblem& other) {
      return other.field == one.field && other.value == one.value;
    });
  });
  return problems;
}

}  // namespace varda::meta
