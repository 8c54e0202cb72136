// Names of new tensors and nodes in a graph.
#pragma once

#include <set>
#include <string>
#include <string_view>

#include "onnx/model.h"

namespace varda::onnx {

/// Makes names that no tensor of the graph has. Subgraphs may hide a name of the outer graph, so
/// their names do not matter.
class Names {
 public:
  explicit Names(const Graph& graph);
  /// `wanted`, or `wanted` and a number.
  std::string fresh(std::string_view wanted);

 private:
  std::set<std::string, std::less<>> taken_;
};

}  // namespace varda::onnx
