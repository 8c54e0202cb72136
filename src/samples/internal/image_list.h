// Lines of a txt list.
#pragma once

#include <optional>
#include <string_view>

#include "base/result.h"
#include "samples/internal/records.h"

namespace varda::samples::internal {

struct ListLine {
  std::string_view path, label;  // of the record
};

/// `record` has the fields between tabs. Without a tab, the label follows the last blank. Nothing:
/// a line of blanks. kInvalid: no path or no label.
Result<std::optional<ListLine>> parse_list_line(const Record& record);

}  // namespace varda::samples::internal
