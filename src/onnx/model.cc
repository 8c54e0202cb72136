#include "onnx/model.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "base/text.h"
#include "codec/protobuf.h"

namespace varda::onnx {
namespace {

using codec::ProtoReader;
using codec::ProtoWriter;

// Each struct takes more memory than the bytes that it is read from. These limits bound the factor;
// the largest exported models have some ten thousand nodes.
constexpr std::size_t kNodesMax = 200'000, kNamesMax = 2'000'000, kRankMax = 64;

struct Type {
  std::int64_t onnx;
  tensor::DType dtype;
};
constexpr Type kTypes[] = {
    {1, tensor::DType::kFp32},    {2, tensor::DType::kUint8}, {3, tensor::DType::kInt8},
    {4, tensor::DType::kUint16},  {5, tensor::DType::kInt16}, {6, tensor::DType::kInt32},
    {7, tensor::DType::kInt64},   {8, tensor::DType::kBytes}, {9, tensor::DType::kBool},
    {10, tensor::DType::kFp16},   {11, tensor::DType::kFp64}, {12, tensor::DType::kUint32},
    {13, tensor::DType::kUint64}, {16, tensor::DType::kBf16},
};
// AttributeProto.AttributeType
constexpr std::int64_t kFloat = 1, kInt = 2, kString = 3, kTensor = 4, kFloats = 6, kInts = 7,
                       kStrings = 8;

Error too_large(const std::string& what) {
  return Error(Code::kExhausted, "the model has more than " + what);
}

/// Limits over the whole file.
struct Budget {
  std::size_t names = 0;
  Status take(std::size_t count = 1) {
    names += count;
    if (names > kNamesMax) return too_large(std::to_string(kNamesMax) + " names and attributes");
    return {};
  }
};

/// A repeated int64: packed, or one element.
Status read_ints(const ProtoReader& in, std::vector<std::int64_t>& out) {
  if (in.is_number()) {
    out.push_back(in.number());
    return {};
  }
  ProtoReader packed(in.bytes());
  while (packed.next_number()) out.push_back(packed.number());
  return packed.status();
}

void read_floats(const ProtoReader& in, std::vector<float>& out) {
  if (in.is_real()) {
    out.push_back(in.real());
    return;
  }
  const std::size_t before = out.size(), count = in.bytes().size() / sizeof(float);
  out.resize(before + count);
  if (count > 0) std::memcpy(out.data() + before, in.bytes().data(), count * sizeof(float));
}

Result<Tensor> read_tensor(const Bytes& message) {
  Tensor out;
  out.message = message;
  ProtoReader in(message.view);
  while (in.next()) {
    if (in.field() == 1) TRY_VOID(read_ints(in, out.dims));
    if (in.field() == 2) out.data_type = in.number();
    if (in.field() == 8) out.name = in.text();
    if (in.field() == 13 || (in.field() == 14 && in.number() == 1)) out.external = true;
    if (out.dims.size() > kRankMax)
      return too_large(std::to_string(kRankMax) + " dimensions in a tensor");
  }
  TRY_VOID(in.status());
  if (!tensor::elements(out.dims).ok())
    return Error(Code::kInvalid,
                 "tensor \"" + out.name + "\" has the shape " + tensor::to_string(out.dims));
  return out;
}

Result<Attribute> read_attribute(const Bytes& message, Budget& budget) {
  Attribute out;
  std::int64_t type = 0, integer = 0;
  float real = 0;
  bool reference = false;
  std::string text;
  std::vector<std::int64_t> ints;
  std::vector<float> floats;
  std::vector<std::string> texts;
  std::optional<Tensor> tensor;
  ProtoReader in(message.view);
  while (in.next()) {
    switch (in.field()) {
      case 1:
        out.name = in.text();
        break;
      case 2:
        real = in.real();
        break;
      case 3:
        integer = in.number();
        break;
      case 4:
        text = in.text();
        break;
      case 5: {
        TRY(tensor, read_tensor({message.owner, in.bytes()}));
        break;
      }
      case 7:
        read_floats(in, floats);
        break;
      case 8:
        TRY_VOID(read_ints(in, ints));
        break;
      case 9:
        TRY_VOID(budget.take());
        texts.push_back(in.text());
        break;
      case 20:
        type = in.number();
        break;
      case 21:
        reference = true;
        break;
      default:
        break;
    }
  }
  TRY_VOID(in.status());
  if (reference) type = 0;
  switch (type) {
    case kFloat:
      out.value = real;
      break;
    case kInt:
      out.value = integer;
      break;
    case kString:
      out.value = std::move(text);
      break;
    case kTensor:
      if (!tensor) return Error(Code::kInvalid, "attribute \"" + out.name + "\" has no tensor");
      out.value = std::move(*tensor);
      break;
    case kFloats:
      out.value = std::move(floats);
      break;
    case kInts:
      out.value = std::move(ints);
      break;
    case kStrings:
      out.value = std::move(texts);
      break;
    default:
      out.value = Attribute::Kept{std::string(message.view)};
  }
  return out;
}

Result<Node> read_node(const Bytes& message, Budget& budget) {
  Node out;
  ProtoReader in(message.view);
  while (in.next()) {
    TRY_VOID(budget.take());
    if (in.field() == 1)
      out.inputs.push_back(in.text());
    else if (in.field() == 2)
      out.outputs.push_back(in.text());
    else if (in.field() == 3)
      out.name = in.text();
    else if (in.field() == 4)
      out.op_type = in.text();
    else if (in.field() == 5) {
      auto attribute = read_attribute({message.owner, in.bytes()}, budget);
      if (!attribute.ok()) return std::move(attribute).error().context(to_string(out));
      out.attributes.push_back(std::move(attribute).value());
    } else if (in.field() == 7)
      out.domain = in.text();
    else
      out.rest += in.raw();
  }
  TRY_VOID(in.status());
  if (out.domain == "ai.onnx") out.domain.clear();
  return out;
}

/// TypeProto of a tensor; false for another type.
Result<bool> read_type(std::string_view message, ValueInfo& out) {
  ProtoReader in(message);
  bool is_tensor = false;
  while (in.next()) {
    if (in.field() != 1) {
      if (in.field() != 6) return false;  // a sequence, a map, …; 6 is a comment
      continue;
    }
    is_tensor = true;
    ProtoReader type(in.bytes());
    while (type.next()) {
      if (type.field() == 1) out.data_type = type.number();
      if (type.field() != 2) continue;
      auto& dims = out.shape.emplace();
      ProtoReader shape(type.bytes());
      while (shape.next()) {
        if (shape.field() != 1) continue;
        ValueInfo::Dim dim;
        ProtoReader size(shape.bytes());
        while (size.next()) {
          if (size.field() == 1) dim.size = size.number();
          if (size.field() == 2) dim.symbol = size.text();
        }
        TRY_VOID(size.status());
        if (dims.size() == kRankMax)
          return too_large(std::to_string(kRankMax) + " dimensions in a tensor");
        dims.push_back(std::move(dim));
      }
      TRY_VOID(shape.status());
    }
    TRY_VOID(type.status());
  }
  TRY_VOID(in.status());
  return is_tensor;
}

Result<ValueInfo> read_value_info(std::string_view message) {
  ValueInfo out;
  ProtoReader in(message);
  while (in.next()) {
    if (in.field() == 1) {
      out.name = in.text();
      continue;
    }
    if (in.field() == 2) {
      ValueInfo typed;
      TRY(const bool is_tensor, read_type(in.bytes(), typed));
      if (is_tensor) {
        out.data_type = typed.data_type;
        out.shape = std::move(typed.shape);
        continue;
      }
    }
    out.rest += in.raw();
  }
  TRY_VOID(in.status());
  return out;
}

Result<Graph> read_graph(const Bytes& message) {
  Graph out;
  Budget budget;
  ProtoReader in(message.view);
  while (in.next()) {
    TRY_VOID(budget.take());
    switch (in.field()) {
      case 1: {
        if (out.nodes.size() == kNodesMax) return too_large(std::to_string(kNodesMax) + " nodes");
        TRY(Node node, read_node({message.owner, in.bytes()}, budget));
        out.nodes.push_back(std::move(node));
        break;
      }
      case 2:
        out.name = in.text();
        break;
      case 5: {
        TRY(Tensor tensor, read_tensor({message.owner, in.bytes()}));
        out.initializers.push_back(std::move(tensor));
        break;
      }
      case 11: {
        TRY(ValueInfo info, read_value_info(in.bytes()));
        out.inputs.push_back(std::move(info));
        break;
      }
      case 12: {
        TRY(ValueInfo info, read_value_info(in.bytes()));
        out.outputs.push_back(std::move(info));
        break;
      }
      default:
        out.rest += in.raw();
    }
  }
  TRY_VOID(in.status());
  return out;
}

/// ONNX's rules of names, and the inputs without initializers.
Status check(Graph& graph, const std::set<std::string>& sparse) {
  std::set<std::string> known = sparse;
  std::set<std::string> initializers;
  for (const Tensor& tensor : graph.initializers)
    if (!initializers.insert(tensor.name).second || !known.insert(tensor.name).second)
      return Error(Code::kInvalid, "there are two initializers \"" + tensor.name + "\"");
  std::erase_if(graph.inputs,
                [&](const ValueInfo& input) { return initializers.contains(input.name); });
  for (const ValueInfo& input : graph.inputs)
    if (!known.insert(input.name).second)
      return Error(Code::kInvalid, "there are two inputs \"" + input.name + "\"");
  for (const Node& node : graph.nodes) {
    if (node.op_type.empty()) return Error(Code::kInvalid, "a node has no operator");
    for (const std::string& input : node.inputs)
      if (!input.empty() && !known.contains(input))
        return Error(Code::kInvalid,
                     to_string(node) + " reads \"" + input + "\", which nothing before it makes");
    for (const std::string& output : node.outputs)
      if (!output.empty() && !known.insert(output).second)
        return Error(Code::kInvalid,
                     to_string(node) + " makes \"" + output + "\", which exists already");
  }
  std::set<std::string> outputs;
  for (const ValueInfo& output : graph.outputs) {
    if (!known.contains(output.name))
      return Error(Code::kInvalid, "nothing makes the output \"" + output.name + "\"");
    if (!outputs.insert(output.name).second)
      return Error(Code::kInvalid, "there are two outputs \"" + output.name + "\"");
  }
  return {};
}

/// Names of sparse initializers, which stay in `rest`.
Result<std::set<std::string>> sparse_names(std::string_view rest) {
  std::set<std::string> out;
  ProtoReader in(rest);
  while (in.next()) {
    if (in.field() != 15) continue;
    ProtoReader sparse(in.bytes());
    while (sparse.next()) {
      if (sparse.field() != 1) continue;
      ProtoReader values(sparse.bytes());
      while (values.next())
        if (values.field() == 8) out.insert(values.text());
      TRY_VOID(values.status());
    }
    TRY_VOID(sparse.status());
  }
  return out;
}

Result<Model> read_model(const Bytes& bytes) {
  Model out;
  bool has_graph = false;
  ProtoReader in(bytes.view);
  while (in.next()) {
    if (in.field() == 1) {
      out.ir_version = in.number();
    } else if (in.field() == 7) {
      if (has_graph) return Error(Code::kInvalid, "the file has two graphs");
      has_graph = true;
      TRY(out.graph, read_graph({bytes.owner, in.bytes()}));
    } else if (in.field() == 8) {
      std::string domain;
      std::int64_t version = 0;
      ProtoReader opset(in.bytes());
      while (opset.next()) {
        if (opset.field() == 1) domain = opset.text();
        if (opset.field() == 2) version = opset.number();
      }
      TRY_VOID(opset.status());
      out.opsets[domain == "ai.onnx" ? "" : domain] = version;
    } else {
      out.rest += in.raw();
    }
  }
  TRY_VOID(in.status());
  if (!has_graph || out.ir_version <= 0) return Error(Code::kInvalid, "there is no graph");
  return out;
}

void write_tensor(const Tensor& tensor, ProtoWriter& out) {
  ProtoReader in(tensor.message.view);
  while (in.next())
    if (in.field() != 8) out.raw(in.raw());
  out.text(8, tensor.name);
}

void write_value(const Attribute::Value& value, ProtoWriter& out) {
  if (const auto* integer = std::get_if<std::int64_t>(&value)) {
    out.item(3, *integer).number(20, kInt);
  } else if (const auto* real = std::get_if<float>(&value)) {
    out.real(2, *real).number(20, kFloat);
  } else if (const auto* text = std::get_if<std::string>(&value)) {
    out.element(4, *text).number(20, kString);
  } else if (const auto* tensor = std::get_if<Tensor>(&value)) {
    out.message(5, [&](ProtoWriter& inner) { write_tensor(*tensor, inner); }).number(20, kTensor);
  } else if (const auto* floats = std::get_if<std::vector<float>>(&value)) {
    for (const float item : *floats) out.real(7, item);
    out.number(20, kFloats);
  } else if (const auto* ints = std::get_if<std::vector<std::int64_t>>(&value)) {
    for (const std::int64_t item : *ints) out.item(8, item);
    out.number(20, kInts);
  } else if (const auto* texts = std::get_if<std::vector<std::string>>(&value)) {
    for (const std::string& item : *texts) out.element(9, item);
    out.number(20, kStrings);
  }
}

void write_node(const Node& node, ProtoWriter& out) {
  for (const std::string& input : node.inputs) out.element(1, input);
  for (const std::string& output : node.outputs) out.element(2, output);
  out.text(3, node.name).text(4, node.op_type);
  for (const Attribute& attribute : node.attributes) {
    if (const auto* kept = std::get_if<Attribute::Kept>(&attribute.value)) {
      out.element(5, kept->message);
      continue;
    }
    out.message(5, [&](ProtoWriter& inner) {
      inner.text(1, attribute.name);
      write_value(attribute.value, inner);
    });
  }
  out.text(7, node.domain).raw(node.rest);
}

void write_value_info(const ValueInfo& info, ProtoWriter& out) {
  out.text(1, info.name);
  if (info.data_type != 0) {
    out.message(2, [&](ProtoWriter& type) {
      type.message(1, [&](ProtoWriter& tensor) {
        tensor.number(1, info.data_type);
        if (!info.shape) return;
        tensor.message(2, [&](ProtoWriter& shape) {
          for (const ValueInfo::Dim& dim : *info.shape)
            shape.message(1, [&](ProtoWriter& size) {
              if (!dim.symbol.empty())
                size.text(2, dim.symbol);
              else if (dim.size >= 0)
                size.item(1, dim.size);
            });
        });
      });
    });
  }
  out.raw(info.rest);
}

void write_graph(const Graph& graph, ProtoWriter& out) {
  for (const Node& node : graph.nodes)
    out.message(1, [&](ProtoWriter& inner) { write_node(node, inner); });
  out.text(2, graph.name);
  for (const Tensor& tensor : graph.initializers)
    out.message(5, [&](ProtoWriter& inner) { write_tensor(tensor, inner); });
  for (const ValueInfo& input : graph.inputs)
    out.message(11, [&](ProtoWriter& inner) { write_value_info(input, inner); });
  for (const ValueInfo& output : graph.outputs)
    out.message(12, [&](ProtoWriter& inner) { write_value_info(output, inner); });
  out.raw(graph.rest);
}

/// Values of a TensorProto in a field of numbers, as bytes of T.
template <typename T>
Status read_numbers(std::string_view message, std::uint32_t field, std::size_t count,
                    std::string& out) {
  ProtoReader in(message);
  while (in.next()) {
    if (in.field() != field) continue;
    std::vector<std::int64_t> numbers;
    TRY_VOID(read_ints(in, numbers));
    for (const std::int64_t number : numbers) {
      const T value = static_cast<T>(number);
      out.append(reinterpret_cast<const char*>(&value), sizeof value);
    }
    if (out.size() > count * sizeof(T)) break;
  }
  return {};
}

/// The values of a tensor without raw_data.
Result<std::string> decode(const Tensor& tensor, tensor::DType dtype, std::size_t count) {
  using tensor::DType;
  std::string out;
  const std::string_view message = tensor.message.view;
  const std::uint32_t fixed = dtype == DType::kFp32 ? 4 : dtype == DType::kFp64 ? 10 : 0;
  if (fixed != 0) {
    ProtoReader in(message);
    while (in.next()) {
      if (in.field() != fixed) continue;
      // Unpacked elements are fields of their own: 4 or 8 bytes after a one-byte tag.
      out += in.is_bytes() ? in.bytes() : in.raw().substr(1);
    }
    return out;
  }
  switch (dtype) {
    case DType::kInt64:
      TRY_VOID(read_numbers<std::int64_t>(message, 7, count, out));
      break;
    case DType::kUint64:
      TRY_VOID(read_numbers<std::uint64_t>(message, 11, count, out));
      break;
    case DType::kUint32:
      TRY_VOID(read_numbers<std::uint32_t>(message, 11, count, out));
      break;
    case DType::kInt32:
      TRY_VOID(read_numbers<std::int32_t>(message, 5, count, out));
      break;
    default:  // one or two bytes wide
      if (tensor::element_bytes(dtype) == 1)
        TRY_VOID(read_numbers<std::uint8_t>(message, 5, count, out));
      else
        TRY_VOID(read_numbers<std::uint16_t>(message, 5, count, out));
  }
  return out;
}

}  // namespace

Bytes Bytes::of(std::string bytes) {
  auto owner = std::make_shared<const std::string>(std::move(bytes));
  const std::string_view view = *owner;
  return {std::move(owner), view};
}

std::optional<tensor::DType> dtype_of(std::int64_t data_type) {
  for (const Type& type : kTypes)
    if (type.onnx == data_type) return type.dtype;
  return std::nullopt;
}

std::int64_t data_type_of(tensor::DType dtype) {
  for (const Type& type : kTypes)
    if (type.dtype == dtype) return type.onnx;
  CHECK(false);
}

Tensor Tensor::of(std::string name, const tensor::Tensor& value) {
  Tensor out;
  out.name = std::move(name);
  out.data_type = data_type_of(value.dtype());
  out.dims = value.shape();
  ProtoWriter message;
  for (const std::int64_t size : out.dims) message.item(1, size);
  message.number(2, out.data_type).text(8, out.name);
  if (value.dtype() == tensor::DType::kBytes) {
    for (const std::string_view text : value.strings()) message.element(6, text);
  } else {
    message.element(9, {reinterpret_cast<const char*>(value.bytes().data()), value.bytes().size()});
  }
  out.message = Bytes::of(std::move(message).bytes());
  return out;
}

Result<tensor::Tensor> Tensor::value() const {
  const std::string what = "tensor \"" + name + "\"";
  if (external) return Error(Code::kUnsupported, what + " has its values in another file");
  const auto dtype = dtype_of(data_type);
  if (!dtype)
    return Error(Code::kUnsupported, what + " has the type " + std::to_string(data_type) +
                                         " of ONNX, which Varda lacks");
  TRY(const std::size_t count, tensor::elements(dims));
  ProtoReader in(message.view);
  std::vector<std::string> strings;
  while (in.next()) {
    if (in.field() == 6 && *dtype == tensor::DType::kBytes) strings.push_back(in.text());
    if (in.field() != 9 || *dtype == tensor::DType::kBytes) continue;
    const auto bytes = std::as_bytes(std::span(in.bytes()));
    return tensor::Tensor::over(*dtype, dims, bytes, message.owner).context(what);
  }
  if (*dtype == tensor::DType::kBytes)
    return tensor::Tensor::of_strings(dims, strings).context(what);
  TRY(const std::string decoded, decode(*this, *dtype, count));
  return tensor::Tensor::copy(*dtype, dims, std::as_bytes(std::span(decoded))).context(what);
}

const Attribute* Node::find(std::string_view attribute) const {
  for (const Attribute& one : attributes)
    if (one.name == attribute) return &one;
  return nullptr;
}

namespace {

template <typename T>
const T* value_of(const Node& node, std::string_view attribute) {
  const Attribute* found = node.find(attribute);
  return found != nullptr ? std::get_if<T>(&found->value) : nullptr;
}

}  // namespace

std::int64_t Node::integer(std::string_view attribute, std::int64_t absent) const {
  const auto* found = value_of<std::int64_t>(*this, attribute);
  return found != nullptr ? *found : absent;
}

float Node::real(std::string_view attribute, float absent) const {
  const auto* found = value_of<float>(*this, attribute);
  return found != nullptr ? *found : absent;
}

std::string Node::text(std::string_view attribute, std::string_view absent) const {
  const auto* found = value_of<std::string>(*this, attribute);
  return found != nullptr ? *found : std::string(absent);
}

std::vector<std::int64_t> Node::integers(std::string_view attribute) const {
  const auto* found = value_of<std::vector<std::int64_t>>(*this, attribute);
  return found != nullptr ? *found : std::vector<std::int64_t>();
}

void Node::remove(std::string_view attribute) {
  std::erase_if(attributes, [&](const Attribute& one) { return one.name == attribute; });
}

const std::string& Node::input(std::size_t index) const {
  static const std::string kAbsent;
  return index < inputs.size() ? inputs[index] : kAbsent;
}

const std::string& Node::output(std::size_t index) const {
  static const std::string kAbsent;
  return index < outputs.size() ? outputs[index] : kAbsent;
}

std::string to_string(const Node& node) {
  const std::string op = node.domain.empty() ? node.op_type : node.domain + "." + node.op_type;
  const std::string& name = node.name.empty() ? node.output(0) : node.name;
  return "node \"" + name + "\" (" + op + ")";
}

const Tensor* Graph::initializer(std::string_view wanted) const {
  for (const Tensor& tensor : initializers)
    if (tensor.name == wanted) return &tensor;
  return nullptr;
}

std::int64_t Model::opset() const {
  const auto it = opsets.find("");
  return it != opsets.end() ? it->second : 1;
}

Result<Model> parse(std::string bytes) { return parse(Bytes::of(std::move(bytes))); }

Result<Model> parse(Bytes bytes) {
  auto model = read_model(bytes).context("not a usable ONNX file");
  if (!model.ok()) return model;
  TRY(const auto sparse, sparse_names(model->graph.rest));
  TRY_VOID(check(model->graph, sparse).context("not a usable ONNX file"));
  return model;
}

Result<Graph> parse_graph(const Attribute& attribute) {
  const auto* kept = std::get_if<Attribute::Kept>(&attribute.value);
  if (kept != nullptr) {
    const Bytes message = Bytes::of(kept->message);
    ProtoReader in(message.view);
    while (in.next())
      if (in.field() == 6) return read_graph({message.owner, in.bytes()});
  }
  return Error(Code::kInvalid, "attribute \"" + attribute.name + "\" is no graph");
}

std::string serialize(const Model& model) {
  ProtoWriter out;
  out.number(1, model.ir_version);
  out.message(7, [&](ProtoWriter& inner) { write_graph(model.graph, inner); });
  for (const auto& opset : model.opsets)
    out.message(8, [&](ProtoWriter& inner) { inner.text(1, opset.first).number(2, opset.second); });
  out.raw(model.rest);
  return std::move(out).bytes();
}

}  // namespace varda::onnx
