#include "codec/yaml.h"

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <optional>
#include <simdjson.h>
#include <sstream>
#include <unordered_map>
#include <unordered_set>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

namespace varda::codec {
namespace {

bool one_of(std::string_view text, std::initializer_list<std::string_view> words) {
  for (const std::string_view word : words) {
    if (text == word) return true;
  }
  return false;
}

bool is_null_literal(std::string_view text) {
  return one_of(text, {"", "~", "null", "Null", "NULL"});
}
bool is_true_literal(std::string_view text) {
  return one_of(text, {"true", "True", "TRUE", "y", "Y", "yes", "Yes", "YES", "on", "On", "ON"});
}
bool is_false_literal(std::string_view text) {
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
    base = mark == 'x' || mark == 'X'   ? 16
           : mark == 'o' || mark == 'O' ? 8
           : mark == 'b' || mark == 'B' ? 2
                                        : 10;
    if (base != 10) digits.remove_prefix(2);
  }
  std::string clean;
  for (const char c : digits) {
    if (c != '_') clean += c;
  }
  // YAML 1.1: a leading zero means octal, as in file modes.
  if (base == 10 && clean.size() > 1 && clean[0] == '0') base = 8;
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(clean.data(), clean.data() + clean.size(), value, base);
  if (error != std::errc() || end != clean.data() + clean.size() || clean.empty())
    return std::nullopt;
  if (!negative) return Json(value);
  if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()) + 1)
    return Json(-static_cast<double>(value));
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

/// The value of an unquoted scalar.
Json resolve(const std::string& text) {
  if (is_null_literal(text)) return Json();
  if (is_true_literal(text)) return Json(true);
  if (is_false_literal(text)) return Json(false);
  const char first = text[0];
  if ((first >= '0' && first <= '9') || first == '-' || first == '+' || first == '.') {
    if (auto value = integer(text)) return *value;
    if (auto value = floating(text)) return *value;
  }
  return Json(text);
}

/// Thrown through yaml-cpp and caught at the call below, because event handlers cannot stop
/// yaml-cpp otherwise.
struct Stop {
  YAML::Mark mark;
  std::string what;
};

/// Builds trees from parser events, so that limits apply while reading.
class TreeBuilder final : public YAML::EventHandler {
 public:
  explicit TreeBuilder(const YamlLimits& limits) : limits_(limits) {}

  std::vector<Json> take() { return std::move(documents_); }

  void OnDocumentStart(const YAML::Mark& mark) override {
    // After some invalid input, the parser reports endless empty documents at one position.
    if (last_start_ >= 0 && mark.pos <= last_start_)
      throw Stop{mark, "unexpected text after the document"};
    last_start_ = mark.pos;
    anchors_.clear();
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override { add(mark, anchor, Json()); }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto known = anchors_.find(anchor);
    if (known == anchors_.end()) throw Stop{mark, "an alias inside of what it names"};
    // Counts every use, so that a few lines cannot expand to gigabytes.
    count(mark, known->second.nodes);
    bytes_ += known->second.bytes;
    count_copy(mark, 0, known->second.bytes);
    add(mark, 0, known->second.value);
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& text) override {
    if (!simdjson::validate_utf8(text)) throw Stop{mark, "the text is not UTF-8"};
    const bool text_tag = tag == "!" || tag == "tag:yaml.org,2002:str" ||
                          tag == "tag:yaml.org,2002:binary";  // "!": quoted
    if (!text_tag && !tag.empty() && tag != "?" && tag.rfind("tag:yaml.org,2002:", 0) != 0)
      throw Stop{mark, "tag " + tag + " is not supported"};
    bytes_ += text.size();
    if (expects_key()) {
      count(mark, 1);
      set_key(mark, text, !text_tag && text == "<<");
      return;
    }
    add(mark, anchor, text_tag ? Json(text) : resolve(text), text.size());
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(mark, anchor, Json::array());
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(mark, anchor, Json::object());
  }
  void OnMapEnd() override { close(); }

 private:
  struct Level {
    Json value;
    YAML::Mark mark;
    YAML::anchor_t anchor = 0;
    std::optional<std::string> key;  // of a map: the key of the next value
    bool merging = false;            // true for a merge key; "<<" in quotes is a plain name
    std::unordered_set<std::string>
        names;  // all member names; a linear search would take quadratic time
    std::unordered_set<std::string>
        merged;  // members from a merge key, which explicit members override
    std::size_t nodes_before = 0, bytes_before = 0;
  };
  struct Anchored {
    Json value;
    std::size_t nodes = 1, bytes = 0;
  };

  bool expects_key() const {
    return !levels_.empty() && levels_.back().value.is_object() && !levels_.back().key;
  }

  void count(const YAML::Mark& mark, std::size_t nodes) {
    nodes_ += nodes;
    if (nodes_ > limits_.nodes_max)
      throw Stop{mark, "more than " + std::to_string(limits_.nodes_max) + " values"};
  }

