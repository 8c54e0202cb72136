#include "net/internal/addresses.h"

#include <arpa/inet.h>
#include <netinet/in.h>

namespace varda::net::internal {

std::string host_of_peer(std::string_view peer) {
  const auto colon = peer.rfind(':');
  if (colon == std::string_view::npos) return "";
  std::string host(peer.substr(0, colon));
  if (!host.starts_with('[')) {
    in_addr v4{};
    return ::inet_pton(AF_INET, host.c_str(), &v4) == 1 ? host : "";
  }
  if (!host.ends_with(']')) return "";
  host = host.substr(1, host.find_first_of("%]") - 1);
  in6_addr v6{};
  if (::inet_pton(AF_INET6, host.c_str(), &v6) != 1) return "";
  // An IPv4-mapped address counts whole, as its IPv4 address.
  if (IN6_IS_ADDR_V4MAPPED(&v6)) return {reinterpret_cast<const char*>(&v6), sizeof(v6)};
  return {reinterpret_cast<const char*>(&v6), sizeof(v6) / 2};
}

bool Addresses::add(const std::string& peer) {
  if (limit_ == 0) return true;
  const std::string host = host_of_peer(peer);
  if (host.empty()) return true;
  MutexLock lock(mutex_);
  std::size_t& count = counts_[host];
  if (count >= limit_) return false;
  ++count;
  return true;
}

void Addresses::remove(const std::string& peer) {
  if (limit_ == 0) return;
  const std::string host = host_of_peer(peer);
  if (host.empty()) return;
  MutexLock lock(mutex_);
  const auto found = counts_.find(host);
  if (found != counts_.end() && --found->second == 0) counts_.erase(found);
}

}  // namespace varda::net::internal
