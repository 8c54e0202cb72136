// Grammar and messages follow apimachinery's labels and fields packages, because clients print the
// messages.
#include "meta/selector.h"

#include <algorithm>

#include "base/text.h"
#include "meta/object.h"

namespace varda::meta {
namespace {

using Operator = LabelSelector::Operator;

enum class Token {
  kEnd,
  kIdentifier,
  kIn,
  kNotIn,
  kComma,
  kOpen,
  kClose,
  kNot,
  kEqual,
  kNotEqual,
  kGreater,
  kLess
};

struct Lexed {
  Token token = Token::kEnd;
  std::string text;
};

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }
bool is_special(char c) { return std::string_view("=!(),<>").find(c) != std::string_view::npos; }

Error bad_selector(std::string what) { return {Code::kInvalid, std::move(what)}; }
Error expected(const Lexed& found, std::string_view what) {
  return bad_selector("found '" + found.text + "', expected: " + std::string(what));
}
Error invalid_value(std::string_view field, std::string_view value, std::string_view why) {
  return bad_selector(std::string(field) + ": Invalid value: \"" + std::string(value) +
                      "\": " + std::string(why));
}

std::optional<std::int64_t> to_integer(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  return parse_integer<std::int64_t>(text);
}

/// Makes the values a set: sorted, without duplicates.
void as_set(std::vector<std::string>& values) {
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
}

class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) { advance(); }

  /// In places for names and values, `in` and `notin` are ordinary identifiers.
  Lexed peek_token() const {
    Lexed out = next_;
    if (out.token == Token::kIn || out.token == Token::kNotIn) out.token = Token::kIdentifier;
    return out;
  }
  Lexed take_token() {
    Lexed out = peek_token();
    advance();
    return out;
  }
  Lexed take_operator() {
    Lexed out = next_;
    advance();
    return out;
  }

 private:
  void advance() {
    while (at_ < text_.size() && is_space(text_[at_])) ++at_;
    next_ = {};
    if (at_ == text_.size()) return;
    const std::string_view rest = text_.substr(at_);
    if (!is_special(rest[0])) {
      std::size_t n = 0;
      while (n < rest.size() && !is_special(rest[n]) && !is_space(rest[n])) ++n;
      next_ = {Token::kIdentifier, std::string(rest.substr(0, n))};
      if (next_.text == "in") next_.token = Token::kIn;
      if (next_.text == "notin") next_.token = Token::kNotIn;
      at_ += n;
      return;
    }
    std::size_t n = 1;
    Token token = Token::kEnd;
    switch (rest[0]) {
      case ',':
        token = Token::kComma;
        break;
      case '(':
        token = Token::kOpen;
        break;
      case ')':
        token = Token::kClose;
        break;
      case '>':
        token = Token::kGreater;
        break;
      case '<':
        token = Token::kLess;
        break;
      case '=':
        token = Token::kEqual;
        if (rest.starts_with("==")) n = 2;
        break;
      default:
        token = Token::kNot;
        if (rest.starts_with("!=")) {
          token = Token::kNotEqual;
          n = 2;
        }
    }
    next_ = {token, std::string(rest.substr(0, n))};
    at_ += n;
  }

  std::string_view text_;
  std::size_t at_ = 0;
  Lexed next_;
};

Result<std::vector<std::string>> parse_values(Lexer& lexer) {
  if (const Lexed open = lexer.take_token(); open.token != Token::kOpen)
    return bad_selector("found '" + open.text + "' expected: '('");
  std::vector<std::string> values;
  if (const Lexed first = lexer.peek_token(); first.token == Token::kClose) {
    lexer.take_token();
    return values;
  } else if (first.token != Token::kIdentifier && first.token != Token::kComma) {
    return expected(first, "',', ')' or identifier");
  }
  // A missing value between commas is the empty value: "(a,)" is {"a", ""}.
  bool wants_value = true;
  while (true) {
    const Lexed lexed = lexer.take_token();
    if (lexed.token == Token::kIdentifier && wants_value) {
      values.push_back(lexed.text);
      wants_value = false;
    } else if (lexed.token == Token::kComma) {
      if (wants_value) values.emplace_back();
      wants_value = true;
    } else if (lexed.token == Token::kClose) {
      if (wants_value) values.emplace_back();
      break;
    } else {
      return expected(lexed, wants_value ? "',', or identifier" : "',' or ')'");
    }
  }
  as_set(values);
  return values;
}

