// ONNX models as structs: parsed from a file's bytes, changed, and written.
//
//   TRY(onnx::Model model, onnx::parse(std::move(bytes)));
//   for (const onnx::Node& node : model.graph.nodes) count[node.op_type]++;
//   model.graph.outputs.push_back({.name = "scores1"});
//   const std::string changed = onnx::serialize(model);
//
// Field numbers are from onnx.proto (https://github.com/onnx/onnx, IR version 13). A struct has the
// fields that Varda uses. `rest` holds the other fields as written, and serialize() writes them
// back. Subgraphs, such as the branches of If, stay unparsed in their attributes.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "tensor/tensor.h"

namespace varda::onnx {

/// Bytes that `owner` keeps alive. Cheap to copy.
struct Bytes {
  std::shared_ptr<const std::string> owner;
  std::string_view view;
  static Bytes of(std::string bytes);
};

/// TensorProto. The values stay encoded until value() decodes them.
struct Tensor {
  std::string name;
  std::int64_t data_type = 0;  // TensorProto.DataType
  tensor::Shape dims;
  bool external = false;  // the values are in another file
  Bytes message;          // the whole TensorProto

  static Tensor of(std::string name, const tensor::Tensor& value);
  /// Shares the bytes of `message` if possible. kUnsupported: external, or a type without a
  /// tensor::DType. kInvalid: the number of values differs from `dims`.
  Result<tensor::Tensor> value() const;
};

/// The tensor type of an ONNX type number; empty for types that Varda lacks.
std::optional<tensor::DType> dtype_of(std::int64_t data_type);
std::int64_t data_type_of(tensor::DType dtype);

/// AttributeProto. `kept` is the whole message, for attributes of other types such as graphs.
struct Attribute {
  struct Kept {
    std::string message;
  };
  using Value = std::variant<std::int64_t, float, std::string, std::vector<std::int64_t>,
                             std::vector<float>, std::vector<std::string>, Tensor, Kept>;
  std::string name;
  Value value;
};

struct Node {
  std::string op_type;
  std::vector<std::string> inputs;  // "" for an absent optional input
  std::vector<std::string> outputs;
  std::vector<Attribute> attributes;
  std::string name;
  std::string domain;  // "" for ONNX's own operators
  std::string rest;

  /// The attribute of this type, or `absent`.
  std::int64_t integer(std::string_view attribute, std::int64_t absent) const;
  float real(std::string_view attribute, float absent) const;
  std::string text(std::string_view attribute, std::string_view absent) const;
  std::vector<std::int64_t> integers(std::string_view attribute) const;
  const Attribute* find(std::string_view attribute) const;
  void remove(std::string_view attribute);
  /// The name of the input, or "" if absent.
  const std::string& input(std::size_t index) const;
  const std::string& output(std::size_t index) const;
};
/// `node "conv1" (Conv)`. A node without a name is known by the first output.
std::string to_string(const Node& node);

/// ValueInfoProto: a tensor, or a kept type. Without a type the runtime infers one.
struct ValueInfo {
  struct Dim {
    std::int64_t size = -1;  // -1: any
    std::string symbol;
  };
  std::string name;
  std::int64_t data_type = 0;             // 0: `rest` has another type, or none
  std::optional<std::vector<Dim>> shape;  // empty: any rank
  std::string rest;
};

struct Graph {
  std::string name;
  std::vector<Node> nodes;  // each after the nodes that it reads from
  std::vector<Tensor> initializers;
  std::vector<ValueInfo> inputs;  // without initializers, which old files list here too
  std::vector<ValueInfo> outputs;
  std::string rest;

  const Tensor* initializer(std::string_view name) const;
};

struct Model {
  std::int64_t ir_version = 0;
  std::map<std::string, std::int64_t> opsets;  // by domain
  Graph graph;
  std::string rest;

  /// The version of ONNX's own operators.
  std::int64_t opset() const;
};

/// Reads a model. kInvalid: not an ONNX model, or the graph breaks a rule of ONNX: a tensor with
/// two sources, or with none before a node reads it. kExhausted: beyond a limit.
Result<Model> parse(std::string bytes);
Result<Model> parse(Bytes bytes);

/// The graph of an attribute, such as a branch of If. Its nodes also read tensors around the node,
/// so the rules of names stay unchecked. kInvalid: the attribute is no graph.
Result<Graph> parse_graph(const Attribute& attribute);

/// The bytes of a model. In each message the kept fields follow the others.
std::string serialize(const Model& model);

}  // namespace varda::onnx
