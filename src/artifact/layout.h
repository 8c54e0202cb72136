// Checks that a tree has the layout that a framework's server loads.
#pragma once

#include <optional>
#include <string_view>

#include "artifact/failure.h"
#include "os/file_system.h"

namespace varda::artifact {

/// onnx: `model.onnx`, or exactly one `*.onnx`, at the root. Other frameworks: at least one entry.
/// kBadLayout lists the files found.
std::optional<Failure> check_layout(os::FileSystem& fs, const os::Path& root,
                                    std::string_view framework);

}  // namespace varda::artifact
