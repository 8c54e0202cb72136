#include "graph_def.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <utility>

#include "plugins/protobuf_fields.h"

namespace varda_opencv {
namespace {

using varda_plugins::ProtobufFields;

// Element types: tensorflow/core/framework/types.proto.
struct DataType {
  std::uint64_t number;
  std::int64_t bytes;         // of one element in tensor_content
  std::uint32_t field;        // TensorProto's list of values
  std::int64_t packed_bytes;  // of one value in that list; 0: varints
};
constexpr std::array<DataType, 10> kTypes = {{
    {1, 4, 5, 4},    // DT_FLOAT: float_val
    {2, 8, 6, 8},    // DT_DOUBLE: double_val
    {3, 4, 7, 0},    // DT_INT32: int_val
    {4, 1, 7, 0},    // DT_UINT8
    {5, 2, 7, 0},    // DT_INT16
    {6, 1, 7, 0},    // DT_INT8
    {9, 8, 10, 0},   // DT_INT64: int64_val
    {10, 1, 11, 0},  // DT_BOOL: bool_val
    {14, 2, 13, 0},  // DT_BFLOAT16: half_val
    {19, 2, 13, 0},  // DT_HALF
}};

constexpr std::uint64_t kFloat = 1;

const DataType* type_of(std::uint64_t number) {
  const auto found = std::find_if(kTypes.begin(), kTypes.end(),
                                  [&](const DataType& type) { return type.number == number; });
  return found == kTypes.end() ? nullptr : &*found;
}

std::int64_t varints_in(std::string_view packed) {
  return std::count_if(packed.begin(), packed.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0x80) == 0; });
}

struct Shape {
  std::vector<std::int64_t> dims;
  bool known_rank = true;
};

constexpr std::size_t kRankMax = 16;

/// Reads one graph. A message that is not repeated in the format may occur only once: protobuf
/// would merge two of them into one that was not checked.
class Reader {
 public:
  explicit Reader(Graph& out) : out_(out) {}

  void graph(std::string_view bytes) {
    std::size_t nodes = 0;
    ProtobufFields fields(bytes);
    while (const auto field = fields.next()) {
      if (field->number != 1) continue;
      if (!field->bytes) return fail("it is not a frozen TensorFlow graph (GraphDef)");
      ++nodes;
      node(*field->bytes);
      if (failed()) return;
    }
    if (fields.broken() || nodes == 0)
      fail("it is not a frozen TensorFlow graph (GraphDef), or it is truncated");
  }

 private:
  void node(std::string_view bytes) {
    Input input;
    std::string_view op;
    std::vector<std::string_view> attributes;
    ProtobufFields fields(bytes);
    while (const auto field = fields.next()) {
      if (!field->bytes) continue;
      if (field->number == 1) input.name = std::string(*field->bytes);
      if (field->number == 2) op = *field->bytes;
      if (field->number == 5) attributes.push_back(*field->bytes);
    }
    if (fields.broken()) return fail("it is not a frozen TensorFlow graph (GraphDef)");
    name_ = input.name;
    for (const std::string_view entry : attributes) {
      attribute(entry, input);
      if (failed()) return;
    }
    if (op == "Placeholder") out_.inputs.all.push_back(std::move(input));
  }

  void attribute(std::string_view bytes, Input& input) {
    std::string_view key;
    std::optional<std::string_view> value;
    ProtobufFields fields(bytes);
    while (const auto field = fields.next()) {
      if (!field->bytes) continue;
      if (field->number == 1) key = *field->bytes;
      if (field->number != 2) continue;
      if (value) return fail("an attribute of node \"" + name_ + "\" has two values");
      value = *field->bytes;
    }
    if (fields.broken()) return fail("node \"" + name_ + "\" is damaged");
    if (value) attribute_value(key, *value, input);
  }

