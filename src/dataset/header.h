// Decides whether the first record of csv and tsv names the columns (Header in format.h).
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace varda::dataset {

/// A longer first record is data for Header::kAuto.
inline constexpr std::size_t kHeaderBytesMax = 64 << 10;

/// True if every field looks like a name: the rule of Header::kAuto.
bool names_columns(std::span<const std::string> fields);

}  // namespace varda::dataset
