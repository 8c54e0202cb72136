#include "cli/printer.h"

namespace varda::cli {
namespace {

/// One template: text, and expressions in braces. A template without braces is one expression.
class Evaluator {
 public:
  Evaluator(std::string_view text, const Json& root) : text_(text), root_(root) {}

  Result<std::string> run() {
    std::string out;
    if (text_.find('{') == std::string_view::npos) {
      TRY_VOID(print(text_, {&root_}, out));
      return out;
    }
    TRY_VOID(block({&root_}, out, false));
    return out;
  }

 private:
  using Nodes = std::vector<const Json*>;

  Error fail(const std::string& what) const {
    return Error(Code::kInvalid, "jsonpath \"" + std::string(text_) + "\": " + what +
                                     " at offset " + std::to_string(at_));
  }

  /// Runs to the end of the template, or to the {end} of a range. Called once per node of a range.
  Status block(const Nodes& here, std::string& out, bool in_range) {
    while (at_ < text_.size()) {
      if (text_[at_] != '{') {
        out += text_[at_++];
        continue;
      }
      const std::size_t close = closing(at_);
      if (close == std::string_view::npos) return fail("'{' is not closed");
      std::string_view inside = text_.substr(at_ + 1, close - at_ - 1);
      at_ = close + 1;
      if (inside == "end") {
        if (!in_range) return fail("{end} without {range}");
        return {};
      }
      if (inside.rfind("range ", 0) == 0) {
        TRY(const Nodes found, select(inside.substr(6), here));
        const std::size_t body = at_;
        if (found.empty()) {
          std::string ignored;
          const Json nothing;
          TRY_VOID(block({&nothing}, ignored, true));
        }
        for (const Json* node : found) {
          at_ = body;
          TRY_VOID(block({node}, out, true));
        }
      } else if (!inside.empty() && (inside[0] == '"' || inside[0] == '\'')) {
        literal(inside.substr(1, inside.size() - 2), out);
      } else {
        TRY_VOID(print(inside, here, out));
      }
    }
    if (in_range) return fail("{range} without {end}");
    return {};
  }

  std::size_t closing(std::size_t open) const {
    char quote = 0;
    for (std::size_t i = open + 1; i < text_.size(); ++i) {
      const char c = text_[i];
      if (quote) {
        if (c == quote) quote = 0;
      } else if (c == '"' || c == '\'') {
        quote = c;
      } else if (c == '}') {
        return i;
      }
    }
    return std::string_view::npos;
  }

  static void literal(std::string_view text, std::string& out) {
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (text[i] == '\\' && i + 1 < text.size()) {
        const char c = text[++i];
        out += c == 'n' ? '\n' : c == 't' ? '\t' : c;
      } else {
        out += text[i];
      }
    }
  }

  Status print(std::string_view path, const Nodes& here, std::string& out) {
    TRY(const Nodes found, select(path, here));
    bool first = true;
    for (const Json* node : found) {
      if (!first) out += ' ';
      first = false;
      out += node->is_string() ? node->as_string() : write_json(*node);
    }
    return {};
  }

  Result<Nodes> select(std::string_view path, Nodes nodes) const {
    if (!path.empty() && path[0] == '$') {
      nodes = {&root_};
      path.remove_prefix(1);
    }
    if (!path.empty() && path[0] == '@') path.remove_prefix(1);
    while (!path.empty()) {
      if (path[0] == '.') {
        path.remove_prefix(1);
        if (!path.empty() && path[0] == '[') continue;
        std::string name;
        while (!path.empty() && path[0] != '.' && path[0] != '[') {
          if (path[0] == '\\' && path.size() > 1) path.remove_prefix(1);
          name += path[0];
          path.remove_prefix(1);
        }
        if (name.empty()) break;  // "." is the object itself
        nodes = name == "*" ? every(nodes) : members(nodes, name);
      } else if (path[0] == '[') {
        const std::size_t end = path[1] == '?' ? path.find(")]") + 1 : path.find(']');
        if (end == std::string_view::npos || end == 0) return fail("'[' is not closed");
        TRY(nodes, subscript(path.substr(1, end - 1), nodes));
        path.remove_prefix(end + 1);
      } else {
        return fail("expected '.' or '[' before \"" + std::string(path) + "\"");
      }
    }
    return nodes;
  }

  static Nodes members(const Nodes& nodes, std::string_view name) {
    Nodes out;
    for (const Json* node : nodes) {
      if (const Json* member = node->find(name)) out.push_back(member);
    }
    return out;
  }

  static Nodes every(const Nodes& nodes) {
    Nodes out;
    for (const Json* node : nodes) {
      for (const Json& item : node->as_array()) out.push_back(&item);
      for (const Json::Member& member : node->as_object()) out.push_back(&member.second);
    }
    return out;
  }

  Result<Nodes> subscript(std::string_view inside, const Nodes& nodes) const {
    if (inside == "*") return every(nodes);
    if (inside.size() >= 2 && (inside[0] == '\'' || inside[0] == '"'))
      return members(nodes, inside.substr(1, inside.size() - 2));
    Nodes out;
    if (inside.rfind("?(", 0) == 0) {
      const std::string_view condition = inside.substr(2, inside.size() - 3);
      const bool negated = condition.find("!=") != std::string_view::npos;
      const std::size_t op = condition.find(negated ? "!=" : "==");
      if (op == std::string_view::npos) return fail("a filter compares with == or !=");
      std::string_view left = condition.substr(0, op), right = condition.substr(op + 2);
      while (!left.empty() && left.back() == ' ') left.remove_suffix(1);
      while (!right.empty() && right.front() == ' ') right.remove_prefix(1);
      if (right.size() >= 2 && (right[0] == '"' || right[0] == '\''))
        right = right.substr(1, right.size() - 2);
      for (const Json* item : every(nodes)) {
        TRY(const Nodes found, select(left, {item}));
        const bool same =
            !found.empty() && (found[0]->is_string() ? found[0]->as_string() == right
                                                     : write_json(*found[0]) == right);
        if (same != negated) out.push_back(item);
      }
      return out;
    }
    std::int64_t index = 0;
    bool negative = false;
    for (const char c : inside) {
      if (c == '-' && !negative && index == 0) {
        negative = true;
      } else if (c >= '0' && c <= '9' && index < 1'000'000) {
        index = index * 10 + (c - '0');
      } else {
        return fail("\"[" + std::string(inside) + "]\" is not an index, name or filter");
      }
    }
    for (const Json* node : nodes) {
      const auto size = static_cast<std::int64_t>(node->as_array().size());
      const std::int64_t at = negative ? size - index : index;
      if (at >= 0 && at < size) out.push_back(&node->as_array()[static_cast<std::size_t>(at)]);
    }
    return out;
  }

  std::string_view text_;
  const Json& root_;
  std::size_t at_ = 0;
};

}  // namespace

Result<std::string> evaluate_jsonpath(std::string_view path_template, const Json& object) {
  return Evaluator(path_template, object).run();
}

}  // namespace varda::cli
