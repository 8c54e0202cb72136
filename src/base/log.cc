#include "base/log.h"

#include <algorithm>
#include <memory>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <utility>

#include "base/log_scope.h"

namespace varda::log {
namespace {

std::string escaped(std::string_view text) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out;
  out.reserve(text.size() + 2);
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (byte < 0x20 || byte == 0x7f) {
      // Control characters in outside text must not reach a terminal.
      out += "\\u00";
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    } else {
      out += c;
    }
  }
  return out;
}

struct Sink {
  Format format = Format::kText;
  Level level = Level::kInfo;
  std::shared_ptr<spdlog::logger> logger;

  Sink() { use(Format::kText, Level::kInfo); }
  void use(Format f, Level l) {
    format = f;
    level = l;
    logger = std::make_shared<spdlog::logger>("varda",
                                              std::make_shared<spdlog::sinks::stderr_sink_mt>());
    logger->set_level(spdlog::level::debug);
    logger->set_formatter(std::make_unique<spdlog::pattern_formatter>(
        format == Format::kText ? "%Y-%m-%dT%H:%M:%S.%eZ %^%L%$ %v"
                                : R"({"time":"%Y-%m-%dT%H:%M:%S.%eZ","level":"%l",%v})",
        spdlog::pattern_time_type::utc));
    logger->flush_on(spdlog::level::debug);
  }
};

Sink& sink() {
  // Never destroyed, because threads may log during the destruction of statics.
  static Sink* const instance = new Sink();
  return *instance;
}

bool plain(std::string_view text) {
  if (text.empty()) return false;
  for (const char c : text) {
    if (c <= ' ' || c == '"' || c == '=' || c == '\\' || c == 0x7f) return false;
  }
  return true;
}

thread_local const Scope* innermost = nullptr;

void append(std::string& line, Format format, const Field& field) {
  if (format == Format::kJson) {
    line += ",\"" + escaped(field.name) + "\":";
    line += field.quoted ? "\"" + escaped(field.value) + "\"" : field.value;
    return;
  }
  line += ' ';
  line += field.name;
  line += '=';
  line += plain(field.value) ? field.value : "\"" + escaped(field.value) + "\"";
}

}  // namespace

Scope::Scope(std::vector<Field> fields)
    : fields_(std::move(fields)), outer_(std::exchange(innermost, this)) {}
Scope::~Scope() { innermost = outer_; }

void configure(Format format, Level level) { sink().use(format, level); }

Result<Level> parse_level(std::string_view text) {
  if (text == "debug") return Level::kDebug;
  if (text == "info") return Level::kInfo;
  if (text == "warn") return Level::kWarn;
  if (text == "error") return Level::kError;
  return Error(Code::kInvalid,
               "log level must be debug, info, warn or error, not \"" + std::string(text) + "\"");
}

void write(Level level, std::string_view message, std::initializer_list<Field> fields) {
  Sink& s = sink();
  if (level < s.level) return;
  std::string line =
      s.format == Format::kJson ? "\"message\":\"" + escaped(message) + "\"" : escaped(message);
  std::vector<std::string_view> named;
  for (const Field& field : fields) {
    append(line, s.format, field);
    named.push_back(field.name);
  }
  for (const Scope* scope = innermost; scope; scope = scope->outer()) {
    for (const Field& field : scope->fields()) {
      if (std::find(named.begin(), named.end(), field.name) != named.end()) continue;
      append(line, s.format, field);
      named.push_back(field.name);
    }
  }
  static constexpr spdlog::level::level_enum kLevels[] = {spdlog::level::debug, spdlog::level::info,
                                                          spdlog::level::warn, spdlog::level::err};
  s.logger->log(kLevels[static_cast<int>(level)], spdlog::string_view_t(line.data(), line.size()));
}

}  // namespace varda::log
