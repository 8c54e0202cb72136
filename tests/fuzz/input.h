// Splits the input of a fuzzer.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace varda::fuzz {

class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size)
      : left_(reinterpret_cast<const char*>(data), size) {}

  /// The bytes up to `end`; consumes `end` too.
  std::string_view until(char end) {
    const std::size_t at = std::min(left_.find(end), left_.size());
    const std::string_view out = left_.substr(0, at);
    left_.remove_prefix(std::min(at + 1, left_.size()));
    return out;
  }
  std::string_view line() { return until('\n'); }
  /// 0 at the end.
  std::uint8_t byte() {
    if (left_.empty()) return 0;
    const auto out = static_cast<std::uint8_t>(left_.front());
    left_.remove_prefix(1);
    return out;
  }
  std::string_view rest() const { return left_; }

 private:
  std::string_view left_;
};

}  // namespace varda::fuzz
