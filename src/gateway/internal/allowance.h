// Allowance: limits how much each key uses (failures, KiB written) before it must wait. Pure;
// bounded memory.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/clock.h"

namespace varda::gateway::internal {

/// Each unit costs `period`. A key that owes more than `burst - 1` periods waits until it owes no
/// more than that. Costs are charged afterwards, so no single use is too large. Not thread-safe.
class Allowance {
 public:
  struct Options {
    int burst = 10;  // units
    Duration period = std::chrono::seconds(6);
    std::size_t callers_max = 4096;  // beyond, the key that owes least is forgotten
  };
  explicit Allowance(Options options) : options_(options) {}

  /// Time that `caller` has to wait; zero: none.
  std::chrono::milliseconds wait(const std::string& caller, SteadyTime now) const;
  void spend(const std::string& caller, SteadyTime now, int units = 1);
  std::size_t size() const { return paid_at_.size(); }

 private:
  const Options options_;
  std::unordered_map<std::string, SteadyTime> paid_at_;  // when the key owes nothing any more
};

/// The host of a peer ("10.0.0.7:41234", "[2001:db8::1]:41234"), without the port. IPv6 keeps its
/// first 64 bits, which one customer has; IPv4 in IPv6 is IPv4.
std::string address_of(std::string_view peer);

}  // namespace varda::gateway::internal
