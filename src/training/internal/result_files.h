// The files that a finished run leaves: model.onnx and metrics.json.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "os/file_system.h"
#include "training/run.h"

namespace varda::training {

/// Limit of files that the run wrote, in bytes.
inline constexpr std::uint64_t kFileMax = std::uint64_t{1} << 36;

/// Writes both files, durable when it returns. `identity` is that of the run.
Status write_result(os::FileSystem& fs, const os::Path& directory, const std::string& identity,
                    std::string_view model, const Outcome& outcome);
/// The outcome without pictures, if the directory has whole files of this run.
std::optional<Outcome> read_result(os::FileSystem& fs, const os::Path& directory,
                                   const std::string& identity);

}  // namespace varda::training
