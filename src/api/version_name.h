// Valid names of a model's version.
#pragma once

#include <string_view>

namespace varda::api {

// Version names become names of directories beside the file `target`. There, a leading dot marks
// work in progress.
inline constexpr std::string_view kVersionPattern = "^[A-Za-z0-9_-][A-Za-z0-9._-]{0,62}$";
inline constexpr std::string_view kVersionExpected =
    "must be 1 to 63 letters, digits, '.', '_' or '-', and not begin with '.'";
inline constexpr std::string_view kVersionForbidden = "target";

}  // namespace varda::api
