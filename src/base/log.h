// Structured logs: a constant message and variable fields, as text or JSON lines on stderr.
//
//   log::info("artifact installed", {{"version", version}, {"bytes", bytes}});
//
// Thread-safe. Never pass fields named token, password, secret or key: there is no redaction.
#pragma once

#include <concepts>
#include <initializer_list>
#include <string>
#include <string_view>

#include "base/result.h"

namespace varda::log {

enum class Level { kDebug, kInfo, kWarn, kError };
enum class Format { kText, kJson };

struct Field {
  std::string_view name;
  std::string value;
  bool quoted = true;  // false: a number or a boolean, written bare in JSON

  Field(std::string_view n, std::string v) : name(n), value(std::move(v)) {}
  Field(std::string_view n, std::string_view v) : name(n), value(v) {}
  Field(std::string_view n, const char* v) : name(n), value(v) {}
  Field(std::string_view n, bool v) : name(n), value(v ? "true" : "false"), quoted(false) {}
  template <typename N>
  requires std::integral<N> || std::floating_point<N> Field(std::string_view n, N v)
      : name(n), value(std::to_string(v)), quoted(false) {}
  Field(std::string_view n, const Error& e)
      : name(n), value(std::string(to_string(e.code())) + ": " + e.message()) {}
};

/// Called once by main(), before threads start. Default: text at level info.
void configure(Format format, Level level);
/// "debug", "info", "warn" or "error"; kInvalid otherwise.
Result<Level> parse_level(std::string_view text);

void write(Level level, std::string_view message, std::initializer_list<Field> fields);
inline void debug(std::string_view message, std::initializer_list<Field> fields = {}) {
  write(Level::kDebug, message, fields);
}
inline void info(std::string_view message, std::initializer_list<Field> fields = {}) {
  write(Level::kInfo, message, fields);
}
inline void warn(std::string_view message, std::initializer_list<Field> fields = {}) {
  write(Level::kWarn, message, fields);
}
inline void error(std::string_view message, std::initializer_list<Field> fields = {}) {
  write(Level::kError, message, fields);
}

}  // namespace varda::log
