// Counts samples in the simplest way, with the whole text in memory. The reference for the
// scanners.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace varda::dataset::testing {

struct ReferenceCount {
  std::uint64_t samples = 0, malformed = 0;
  std::uint64_t first_line = 0, first_byte = 0;  // of the first malformed record
};

/// csv as the design note defines it, without a header.
inline ReferenceCount reference_csv(std::string_view text, char delimiter, char quote) {
  std::size_t begin = text.starts_with("\xEF\xBB\xBF") ? 3 : 0;
  ReferenceCount out;
  std::uint64_t line = 1;
  std::size_t expected = 0;
  while (begin < text.size()) {
    // One record: its end, its number of fields, and whether quotes and bytes are valid.
    std::size_t at = begin, fields = 1;
    bool good = true, closed = true;
    for (bool field_begins = true; at < text.size() && text[at] != '\n';) {
      if (field_begins && quote != '\0' && text[at] == quote) {
        field_begins = false;
        closed = false;
        for (++at; at < text.size(); ++at) {
          if (text[at] != quote) continue;
          if (at + 1 < text.size() && text[at + 1] == quote) {
            ++at;
            continue;
          }
          closed = true;
          ++at;
          break;
        }
        if (!closed) break;
        const bool ends = at == text.size() || text[at] == delimiter || text[at] == '\n' ||
                          (text[at] == '\r' && (at + 1 == text.size() || text[at + 1] == '\n'));
        if (!ends) good = false;
        continue;
      }
      field_begins = text[at] == delimiter;
      if (field_begins) {
        ++fields;
      } else if (quote != '\0' && text[at] == quote) {
        good = false;
      }
      ++at;
    }
    const std::string_view record = text.substr(begin, at - begin);
    if (!record.empty() && record != "\r") {
      if (record.find('\0') != record.npos || !closed) good = false;
      if (expected == 0 && closed) expected = fields;
      if (good && closed && fields == expected) {
        ++out.samples;
      } else if (++out.malformed == 1) {
        out.first_line = line;
        out.first_byte = begin;
      }
    }
    for (const char c : record) line += c == '\n';
    ++line;
    begin = at + 1;
  }
  return out;
}

/// Lines that satisfy `is_sample` are samples; other non-blank lines are malformed.
template <typename IsBlank, typename IsSample>
ReferenceCount reference_lines(std::string_view text, const IsBlank& is_blank,
                               const IsSample& is_sample) {
  std::size_t begin = text.starts_with("\xEF\xBB\xBF") ? 3 : 0;
  ReferenceCount out;
  for (std::uint64_t line = 1; begin < text.size(); ++line) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view record = text.substr(begin, end - begin);
    if (!is_blank(record)) {
      if (is_sample(record)) {
        ++out.samples;
      } else if (++out.malformed == 1) {
        out.first_line = line;
        out.first_byte = begin;
      }
    }
    begin = end + 1;
  }
  return out;
}

}  // namespace varda::dataset::testing
