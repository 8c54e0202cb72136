// Labels of nodes, and of the objects that our kinds create.
#pragma once

#include <string_view>

namespace varda::hosting {

inline constexpr std::string_view kManagedByLabel = "app.kubernetes.io/managed-by";
inline constexpr std::string_view kModelLabel = "edgeai.io/inference-model";
inline constexpr std::string_view kLayerLabel = "edgeai.io/layer";
inline constexpr std::string_view kVersionLabel =
    "edgeai.io/model-version";  // also an annotation: not every version can be a label

}  // namespace varda::hosting
