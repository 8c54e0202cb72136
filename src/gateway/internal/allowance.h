// Allowance: how much somebody may use up (failures, KiB written) before he has to wait. Pure; bounded memory.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/clock.h"

namespace varda::gateway::internal {

/// Each unit costs `period`; who owes more than `burst` periods waits until he owes less. What comes is charged afterwards, so no
/// single thing is too large for it. Not thread-safe.
class Allowance {
 public:
  struct Options {
    int burst = 10;  // units
    Duration period = std::chrono::seconds(6);
    std::size_t who_max = 4096;  // beyond, the one that owes least is forgotten
  };
  explicit Allowance(Options options) : options_(options) {}

  /// How long `who` has to wait; zero: he may ask.
  std::chrono::milliseconds wait(const std::string& who, SteadyTime now) const;
  void spend(const std::string& who, SteadyTime now, int units = 1);
  std::size_t size() const { return paid_at_.size(); }

 private:
  const Options options_;
  std::unordered_map<std::string, SteadyTime> paid_at_;  // when he owes nothing any more
};

/// Of a peer ("10.0.0.7:41234", "[2001:db8::1]:41234") the host without its port. Of IPv6 the first 64 bits, which is what one
/// customer has; IPv4 in IPv6 is IPv4.
std::string address_of(std::string_view peer);

}  // namespace varda::gateway::internal
