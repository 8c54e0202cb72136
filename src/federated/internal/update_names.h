// Names of tensors inside an update: "w", "w#scale", "control/w".
#pragma once

#include <string_view>

namespace varda::federated {

inline constexpr std::string_view kUpdateFormat = "varda-update/1";
inline constexpr std::string_view kControlPrefix = "control/";
inline constexpr std::string_view kScaleSuffix = "#scale";
inline constexpr std::string_view kIndexSuffix = "#index";
inline constexpr std::string_view kValueSuffix = "#value";
inline constexpr std::string_view kUpdateSuffixes[] = {kScaleSuffix, kIndexSuffix, kValueSuffix};

}  // namespace varda::federated
