// Names in a store's directory; store.h describes them.
#pragma once

#include <string_view>

namespace varda::artifact {

inline constexpr std::string_view kScratchName = ".scratch";
inline constexpr std::string_view kRecordsName =
    ".trees";  // HEX: record of tree HEX (tree_record.h)
inline constexpr std::string_view kArchivesName =
    ".archives";  // HEX: an unchanged archive, kept for peer nodes
inline constexpr std::string_view kPartSuffix = ".part", kNotesSuffix = ".notes",
                                  kTreeSuffix = ".tree", kRecordSuffix = ".list";

}  // namespace varda::artifact
