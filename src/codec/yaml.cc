#include "codec/yaml.h"

#include <yaml-cpp/yaml.h>

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <sstream>
#include <unordered_map>

namespace varda::codec {
namespace {

bool one_of(std::string_view text, std::initializer_list<std::string_view> words) {
  for (const std::string_view word : words) {
    if (text == word) return true;
  }
  return false;
}

bool is_null_word(std::string_view text) { return one_of(text, {"", "~", "null", "Null", "NULL"}); }
bool is_true_word(std::string_view text) { return one_of(text, {"true", "True", "TRUE", "y", "Y", "yes", "Yes", "YES", "on", "On", "ON"}); }
bool is_false_word(std::string_view text) {
  return one_of(text, {"false", "False", "FALSE", "n", "N", "no", "No", "NO", "off", "Off", "OFF"});
}

std::optional<Json> integer(std::string_view text) {
  bool negative = false;
  std::string_view digits = text;
  if (!digits.empty() && (digits[0] == '-' || digits[0] == '+')) {
    negative = digits[0] == '-';
    digits.remove_prefix(1);
  }
  if (digits.empty()) return std::nullopt;
  int base = 10;
  if (digits.size() > 2 && digits[0] == '0') {
    const char mark = digits[1];
    base = mark == 'x' || mark == 'X' ? 16 : mark == 'o' || mark == 'O' ? 8 : mark == 'b' || mark == 'B' ? 2 : 10;
    if (base != 10) digits.remove_prefix(2);
  }
  std::string clean;
  for (const char c : digits) {
    if (c != '_') clean += c;
  }
  // YAML 1.1: a leading zero makes it octal. File modes are written like this.
  if (base == 10 && clean.size() > 1 && clean[0] == '0') base = 8;
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(clean.data(), clean.data() + clean.size(), value, base);
  if (error != std::errc() || end != clean.data() + clean.size() || clean.empty()) return std::nullopt;
  if (!negative) return Json(value);
  if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()) + 1) return Json(-static_cast<double>(value));
  return Json(static_cast<std::int64_t>(~value + 1));
}

std::optional<Json> floating(std::string_view text) {
  if (text.find_first_of("0123456789") == std::string_view::npos) return std::nullopt;
  if (text.find_first_not_of("0123456789+-.eE_") != std::string_view::npos) return std::nullopt;
  std::string clean;
  for (const char c : text) {
    if (c != '_') clean += c;
  }
  const char* begin = clean.c_str();
  char* end = nullptr;
  const double value = std::strtod(begin, &end);
  if (end != begin + clean.size() || !std::isfinite(value)) return std::nullopt;
  return Json(value);
}

/// What an unquoted scalar means.
Json resolve(const std::string& text) {
  if (is_null_word(text)) return Json();
  if (is_true_word(text)) return Json(true);
  if (is_false_word(text)) return Json(false);
  const char first = text[0];
  if ((first >= '0' && first <= '9') || first == '-' || first == '+' || first == '.') {
    if (auto value = integer(text)) return *value;
    if (auto value = floating(text)) return *value;
  }
  return Json(text);
}

class Converter {
 public:
  explicit Converter(const YamlLimits& limits) : limits_(limits) {}

  Result<Json> convert(const YAML::Node& node, std::size_t depth) {
    if (depth > limits_.depth_max) return at(node, "nested deeper than " + std::to_string(limits_.depth_max) + " levels");
    // Aliases are walked again each time they are used: this is what keeps a few lines from becoming gigabytes.
    if (++nodes_ > limits_.nodes_max) return at(node, "more than " + std::to_string(limits_.nodes_max) + " values");
    switch (node.Type()) {
      case YAML::NodeType::Undefined:
      case YAML::NodeType::Null: return Json();
      case YAML::NodeType::Scalar: return scalar(node);
      case YAML::NodeType::Sequence: {
        Json out = Json::array();
        for (const YAML::Node& item : node) {
          TRY(Json value, convert(item, depth + 1));
          out.push_back(std::move(value));
        }
        return out;
      }
      case YAML::NodeType::Map: return map(node, depth);
    }
    return at(node, "unknown kind of node");
  }

