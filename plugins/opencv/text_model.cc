#include "text_model.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstddef>
#include <optional>
#include <utility>

namespace varda_opencv {
namespace {

constexpr int kDepthMax = 32;
constexpr std::size_t kInputsMax = 64;
constexpr std::size_t kRankMax = 16;

std::optional<std::int64_t> whole(std::string_view text) {
  std::int64_t out = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), out);
  if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size()) return std::nullopt;
  return out;
}

/// Tokens of protobuf's text format: braces, and words or strings. Colons, commas and semicolons
/// separate only. Empty at the end.
class Tokens {
 public:
  explicit Tokens(std::string_view text) : text_(text) {}

  std::string_view next() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '#') {
        while (at_ < text_.size() && text_[at_] != '\n') ++at_;
      } else if (is_separator(c)) {
        ++at_;
      } else {
        break;
      }
    }
    if (at_ >= text_.size()) return {};
    const std::size_t begin = at_++;
    const char first = text_[begin];
    if (first == '{' || first == '}') return text_.substr(begin, 1);
    if (first == '"' || first == '\'') {
      while (at_ < text_.size() && text_[at_] != first) at_ += text_[at_] == '\\' ? 2 : 1;
      at_ = at_ < text_.size() ? at_ + 1 : text_.size();
      return text_.substr(begin, at_ - begin);
    }
    while (at_ < text_.size() && !is_separator(text_[at_]) && text_[at_] != '{' &&
           text_[at_] != '}' && text_[at_] != '#')
      ++at_;
    return text_.substr(begin, at_ - begin);
  }

 private:
  static bool is_separator(char c) {
    return std::isspace(static_cast<unsigned char>(c)) != 0 || c == ':' || c == ',' || c == ';';
  }
  std::string_view text_;
  std::size_t at_ = 0;
};

std::string unquoted(std::string_view token) {
  const bool quoted = token.size() >= 2 && (token.front() == '"' || token.front() == '\'');
  return std::string(quoted ? token.substr(1, token.size() - 2) : token);
}

/// Values of the messages that describe an input: `dim` and `input_dim`, by their path.
class Prototxt {
 public:
  Prototxt(Tokens& tokens, Inputs& out) : tokens_(tokens), out_(out) {}

  void read() {
    message("", 0);
    // The older form: every `input` has four `input_dim`, or one `input_shape`.
    if (names_.empty() || !out_.problem.empty()) return;
    std::vector<std::vector<std::int64_t>> shapes = std::move(shapes_);
    for (std::size_t i = 0; shapes.size() < names_.size() && i + 4 <= flat_.size(); i += 4)
      shapes.emplace_back(flat_.begin() + static_cast<std::ptrdiff_t>(i),
                          flat_.begin() + static_cast<std::ptrdiff_t>(i) + 4);
    for (std::size_t i = 0; i < names_.size(); ++i)
      add(names_[i], i < shapes.size() ? shapes[i] : std::vector<std::int64_t>());
  }

 private:
  void add(const std::string& name, std::vector<std::int64_t> dims) {
    if (out_.all.size() == kInputsMax) return fail("it has too many inputs");
    if (!dims.empty()) dims.front() = -1;
    const bool known = !dims.empty();
    out_.all.push_back({name, true, std::move(dims), known});
  }

  void message(const std::string& path, int depth) {
    if (depth > kDepthMax) return fail("its messages are nested too deep");
    std::string type;
    std::vector<std::string> tops;
    std::vector<std::vector<std::int64_t>> before;
    if (path == "/layer") before = std::exchange(shapes_, {});
    if (path == "/input_shape" || path == "/layer/input_param/shape") shapes_.emplace_back();
    while (out_.problem.empty()) {
      const std::string key(tokens_.next());
      if (key.empty() && depth > 0) return fail("it ends inside a message");
      if (key.empty() || key == "}") break;
      const std::string_view value = tokens_.next();
      if (value == "{") {
        message(path + "/" + key, depth + 1);
        continue;
      }
      if (value.empty() || value == "}") return fail("field " + key + " has no value");
      take(path, key, value);
      if (key == "type") type = unquoted(value);
      if (key == "top") tops.push_back(unquoted(value));
    }
    if (path != "/layer") return;
    if (type == "Input")
      for (std::size_t i = 0; i < tops.size(); ++i)  // one shape may serve all tops
        add(tops[i], shapes_.empty() ? std::vector<std::int64_t>()
                                     : shapes_[std::min(i, shapes_.size() - 1)]);
    shapes_ = std::move(before);
  }

  void take(const std::string& path, const std::string& key, std::string_view value) {
    if (path.empty() && key == "input") names_.push_back(unquoted(value));
    const bool in_shape = path == "/input_shape" || path == "/layer/input_param/shape";
    const bool dim = in_shape && key == "dim", flat = path.empty() && key == "input_dim";
    if (!dim && !flat) return;
    const auto size = whole(value);
    if (!size) return fail("the size " + std::string(value.substr(0, 32)) + " is not a number");
    std::vector<std::int64_t>& sizes = dim ? shapes_.back() : flat_;
    if (sizes.size() >= (dim ? kRankMax : 4 * kInputsMax))
      return fail("a shape has too many dimensions");
    sizes.push_back(*size);
  }

  void fail(std::string problem) {
    if (out_.problem.empty()) out_.problem = "not a Caffe .prototxt: " + std::move(problem);
  }

  Tokens& tokens_;
  Inputs& out_;
  std::vector<std::string> names_;
  std::vector<std::vector<std::int64_t>> shapes_;  // of the current layer, or of the older form
  std::vector<std::int64_t> flat_;
};

std::string_view trimmed(std::string_view text) {
  const auto space = [](char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; };
  while (!text.empty() && space(text.front())) text.remove_prefix(1);
  while (!text.empty() && space(text.back())) text.remove_suffix(1);
  return text;
}

}  // namespace

Inputs inputs_of_prototxt(std::string_view text) {
  Inputs out;
  Tokens tokens(text);
  Prototxt(tokens, out).read();
  if (out.problem.empty() && out.all.empty()) out.problem = "the .prototxt declares no input";
  return out;
}

Inputs inputs_of_cfg(std::string_view text) {
  std::int64_t width = 0, height = 0, channels = 3;
  bool in_net = false;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = trimmed(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.starts_with('[')) in_net = line == "[net]" || line == "[network]";
    const std::size_t equals = line.find('=');
    if (!in_net || line.starts_with('#') || equals == std::string_view::npos) continue;
    const std::string_view key = trimmed(line.substr(0, equals));
    const auto value = whole(trimmed(line.substr(equals + 1)));
    if (!value) continue;
    if (key == "width") width = *value;
    if (key == "height") height = *value;
    if (key == "channels") channels = *value;
  }
  Inputs out;
  if (width < 1 || height < 1 || channels < 1)
    out.problem = "not a Darknet .cfg: [net] has no width and height";
  else
    out.all.push_back({"data", true, {-1, channels, height, width}, true});
  return out;
}

}  // namespace varda_opencv
