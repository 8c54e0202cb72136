// CHECK: a broken invariant is a bug. On in release builds too. Outside input never reaches one.
#pragma once

namespace varda::detail {
[[noreturn]] void check_failed(const char* what, const char* where, int line);
}  // namespace varda::detail

#define CHECK(condition)                                             \
  do {                                                               \
    if (!(condition)) [[unlikely]]                                   \
      ::varda::detail::check_failed(#condition, __FILE__, __LINE__); \
  } while (false)