 private:
  static Error at(const YAML::Node& node, const std::string& what) {
    const YAML::Mark mark = node.Mark();
    return Error(Code::kInvalid, "line " + std::to_string(mark.line + 1) + ", column " + std::to_string(mark.column + 1) + ": " + what);
  }

  Result<Json> scalar(const YAML::Node& node) {
    const std::string& tag = node.Tag();
    if (tag == "!" || tag == "tag:yaml.org,2002:str") return Json(node.Scalar());  // "!" is what the parser gives quoted scalars
    if (tag == "tag:yaml.org,2002:binary") return Json(node.Scalar());
    if (tag.empty() || tag == "?" || tag.rfind("tag:yaml.org,2002:", 0) == 0) return resolve(node.Scalar());
    return at(node, "tag " + tag + " is not supported");
  }

  Result<Json> map(const YAML::Node& node, std::size_t depth) {
    Json out = Json::object();
    for (const auto& member : node) {
      if (!member.first.IsScalar() && !member.first.IsNull()) return at(member.first, "a key must be a scalar");
      TRY(Json value, convert(member.second, depth + 1));
      const std::string name = member.first.IsNull() ? "null" : member.first.Scalar();
      if (name == "<<" && value.is_object()) {  // merge key: what stands here explicitly wins
        for (const Json::Member& merged : value.as_object()) {
          if (!out.contains(merged.first)) out.set(merged.first, merged.second);
        }
        merged_ = true;
        continue;
      }
      if (out.contains(name) && !merged_) return at(member.first, "key \"" + name + "\" stands twice");
      out.set(name, std::move(value));
    }
    merged_ = false;
    return out;
  }

  const YamlLimits& limits_;
  std::size_t nodes_ = 0;
  bool merged_ = false;
};

void write_block(const Json& value, int level, std::string& out);

bool must_quote(const std::string& text) {
  if (text.empty() || !resolve(text).is_string()) return true;
  if (one_of(text, {"=", "<<", "---", "..."})) return true;
  if (text.front() == ' ' || text.back() == ' ' || text.back() == ':') return true;
  if (std::string_view("-?:,[]{}#&*!|>'\"%@`").find(text.front()) != std::string_view::npos) {
    // "-x" and "?x" and ":x" are plain; "- x" is not, nor are the other indicators.
    const bool soft = std::string_view("-?:").find(text.front()) != std::string_view::npos;
    if (!soft || text.size() == 1 || text[1] == ' ') return true;
  }
  if (text.find(": ") != std::string::npos || text.find(" #") != std::string::npos) return true;
  // Dates are timestamps to a YAML 1.1 reader.
  if (text.size() >= 10 && text[4] == '-' && text[7] == '-' && text.find_first_not_of("0123456789-TtZz:.+ ") == std::string::npos) return true;
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) return true;
  }
  // Digits with separators: sexagesimal numbers of YAML 1.1 ("12:30") and the like.
  return text.find_first_not_of("0123456789:._+-eExXoO") == std::string::npos && text.find_first_of("0123456789") != std::string::npos;
}

std::string scalar_text(const Json& value) {
  if (!value.is_string()) return write_json(value);
  return must_quote(value.as_string()) ? write_json(value) : value.as_string();
}

