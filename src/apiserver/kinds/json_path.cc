#include "apiserver/kinds/json_path.h"

#include <charconv>

namespace varda::apiserver {

namespace {

Error bad(std::string_view text) {
  return Error(Code::kInvalid, "unsupported JSON path at \"" + std::string(text) + "\"");
}

std::string_view trim(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

bool quoted(std::string_view text) {
  return text.size() >= 2 && (text.front() == '\'' || text.front() == '"') &&
         text.back() == text.front();
}

const Json* walk(const Json& value, std::string_view dotted) {
  const Json* at = &value;
  while (!dotted.empty()) {
    const std::size_t end = std::min(dotted.find('.'), dotted.size());
    at = at->find(dotted.substr(0, end));
    if (at == nullptr) return nullptr;
    dotted.remove_prefix(std::min(end + 1, dotted.size()));
  }
  return at;
}

}  // namespace

Result<JsonPath> JsonPath::parse(std::string_view text) {
  JsonPath path;
  text = trim(text);
  if (text.starts_with("{") && text.ends_with("}")) text = text.substr(1, text.size() - 2);
  if (text.starts_with("$")) text.remove_prefix(1);
  while (!text.empty()) {
    if (text[0] == '[') {
      // A filter may contain brackets only in quotes; columns never do.
      const auto end = text.find(']');
      if (end == std::string_view::npos) return bad(text);
      TRY_VOID(path.parse_bracket(trim(text.substr(1, end - 1))));
      text.remove_prefix(end + 1);
      continue;
    }
    if (text[0] != '.') return bad(text);
    text.remove_prefix(1);
    if (text.starts_with("[")) continue;
    Step step;
    while (!text.empty() && text[0] != '.' && text[0] != '[') {
      if (text[0] == '\\' && text.size() > 1) text.remove_prefix(1);
      step.name += text[0];
      text.remove_prefix(1);
    }
    if (step.name.empty() && text.empty() && path.steps_.empty())
      return path;  // "." is the whole document
    if (step.name.empty()) return bad(text);
    if (step.name == "*") step.kind = Step::Kind::kAll;
    path.steps_.push_back(std::move(step));
  }
  return path;
}

Status JsonPath::parse_bracket(std::string_view inside) {
  Step step;
  if (inside == "*") {
    step.kind = Step::Kind::kAll;
  } else if (quoted(inside)) {
    step.name = std::string(inside.substr(1, inside.size() - 2));
  } else if (inside.starts_with("?(") && inside.ends_with(")")) {
    std::string_view filter = trim(inside.substr(2, inside.size() - 3));
    if (!filter.starts_with("@.")) return bad(inside);
    filter.remove_prefix(2);
    step.kind = Step::Kind::kFilter;
    auto op = filter.find("==");
    if (op == std::string_view::npos) {
      op = filter.find("!=");
      step.negated = true;
    }
    if (op == std::string_view::npos) return bad(inside);
    step.name = std::string(trim(filter.substr(0, op)));
    const std::string_view value = trim(filter.substr(op + 2));
    if (quoted(value)) {
      step.value = std::string(value.substr(1, value.size() - 2));
    } else {
      TRY(step.value, codec::parse_json(value));
    }
  } else {
    step.kind = Step::Kind::kIndex;
    const auto parsed = std::from_chars(inside.data(), inside.data() + inside.size(), step.index);
    if (parsed.ec != std::errc() || parsed.ptr != inside.data() + inside.size()) return bad(inside);
  }
  steps_.push_back(std::move(step));
  return {};
}

std::vector<const Json*> JsonPath::find(const Json& document) const {
  std::vector<const Json*> found = {&document};
  for (const Step& step : steps_) {
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
            const Json* member = walk(item, step.name);
            if (member != nullptr && (*member == step.value) != step.negated) next.push_back(&item);
          }
          break;
      }
    }
    found = std::move(next);
  }
  return found;
}

}  // namespace varda::apiserver
