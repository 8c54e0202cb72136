// trial.json beside a model: the version that answers beside the serving version.
//
//   {"version": "5", "mode": "shadow"}
//   {"version": "5", "mode": "canary", "share": 0.1}
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace varda::serving::trial {

enum class Mode {
  kShadow,  // runs each request after the serving version has answered
  kCanary,  // answers a share of the requests
};
std::string_view to_string(Mode mode);

struct File {
  std::string version;
  Mode mode = Mode::kShadow;
  double share = 0;  // kCanary: of the requests, 0 to 1
  friend bool operator==(const File&, const File&) = default;
};

/// kInvalid: the text is wrong, by member. Unknown members are ignored.
Result<File> parse_file(std::string_view text);

}  // namespace varda::serving::trial