Status check(const LabelSelector::Requirement& requirement) {
  std::vector<std::string> errors;
  if (const std::string why = check_label_key(requirement.key); !why.empty()) {
    errors.push_back(invalid_value("key", requirement.key, why).message());
  }
  const auto& values = requirement.values;
  switch (requirement.op) {
    case Operator::kIn:
    case Operator::kNotIn:
      if (values.empty())
        errors.push_back(
            "values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty");
      break;
    case Operator::kExists:
    case Operator::kDoesNotExist:
      if (!values.empty())
        errors.push_back(
            "values: Invalid value: values set must be empty for exists and does not exist");
      break;
    case Operator::kGreater:
    case Operator::kLess:
      if (values.size() != 1)
        errors.push_back(
            "values: Invalid value: for 'Gt', 'Lt' operators, exactly one value is required");
      for (std::size_t i = 0; i < values.size(); ++i) {
        if (to_integer(values[i])) continue;
        errors.push_back(invalid_value("values[" + std::to_string(i) + "]", values[i],
                                       "for 'Gt', 'Lt' operators, the value must be an integer")
                             .message());
      }
      break;
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (const std::string why = check_label_value(values[i]); !why.empty()) {
      errors.push_back(invalid_value("values[" + std::to_string(i) + "][" + requirement.key + "]",
                                     values[i], why)
                           .message());
    }
  }
  if (errors.empty()) return {};
  if (errors.size() == 1) return bad_selector(errors[0]);
  std::string all = "[";
  for (const std::string& error : errors) all += (all.size() > 1 ? ", " : "") + error;
  return bad_selector(all + "]");
}

Result<LabelSelector::Requirement> parse_requirement(Lexer& lexer) {
  LabelSelector::Requirement out;
  Lexed lexed = lexer.take_token();
  const bool negated = lexed.token == Token::kNot;
  if (negated) lexed = lexer.take_token();
  if (lexed.token != Token::kIdentifier) return expected(lexed, "identifier");
  if (const std::string why = check_label_key(lexed.text); !why.empty())
    return invalid_value("<nil>", lexed.text, why);
  out.key = lexed.text;
  const Token next = lexer.peek_token().token;
  if (negated || next == Token::kEnd || next == Token::kComma) {
    out.op = negated ? Operator::kDoesNotExist : Operator::kExists;
    return out;
  }
  const Lexed op = lexer.take_operator();
  switch (op.token) {
    case Token::kIn:
      out.op = Operator::kIn;
      break;
    case Token::kEqual:
      out.op = Operator::kIn;
      break;
    case Token::kNotIn:
      out.op = Operator::kNotIn;
      break;
    case Token::kNotEqual:
      out.op = Operator::kNotIn;
      break;
    case Token::kGreater:
      out.op = Operator::kGreater;
      break;
    case Token::kLess:
      out.op = Operator::kLess;
      break;
    default:
      return expected(op, "in, notin, =, ==, !=, gt, lt");
  }
  if (op.token == Token::kIn || op.token == Token::kNotIn) {
    TRY(out.values, parse_values(lexer));
  } else if (const Token after = lexer.peek_token().token;
             after == Token::kEnd || after == Token::kComma) {
    out.values = {""};
  } else {
    const Lexed value = lexer.take_token();
    if (value.token != Token::kIdentifier) return expected(value, "identifier");
    out.values = {value.text};
  }
  TRY_VOID(check(out));
  return out;
}

