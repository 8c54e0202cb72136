#include "samples/internal/records.h"

#include <algorithm>

namespace varda::samples::internal {

Result<std::optional<std::size_t>> Record::parse(std::string_view text, bool last) {
  text_.clear();
  ends_.clear();
  blank_ = false;
  const auto unfinished = [] { return std::optional<std::size_t>(); };
  const char delimiter = dialect_.delimiter, quote_mark = dialect_.quotes ? '"' : '\n';
  const auto ends_text = [&](char c) {
    return c == delimiter || c == '\n' || c == quote_mark || c == '\0';
  };
  std::size_t at = 0;
  for (;;) {
    // One field, from its start on.
    if (dialect_.quotes && at < text.size() && text[at] == '"') {
      for (++at;;) {
        const std::size_t quote = text.find('"', at);
        if (quote == std::string_view::npos) {
          if (!last) return unfinished();
          return Error(Code::kInvalid, "a quoted field is not closed before the end of the file");
        }
        const std::string_view part = text.substr(at, quote - at);
        if (part.find('\0') != std::string_view::npos) return Error(Code::kInvalid, "a NUL byte");
        text_ += part;
        at = quote + 1;
        if (at == text.size() && !last) return unfinished();
        if (at == text.size() || text[at] != '"') break;
        text_ += '"';
        ++at;
      }
      const bool cr = at < text.size() && text[at] == '\r';
      if (cr && at + 1 == text.size() && !last) return unfinished();
      if (cr && (at + 1 == text.size() || text[at + 1] == '\n')) ++at;
      if (at < text.size() && text[at] != dialect_.delimiter && text[at] != '\n')
        return Error(Code::kInvalid, "text between a closing quote and the end of the field");
    } else {
      const auto end = static_cast<std::size_t>(
          std::find_if(text.begin() + static_cast<std::ptrdiff_t>(at), text.end(), ends_text) -
          text.begin());
      if (end == text.size() && !last) return unfinished();
      if (end < text.size() && text[end] == '\0') return Error(Code::kInvalid, "a NUL byte");
      if (end < text.size() && text[end] == '"' && dialect_.quotes)
        return Error(Code::kInvalid, "a quote inside an unquoted field");
      std::string_view field = text.substr(at, end - at);
      const bool ends_record = end == text.size() || text[end] == '\n';
      if (ends_record && field.ends_with('\r')) field.remove_suffix(1);
      blank_ = ends_record && ends_.empty() && field.empty();
      text_ += field;
      at = end;
    }
    ends_.push_back(text_.size());
    if (at == text.size()) return std::optional(at);
    if (text[at++] == '\n') return std::optional(at);
  }
}

}  // namespace varda::samples::internal
