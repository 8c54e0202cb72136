#include "cli/printer.h"

#include <algorithm>

#include "base/text.h"
#include "codec/text.h"
#include "codec/yaml.h"
#include "meta/object.h"

namespace varda::cli {
namespace {

std::string upper(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c;
  return out;
}

/// Like kubectl, shows an absent cell as empty.
std::string shown(const Json& cell) {
  return cell.is_null() ? "" : harmless(cell.is_string() ? cell.as_string() : write_json(cell));
}

std::string age(const Json& time, WallTime now) {
  auto then = meta::parse_time(time.as_string());
  if (!then.ok()) return "<unknown>";
  return meta::format_age(std::chrono::duration_cast<std::chrono::seconds>(now - *then));
}

std::string indent(std::string_view text, std::string_view margin) {
  std::string out;
  for (std::size_t from = 0; from < text.size();) {
    const std::size_t end = std::min(text.find('\n', from), text.size());
    out += margin;
    out += text.substr(from, end - from);
    out += '\n';
    from = end + 1;
  }
  return out;
}

std::string kind_path(const Json& object) {
  const std::string& api = object["apiVersion"].as_string();
  const std::string kind = lower(object["kind"].as_string());
  const auto slash = api.find('/');
  return slash == std::string::npos ? kind : kind + "." + api.substr(0, slash);
}

}  // namespace

Result<Output> Output::parse(std::string_view text) {
  if (text.empty()) return Output{};
  if (text == "wide") return Output{.form = Form::kWide, .path = {}};
  if (text == "yaml") return Output{.form = Form::kYaml, .path = {}};
  if (text == "json") return Output{.form = Form::kJson, .path = {}};
  if (text == "name") return Output{.form = Form::kName, .path = {}};
  if (text == "jsonpath=")
    return Error(Code::kInvalid, "-o jsonpath= needs a template, like jsonpath={.status.url}");
  if (text.rfind("jsonpath=", 0) == 0)
    return Output{.form = Form::kJsonPath, .path = std::string(text.substr(9))};
  return Error(Code::kInvalid, "-o takes wide, yaml, json, name or jsonpath=TEMPLATE, not \"" +
                                   std::string(text) + "\"");
}

std::string harmless(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return out;
}

std::string align(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths;
  return align(rows, widths);
}

std::string align(const std::vector<std::vector<std::string>>& rows,
                  std::vector<std::size_t>& widths) {
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i)
      widths[i] = std::max(widths[i], codec::utf8_length(row[i]));
  }
  std::string out;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      line += row[i];
      if (i + 1 < row.size()) line.append(widths[i] - codec::utf8_length(row[i]) + 3, ' ');
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

std::string print_table(const Json& table, const TableOptions& options) {
  std::vector<std::size_t> widths;
  return print_table(table, options, widths);
}

std::string print_table(const Json& table, const TableOptions& options,
                        std::vector<std::size_t>& widths) {
  std::vector<std::vector<std::string>> rows;
  const auto visible = [&](const Json& column) {
    return options.wide || column["priority"].as_integer() == 0;
  };
  const Json::Array& columns = table["columnDefinitions"].as_array();
  if (options.headers) {
    std::vector<std::string>& header = rows.emplace_back();
    if (options.namespaces) header.push_back("NAMESPACE");
    for (const Json& column : columns) {
      if (visible(column)) header.push_back(upper(column["name"].as_string()));
    }
  }
  for (const Json& item : table["rows"].as_array()) {
    std::vector<std::string>& row = rows.emplace_back();
    if (options.namespaces) row.push_back(shown(item.at("object/metadata/namespace")));
    const Json::Array& cells = item["cells"].as_array();
    for (std::size_t i = 0; i < columns.size() && i < cells.size(); ++i) {
      if (visible(columns[i])) row.push_back((i == 0 ? options.name_prefix : "") + shown(cells[i]));
    }
  }
  return align(rows, widths);
}

Result<std::string> print_object(const Json& object, const Output& output) {
  switch (output.form) {
    case Output::Form::kYaml:
      return codec::write_yaml(object);
    case Output::Form::kJson:
      return codec::write_json_pretty(object, 4) + "\n";
    case Output::Form::kJsonPath:
      return evaluate_jsonpath(output.path, object);
    default:
      break;
  }
  if (!object["items"].is_array())
    return kind_path(object) + "/" + object.at("metadata/name").as_string() + "\n";
  std::string out;
  for (const Json& item : object["items"].as_array())
    out += kind_path(item) + "/" + item.at("metadata/name").as_string() + "\n";
  return out;
}

