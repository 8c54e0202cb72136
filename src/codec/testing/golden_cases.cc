#include "codec/testing/golden_cases.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <gtest/gtest.h>
#include <optional>
#include <set>
#include <string_view>

#include "base/testing/golden.h"
#include "codec/yaml.h"

namespace varda::codec::testing {
namespace {

constexpr std::size_t kColumns = 100;
constexpr std::array<std::string_view, 6> kItemNames = {"key",     "name", "type",
                                                        "version", "url",  "node"};

// Names of an item: KIND/NAME and KIND of an API object, else its first member of kItemNames.
std::vector<std::string> names_of(const Json& item) {
  const std::string& name = item["metadata"]["name"].as_string();
  const std::string& kind = item["kind"].as_string();
  if (!kind.empty() && !name.empty()) return {kind + "/" + name, kind};
  for (const std::string_view member : kItemNames) {
    if (item[member].is_string() && !item[member].as_string().empty())
      return {item[member].as_string()};
  }
  return {};
}

bool is_index(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// The only item of that name or index.
std::optional<std::size_t> find_item(const Json::Array& items, const std::string& text) {
  if (is_index(text)) {
    const std::size_t index = std::stoul(text);
    return index < items.size() ? std::optional(index) : std::nullopt;
  }
  std::optional<std::size_t> found;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const auto names = names_of(items[i]);
    if (std::find(names.begin(), names.end(), text) == names.end()) continue;
    if (found) return std::nullopt;
    found = i;
  }
  return found;
}

std::vector<std::string> segments(std::string_view path) {
  std::vector<std::string> out;
  while (!path.empty()) {
    if (path.front() == '[') {
      const std::size_t end = std::min(path.find(']'), path.size());
      out.emplace_back(path.substr(1, end - 1));
      path.remove_prefix(std::min(end + 1, path.size()));
    } else {
      if (path.front() == '.') path.remove_prefix(1);
      const std::size_t end = std::min(path.find_first_of(".["), path.size());
      out.emplace_back(path.substr(0, end));
      path.remove_prefix(end);
    }
  }
  return out;
}

// An object merges into an object, and null removes what exists.
void merge(Json& value, const Json& change) {
  if (!value.is_object() || !change.is_object()) {
    value = change;
    return;
  }
  for (const auto& [name, member] : change.as_object()) {
    Json* existing = value.find(name);
    if (existing == nullptr) {
      value.set(name, member);
    } else if (member.is_null()) {
      value.erase(name);
    } else {
      merge(*existing, member);
    }
  }
}

// False: the path does not fit.
bool put(Json& value, const std::vector<std::string>& path, std::size_t at, const Json& change) {
  if (at == path.size()) {
    merge(value, change);
    return true;
  }
  const bool removes = at + 1 == path.size() && change.is_null();
  if (value.is_array()) {
    Json::Array& items = value.array_items();
    constexpr std::string_view kBefore = " before ";
    std::string name = path[at];
    auto place = items.end();
    if (const std::size_t split = name.find(kBefore); split != std::string::npos) {
      const auto next = find_item(items, name.substr(split + kBefore.size()));
      if (!next) return false;
      place = items.begin() + static_cast<std::ptrdiff_t>(*next);
      name.resize(split);
    }
    const auto found = find_item(items, name);
    if (found && removes) {
      items.erase(items.begin() + static_cast<std::ptrdiff_t>(*found));
      return true;
    }
    if (found) return put(items[*found], path, at + 1, change);
    if (at + 1 != path.size() || removes || is_index(name)) return false;
    items.insert(place, change);
    return true;
  }
  if (value.is_null()) value = Json::object();
  if (!value.is_object()) return false;
  if (removes) return value.erase(path[at]);
  return put(value[path[at]], path, at + 1, change);
}

Json value_at(const Json& value, const std::vector<std::string>& path) {
  Json out = value;
  for (const std::string& name : path) {
    if (out.is_array()) {
      const auto found = find_item(out.as_array(), name);
      out = found ? Json(out.as_array()[*found]) : Json();
    } else {
      out = Json(out[name]);
    }
  }
  return out;
}

// YAML text

enum class Style { kBlock, kFlow };

std::string scalar(const Json& value, Style style) {
  if (!value.is_string()) return write_json(value);
  const std::string& text = value.as_string();
  std::string written = write_yaml(value);
  if (!written.empty() && written.back() == '\n') written.pop_back();
  const bool plain = written == text && text.find('\n') == std::string::npos;
  const bool special = text.find_first_of(",[]{}") != std::string::npos || text.starts_with('-') ||
                       text.starts_with('?') || text.starts_with(':');
  return plain && (style == Style::kBlock || !special) ? text : write_json(value);
}

std::string flow(const Json& value) {
  std::string out;
  if (value.is_object()) {
    for (const auto& [name, member] : value.as_object())
      out += (out.empty() ? "" : ", ") + scalar(name, Style::kFlow) + ": " + flow(member);
    return "{" + out + "}";
  }
  if (value.is_array()) {
    for (const Json& item : value.as_array()) out += (out.empty() ? "" : ", ") + flow(item);
    return "[" + out + "]";
  }
  return scalar(value, Style::kFlow);
}

// Appends lines for `prefix` and the value; `prefix` ends with ':' or '-'.
void write_block(const Json& value, std::size_t indent, const std::string& prefix,
                 std::string& out) {
  if (!value.is_object() && !value.is_array()) {
    out += prefix + " " + scalar(value, Style::kBlock) + "\n";
    return;
  }
  const std::string line = prefix + " " + flow(value);
  if (value.empty() || line.size() <= kColumns) {
    out += line + "\n";
    return;
  }
  const bool item = prefix.back() == '-';
  const std::string margin(indent + 2, ' ');
  if (value.is_object()) {
    bool first = item;
    if (!item) out += prefix + "\n";
    for (const auto& [name, member] : value.as_object()) {
      write_block(member, indent + 2,
                  (first ? prefix + " " : margin) + scalar(name, Style::kBlock) + ":", out);
      first = false;
    }
    return;
  }
  out += prefix + "\n";
  const std::size_t inner = item ? indent + 2 : indent;
  for (const Json& one : value.as_array())
    write_block(one, inner, std::string(inner, ' ') + "-", out);
}

std::string write_entry(const std::string& path, const Json& value) {
  std::string out;
  write_block(value, 2, "  " + scalar(path, Style::kBlock) + ":", out);
  return out;
}

// Differences

struct Cost {
  std::size_t lines = 0, characters = 0;
  auto operator<=>(const Cost&) const = default;
};

Cost cost(const Difference& difference) {
  Cost out;
  for (const auto& [path, value] : difference) {
    const std::string text = write_entry(path, value);
    out.lines += static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
    out.characters += text.size();
  }
  return out;
}

std::string member_path(const std::string& path, const std::string& name) {
  const bool plain = !name.empty() && std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '-';
  });
  if (!plain) return path + "[" + name + "]";
  return path.empty() ? name : path + "." + name;
}

