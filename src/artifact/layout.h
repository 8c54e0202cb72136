// Checks that a tree has the layout that a framework's server loads, and finds the format of a tree
// whose framework has several.
#pragma once

#include <optional>
#include <string_view>

#include "artifact/failure.h"
#include "os/file_system.h"

namespace varda::artifact {

/// At the root. onnx: `model.onnx`, or exactly one `*.onnx`. pb: exactly one `*.pb`. caffe: exactly
/// one `*.caffemodel` with its `.prototxt`. darknet: exactly one `*.weights` with its `.cfg`. Other
/// frameworks: at least one entry. kBadLayout lists the files found.
std::optional<Failure> check_layout(os::FileSystem& fs, const os::Path& root,
                                    std::string_view framework);

/// Formats of the framework tensorflow, which have different servers.
inline constexpr std::string_view kSavedModel = "saved-model", kFrozenGraph = "pb";

/// The format of an installed tree; "": the framework has only one, or the disk cannot be read. A
/// tree without saved_model.pb and with another *.pb at the root is a frozen graph.
std::string_view format_of(os::FileSystem& fs, const os::Path& root, std::string_view framework);

}  // namespace varda::artifact
