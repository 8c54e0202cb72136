// Output formats of objects: tables, YAML, JSON, names, JSONPath. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "codec/json.h"

namespace varda::cli {

using codec::Json;

/// The value of -o.
struct Output {
  enum class Form { kTable, kWide, kYaml, kJson, kName, kJsonPath };
  Form form = Form::kTable;
  std::string path;  // for kJsonPath

  /// "", wide, yaml, json, name, jsonpath=TEMPLATE. kInvalid otherwise.
  static Result<Output> parse(std::string_view text);
  bool table() const { return form == Form::kTable || form == Form::kWide; }
};

/// Replaces control characters in untrusted text by '?', so that the text cannot move the
/// terminal's cursor.
std::string harmless(std::string_view text);

/// Aligns cells in columns, three blanks apart, without trailing blanks.
std::string align(const std::vector<std::vector<std::string>>& rows);
/// The same, with columns at least as wide as `widths`. Updates `widths`, so that later lines align
/// too.
std::string align(const std::vector<std::vector<std::string>>& rows,
                  std::vector<std::size_t>& widths);

struct TableOptions {
  bool wide = false;
  bool headers = true;
  bool namespaces = false;  // adds a first column NAMESPACE
  std::string name_prefix;  // "pod/": for listings of several kinds
};
/// Prints a meta/v1 Table like kubectl. To join several tables, print the later ones without
/// headers.
std::string print_table(const Json& table, const TableOptions& options);
std::string print_table(const Json& table, const TableOptions& options,
                        std::vector<std::size_t>& widths);

/// Any form except tables. Lists (kind ...List) print every item with kName.
Result<std::string> print_object(const Json& object, const Output& output);

/// kubectl's JSONPath, common subset: "{.items[*].metadata.name}", ".status.url", "[0]", "['a.b']",
/// "[?(@.type=='Ready')]", text around braces, {"\n"} and {range}…{end}. Missing fields print
/// nothing. kInvalid: unknown syntax, with its position.
Result<std::string> evaluate_jsonpath(std::string_view path_template, const Json& object);

/// Time of the event's last occurrence.
const Json& last_seen(const Json& event);
/// Orders events by time, then by resourceVersion.
bool earlier_event(const Json& a, const Json& b);

/// Human-readable view of one object: metadata, spec and status as indented text, conditions as a
/// table. Then the events about this object (same group and uid), oldest first.
std::string describe(const Json& object, const std::vector<Json>& events, WallTime now);

}  // namespace varda::cli