Json merge_patch(const Json& from, const Json& to) {
  if (!from.is_object() || !to.is_object()) return to;
  Json out = Json::object();
  for (const auto& [name, member] : from.as_object())
    if (!to.contains(name)) out.set(name, Json());
  for (const auto& [name, member] : to.as_object()) {
    const Json* before = from.find(name);
    if (before == nullptr) {
      out.set(name, member);
    } else if (*before != member) {
      out.set(name, merge_patch(*before, member));
    }
  }
  return out;
}

// One name for each item; nothing if items have none or share one.
std::optional<std::vector<std::string>> item_names(const Json::Array& items) {
  std::vector<std::string> out;
  for (const Json& item : items) {
    const auto names = names_of(item);
    if (names.empty()) return std::nullopt;
    const bool by_kind = names.size() == 2 && find_item(items, names[1]).has_value();
    out.push_back(by_kind ? names[1] : names[0]);
    if (is_index(out.back()) || out.back().find(']') != std::string::npos) return std::nullopt;
  }
  if (std::set<std::string>(out.begin(), out.end()).size() != out.size()) return std::nullopt;
  return out;
}

Difference difference_of(const Json& from, const Json& to, const std::string& path);

void append(Difference& out, Difference more) {
  out.insert(out.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
}

// Item by item by name. Nothing if that does not lead to `to`.
std::optional<Difference> by_names(const Json& from, const Json& to, const std::string& path) {
  const auto before = item_names(from.as_array()), after = item_names(to.as_array());
  if (!before || !after) return std::nullopt;
  const auto contains = [](const std::vector<std::string>& names, const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  Difference out;
  for (const std::string& name : *before)
    if (!contains(*after, name)) out.emplace_back(path + "[" + name + "]", Json());
  for (std::size_t i = 0; i < after->size(); ++i) {
    const std::string& name = (*after)[i];
    if (const auto was = std::find(before->begin(), before->end(), name); was != before->end()) {
      append(out, difference_of(from.as_array()[static_cast<std::size_t>(was - before->begin())],
                                to.as_array()[i], path + "[" + name + "]"));
      continue;
    }
    std::string next;
    for (std::size_t j = i + 1; j < after->size() && next.empty(); ++j)
      if (contains(*before, (*after)[j])) next = " before " + (*after)[j];
    out.emplace_back(path + "[" + name + next + "]", to.as_array()[i]);
  }
  Difference relative;
  for (const auto& [whole, value] : out)
    relative.emplace_back("x" + whole.substr(path.size()), value);
  const auto applied = apply_difference(Json::object({{"x", from}}), relative);
  if (!applied.ok() || (*applied)["x"] != to) return std::nullopt;
  return out;
}

Difference difference_of(const Json& from, const Json& to, const std::string& path) {
  if (from == to) return {};
  const Difference whole = {{path, to}};
  if (from.is_object() && to.is_object()) {
    Difference members;
    for (const auto& [name, member] : from.as_object())
      if (!to.contains(name)) members.emplace_back(member_path(path, name), Json());
    for (const auto& [name, member] : to.as_object()) {
      if (const Json* before = from.find(name)) {
        append(members, difference_of(*before, member, member_path(path, name)));
      } else {
        members.emplace_back(member_path(path, name), member);
      }
    }
    if (path.empty() || members.size() == 1) return members;
    Difference merged = {{path, merge_patch(from, to)}};
    return cost(merged) < cost(members) ? merged : members;
  }
  if (!from.is_array() || !to.is_array()) return whole;
  Difference best = whole;
  if (from.size() == to.size()) {
    Difference items;
    for (std::size_t i = 0; i < to.size(); ++i)
      append(items, difference_of(from.as_array()[i], to.as_array()[i],
                                  path + "[" + std::to_string(i) + "]"));
    if (cost(items) < cost(best)) best = std::move(items);
  }
  // Names read better than indexes.
  if (auto named = by_names(from, to, path); named && cost(*named).lines <= cost(best).lines)
    best = std::move(*named);
  return best;
}

std::vector<std::string> lines_of(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::vector<std::string> out;
  for (std::string line; std::getline(in, line);) out.push_back(line);
  return out;
}

std::string text_of(const std::filesystem::path& file) {
  std::ifstream in(file);
  return std::string((std::istreambuf_iterator<char>(in)), {});
}

}  // namespace

Result<Json> apply_difference(Json value, const Difference& difference) {
  for (const auto& [path, change] : difference) {
    if (!put(value, segments(path), 0, change))
      return Error(Code::kInvalid, "nothing to change at " + path);
  }
  return value;
}

Difference make_difference(const Json& from, const Json& to) { return difference_of(from, to, ""); }

std::string write_difference(const Difference& difference) {
  std::string out;
  for (const auto& [path, value] : difference) out += write_entry(path, value);
  return out;
}

GoldenCases::GoldenCases(std::filesystem::path folder) : folder_(std::move(folder)) {
  std::vector<std::filesystem::path> files;
  std::error_code missing;
  for (const auto& entry : std::filesystem::directory_iterator(folder_, missing))
    files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  for (const auto& file : files) read(file);
  for (const std::string& name : order_) expand(name, documents_);
  if (order_.empty()) complain(folder_.string() + " has no cases");
}

void GoldenCases::read(const std::filesystem::path& file) {
  if (file.extension() != ".yaml") return complain(file.string() + " is not a .yaml file");
  auto documents = parse_yaml_stream(text_of(file));
  if (!documents.ok()) return complain(file.string() + ": " + documents.error().message());
  if (file.filename() == "objects.yaml") {
    for (const Json& document : *documents)
      for (const auto& [name, object] : document.as_object()) library_[name] = object;
    return;
  }
  for (const Json& document : *documents) {
    const std::string name = document["name"].as_string();
    const std::string place = file.string() + ": case " + name;
    if (name.empty() || documents_.contains(name)) complain(place + ": needs a name of its own");
    if (document["claim"].as_string().empty()) complain(place + ": claim is missing");
    if (!document["expect"].is_object()) complain(place + ": expect is missing");
    for (const auto& [key, value] : document.as_object()) {
      static const std::set<std::string> kKnown = {"name",    "claim", "from",
                                                   "objects", "given", "expect"};
      if (!kKnown.contains(key)) complain(place + ": unknown key " + key);
    }
    if (documents_.emplace(name, document).second) order_.push_back(name);
    Entry& entry = cases_[name];
    entry.expanded.topic = file.stem();
    entry.expanded.claim = document["claim"].as_string();
  }
}

// Expands the case that it differs from first.
void GoldenCases::expand(const std::string& name, const std::map<std::string, Json>& documents) {
  Entry& entry = cases_.at(name);
  GoldenCase& out = entry.expanded;
  if (!out.name.empty()) return;
  out.name = name;  // set before the recursion, so that a circle ends
  const std::string place = out.topic + "/" + name;
  const Json& document = documents.at(name);
  out.given = out.expect = Json::object();
  if (const std::string& from = document["from"].as_string(); !from.empty()) {
    const std::size_t slash = from.find('/');
    entry.from = slash == std::string::npos ? from : from.substr(slash + 1);
    const std::string topic = slash == std::string::npos ? out.topic : from.substr(0, slash);
    const auto found = cases_.find(entry.from);
    if (found == cases_.end() || found->second.expanded.topic != topic || entry.from == name)
      return complain(place + ": there is no case " + from);
    expand(entry.from, documents);
    out.given = found->second.expanded.given;
    out.expect = found->second.expanded.expect;
  }
  for (const Json& object : document["objects"].as_array()) {
    const std::string& text = object.as_string();
    const std::size_t equals = text.find('=');
    const auto found = library_.find(equals == std::string::npos ? text : text.substr(equals + 1));
    if (found == library_.end()) return complain(place + ": objects.yaml has no " + text);
    out.given.set(text.substr(0, equals), found->second);
  }
  auto given = apply_difference(out.given, document["given"].as_object());
  auto expect = apply_difference(out.expect, document["expect"].as_object());
  if (!given.ok()) return complain(place + ": given: " + given.error().message());
  if (!expect.ok()) return complain(place + ": expect: " + expect.error().message());
  out.given = std::move(given).value();
  out.expect = std::move(expect).value();
}

std::vector<std::string> GoldenCases::names() const {
  return order_.empty() ? std::vector<std::string>{"none"} : order_;
}

const GoldenCase& GoldenCases::at(const std::string& name) const {
  static const GoldenCase kNone;
  EXPECT_EQ(problems_, "");
  const auto found = cases_.find(name);
  EXPECT_NE(found, cases_.end()) << folder_ << " has no case " << name;
  return found == cases_.end() ? kNone : found->second.expanded;
}

void GoldenCases::check(const std::string& name, const Json& actual) {
  const GoldenCase& expected = at(name);
  if (expected.name.empty() || expected.expect == actual) return;
  if (updating_goldens() && problems_.empty()) {
    cases_.at(name).expanded.expect = actual;
    rewrite(name);
    for (const std::string& other : order_)
      if (cases_.at(other).from == name) rewrite(other);  // keeps what it expects
    ADD_FAILURE() << expected.topic << "/" << name
                  << " is rewritten: read the difference, then run the test without UPDATE_GOLDEN";
    return;
  }
  std::string differences;
  for (const auto& [path, value] : make_difference(expected.expect, actual)) {
    const auto names = segments(path);
    differences += path + "\n  expected: " + flow(value_at(expected.expect, names)) +
                   "\n  actual:   " + flow(value_at(actual, names)) + "\n";
  }
  ADD_FAILURE() << (folder_ / (expected.topic + ".yaml")).string() << ", case " << name << ": "
                << expected.claim << "\n"
                << differences << "UPDATE_GOLDEN=1 rewrites the expectation.";
}

// Replaces the section `expect` of the case's document.
void GoldenCases::rewrite(const std::string& name) {
  const Entry& entry = cases_.at(name);
  const Json from = entry.from.empty() ? Json::object() : cases_.at(entry.from).expanded.expect;
  const Difference difference = make_difference(from, entry.expanded.expect);
  const std::filesystem::path file = folder_ / (entry.expanded.topic + ".yaml");
  std::string out;
  bool in_case = false, inside = false;
  for (const std::string& line : lines_of(file)) {
    if (line == "---") in_case = false;
    if (line == "name: " + name) in_case = true;
    if (inside && !line.empty() && line.front() != ' ') inside = false;
    if (inside) continue;
    if (in_case && line.starts_with("expect:")) {
      inside = true;
      out += difference.empty() ? "expect: {}\n" : "expect:\n" + write_difference(difference);
      continue;
    }
    out += line + "\n";
  }
  std::ofstream(file, std::ios::binary) << out;
}

}  // namespace varda::codec::testing
