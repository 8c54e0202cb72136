#include "cel.h"

#include <cmath>
#include <map>
#include <regex>
#include <string>

#include "base/check.h"
#include "codec/text.h"

namespace varda::conformance {

namespace {

using codec::Json;

// A value, or nothing if evaluation fails, as for an absent member or a comparison of different
// types.
using Value = std::optional<Json>;
using Scope = std::map<std::string, Json>;

/// Parses and evaluates in one pass. A macro parses its argument again for each item.
class Evaluator {
 public:
  Evaluator(std::string_view text, Scope scope) : text_(text), scope_(std::move(scope)) {}

  Value whole() {
    Value value = choice();
    skip_space();
    CHECK(at_ == text_.size());
    return value;
  }

 private:
  void skip_space() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool take(std::string_view token) {
    skip_space();
    if (!text_.substr(at_).starts_with(token)) return false;
    at_ += token.size();
    return true;
  }
  void need(std::string_view token) { CHECK(take(token)); }
  std::string identifier() {
    skip_space();
    const std::size_t begin = at_;
    while (at_ < text_.size() &&
           (std::isalnum(static_cast<unsigned char>(text_[at_])) || text_[at_] == '_'))
      ++at_;
    return std::string(text_.substr(begin, at_ - begin));
  }

  // condition ? one : other, where other may contain another choice.
  Value choice() {
    const Value condition = either();
    if (!take("?")) return condition;
    const Value one = choice();
    need(":");
    const Value other = choice();
    if (!condition || !condition->is_bool()) return std::nullopt;
    return condition->as_bool() ? one : other;
  }

  static Value truth(const Value& value, bool wanted) {
    return value && value->is_bool() && value->as_bool() == wanted ? Value(Json(wanted))
                                                                   : std::nullopt;
  }
  // An error on one side is ignored if the other side decides the result.
  Value either() {
    Value left = both();
    while (take("||")) {
      const Value right = both();
      left = truth(left, true) || truth(right, true)     ? Value(Json(true))
             : truth(left, false) && truth(right, false) ? Value(Json(false))
                                                         : std::nullopt;
    }
    return left;
  }
  Value both() {
    Value left = relation();
    while (take("&&")) {
      const Value right = relation();
      left = truth(left, false) || truth(right, false) ? Value(Json(false))
             : truth(left, true) && truth(right, true) ? Value(Json(true))
                                                       : std::nullopt;
    }
    return left;
  }

  Value relation() {
    const Value left = difference();
    for (const std::string_view sign : {"==", "!=", "<=", ">=", "<", ">", "in "}) {
      if (!take(sign)) continue;
      const Value right = difference();
      if (!left || !right) return std::nullopt;
      if (sign == "in ") {
        for (const Json& item : right->as_array()) {
          if (item == *left) return Json(true);
        }
        return Json(false);
      }
      if (sign == "==") return Json(*left == *right);
      if (sign == "!=") return Json(*left != *right);
      if (!left->is_number() || !right->is_number()) return std::nullopt;
      const double a = left->as_double(), b = right->as_double();
      return Json(sign == "<=" ? a <= b : sign == ">=" ? a >= b : sign == "<" ? a < b : a > b);
    }
    return left;
  }

  Value difference() {
    Value left = unary();
    while (take("- ")) {
      const Value right = unary();
      const bool numbers = left && right && left->is_number() && right->is_number();
      left = numbers ? Value(Json(left->as_integer() - right->as_integer())) : std::nullopt;
    }
    return left;
  }

  Value unary() {
    skip_space();
    if (text_.substr(at_).starts_with("!=") || !take("!")) return members(primary());
    const Value value = unary();
    if (!value || !value->is_bool()) return std::nullopt;
    return Json(!value->as_bool());
  }

  Value primary() {
    skip_space();
    CHECK(at_ < text_.size());
    if (take("(")) {
      Value value = choice();
      need(")");
      return value;
    }
    if (take("[")) {
      Json list = Json::array();
      bool failed = false;
      while (!take("]")) {
        const Value item = either();
        failed = failed || !item;
        if (item) list.push_back(*item);
        (void)take(",");
      }
      return failed ? Value() : Value(list);
    }
    if (text_[at_] == '\'') return text();
    if (std::isdigit(static_cast<unsigned char>(text_[at_])) || text_[at_] == '-') {
      const bool minus = take("-");
      const std::string whole = identifier();
      if (whole.ends_with('e') && (take("+") || take("-"))) {  // 1e+06
        const double sign = text_[at_ - 1] == '-' ? -1 : 1;
        const double number = std::stod(whole.substr(0, whole.size() - 1)) *
                              std::pow(10.0, sign * std::stod(identifier()));
        return Json(minus ? -number : number);
      }
      if (at_ < text_.size() && text_[at_] == '.') {
        ++at_;
        const double number = std::stod(whole + "." + identifier());
        return Json(minus ? -number : number);
      }
      const std::int64_t number = std::stoll(whole);
      return Json(minus ? -number : number);
    }
    const std::string name = identifier();
    if (name == "true" || name == "false") return Json(name == "true");
    if (name == "has" || name == "size") {
      need("(");
      const Value value = either();
      need(")");
      if (name == "has") return Json(value.has_value());
      if (!value) return std::nullopt;
      return Json(static_cast<std::int64_t>(
          value->is_string() ? codec::utf8_length(value->as_string()) : value->size()));
    }
    if (name == "double" || name == "duration") {
      need("(");
      const Value value = either();
      need(")");
      if (!value || !value->is_string()) return std::nullopt;
      return name == "double" ? number_of(value->as_string()) : duration_of(value->as_string());
    }
    const auto known = scope_.find(name);
    CHECK(known != scope_.end());
    return member_of(known->second);
  }

