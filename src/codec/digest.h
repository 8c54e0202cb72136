// SHA-256 (FIPS 180-4), and text forms of bytes: hex and base64 (RFC 4648).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

namespace varda::codec {

struct Sha256 {
  std::array<std::uint8_t, 32> bytes{};
  /// 64 lower-case hex digits; kInvalid otherwise.
  static Result<Sha256> parse(std::string_view hex);
  static Sha256 of(std::string_view bytes);
  std::string hex() const;
  friend auto operator<=>(const Sha256&, const Sha256&) = default;
};

/// One digest over bytes in several pieces. Not thread-safe.
class Sha256Stream {
 public:
  Sha256Stream();
  ~Sha256Stream();
  Sha256Stream(Sha256Stream&&) noexcept;
  void update(std::string_view bytes);
  /// Ends the stream; call once.
  Sha256 finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

std::string hex(std::string_view bytes);
std::string base64(std::string_view bytes);
Result<std::string> unbase64(std::string_view text);
/// Compares in constant time, for tokens.
bool same_secret(std::string_view a, std::string_view b);

}  // namespace varda::codec
