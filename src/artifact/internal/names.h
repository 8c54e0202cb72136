// Names in a store's directory: store.h says what they are.
#pragma once

#include <string_view>

namespace varda::artifact {

inline constexpr std::string_view kScratchName = ".scratch";
inline constexpr std::string_view kRecordsName = ".trees";      // HEX: what the tree HEX held when it was unpacked (tree_record.h)
inline constexpr std::string_view kArchivesName = ".archives";  // HEX: an archive kept as it came, for others
inline constexpr std::string_view kPartSuffix = ".part", kNotesSuffix = ".notes", kTreeSuffix = ".tree", kRecordSuffix = ".list";

}  // namespace varda::artifact
