// Files named by flags.
#pragma once

#include <filesystem>

namespace varda::app {

/// Resolves links: files of ConfigMap and Secret volumes are links, which os::FileSystem does not
/// follow. An unresolvable path is returned unchanged; reading it reports the cause.
inline std::filesystem::path followed(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::path real = std::filesystem::canonical(path, error);
  return error ? path : real;
}

}  // namespace varda::app