namespace {

std::string_view group_of(std::string_view api_version) {
  const std::size_t slash = api_version.find('/');
  return slash == std::string_view::npos ? std::string_view() : api_version.substr(0, slash);
}

/// True if the event's reference matches the object. Two groups may have kinds of the same name,
/// and a recreated object has a new uid. Kubelets use a Node's name as uid, so Nodes match by name.
bool refers_to(const Json& reference, const Json& object) {
  const std::string& version = reference["apiVersion"].as_string();
  const std::string& uid = reference["uid"].as_string();
  const std::string& own_uid = object.at("metadata/uid").as_string();
  const bool same_group =
      version.empty() || group_of(version) == group_of(object["apiVersion"].as_string());
  return same_group &&
         (uid.empty() || own_uid.empty() || uid == own_uid || object["kind"].as_string() == "Node");
}

}  // namespace

const Json& last_seen(const Json& event) {
  return event["lastTimestamp"].is_null() ? event.at("metadata/creationTimestamp")
                                          : event["lastTimestamp"];
}

bool earlier_event(const Json& a, const Json& b) {
  const std::string &a_time = last_seen(a).as_string(), &b_time = last_seen(b).as_string();
  if (a_time != b_time) return a_time < b_time;
  // Times have whole seconds; within one, resourceVersion orders the writes. Fewer digits mean a
  // smaller number.
  const std::string &a_version = a.at("metadata/resourceVersion").as_string(),
                    &b_version = b.at("metadata/resourceVersion").as_string();
  return a_version.size() != b_version.size() ? a_version.size() < b_version.size()
                                              : a_version < b_version;
}

std::string describe(const Json& object, const std::vector<Json>& events, WallTime now) {
  const Json& metadata = object["metadata"];
  std::vector<std::vector<std::string>> head = {{"Name:", metadata["name"].as_string()}};
  if (metadata.contains("namespace"))
    head.push_back({"Namespace:", metadata["namespace"].as_string()});
  head.push_back(
      {"Kind:", object["kind"].as_string() + " (" + object["apiVersion"].as_string() + ")"});
  const auto pairs = [&](const char* title, const Json& map) {
    bool first = true;
    for (const Json::Member& member : map.as_object()) {
      if (member.first.find("last-applied") != std::string::npos)
        continue;  // a copy of the manifest
      head.push_back({first ? title : "", member.first + "=" + shown(member.second)});
      first = false;
    }
    if (first) head.push_back({title, "<none>"});
  };
  pairs("Labels:", metadata["labels"]);
  pairs("Annotations:", metadata["annotations"]);
  for (const Json& owner : metadata["ownerReferences"].as_array()) {
    if (owner["controller"].as_bool())
      head.push_back(
          {"Controlled By:", owner["kind"].as_string() + "/" + owner["name"].as_string()});
  }
  head.push_back({"Created:", metadata["creationTimestamp"].as_string() + " (" +
                                  age(metadata["creationTimestamp"], now) + " ago)"});
  if (metadata.contains("deletionTimestamp"))
    head.push_back({"Deleting since:", metadata["deletionTimestamp"].as_string()});
  std::string out = align(head);

  for (const Json::Member& member : object.as_object()) {
    if (member.first == "metadata" || member.first == "kind" || member.first == "apiVersion" ||
        member.first == "status")
      continue;
    std::string title = member.first;
    title[0] = upper(title.substr(0, 1))[0];
    out += title + ":\n" + indent(codec::write_yaml(member.second), "  ");
  }
  Json status = object["status"];
  const Json conditions = status["conditions"];
  if (status.is_object()) {
    status.erase("conditions");
    if (!status.empty()) out += "Status:\n" + indent(codec::write_yaml(status), "  ");
  }
  if (!conditions.empty()) {
    std::vector<std::vector<std::string>> rows = {{"TYPE", "STATUS", "REASON", "AGE", "MESSAGE"}};
    for (const Json& c : conditions.as_array()) {
      rows.push_back({shown(c["type"]), shown(c["status"]), shown(c["reason"]),
                      age(c["lastTransitionTime"], now), shown(c["message"])});
    }
    out += "Conditions:\n" + indent(align(rows), "  ");
  }
  std::vector<const Json*> own;
  for (const Json& e : events) {
    if (refers_to(e["involvedObject"], object)) own.push_back(&e);
  }
  if (own.empty()) return out + "Events: <none>\n";
  std::stable_sort(own.begin(), own.end(),
                   [](const Json* a, const Json* b) { return earlier_event(*a, *b); });
  std::vector<std::vector<std::string>> rows = {{"TYPE", "REASON", "AGE", "FROM", "MESSAGE"}};
  for (const Json* e : own) {
    std::string when = age(last_seen(*e), now);
    if ((*e)["count"].as_integer() > 1)
      when += " (x" + std::to_string((*e)["count"].as_integer()) + ")";
    rows.push_back({shown((*e)["type"]), shown((*e)["reason"]), when,
                    e->at("source/component").as_string(), shown((*e)["message"])});
  }
  return out + "Events:\n" + indent(align(rows), "  ");
}

}  // namespace varda::cli
