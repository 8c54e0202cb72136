#include "onnx/names.h"

namespace varda::onnx {

Names::Names(const Graph& graph) {
  for (const Tensor& tensor : graph.initializers) taken_.insert(tensor.name);
  for (const ValueInfo& input : graph.inputs) taken_.insert(input.name);
  for (const Node& node : graph.nodes) taken_.insert(node.outputs.begin(), node.outputs.end());
}

std::string Names::fresh(std::string_view wanted) {
  std::string out(wanted);
  for (int number = 2; !taken_.insert(out).second; ++number)
    out = std::string(wanted) + "_" + std::to_string(number);
  return out;
}

}  // namespace varda::onnx
