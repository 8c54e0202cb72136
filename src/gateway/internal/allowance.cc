#include "gateway/internal/allowance.h"

#include <algorithm>
#include <arpa/inet.h>

namespace varda::gateway::internal {

std::string address_of(std::string_view peer) {
  std::string host(peer.substr(0, peer.rfind(':')));
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']')
    host = host.substr(1, host.size() - 2);
  in6_addr address{};
  if (inet_pton(AF_INET6, host.c_str(), &address) != 1) return host;
  char text[INET6_ADDRSTRLEN] = "";
  if (IN6_IS_ADDR_V4MAPPED(&address)) {
    inet_ntop(AF_INET, &address.s6_addr[12], text, sizeof(text));
    return text;
  }
  std::fill(&address.s6_addr[8], &address.s6_addr[16], std::uint8_t{0});
  inet_ntop(AF_INET6, &address, text, sizeof(text));
  return std::string(text) + "/64";
}

std::chrono::milliseconds Allowance::wait(const std::string& caller, SteadyTime now) const {
  const auto found = paid_at_.find(caller);
  if (found == paid_at_.end()) return {};
  const auto too_much = found->second - now - options_.period * (options_.burst - 1);
  return std::max(std::chrono::milliseconds(0),
                  std::chrono::ceil<std::chrono::milliseconds>(too_much));
}

void Allowance::spend(const std::string& caller, SteadyTime now, int units) {
  if (auto found = paid_at_.find(caller); found != paid_at_.end()) {
    found->second = std::max(found->second, now) + options_.period * units;
    return;
  }
  if (paid_at_.size() >= options_.callers_max) {
    std::erase_if(paid_at_, [&](const auto& entry) { return entry.second <= now; });
  }
  if (paid_at_.size() >= options_.callers_max) {
    paid_at_.erase(
        std::min_element(paid_at_.begin(), paid_at_.end(),
                         [](const auto& a, const auto& b) { return a.second < b.second; }));
  }
  paid_at_.emplace(caller, now + options_.period * units);
}

}  // namespace varda::gateway::internal
