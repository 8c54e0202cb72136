// How objects are shown: tables, YAML, JSON, names, JSONPath. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "codec/json.h"

namespace varda::cli {

using codec::Json;

/// What follows -o.
struct Output {
  enum class Form { kTable, kWide, kYaml, kJson, kName, kJsonPath };
  Form form = Form::kTable;
  std::string path;  // of kJsonPath

  /// "", wide, yaml, json, name, jsonpath=TEMPLATE. kInvalid otherwise.
  static Result<Output> parse(std::string_view text);
  bool table() const { return form == Form::kTable || form == Form::kWide; }
};

/// Text of other parties, with its control characters as '?': it must not move the cursor of who reads it.
std::string harmless(std::string_view text);

/// Cells in columns, three blanks apart, no blank at a line's end.
std::string align(const std::vector<std::vector<std::string>>& rows);
/// The same, with columns at least as wide as `widths`, which learns the new ones: lines that come one after the other line up.
std::string align(const std::vector<std::vector<std::string>>& rows, std::vector<std::size_t>& widths);

struct TableOptions {
  bool wide = false;
  bool headers = true;
  bool namespaces = false;  // a first column NAMESPACE
  std::string name_prefix;  // "pod/": with several kinds in one listing
};
/// A meta/v1 Table as kubectl prints one. Rows of several tables can be joined by asking without headers.
std::string print_table(const Json& table, const TableOptions& options);
std::string print_table(const Json& table, const TableOptions& options, std::vector<std::size_t>& widths);

/// Any form but tables. Lists (kind ...List) print every item with kName.
Result<std::string> print_object(const Json& object, const Output& output);

/// kubectl's JSONPath, the part people use: "{.items[*].metadata.name}", ".status.url", "[0]", "['a.b']", "[?(@.type=='Ready')]",
/// text around braces, {"\n"} and {range}…{end}. Missing fields print nothing. kInvalid: what is not understood, with its position.
Result<std::string> evaluate_jsonpath(std::string_view path_template, const Json& object);

/// When the event was seen last.
const Json& last_seen(const Json& event);
/// Orders events by time, and those of one second by their resourceVersion.
bool happened_before(const Json& a, const Json& b);

/// Human view of one object: metadata, spec and status as indented text, conditions as a table, then those of `events` that speak
/// of this very object (its group and uid), oldest first.
std::string describe(const Json& object, const std::vector<Json>& events, WallTime now);

}  // namespace varda::cli
