// Files that people name by flags.
#pragma once

#include <filesystem>

namespace varda::app {

/// Where the path leads to: files of ConfigMap and Secret volumes are links, and os::FileSystem follows none. What cannot be
/// followed stays as it is: whoever reads it says why.
inline std::filesystem::path followed(const std::filesystem::path& given) {
  std::error_code error;
  std::filesystem::path real = std::filesystem::canonical(given, error);
  return error ? given : real;
}

}  // namespace varda::app