  void attribute_value(std::string_view key, std::string_view bytes, Input& input) {
    bool seen = false;
    ProtobufFields fields(bytes);
    while (const auto field = fields.next()) {
      if (seen) return fail("an attribute of node \"" + name_ + "\" has two values");
      seen = true;
      if (field->number == 6 && !field->bytes && key == "dtype")
        input.fp32 = field->value == kFloat;
      if (!field->bytes) continue;
      if (field->number == 2 && key == "data_format")
        out_.channels_first |= field->bytes->starts_with("NC");
      if (field->number == 7 && key == "shape") {
        Shape place = shape(*field->bytes);
        input.known_rank = place.known_rank;
        input.dims = std::move(place.dims);
      }
      if (field->number == 8) tensor(*field->bytes);
      if (field->number == 1) list(*field->bytes);
      if (failed()) return;
    }
    if (fields.broken()) fail("node \"" + name_ + "\" is damaged");
  }

  void list(std::string_view bytes) {
    ProtobufFields fields(bytes);
    while (const auto field = fields.next()) {
      if (field->number == 8 && field->bytes) tensor(*field->bytes);
      if (failed()) return;
    }
    if (fields.broken()) fail("node \"" + name_ + "\" is damaged");
  }

  Shape shape(std::string_view bytes) {
    Shape out;
    ProtobufFields fields(bytes);
    while (const auto field = fields.next()) {
      if (field->number == 3 && !field->bytes && field->value != 0) out.known_rank = false;
      if (field->number != 2 || !field->bytes) continue;
      std::int64_t size = 0;
      ProtobufFields dim(*field->bytes);
      while (const auto one = dim.next())
        if (one->number == 1 && !one->bytes) size = static_cast<std::int64_t>(one->value);
      if (dim.broken()) fail("node \"" + name_ + "\" is damaged");
      if (out.dims.size() == kRankMax)
        fail("a shape of node \"" + name_ + "\" has more than " + std::to_string(kRankMax) +
             " dimensions");
      if (failed()) return out;
      out.dims.push_back(size);
    }
    if (fields.broken()) fail("node \"" + name_ + "\" is damaged");
    return out;
  }

  void tensor(std::string_view bytes) {
    std::uint64_t dtype = 0;
    std::string_view content;
    std::optional<Shape> place;
    std::vector<ProtobufFields::Field> values;
    ProtobufFields fields(bytes);
    while (const auto field = fields.next()) {
      if (field->number == 1 && !field->bytes) dtype = field->value;
      if (field->number == 4 && field->bytes) content = *field->bytes;
      if (field->number == 2 && field->bytes) {
        if (place) return fail("a tensor of node \"" + name_ + "\" has two shapes");
        place = shape(*field->bytes);
        if (failed()) return;
      }
      if (field->number >= 5) values.push_back(*field);
    }
    if (fields.broken()) return fail("a tensor of node \"" + name_ + "\" is damaged");
    const std::int64_t elements = place ? elements_of(place->dims) : 1;
    if (elements < 0)
      return fail("a tensor of node \"" + name_ + "\" has a negative size or more than " +
                  std::to_string(kElementsMax) + " elements");
    const DataType* type = type_of(dtype);
    if (type == nullptr) return;  // strings and types that OpenCV refuses
    std::int64_t count = 0;
    for (const ProtobufFields::Field& value : values) {
      if (value.number != type->field) continue;
      count += !value.bytes ? 1
               : type->packed_bytes == 0
                   ? varints_in(*value.bytes)
                   : static_cast<std::int64_t>(value.bytes->size()) / type->packed_bytes;
    }
    const bool fits = content.empty()
                          ? count == elements
                          : static_cast<std::int64_t>(content.size()) == elements * type->bytes;
    if (!fits)
      fail("a tensor of node \"" + name_ + "\" has " + std::to_string(elements) +
           " elements, but the file holds another number of values");
  }

  bool failed() const { return !out_.inputs.problem.empty(); }
  void fail(std::string problem) {
    if (!failed()) out_.inputs.problem = std::move(problem);
  }

  Graph& out_;
  std::string name_;  // of the current node
};

}  // namespace

Graph read_graph(std::string_view bytes) {
  Graph out;
  Reader(out).graph(bytes);
  return out;
}

}  // namespace varda_opencv
