#include "cli/printer.h"
#include "meta/json_path.h"

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
  Status block(const Nodes& nodes, std::string& out, bool in_range) {
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
        TRY(const Nodes found, select(inside.substr(6), nodes));
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
        TRY_VOID(print(inside, nodes, out));
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

  Status print(std::string_view path, const Nodes& nodes, std::string& out) {
    TRY(const Nodes found, select(path, nodes));
    bool first = true;
    for (const Json* node : found) {
      if (!first) out += ' ';
      first = false;
      out += node->is_string() ? node->as_string() : write_json(*node);
    }
    return {};
  }

  // `nodes` has one node, except at the top: the object.
  Result<Nodes> select(std::string_view expression, const Nodes& nodes) const {
    auto path = meta::JsonPath::parse(expression);
    if (!path.ok()) return fail(path.error().message());
    Nodes out;
    for (const Json* node : nodes) {
      for (const Json* found : path->find(*node, root_)) out.push_back(found);
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
