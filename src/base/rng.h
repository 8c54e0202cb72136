// Rng: randomness as an interface, so that tests and simulators can seed it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace varda {

/// Thread-safe.
class Rng {
 public:
  virtual ~Rng() = default;
  virtual std::uint64_t next() = 0;

  /// Uniform in [0, bound); bound > 0.
  std::uint64_t below(std::uint64_t bound);
  /// Uniform in [0, 1).
  double unit();
  /// A version 4 UUID (RFC 4122).
  std::string uuid();
  /// `length` characters like the suffix of Kubernetes' generated names (no vowels or look-alikes).
  std::string name_suffix(std::size_t length);
};

/// Uses the operating system (getrandom); suitable for tokens and keys.
Rng& system_rng();

/// The same sequence for the same seed, on every machine.
std::unique_ptr<Rng> seeded_rng(std::uint64_t seed);

}  // namespace varda
