#include "base/rng.h"

#include <cstdio>
#include <sys/random.h>

#include "base/check.h"
#include "base/mutex.h"

namespace varda {
namespace {

class SystemRng final : public Rng {
 public:
  std::uint64_t next() override {
    std::uint64_t value = 0;
    // getrandom returns up to 256 bytes completely once the pool is initialised, which is true for
    // user programs.
    CHECK(getrandom(&value, sizeof value, 0) == sizeof value);
    return value;
  }
};

// splitmix64 (Steele, Lea, Flood 2014): 64 bits of state, full period, passes BigCrush.
class SeededRng final : public Rng {
 public:
  explicit SeededRng(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() override {
    MutexLock lock(mutex_);
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15ULL);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }

 private:
  Mutex mutex_;
  std::uint64_t state_ GUARDED_BY(mutex_);
};

}  // namespace

std::uint64_t Rng::below(std::uint64_t bound) {
  CHECK(bound > 0);
  // Rejects the tail that would make low values more likely.
  const std::uint64_t limit = ~std::uint64_t{0} - (~std::uint64_t{0} % bound);
  for (;;) {
    if (const std::uint64_t value = next(); value < limit) return value % bound;
  }
}

double Rng::unit() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }

std::string Rng::uuid() {
  const std::uint64_t high = (next() & ~0xf000ULL) | 0x4000ULL;
  const std::uint64_t low = (next() & ~(3ULL << 62)) | (2ULL << 62);
  char text[37];
  std::snprintf(text, sizeof text, "%08x-%04x-%04x-%04x-%012llx", static_cast<unsigned>(high >> 32),
                static_cast<unsigned>(high >> 16 & 0xffff), static_cast<unsigned>(high & 0xffff),
                static_cast<unsigned>(low >> 48),
                static_cast<unsigned long long>(low & 0xffffffffffffULL));
  return text;
}

std::string Rng::name_suffix(std::size_t length) {
  static constexpr char kAlphabet[] = "bcdfghjklmnpqrstvwxz2456789";
  std::string out;
  while (out.size() < length) out.push_back(kAlphabet[below(sizeof kAlphabet - 1)]);
  return out;
}

Rng& system_rng() {
  static SystemRng rng;
  return rng;
}

std::unique_ptr<Rng> seeded_rng(std::uint64_t seed) { return std::make_unique<SeededRng>(seed); }

}  // namespace varda