bool literal_block(const std::string& text) {
  if (text.find('\n') == std::string::npos || text.front() == ' ' || text.front() == '\n' || text.front() == '\t') return false;
  for (const char c : text) {
    if ((static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t') || c == 0x7f) return false;
  }
  return text.find(" \n") == std::string::npos;
}

/// The value after "key:" or "-", with the line's end.
void write_inline_or_block(const Json& value, int level, bool in_sequence, std::string& out) {
  const std::string margin(static_cast<std::size_t>(level) * 2, ' ');
  if ((value.is_array() || value.is_object()) && !value.empty()) {
    if (in_sequence) {
      // The first line of the nested block stands behind the dash.
      std::string nested;
      write_block(value, level, nested);
      out += ' ';
      out += nested.substr(margin.size());
    } else {
      out += '\n';
      write_block(value, value.is_array() ? level - 1 : level, out);
    }
    return;
  }
  out += ' ';
  if (value.is_array()) {
    out += "[]\n";
  } else if (value.is_object()) {
    out += "{}\n";
  } else if (value.is_string() && literal_block(value.as_string())) {
    const std::string& text = value.as_string();
    std::size_t end = text.size();
    while (end > 0 && text[end - 1] == '\n') --end;
    const std::size_t newlines = text.size() - end;
    out += newlines == 0 ? "|-\n" : newlines == 1 ? "|\n" : "|+\n";
    std::size_t from = 0;
    const std::size_t stop = newlines == 0 ? text.size() : text.size() - 1;
    for (;;) {
      const std::size_t line_end = std::min(text.find('\n', from), stop);
      if (line_end > from) out += margin + text.substr(from, line_end - from);
      out += '\n';
      if (line_end >= stop) break;
      from = line_end + 1;
    }
  } else {
    out += scalar_text(value);
    out += '\n';
  }
}

void write_block(const Json& value, int level, std::string& out) {
  const std::string margin(static_cast<std::size_t>(level) * 2, ' ');
  if (value.is_object()) {
    for (const Json::Member& member : value.as_object()) {
      out += margin + scalar_text(Json(member.first)) + ":";
      write_inline_or_block(member.second, level + 1, false, out);
    }
  } else {
    for (const Json& item : value.as_array()) {
      out += margin + "-";
      write_inline_or_block(item, level + 1, true, out);
    }
  }
}

}  // namespace

Result<std::vector<Json>> parse_yaml_stream(std::string_view text, const YamlLimits& limits) {
  // yaml-cpp builds the whole document recursively before we see it: bound the nesting of flow collections beforehand.
  std::size_t flow_depth = 0, deepest = 0;
  for (const char c : text) {
    if (c == '[' || c == '{') deepest = std::max(deepest, ++flow_depth);
    if ((c == ']' || c == '}') && flow_depth > 0) --flow_depth;
  }
  if (deepest > 4 * limits.depth_max) return Error(Code::kInvalid, "nested deeper than " + std::to_string(limits.depth_max) + " levels");
  std::vector<Json> out;
  try {
    std::istringstream stream{std::string(text)};
    for (const YAML::Node& node : YAML::LoadAll(stream)) {
      if (!node.IsDefined() || node.IsNull()) continue;
      TRY(Json value, Converter(limits).convert(node, 0));
      if (!value.is_null()) out.push_back(std::move(value));
    }
  } catch (const YAML::Exception& e) {
    return Error(Code::kInvalid,
                 "line " + std::to_string(e.mark.line + 1) + ", column " + std::to_string(e.mark.column + 1) + ": " + e.msg);
  } catch (const std::exception& e) {
    return Error(Code::kInvalid, std::string("not YAML: ") + e.what());
  }
  return out;
}

Result<Json> parse_yaml(std::string_view text, const YamlLimits& limits) {
  TRY(std::vector<Json> documents, parse_yaml_stream(text, limits));
  if (documents.size() != 1) {
    return Error(Code::kInvalid, "expected one YAML document, found " + std::to_string(documents.size()));
  }
  return std::move(documents.front());
}

std::string write_yaml(const Json& value) {
  std::string out;
  if ((value.is_array() || value.is_object()) && !value.empty()) {
    write_block(value, 0, out);
  } else {
    write_inline_or_block(value, 1, false, out);
    out.erase(0, 1);
  }
  return out;
}

}  // namespace varda::codec