bool matches_one(const LabelSelector::Requirement& requirement, const std::string* value) {
  const auto listed = [&] {
    return std::find(requirement.values.begin(), requirement.values.end(), *value) !=
           requirement.values.end();
  };
  switch (requirement.op) {
    case Operator::kIn:
      return value && listed();
    case Operator::kNotIn:
      return !value || !listed();
    case Operator::kExists:
      return value != nullptr;
    case Operator::kDoesNotExist:
      return value == nullptr;
    case Operator::kGreater:
    case Operator::kLess:
      break;
  }
  if (!value || requirement.values.size() != 1) return false;
  const auto have = to_integer(*value), limit = to_integer(requirement.values[0]);
  if (!have || !limit) return false;
  return requirement.op == Operator::kGreater ? *have > *limit : *have < *limit;
}

std::string print(const LabelSelector::Requirement& requirement) {
  const auto& [key, op, values] = requirement;
  const auto list = [&requirement] {  // not `values`: clang 14 cannot capture a structured binding
    std::string out = "(";
    for (std::size_t i = 0; i < requirement.values.size(); ++i)
      out += (i > 0 ? "," : "") + requirement.values[i];
    return out + ")";
  };
  switch (op) {
    case Operator::kExists:
      return key;
    case Operator::kDoesNotExist:
      return "!" + key;
    case Operator::kGreater:
      return key + ">" + (values.empty() ? "" : values[0]);
    case Operator::kLess:
      return key + "<" + (values.empty() ? "" : values[0]);
    case Operator::kIn:
      return values.size() == 1 ? key + "=" + values[0] : key + " in " + list();
    case Operator::kNotIn:
      return values.size() == 1 ? key + "!=" + values[0] : key + " notin " + list();
  }
  return key;
}

}  // namespace

Result<LabelSelector> LabelSelector::parse(std::string_view text) {
  LabelSelector out;
  Lexer lexer(text);
  while (true) {
    const Lexed lexed = lexer.peek_token();
    if (lexed.token == Token::kEnd) break;
    if (lexed.token != Token::kIdentifier && lexed.token != Token::kNot)
      return expected(lexed, "!, identifier, or 'end of string'");
    TRY(Requirement requirement, parse_requirement(lexer).context("unable to parse requirement"));
    out.requirements_.push_back(std::move(requirement));
    const Lexed after = lexer.take_token();
    if (after.token == Token::kEnd) break;
    if (after.token != Token::kComma) return expected(after, "',' or 'end of string'");
    const Lexed next = lexer.peek_token();
    if (next.token != Token::kIdentifier && next.token != Token::kNot)
      return expected(next, "identifier after ','");
  }
  return out;
}

Result<LabelSelector> LabelSelector::from_json(const Json& selector) {
  if (!selector.is_object()) return bad_selector("selector must be an object");
  LabelSelector out;
  const Json& labels = selector["matchLabels"];
  if (!labels.is_null() && !labels.is_object())
    return bad_selector("matchLabels: must be an object");
  for (const auto& [key, value] : labels.as_object()) {
    if (!value.is_string()) return bad_selector("matchLabels." + key + ": must be a string");
    Requirement requirement{key, Operator::kIn, {value.as_string()}};
    TRY_VOID(check(requirement).context("matchLabels"));
    out.requirements_.push_back(std::move(requirement));
  }
  const Json& expressions = selector["matchExpressions"];
  if (!expressions.is_null() && !expressions.is_array())
    return bad_selector("matchExpressions: must be an array");
  int index = 0;
  for (const Json& expression : expressions.as_array()) {
    const std::string item_path = "matchExpressions[" + std::to_string(index++) + "]";
    static constexpr std::pair<std::string_view, Operator> kOperators[] = {
        {"In", Operator::kIn},         {"NotIn", Operator::kNotIn},
        {"Exists", Operator::kExists}, {"DoesNotExist", Operator::kDoesNotExist},
        {"Gt", Operator::kGreater},    {"Lt", Operator::kLess}};
    const std::string& name = expression["operator"].as_string();
    const auto found = std::find_if(std::begin(kOperators), std::end(kOperators),
                                    [&](const auto& row) { return row.first == name; });
    if (found == std::end(kOperators))
      return bad_selector(item_path + ".operator: \"" + name +
                          "\" is not a valid label selector operator");
    Requirement requirement{expression["key"].as_string(), found->second, {}};
    for (const Json& value : expression["values"].as_array()) {
      if (!value.is_string()) return bad_selector(item_path + ".values: must be strings");
      requirement.values.push_back(value.as_string());
    }
    TRY_VOID(check(requirement).context(item_path));
    as_set(requirement.values);
    out.requirements_.push_back(std::move(requirement));
  }
  return out;
}

