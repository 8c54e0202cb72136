// CHECK: aborts on a broken invariant, which is a bug. Also on in release builds. Outside input
// never reaches a CHECK.
#pragma once

namespace varda::detail {
[[noreturn]] void check_failed(const char* what, const char* where, int line);
}  // namespace varda::detail

#define CHECK(condition)                                             \
  do {                                                               \
    if (!(condition)) [[unlikely]]                                   \
      ::varda::detail::check_failed(#condition, __FILE__, __LINE__); \
  } while (false)
