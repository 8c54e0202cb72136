// The view of a model for servers without version names: numbered directories, of which the
// greatest is to be served.
//
//   root/NS/NAME/.numbered/NUMBER/…   hard links, as root/NS/NAME/VERSION (model_tree.h)
//   root/NS/NAME/.numbered/FILE       shared files of the active version (config.pbtxt)
//
// Pods mount `.numbered`. Names in it that begin with "." are work in progress.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "artifact/model_tree.h"

namespace varda::artifact {

inline constexpr std::string_view kNumberedView = ".numbered";

struct NumberedOptions {
  /// Two numbers for a version: one from its name, and a greater one for another archive of that
  /// name.
  struct Numbers {
    std::uint64_t by_name = 0, by_archive = 0;
  };
  std::map<std::string, Numbers> versions;  // of exposed versions, including the active one; others
                                            // stay hidden
  std::vector<std::string> extra_files;     // root files of the active version, next to the numbers
};

/// The number of the active version, and the names of all shown versions by number.
struct NumberedVersions {
  std::uint64_t active = 0;
  std::map<std::uint64_t, std::string> names;
};

/// Builds the view of the exposed and active versions. The active version is complete before a
/// greater number is removed. Smaller numbers of exposed versions stay, because a server may still
/// have them open. No effect if the view is current. kNotFound: no version is active, or it has no
/// numbers.
Result<NumberedVersions> show_numbered(os::FileSystem& fs, const ModelTree& tree,
                                       std::string_view key, const NumberedOptions& options);

/// Removes the view. Success if missing.
Status remove_numbered(os::FileSystem& fs, const ModelTree& tree, std::string_view key);

}  // namespace varda::artifact
