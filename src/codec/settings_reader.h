// Reads settings that people write from a JSON object: types, ranges, choices, and a clear refusal.
//
//   Status status;
//   SettingsReader in(json, "", status);
//   in.integer("epochs", out.epochs, 1, 100'000);
//   if (const Json* stop = in.object("stop")) read_stop(SettingsReader(*stop, "stop", status),
//   out); in.end();   // refuses members that nothing has read TRY_VOID(std::move(status));
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "codec/json.h"

namespace varda::codec {

/// A value and the text that selects it.
template <typename T>
using Choice = std::pair<std::string_view, T>;

template <typename T, std::size_t N>
std::string_view choice_name(const Choice<T> (&choices)[N], T value) {
  return std::find_if(std::begin(choices), std::end(choices),
                      [&](const Choice<T>& choice) { return choice.second == value; })
      ->first;
}

/// "sgd, adam or adamw"
std::string alternatives(std::span<const std::string_view> names);

/// The name that `written` probably means: at most two typing errors away. "": none.
std::string_view nearest_name(std::string_view written, std::span<const std::string> names);

struct Range {
  double low, high;
  enum class Ends : std::uint8_t { kClosed, kAboveLow, kBelowHigh } ends = Ends::kClosed;

  bool contains(double value) const;
  std::string text() const;  // "above 0 and at most 1"
};
inline constexpr auto kAboveLow = Range::Ends::kAboveLow, kBelowHigh = Range::Ends::kBelowHigh;

/// Reads the members of one object. A member that is absent or null leaves `out` as it is. After
/// the first error all reads do nothing. `json` and `status` outlive the reader.
class SettingsReader {
 public:
  /// `path` leads to the object in messages; "" for the outermost.
  SettingsReader(const Json& json, std::string path, Status& status);

  void integer(std::string_view name, std::int64_t& out, std::int64_t low, std::int64_t high);
  void number(std::string_view name, double& out, const Range& range);
  void boolean(std::string_view name, bool& out);
  void text(std::string_view name, std::string& out);
  void texts(std::string_view name, std::vector<std::string>& out);
  template <typename T, std::size_t N>
  void choice(std::string_view name, T& out, const Choice<T> (&choices)[N]) {
    const Json* value = find(name);
    if (value == nullptr) return;
    std::vector<std::string_view> names;
    for (const auto& [text, meaning] : choices) {
      if (value->is_string() && value->as_string() == text) {
        out = meaning;
        return;
      }
      names.push_back(text);
    }
    refuse(name, alternatives(names));
  }
  /// Seconds as a number, or a text such as 90s, 10m, 12h or 1d12h.
  void period(std::string_view name, std::chrono::milliseconds& out, std::chrono::seconds low,
              std::chrono::seconds high);
  /// The member, or null if absent.
  const Json* object(std::string_view name) { return find(name); }
  std::string path(std::string_view name) const {
    return path_.empty() ? std::string(name) : path_ + "." + std::string(name);
  }
  /// The member has another value than `wanted` describes.
  void refuse(std::string_view name, const std::string& wanted);

  /// Refuses members that nothing has read.
  void end();

 private:
  const Json* find(std::string_view name);
  void fail(std::string message);

  const Json& json_;
  const std::string path_;
  Status& status_;
  std::vector<std::string> read_;
};

}  // namespace varda::codec
