// Records of csv and tsv, as room dataset counts them.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace varda::samples::internal {

struct TableDialect {
  char delimiter = ',';
  bool quotes = true;  // RFC 4180; false: a quote is an ordinary character
};

/// The fields of one record. Reused for many records, so that memory is allocated once.
class Record {
 public:
  explicit Record(const TableDialect& dialect) : dialect_(dialect) {}

  /// Parses the record at the start of `text`, and returns its bytes with the line end. Nothing:
  /// the record may continue after `text`, unless `last`. kInvalid: misplaced quotes or a NUL.
  Result<std::optional<std::size_t>> parse(std::string_view text, bool last);

  /// True for an empty line, which is no record.
  bool blank() const { return blank_; }
  std::size_t size() const { return ends_.size(); }
  std::string_view operator[](std::size_t field) const {
    const std::size_t begin = field == 0 ? 0 : ends_[field - 1];
    return std::string_view(text_).substr(begin, ends_[field] - begin);
  }

 private:
  const TableDialect dialect_;
  std::string text_;  // of all fields
  std::vector<std::size_t> ends_;
  bool blank_ = false;
};

}  // namespace varda::samples::internal
