// The metadata of a model file: texts by key (ModelProto.metadata_props).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "onnx/model.h"

namespace varda::onnx {

std::optional<std::string> metadata(const Model& model, std::string_view key);
/// Replaces the entries with this key; other entries stay.
void set_metadata(Model& model, std::string_view key, std::string_view value);

}  // namespace varda::onnx