  // Follows the member names after a variable. Copies only the final value, because `self` may be
  // large.
  Value member_of(const Json& variable) {
    const Json* found = &variable;
    while (at_ < text_.size() && text_[at_] == '.') {
      const std::size_t before = at_++;
      const std::string name = identifier();
      if (at_ < text_.size() && text_[at_] == '(') {  // a call: members() reads it
        at_ = before;
        break;
      }
      if (found != nullptr) found = found->find(name);
    }
    return found == nullptr || found->is_null() ? Value() : Value(*found);
  }

  static Value number_of(const std::string& text) {
    char* end = nullptr;
    const double number = std::strtod(text.c_str(), &end);
    if (text.empty() || *end != '\0' || std::isinf(number)) return std::nullopt;
    return Json(number);
  }

  // Milliseconds of one number and one unit. Our rules check this form before duration().
  static Value duration_of(const std::string& text) {
    char* unit = nullptr;
    const double number = std::strtod(text.c_str(), &unit);
    const std::map<std::string, double> scales{
        {"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}};
    const auto scale = scales.find(unit);
    if (unit == text.c_str() || scale == scales.end()) return std::nullopt;
    return Json(number * scale->second);
  }

  Json text() {
    need("'");
    std::string out;
    while (text_.at(at_) != '\'') {
      if (text_[at_] == '\\') ++at_;
      out += text_.at(at_++);
    }
    ++at_;
    return out;
  }

  Value members(Value value) {
    while (at_ < text_.size() && (text_[at_] == '.' || text_[at_] == '[')) {
      if (take("[")) {
        const Value index = choice();
        need("]");
        const bool in_range = value && value->is_array() && index && index->is_integer() &&
                              index->as_integer() >= 0 &&
                              index->as_integer() < static_cast<std::int64_t>(value->size());
        value = in_range ? Value(value->as_array()[static_cast<std::size_t>(index->as_integer())])
                         : std::nullopt;
        continue;
      }
      ++at_;
      const std::string name = identifier();
      if (!take("(")) {
        const Json* member = value ? value->find(name) : nullptr;
        value = member == nullptr || member->is_null() ? Value() : Value(*member);
      } else if (name == "matches") {
        const Value pattern = either();
        need(")");
        if (!value || !value->is_string() || !pattern) return std::nullopt;
        static std::map<std::string, std::regex> made;
        const auto matcher = made.try_emplace(pattern->as_string(), pattern->as_string()).first;
        value = Json(std::regex_search(value->as_string(), matcher->second));
      } else if (name == "isSorted") {
        need(")");
        value = is_sorted(value);
      } else {
        CHECK(name == "all" || name == "exists" || name == "exists_one" || name == "filter" ||
              name == "map");
        value = macro(name, value);
      }
    }
    return value;
  }

  static Value is_sorted(const Value& list) {
    if (!list || !list->is_array()) return std::nullopt;
    const Json::Array& items = list->as_array();
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (!items[i].is_number()) return std::nullopt;
      if (i > 0 && items[i].as_double() < items[i - 1].as_double()) return Json(false);
    }
    return Json(true);
  }

  Value macro(const std::string& name, const Value& list) {
    const std::string variable = identifier();
    need(",");
    const std::size_t body = at_;
    const auto hidden =
        scope_.find(variable) == scope_.end() ? Value() : Value(scope_.at(variable));
    std::size_t held = 0, failed = 0;
    Json items = list && list->is_array() ? *list : Json::array();
    if (list && list->is_object()) {  // of a map, CEL takes the keys
      for (const auto& [key, value] : list->as_object()) items.push_back(key);
    }
    const std::size_t count = items.size();
    Json picked = Json::array();
    if (count == 0) items.push_back(Json::object());  // the body must be parsed anyway
    for (const Json& item : items.as_array()) {
      at_ = body;
      scope_[variable] = item;
      const Value value = choice();
      if (count == 0) break;
      if (name == "map" && value) picked.push_back(*value);
      if (name == "filter" && truth(value, true)) picked.push_back(item);
      if (name == "map") {
        failed += value ? 0 : 1;
        continue;
      }
      held += truth(value, true) ? 1 : 0;
      failed += value && value->is_bool() ? 0 : 1;
    }
    need(")");
    scope_.erase(variable);
    if (hidden) scope_[variable] = *hidden;
    if (!list || (!list->is_array() && !list->is_object())) return std::nullopt;
    if (name == "map" || name == "filter") return failed == 0 ? Value(picked) : std::nullopt;
    if (name == "all") {
      if (held + failed < count) return Json(false);
      return failed == 0 ? Value(Json(true)) : std::nullopt;
    }
    if (name == "exists") {
      if (held > 0) return Json(true);
      return failed == 0 ? Value(Json(false)) : std::nullopt;
    }
    return failed == 0 ? Value(Json(held == 1)) : std::nullopt;
  }

  std::string_view text_;
  std::size_t at_ = 0;
  Scope scope_;
};

}  // namespace

std::optional<bool> evaluate_cel(std::string_view rule, const Json& self) {
  const Value value = Evaluator(rule, {{"self", self}}).whole();
  if (!value || !value->is_bool()) return std::nullopt;
  return value->as_bool();
}

}  // namespace varda::conformance
