// Decides by the URL whether an artifact is one plain file instead of an archive.
#pragma once

#include <string>
#include <string_view>

namespace varda::artifact {

/// The file's name if the URL's path ends in the name of a model or data file: "frozen.pb",
/// "model.onnx", "weights.npz". "" for an archive, which every other name means. Bytes cannot
/// decide, because .npz, .pt and .keras files are zip archives themselves.
std::string plain_file_name(std::string_view url);

}  // namespace varda::artifact
