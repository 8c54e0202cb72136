#include "meta/json_path.h"

#include <optional>

#include "base/text.h"

namespace varda::meta {

using codec::Json;

namespace {

Error bad_path(std::string_view text) {
  return Error(Code::kInvalid, "unsupported JSON path at \"" + std::string(text) + "\"");
}

bool is_quoted(std::string_view text) {
  return text.size() >= 2 && (text.front() == '\'' || text.front() == '"') &&
         text.back() == text.front();
}

// The first of `wanted` outside of quotes, or npos.
std::size_t find_unquoted(std::string_view text, std::string_view wanted) {
  char quote = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (quote != 0) {
      if (text[i] == quote) quote = 0;
    } else if (text.substr(i).starts_with(wanted)) {
      return i;
    } else if (text[i] == '"' || text[i] == '\'') {
      quote = text[i];
    }
  }
  return std::string_view::npos;
}

// The end of the bracket that `text` begins with. Filters may contain brackets.
std::size_t closing_bracket(std::string_view text) {
  const bool filter = text.starts_with("[?");
  const std::size_t end = find_unquoted(text, filter ? ")]" : "]");
  return filter && end != std::string_view::npos ? end + 1 : end;
}

}  // namespace

Result<JsonPath> JsonPath::parse(std::string_view text) {
  JsonPath path;
  text = trim(text, " ");
  if (text.starts_with("{") && text.ends_with("}"))
    text = trim(text.substr(1, text.size() - 2), " ");
  path.from_root_ = text.starts_with("$");
  if (path.from_root_ || text.starts_with("@")) text.remove_prefix(1);
  TRY(path.steps_, parse_steps(text));
  return path;
}

Result<std::vector<JsonPath::Step>> JsonPath::parse_steps(std::string_view text) {
  std::vector<Step> steps;
  if (text == ".") return steps;  // the value itself
  while (!text.empty()) {
    if (text[0] == '[') {
      const std::size_t end = closing_bracket(text);
      if (end == std::string_view::npos) return bad_path(text);
      TRY(Step step, parse_bracket(trim(text.substr(1, end - 1), " ")));
      steps.push_back(std::move(step));
      text.remove_prefix(end + 1);
      continue;
    }
    if (text[0] != '.') return bad_path(text);
    text.remove_prefix(1);
    if (text.starts_with("[")) continue;
    Step step;
    while (!text.empty() && text[0] != '.' && text[0] != '[') {
      if (text[0] == '\\' && text.size() > 1) text.remove_prefix(1);
      step.name += text[0];
      text.remove_prefix(1);
    }
    if (step.name.empty()) return bad_path("." + std::string(text));
    if (step.name == "*") step.kind = Step::Kind::kAll;
    steps.push_back(std::move(step));
  }
  return steps;
}

Result<JsonPath::Step> JsonPath::parse_bracket(std::string_view inside) {
  Step step;
  if (inside == "*") {
    step.kind = Step::Kind::kAll;
  } else if (is_quoted(inside)) {
    step.name = std::string(inside.substr(1, inside.size() - 2));
  } else if (inside.starts_with("?(") && inside.ends_with(")")) {
    const std::string_view filter = trim(inside.substr(2, inside.size() - 3), " ");
    step.kind = Step::Kind::kFilter;
    std::size_t op = find_unquoted(filter, "==");
    if (op == std::string_view::npos) {
      op = find_unquoted(filter, "!=");
      step.negated = true;
    }
    if (op == std::string_view::npos || !filter.starts_with("@")) return bad_path(inside);
    TRY(step.part, parse_steps(trim(filter.substr(1, op - 1), " ")));
    const std::string_view value = trim(filter.substr(op + 2), " ");
    if (is_quoted(value)) {
      step.value = std::string(value.substr(1, value.size() - 2));
    } else {
      auto literal = codec::parse_json(value);
      if (!literal.ok()) return bad_path(inside);
      step.value = *std::move(literal);
    }
  } else {
    const auto index = parse_integer<std::int64_t>(inside);
    if (!index) return bad_path(inside);
    step.kind = Step::Kind::kIndex;
    step.index = *index;
  }
  return step;
}

std::vector<const Json*> JsonPath::find(const Json& document) const {
  return walk(steps_, document);
}

std::vector<const Json*> JsonPath::find(const Json& node, const Json& document) const {
  return walk(steps_, from_root_ ? document : node);
}

std::vector<const Json*> JsonPath::walk(const std::vector<Step>& steps, const Json& from) {
  std::vector<const Json*> found = {&from};
  for (const Step& step : steps) {
    std::vector<const Json*> next;
    for (const Json* value : found) {
      switch (step.kind) {
        case Step::Kind::kMember:
          if (const Json* member = value->find(step.name)) next.push_back(member);
          break;
        case Step::Kind::kIndex: {
          const auto size = static_cast<std::int64_t>(value->as_array().size());
          const std::int64_t index = step.index < 0 ? size + step.index : step.index;
          if (index >= 0 && index < size)
            next.push_back(&value->as_array()[static_cast<std::size_t>(index)]);
          break;
        }
        case Step::Kind::kAll:
          for (const Json& item : value->as_array()) next.push_back(&item);
          for (const Json::Member& member : value->as_object()) next.push_back(&member.second);
          break;
        case Step::Kind::kFilter:
          for (const Json& item : value->as_array()) {
            const std::vector<const Json*> part = walk(step.part, item);
            if (!part.empty() && (*part.front() == step.value) != step.negated)
              next.push_back(&item);
          }
          break;
      }
    }
    found = std::move(next);
  }
  return found;
}

}  // namespace varda::meta
