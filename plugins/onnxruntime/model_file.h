// The file of an ONNX model, read before ONNX Runtime sees it: a model is data, and names no file but those beside it.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace varda_onnxruntime {

/// Files that a model keeps tensors in (TensorProto.external_data, key "location"), as written: wherever a tensor can stand, in
/// graphs, their subgraphs, nodes' attributes, functions and training information.
struct Locations {
  std::vector<std::string> all;
  std::string problem;  // why the bytes are no ONNX model that can be looked through; "" if they are
};
/// Field numbers are those of onnx.proto (https://github.com/onnx/onnx, IR version 13); unknown fields are passed over, as protobuf
/// does.
Locations locations_in(std::string_view bytes);

/// Why the model may not be opened; "" if it may. It is refused if it is no ONNX file (ORT's own format can name memory and files
/// in ways that are not looked through), or if a location is empty, absolute, has a "..", or leads to what is no regular file below
/// the directory of `file`, links followed.
std::string why_refused(const std::filesystem::path& file);

}  // namespace varda_onnxruntime