  /// Counts values that appear once in the text and are stored again.
  void count_copy(const YAML::Mark& mark, std::size_t nodes, std::size_t bytes) {
    copied_nodes_ += nodes;
    copied_bytes_ += bytes;
    if (copied_nodes_ > limits_.nodes_max || copied_bytes_ > limits_.alias_bytes_max)
      throw Stop{mark, "anchors and aliases expand to too much: more than " +
                           std::to_string(limits_.nodes_max) + " values or " +
                           std::to_string(limits_.alias_bytes_max) + " bytes"};
  }

  void keep(const YAML::Mark& mark, YAML::anchor_t anchor, Anchored what) {
    count_copy(mark, what.nodes, what.bytes);
    anchors_[anchor] = std::move(what);
  }

  void set_key(const YAML::Mark& mark, const std::string& name, bool merging) {
    Level& level = levels_.back();
    if (!merging && level.names.contains(name) && !level.merged.contains(name))
      throw Stop{mark, "key \"" + name + "\" occurs twice"};
    level.key = name;
    level.merging = merging;
  }

  void open(const YAML::Mark& mark, YAML::anchor_t anchor, Json empty) {
    if (expects_key()) throw Stop{mark, "a key must be a scalar"};
    if (levels_.size() >= limits_.depth_max)
      throw Stop{mark, "nested deeper than " + std::to_string(limits_.depth_max) + " levels"};
    count(mark, 1);
    levels_.push_back({.value = std::move(empty),
                       .mark = mark,
                       .anchor = anchor,
                       .nodes_before = nodes_,
                       .bytes_before = bytes_});
  }

  void close() {
    Level level = std::move(levels_.back());
    levels_.pop_back();
    if (level.anchor != 0)
      keep(level.mark, level.anchor,
           {level.value, nodes_ - level.nodes_before + 1, bytes_ - level.bytes_before});
    place(level.mark, std::move(level.value));
  }

  void add(const YAML::Mark& mark, YAML::anchor_t anchor, Json value, std::size_t bytes = 0) {
    count(mark, 1);
    if (expects_key()) {
      if (value.is_array() || value.is_object()) throw Stop{mark, "a key must be a scalar"};
      set_key(mark,
              value.is_null()     ? "null"
              : value.is_string() ? value.as_string()
                                  : write_json(value),
              false);
      return;
    }
    if (anchor != 0) keep(mark, anchor, {value, 1, bytes});
    place(mark, std::move(value));
  }

  void place(const YAML::Mark& mark, Json value) {
    if (levels_.empty()) {
      if (!value.is_null()) documents_.push_back(std::move(value));
      return;
    }
    Level& level = levels_.back();
    if (level.value.is_array()) {
      level.value.push_back(std::move(value));
      return;
    }
    const std::string key = std::move(*level.key);
    level.key.reset();
    if (!level.merging) {
      if (level.names.insert(key).second) {
        level.value.object_members().emplace_back(key, std::move(value));
      } else {
        level.value.set(key, std::move(value));
        level.merged.erase(key);
      }
      return;
    }
    const Json::Array several = value.is_array() ? value.as_array() : Json::Array{value};
    for (const Json& source : several) {
      if (!source.is_object()) throw Stop{mark, "a merge key (<<) takes a map"};
      for (const Json::Member& member : source.as_object()) {
        if (!level.names.insert(member.first).second) continue;
        level.value.object_members().push_back(member);
        level.merged.insert(member.first);
      }
    }
  }

  const YamlLimits& limits_;
  std::vector<Json> documents_;
  std::vector<Level> levels_;
  std::unordered_map<YAML::anchor_t, Anchored> anchors_;
  std::size_t nodes_ = 0, bytes_ = 0;  // so far; bytes of text
  std::size_t copied_nodes_ = 0, copied_bytes_ = 0;
  int last_start_ = -1;
};

Error located(const YAML::Mark& mark, const std::string& what) {
  return Error(Code::kInvalid, "line " + std::to_string(mark.line + 1) + ", column " +
                                   std::to_string(mark.column + 1) + ": " + what);
}

void write_block(const Json& value, int level, std::string& out);

/// Length in bytes of the character at `at` if it needs escaping, else 0. These are characters that
/// YAML forbids, line ends of some readers (U+0085, U+2028, U+2029: YAML 1.1), and the byte order
/// mark (U+FEFF). Excludes control characters below U+0020, which may be line ends.
std::size_t hidden(std::string_view text, std::size_t at) {
  const std::string_view rest = text.substr(at);
  const auto byte = [&](std::size_t i) {
    return i < rest.size() ? static_cast<unsigned char>(rest[i]) : 0;
  };
  if (byte(0) < 0x7f) return 0;
  if (byte(0) == 0x7f) return 1;
  if (byte(0) == 0xc2 && byte(1) < 0xa0) return 2;
  for (const std::string_view mark :
       {"\xE2\x80\xA8", "\xE2\x80\xA9", "\xEF\xBB\xBF", "\xEF\xBF\xBE", "\xEF\xBF\xBF"}) {
    if (rest.starts_with(mark)) return mark.size();
  }
  return 0;
}

