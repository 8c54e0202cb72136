#include "base/result.h"

#include <array>
#include <cstdio>
#include <cstdlib>

namespace varda {

std::string_view to_string(Code code) {
  static constexpr std::array<std::string_view, 14> kNames = {
      "invalid",         "not_found", "already_exists", "conflict", "gone",
      "unauthenticated", "forbidden", "exhausted",      "corrupt",  "unavailable",
      "timeout",         "cancelled", "unsupported",    "internal"};
  return kNames[static_cast<std::size_t>(code)];
}

Error::Error(Code code, std::string message)
    : code_(code),
      terminal_(code == Code::kInvalid || code == Code::kUnsupported),
      message_(std::move(message)) {}

Error Error::context(std::string_view what) const& { return Error(*this).context(what); }

Error Error::context(std::string_view what) && {
  message_ = std::string(what) + ": " + message_;
  return std::move(*this);
}

std::ostream& operator<<(std::ostream& out, const Error& error) {
  return out << to_string(error.code()) << ": " << error.message();
}

namespace detail {
void check_failed(const char* what, const char* where, int line) {
  std::fprintf(stderr, "CHECK failed: %s at %s:%d\n", what, where, line);
  std::fflush(stderr);
  std::abort();
}
}  // namespace detail

}  // namespace varda
