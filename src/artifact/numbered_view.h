// What a server that knows no names of versions sees of a model: directories with whole numbers, of which the greatest is to serve.
//
//   root/NS/NAME/.numbered/NUMBER/…   hard links, as root/NS/NAME/VERSION (model_tree.h)
//   root/NS/NAME/.numbered/FILE       what the active version has for all of them (config.pbtxt)
//
// Pods mount `.numbered`. Names in it that begin with "." are ours, under way.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "artifact/model_tree.h"

namespace varda::artifact {

inline constexpr std::string_view kNumberedView = ".numbered";

struct NumberedOptions {
  /// Two numbers of a version: the one it has by its name, and one for another archive under that name. The second is the greater.
  struct Numbers {
    std::uint64_t by_name = 0, by_archive = 0;
  };
  std::map<std::string, Numbers> versions;  // of what the model's directory shows, the active one among them; others are not shown
  std::vector<std::string> beside;          // files at the root of the active version that stand beside the numbers
};

/// The active version's number and, by number, the names of all that are shown.
struct NumberedVersions {
  std::uint64_t active = 0;
  std::map<std::uint64_t, std::string> names;
};

/// Makes the view of what the tree shows and says is active. The active version is there, whole, before a greater number goes; of
/// what else is shown, smaller numbers stay: a server that has not moved on may open their files. Does nothing where it is so
/// already. kNotFound: no version is active, or it has no numbers.
Result<NumberedVersions> show_numbered(os::FileSystem& fs, const ModelTree& tree, std::string_view key,
                                       const NumberedOptions& options);

/// Takes the view away. Fine if missing.
Status remove_numbered(os::FileSystem& fs, const ModelTree& tree, std::string_view key);

}  // namespace varda::artifact
