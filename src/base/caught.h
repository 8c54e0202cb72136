// Helpers for exceptions of libraries, where one would otherwise end a thread.
#pragma once

#include <exception>
#include <new>
#include <string>

#include "base/log.h"
#include "base/result.h"

namespace varda {

/// The exception being handled as an Error; valid only within a catch block. kExhausted:
/// std::bad_alloc.
inline Error caught_error() {
  try {
    std::rethrow_exception(std::current_exception());
  } catch (const std::bad_alloc&) {
    return {Code::kExhausted, "out of memory"};
  } catch (const std::exception& e) {
    return {Code::kInternal, e.what()};
  } catch (...) {
    return {Code::kInternal, "unknown exception"};
  }
}

/// Calls `work`; logs an escaping exception as `event`.
template <typename Work>
void contain(const char* event, Work&& work) {
  try {
    work();
  } catch (...) {
    try {
      log::error(event, {{"error", caught_error()}});
    } catch (...) {  // not even memory for the log line
    }
  }
}

}  // namespace varda