bool has_hidden(std::string_view text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (hidden(text, i) > 0) return true;
  }
  return false;
}

/// Double-quoted, with JSON escapes.
std::string quoted(const std::string& text) {
  const std::string json = write_json(Json(text));
  if (!has_hidden(json)) return json;
  std::string out;
  for (std::size_t i = 0; i < json.size(); ++i) {
    const std::size_t size = hidden(json, i);
    if (size == 0) {
      out += json[i];
      continue;
    }
    // One to three bytes of UTF-8, therefore at most four hex digits.
    unsigned code = static_cast<unsigned char>(json[i]) & (size == 1   ? 0x7f
                                                           : size == 2 ? 0x1f
                                                                       : 0x0f);
    for (std::size_t next = 1; next < size; ++next)
      code = code << 6 | (static_cast<unsigned char>(json[i + next]) & 0x3f);
    static constexpr char kHex[] = "0123456789abcdef";
    out += "\\u";
    for (int shift = 12; shift >= 0; shift -= 4) out += kHex[code >> shift & 15];
    i += size - 1;
  }
  return out;
}

bool must_quote(const std::string& text) {
  if (text.empty() || !resolve(text).is_string()) return true;
  if (one_of(text, {"=", "<<"}) || text.starts_with("---") || text.starts_with("...")) return true;
  if (text.front() == ' ' || text.back() == ' ' || text.back() == ':') return true;
  if (std::string_view("-?:,[]{}#&*!|>'\"%@`").find(text.front()) != std::string_view::npos) {
    // "-x", "?x" and ":x" are plain; "- x" and the other indicators are not.
    const bool soft = std::string_view("-?:").find(text.front()) != std::string_view::npos;
    if (!soft || text.size() == 1 || text[1] == ' ') return true;
  }
  if (text.find(": ") != std::string::npos || text.find(" #") != std::string::npos) return true;
  // YAML 1.1 readers take dates for timestamps.
  if (text.size() >= 10 && text[4] == '-' && text[7] == '-' &&
      text.find_first_not_of("0123456789-TtZz:.+ ") == std::string::npos)
    return true;
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x20) return true;
  }
  if (has_hidden(text)) return true;
  // Digits with separators, such as sexagesimal numbers of YAML 1.1 ("12:30").
  return text.find_first_not_of("0123456789:._+-eExXoO") == std::string::npos &&
         text.find_first_of("0123456789") != std::string::npos;
}

std::string scalar_text(const Json& value) {
  if (!value.is_string()) return write_json(value);
  return must_quote(value.as_string()) ? quoted(value.as_string()) : value.as_string();
}

bool literal_block(const std::string& text) {
  if (text.find('\n') == std::string::npos || text.front() == ' ' || text.front() == '\n' ||
      text.front() == '\t')
    return false;
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t') return false;
  }
  return !has_hidden(text) && text.find(" \n") == std::string::npos;
}

/// Writes the value after "key:" or "-", including the line end.
void write_inline_or_block(const Json& value, int level, bool in_sequence, std::string& out) {
  const std::string margin(static_cast<std::size_t>(level) * 2, ' ');
  if ((value.is_array() || value.is_object()) && !value.empty()) {
    if (in_sequence) {
      // The first line of the nested block follows the dash.
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
      const std::string key = scalar_text(Json(member.first));
      // Readers expect the colon within 1024 characters. A longer key gets "?", and its value
      // follows a separate colon.
      const bool marked = key.size() > 1024;
      out += marked ? margin + "? " + key + "\n" + margin + ":" : margin + key + ":";
      write_inline_or_block(member.second, level + 1, marked, out);
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
  // yaml-cpp recurses into flow collections before it reports events, so limit the nesting first.
  std::size_t flow_depth = 0, deepest = 0;
  for (const char c : text) {
    if (c == '[' || c == '{') deepest = std::max(deepest, ++flow_depth);
    if ((c == ']' || c == '}') && flow_depth > 0) --flow_depth;
  }
  if (deepest > 4 * limits.depth_max)
    return Error(Code::kInvalid,
                 "nested deeper than " + std::to_string(limits.depth_max) + " levels");
  TreeBuilder builder(limits);
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(builder)) continue;
  } catch (const Stop& stop) {
    return located(stop.mark, stop.what);
  } catch (const YAML::Exception& e) {
    return located(e.mark, e.msg);
  } catch (const std::exception& e) {
    return Error(Code::kInvalid, std::string("line 1, column 1: not YAML: ") + e.what());
  }
  return builder.take();
}

Result<Json> parse_yaml(std::string_view text, const YamlLimits& limits) {
  TRY(std::vector<Json> documents, parse_yaml_stream(text, limits));
  if (documents.size() != 1) {
    return Error(Code::kInvalid,
                 "expected one YAML document, found " + std::to_string(documents.size()));
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
