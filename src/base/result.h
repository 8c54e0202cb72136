// Result<T>: a value or an Error the caller can act on. Used instead of exceptions. Result<T, E>
// has another type of error, such as a complete Kubernetes Status.
//
//   Result<Config> load(const std::filesystem::path& path) {
//     TRY(std::string text, read(path));
//     TRY_VOID(check(text));
//     return parse(text);
//   }
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

#include "base/check.h"

namespace varda {

/// The caller's possible reaction to a failure. Details go into the message, never into a new code.
enum class Code : std::uint8_t {
  kInvalid,          // the request or the input is wrong: change it
  kNotFound,         // the object does not exist
  kAlreadyExists,    // the object exists already
  kConflict,         // a concurrent change: read again and retry
  kGone,             // that revision is compacted: start over from the present (410)
  kUnauthenticated,  // the client has no valid identity
  kForbidden,        // the client is known but not allowed
  kExhausted,        // a limit or a resource (disk, memory, queue, size) is used up
  kCorrupt,          // bytes are not what they must be (digest, checksum, torn file)
  kUnavailable,      // not now: network, peer or lock; try again
  kTimeout,          // the deadline passed
  kCancelled,        // a stop was requested
  kUnsupported,      // will never work here: this build, engine or platform lacks it
  kInternal,         // a bug, or an external fault that fits no other code
};

/// The code's name in logs and metrics: "not_found".
std::string_view to_string(Code code);

/// Code, message, and whether a retry without changes can succeed.
class Error {
 public:
  /// Terminal by default for kInvalid and kUnsupported: the same input will fail again.
  Error(Code code, std::string message);

  Code code() const { return code_; }
  const std::string& message() const { return message_; }
  bool terminal() const { return terminal_; }

  /// Prefixes the message with "what: " (the object, file or peer).
  Error context(std::string_view what) const&;
  Error context(std::string_view what) &&;
  Error as_terminal(bool terminal = true) && {
    terminal_ = terminal;
    return std::move(*this);
  }

  friend bool operator==(const Error&, const Error&) = default;

 private:
  Code code_;
  bool terminal_;
  std::string message_;
};

std::ostream& operator<<(std::ostream& out, const Error& error);

template <typename T, typename E = Error>
class [[nodiscard]] Result {
 public:
  using value_type = T;
  Result(T value)
      : state_(std::in_place_index<0>, std::move(value)) {}  // NOLINT: conversions are the point
  Result(E error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT
  template <typename U>
  requires(std::is_convertible_v<U&&, T> && !std::is_same_v<std::remove_cvref_t<U>, Result> &&
           !std::is_same_v<std::remove_cvref_t<U>, T> && !std::is_same_v<std::remove_cvref_t<U>, E>)
      Result(U&& value)
      : state_(std::in_place_index<0>, std::forward<U>(value)) {}  // NOLINT

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  T& value() & {
    require_value();
    return *std::get_if<0>(&state_);
  }
  const T& value() const& {
    require_value();
    return *std::get_if<0>(&state_);
  }
  // Returns by value, not T&&, so that `for (auto& x : f().value())` is safe.
  T value() && {
    require_value();
    return std::move(*std::get_if<0>(&state_));
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  T value_or(T other) && { return ok() ? std::move(*this).value() : std::move(other); }
  T value_or(T other) const& { return ok() ? value() : std::move(other); }

  const E& error() const& {
    CHECK(!ok());
    return *std::get_if<1>(&state_);
  }
  E error() && {
    CHECK(!ok());
    return std::move(*std::get_if<1>(&state_));
  }

  /// The same result, with the prefix "what: " for the message of an error.
  Result context(std::string_view what) && requires std::is_same_v<E, Error> {
    if (ok()) return std::move(*this);
    return std::move(*this).error().context(what);
  }

 private:
  // Prints the error's message when value() is called on an error, to help find the bug.
  void require_value() const {
    if constexpr (std::is_same_v<E, Error>) {
      if (!ok())
        detail::check_failed("Result::value()", std::get_if<1>(&state_)->message().c_str(), 0);
    } else {
      CHECK(ok());
    }
  }
  std::variant<T, E> state_;
};

/// Success or an error.
template <typename E>
class [[nodiscard]] Result<void, E> {
 public:
  using value_type = void;
  Result() = default;
  Result(E error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT
  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }
  const E& error() const& {
    CHECK(!ok());
    return *std::get_if<1>(&state_);
  }
  E error() && {
    CHECK(!ok());
    return std::move(*std::get_if<1>(&state_));
  }
  Result context(std::string_view what) && requires std::is_same_v<E, Error> {
    if (ok()) return {};
    return std::move(*this).error().context(what);
  }

 private:
  std::variant<std::monostate, E> state_;
};

using Status = Result<void>;
inline Status ok_status() { return {}; }

}  // namespace varda

#define VARDA_CONCAT_INNER(a, b) a##b
#define VARDA_CONCAT(a, b) VARDA_CONCAT_INNER(a, b)

/// TRY(auto x, f()): x is the value of f(); on an error, the function returns it.
#define TRY(declaration, ...) \
  VARDA_TRY_IMPL(VARDA_CONCAT(try_result_, __COUNTER__), declaration, __VA_ARGS__)
#define VARDA_TRY_IMPL(result, declaration, ...) \
  auto result = (__VA_ARGS__);                   \
  if (!result.ok()) [[unlikely]]                 \
    return std::move(result).error();            \
  declaration = std::move(result).value()

/// TRY_VOID(f()): returns f()'s error, if any.
#define TRY_VOID(...)                                                   \
  do {                                                                  \
    if (auto try_status = (__VA_ARGS__); !try_status.ok()) [[unlikely]] \
      return std::move(try_status).error();                             \
  } while (false)
