#include "node/internal/addresses.h"

#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace varda::node::internal {
namespace {

constexpr std::uint32_t kNetwork = 0x7f400000;  // 127.64.0.0
constexpr std::uint32_t kHosts = 1u << 22;      // /10
constexpr int kTries = 1000;

std::string dotted(std::uint32_t address) {
  std::string text;
  for (int shift = 24; shift >= 0; shift -= 8)
    text += (text.empty() ? "" : ".") + std::to_string((address >> shift) & 0xff);
  return text;
}

}  // namespace

bool is_free(const std::string& address, const Port& port) {
  sockaddr_in where{};
  where.sin_family = AF_INET;
  where.sin_port = htons(static_cast<std::uint16_t>(port.number));
  if (::inet_pton(AF_INET, address.c_str(), &where.sin_addr) != 1) return false;
  const int fd = ::socket(AF_INET, (port.udp ? SOCK_DGRAM : SOCK_STREAM) | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  // Like servers do: lingering connections of a former owner are no obstacle.
  const int one = 1;
  if (!port.udp) ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
  const bool free =
      ::bind(fd, reinterpret_cast<const sockaddr*>(&where), sizeof(where)) == 0 || errno == EACCES;
  ::close(fd);
  return free;
}

Result<std::string> pick_address(Rng& rng, const std::set<std::string>& taken,
                                 const std::vector<Port>& ports) {
  for (int i = 0; i < kTries; ++i) {
    const auto host = static_cast<std::uint32_t>(rng.below(kHosts));
    if ((host & 0xff) == 0 || (host & 0xff) == 0xff) continue;
    std::string address = dotted(kNetwork + host);
    if (taken.contains(address)) continue;
    // Port 0 detects machines where 127.0.0.0/8 is not completely local.
    if (!is_free(address, {})) continue;
    if (std::all_of(ports.begin(), ports.end(),
                    [&](const Port& port) { return is_free(address, port); }))
      return address;
  }
  return Error(Code::kExhausted, "no free address in 127.64.0.0/10");
}

}  // namespace varda::node::internal