LabelSelector LabelSelector::equals(const std::map<std::string, std::string>& labels) {
  LabelSelector out;
  for (const auto& [key, value] : labels)
    out.requirements_.push_back({key, Operator::kIn, {value}});
  return out;
}

bool LabelSelector::matches(const std::map<std::string, std::string>& labels) const {
  return std::all_of(
      requirements_.begin(), requirements_.end(), [&](const Requirement& requirement) {
        const auto found = labels.find(requirement.key);
        return matches_one(requirement, found == labels.end() ? nullptr : &found->second);
      });
}

bool LabelSelector::matches_labels(const Json& labels) const {
  return std::all_of(requirements_.begin(), requirements_.end(),
                     [&](const Requirement& requirement) {
                       const Json* found = labels.find(requirement.key);
                       return matches_one(requirement, found ? &found->as_string() : nullptr);
                     });
}

std::string LabelSelector::str() const {
  return join(requirements_, ",", [](const auto& requirement) { return print(requirement); });
}

namespace {

// Splits at commas that are not escaped; the escapes stay for unescape().
std::vector<std::string_view> split_terms(std::string_view text) {
  std::vector<std::string_view> out;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\') {
      ++i;
    } else if (text[i] == ',') {
      out.push_back(text.substr(begin, i - begin));
      begin = i + 1;
    }
  }
  out.push_back(text.substr(begin));
  return out;
}

Result<std::string> unescape(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\\') {
      if (i + 1 == text.size())
        return bad_selector("invalid field selector: invalid escape sequence: \\");
      const char escaped = text[++i];
      if (escaped != '\\' && escaped != ',' && escaped != '=') {
        return bad_selector(std::string("invalid field selector: invalid escape sequence: \\") +
                            escaped);
      }
      out += escaped;
    } else if (c == ',' || c == '=') {
      return bad_selector("invalid field selector: unescaped character in value: " +
                          std::to_string(static_cast<int>(c)));
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace

Result<FieldSelector> FieldSelector::parse(std::string_view text) {
  FieldSelector out;
  for (const std::string_view part : split_terms(text)) {
    if (part.empty()) continue;
    const auto at = part.find_first_of("=!");
    std::size_t op = std::string_view::npos, length = 0;
    for (std::size_t i = at; i < part.size(); ++i) {
      const std::string_view rest = part.substr(i);
      if (rest.starts_with("!=") || rest.starts_with("=="))
        length = 2;
      else if (rest.starts_with("="))
        length = 1;
      if (length != 0) {
        op = i;
        break;
      }
    }
    if (op == std::string_view::npos) {
      return bad_selector("invalid selector: '" + std::string(text) + "'; can't understand '" +
                          std::string(part) + "'");
    }
    Term term;
    term.field = std::string(part.substr(0, op));
    term.negated = part[op] == '!';
    TRY(term.value, unescape(part.substr(op + length)));
    out.terms_.push_back(std::move(term));
  }
  return out;
}

bool FieldSelector::matches(const std::function<std::string(std::string_view field)>& read) const {
  return std::all_of(terms_.begin(), terms_.end(), [&](const Term& term) {
    return (read(term.field) == term.value) != term.negated;
  });
}

std::optional<std::string> FieldSelector::exact(std::string_view field) const {
  for (const Term& term : terms_) {
    if (term.field == field && !term.negated) return term.value;
  }
  return std::nullopt;
}

std::string FieldSelector::str() const {
  std::string out;
  for (const Term& term : terms_) {
    if (!out.empty()) out += ",";
    out += term.field + (term.negated ? "!=" : "=");
    for (const char c : term.value) {
      if (c == '\\' || c == ',' || c == '=') out += '\\';
      out += c;
    }
  }
  return out;
}

}  // namespace varda::meta
