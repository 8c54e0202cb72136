// Models with values in files beside the model file, as exporters write large ones:
// https://github.com/onnx/onnx/blob/main/docs/ExternalData.md
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace varda::onnx {

/// Exactly `count` bytes from `offset` of a file below the model's directory. The path is relative
/// and has no "..". The reader decides about links.
using ReadRange = std::function<Result<std::string>(const std::string& path, std::uint64_t offset,
                                                    std::uint64_t count)>;

/// The model file with all values inside; every other byte stays. A file without external values
/// stays as it is. Values in subgraphs stay external.
///
/// kInvalid: a path leaves the directory, or a range does not fit the tensor; the message names the
/// tensor. kExhausted: the file would be larger than protobuf allows, 2 GiB. Otherwise the error of
/// `read`.
Result<std::string> embed_external(std::string_view file, const ReadRange& read);

}  // namespace varda::onnx
