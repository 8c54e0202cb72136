// Checks an ONNX model file before ONNX Runtime opens it: a model may refer only to files in its
// own directory.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace varda_onnxruntime {

/// Files with external tensors of a model (TensorProto.external_data, key "location"), as written.
/// Covers every place of a tensor: graphs, subgraphs, node attributes, functions and training
/// information.
struct Locations {
  std::vector<std::string> all;
  std::string problem;  // why the bytes cannot be checked as an ONNX model; "" if they can
};
/// Field numbers are from onnx.proto (https://github.com/onnx/onnx, IR version 13). Unknown fields
/// are skipped, as in protobuf.
Locations locations_in(std::string_view bytes);

/// Why the model must not be opened; "" if it may. Only ONNX files are accepted: ORT's own format
/// can refer to memory and files in unchecked ways. A location is rejected if it is empty, absolute
/// or contains "..". It must also resolve, through links, to a regular file below the directory of
/// `file`.
std::string why_refused(const std::filesystem::path& file);

/// The same for a model in memory, which may refer to no file.
std::string why_bytes_refused(std::string_view bytes);

}  // namespace varda_onnxruntime
