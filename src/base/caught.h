// Exceptions of libraries, at the places where one would end a thread of ours.
#pragma once

#include <exception>
#include <new>
#include <string>

#include "base/log.h"
#include "base/result.h"

namespace varda {

/// The exception being handled; valid within a catch block only. kExhausted: std::bad_alloc.
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

/// Calls `work` and logs an exception that leaves it, under `event`.
template <typename Work>
void contain(const char* event, Work&& work) {
  try {
    work();
  } catch (...) {
    try {
      log::error(event, {{"error", caught_error()}});
    } catch (...) {  // no memory for the log line either
    }
  }
}

}  // namespace varda
