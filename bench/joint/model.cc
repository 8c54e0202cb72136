#include "joint/model.h"

#include <vector>

#include "codec/protobuf.h"

namespace varda::bench {
namespace {

using codec::ProtoWriter;

// Field and type numbers: onnx.ai/onnx/repo-docs/IR.html, onnx.proto of format version 8.
constexpr std::int64_t kIrVersion = 8;
constexpr std::int64_t kOperators = 13;
constexpr std::int64_t kFloat = 1;

void value(ProtoWriter& info, const std::string& name, int size) {
  info.text(1, name).message(2, [&](ProtoWriter& type) {
    type.message(1, [&](ProtoWriter& tensor) {
      tensor.number(1, kFloat).message(2, [&](ProtoWriter& shape) {
        shape.message(1, [](ProtoWriter& rows) { rows.text(2, "N"); });
        shape.message(1, [&](ProtoWriter& columns) { columns.number(1, size); });
      });
    });
  });
}

void node(ProtoWriter& graph, const char* type, const std::vector<std::string>& inputs,
          const std::string& output) {
  graph.message(1, [&](ProtoWriter& out) {
    for (const std::string& input : inputs) out.element(1, input);
    out.element(2, output).text(4, type);
  });
}

}  // namespace

std::string matmul_model(int size, int products) {
  const auto count = static_cast<std::size_t>(size) * static_cast<std::size_t>(size);
  const std::vector<float> weights(count, 1.0F / static_cast<float>(size));
  ProtoWriter model;
  model.number(1, kIrVersion).message(7, [&](ProtoWriter& graph) {
    std::string last = "x";
    for (int i = 0; i < products; ++i) {
      const std::string next = "h" + std::to_string(i);
      node(graph, "MatMul", {last, "w"}, next);
      last = next;
    }
    node(graph, "Softmax", {last}, "probabilities");
    graph.text(2, "products").message(5, [&](ProtoWriter& tensor) {
      // Dimensions may be packed or not; readers accept both.
      tensor.number(1, size).number(1, size).number(2, kFloat).text(8, "w");
      tensor.text(9,
                  {reinterpret_cast<const char*>(weights.data()), weights.size() * sizeof(float)});
    });
    graph.message(11, [&](ProtoWriter& info) { value(info, "x", size); });
    graph.message(12, [&](ProtoWriter& info) { value(info, "probabilities", size); });
  });
  model.message(8, [](ProtoWriter& operators) { operators.number(2, kOperators); });
  return std::move(model).bytes();
}

}  // namespace varda::bench
