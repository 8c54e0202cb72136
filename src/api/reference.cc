// The reference page of a kind: one table per struct, in reading order.

#include <algorithm>
#include <deque>
#include <map>
#include <set>

#include "api/internal/categories.h"
#include "api/kind.h"
#include "base/text.h"

namespace varda::api {

namespace {

// A '|' would end the cell.
std::string cell(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '|') out += '\\';
    out += c;
  }
  return out;
}

// One space between words becomes the end of a line where the line would exceed 100 columns.
std::string wrapped(std::string_view text) {
  constexpr std::size_t kColumns = 100;
  std::string out;
  for (std::size_t column = 0; !text.empty();) {
    const std::string_view word = text.substr(0, text.find(' '));
    if (column != 0) {
      const bool fits = column + 1 + word.size() <= kColumns;
      out += fits ? ' ' : '\n';
      column = fits ? column + 1 : 0;
    }
    out += word;
    column += word.size();
    text.remove_prefix(std::min(word.size() + 1, text.size()));
  }
  return out;
}

std::string code(std::string_view text) { return "`" + cell(text) + "`"; }

bool has_table(const Schema& schema) { return !schema.properties.empty(); }

std::string type_text(const Schema& schema) {
  if (schema.type == Schema::Type::kArray) return "list of " + type_text(*schema.items);
  if (schema.additional) return "map of " + type_text(*schema.additional);
  if (schema.type == Schema::Type::kObject || schema.type == Schema::Type::kAny) return "object";
  return std::string(type_name(schema.type)) + (schema.format == "date-time" ? " (time)" : "");
}

std::string codes(const std::vector<std::string>& values) {
  return join(values, ", ", [](const auto& value) { return code(value); });
}

std::string constraints(const Schema& schema) {
  std::vector<std::string> parts;
  if (schema.initial) parts.push_back("default " + code(codec::write_json(*schema.initial)));
  if (!schema.one_of.empty()) parts.push_back("one of " + codes(schema.one_of));
  if (schema.minimum && schema.maximum) {
    parts.push_back("from " + std::to_string(*schema.minimum) + " to " +
                    std::to_string(*schema.maximum));
  }
  if (!schema.pattern.empty()) parts.push_back("matches " + code(schema.pattern));
  if (schema.length_max) {
    const std::string least =
        schema.length_min ? std::to_string(*schema.length_min) + " to " : "at most ";
    parts.push_back(least + std::to_string(*schema.length_max) + " characters");
  }
  if (schema.items_max) {
    const std::string least =
        schema.items_min ? std::to_string(*schema.items_min) + " to " : "at most ";
    parts.push_back(least + std::to_string(*schema.items_max) + " items");
  }
  if (!schema.list_keys.empty()) parts.push_back("unique by " + codes(schema.list_keys));
  if (!has_table(schema)) {
    for (const Rule& rule : schema.rules) parts.push_back(cell(rule.message));
  }
  return join(parts, "; ");
}

struct Section {
  std::string path;  // "spec.manifest[]"
  const Schema* schema;
};

using Shown = std::map<std::string, std::string>;  // schema as text -> section with its table

/// The earlier section with a table of the same members; "": none. Small tables are repeated,
/// because a repeated table is easier to read than a reference.
std::string shown_before(const Section& section, Shown& shown) {
  if (section.schema->properties.size() < 6) return "";
  Json members = to_openapi(*section.schema);
  members.erase("description");
  const auto [at, first] = shown.emplace(codec::write_json(members), section.path);
  return first ? "" : at->second;
}

void write_section(const Section& section, std::string& out, std::deque<Section>& below,
                   Shown& shown) {
  out += "## " + (section.path.empty() ? std::string("The object") : section.path) + "\n\n";
  if (!section.schema->description.empty() && !section.path.empty())
    out += wrapped(section.schema->description) + "\n\n";
  if (const std::string where = shown_before(section, shown); !where.empty()) {
    out += "The members are those of " + code(where) + ".\n\n";
    return;
  }
  out += "| field | type | constraints | description |\n|---|---|---|---|\n";
  std::deque<Section> nested;
  for (const Property& property : section.schema->properties) {
    const Schema& schema = property.schema;
    out += "| " + code(property.name) + (property.required ? " (required)" : "") + " | " +
           type_text(schema) + " | " + constraints(schema) + " | " + cell(schema.description) +
           " |\n";
    const std::string path = (section.path.empty() ? "" : section.path + ".") + property.name;
    if (has_table(schema)) nested.push_back({path, &schema});
    if (schema.items && has_table(*schema.items))
      nested.push_back({path + "[]", schema.items.get()});
  }
  out += "\n";
  if (!section.schema->rules.empty()) {
    out += "Rules:\n\n| field | rule |\n|---|---|\n";
    std::set<std::string> written;  // several values of a member may have the same rule
    for (const Rule& rule : section.schema->rules) {
      const std::string line = "| " +
                               (rule.field_path.empty() ? std::string("`metadata.name`")
                                                        : code(rule.field_path.substr(1))) +
                               " | " + rule.message + " |\n";
      if (written.insert(line).second) out += line;
    }
    out += "\n";
  }
  below.insert(below.begin(), nested.begin(), nested.end());
}

}  // namespace

std::string reference_page(const Kind& kind) {
  const meta::Resource& resource = kind.resource;
  std::string out =
      "# " + resource.kind +
      "\n\n<!-- Generated from src/api by `UPDATE_GOLDEN=1 api_test`. Do not edit. -->\n\n";
  out += kind.schema->description + "\n\n";
  out += "| | |\n|---|---|\n";
  out += "| apiVersion | " + code(resource.api_version()) + " |\n";
  const std::vector<std::string> categories = internal::categories_of(kind);
  out += "| resource | " + code(resource.plural) +
         (kind.short_names.empty() ? "" : ", short " + codes(kind.short_names)) +
         (categories.size() == 1 ? ", category " : ", categories ") + codes(categories) + " |\n";
  out += std::string("| scope | ") + (resource.namespaced ? "namespaced" : "cluster") + " |\n";
  out += std::string("| subresources | `status`") + (kind.scale ? ", `scale`" : "") + " |\n";
  std::vector<std::string> columns;
  for (const PrinterColumn& column : kind.columns)
    columns.push_back(column.name + (column.priority == 0 ? "" : " (wide)"));
  out += "| columns | " + codes(columns) + " |\n\n";
  if (!kind.notes.empty()) {
    out += "Notes:\n\n";
    for (const std::string& note : kind.notes) out += "- " + note + "\n";
    out += "\n";
  }
  std::deque<Section> sections{{"", kind.schema}};
  Shown shown;
  while (!sections.empty()) {
    const Section section = sections.front();
    sections.pop_front();
    write_section(section, out, sections, shown);
  }
  out.pop_back();  // exactly one newline at the end
  return out;
}

}  // namespace varda::api
