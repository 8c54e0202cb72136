#include "oip/internal/tensors.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include "base/text.h"
#include "codec/json.h"
#include "tensor/visit.h"

namespace varda::oip::internal {
namespace {

using codec::JsonReader;
using tensor::DType;
using tensor::Tensor;

// Writes the numbers of a nested JSON array into a tensor's memory, row by row.
template <typename T>
class Filler {
 public:
  Filler(JsonReader& reader, DType dtype, std::span<T> out)
      : reader_(reader), dtype_(dtype), out_(out) {}

  void fill(std::size_t depth_max) {
    reader_.begin_array();
    while (reader_.next_item()) {
      if (reader_.peek() == JsonReader::Kind::kArray) {
        if (depth_max == 0) return reader_.fail("data is nested deeper than the protocol allows");
        fill(depth_max - 1);
      } else if (at_ == out_.size()) {
        return reader_.fail("data has more elements than the shape, which has " +
                            std::to_string(out_.size()));
      } else {
        out_[at_] = one();
        ++at_;
      }
    }
  }
  std::size_t filled() const { return at_; }

 private:
  T one() {
    if constexpr (std::is_same_v<T, bool>) {
      if (reader_.peek() == JsonReader::Kind::kBool) return reader_.boolean();
      const JsonReader::Number number = reader_.number();
      if (!number.integral || number.magnitude > 1 || number.negative) mismatch();
      return number.magnitude == 1;
    } else if constexpr (std::is_floating_point_v<T>) {
      const double value = reader_.number().value;
      if (std::abs(value) > static_cast<double>(std::numeric_limits<T>::max())) mismatch();
      return static_cast<T>(value);
    } else if constexpr (tensor::kIsHalf<T>) {
      const T value = T::of(static_cast<float>(reader_.number().value));
      if (std::isinf(value.value())) mismatch();
      return value;
    } else {
      return whole(reader_.number());
    }
  }

  T whole(const JsonReader::Number& number) {
    std::uint64_t magnitude = number.magnitude;
    if (!number.integral) {
      // 3.0 counts as an integer; larger values than a double's exact range may not be integers.
      if (number.value != std::trunc(number.value) || std::abs(number.value) > 9007199254740992.0) {
        mismatch();
        return 0;
      }
      magnitude = static_cast<std::uint64_t>(std::abs(number.value));
    }
    const bool negative = magnitude != 0 && number.negative;
    const auto max = static_cast<std::uint64_t>(std::numeric_limits<T>::max());
    if (negative ? std::is_unsigned_v<T> || magnitude > max + 1 : magnitude > max) {
      mismatch();
      return 0;
    }
    return static_cast<T>(negative ? 0 - magnitude : magnitude);
  }

  void mismatch() {
    reader_.fail("element " + std::to_string(at_) + " of data does not fit " +
                 std::string(to_string(dtype_)));
  }

  JsonReader& reader_;
  const DType dtype_;
  std::span<T> out_;
  std::size_t at_ = 0;
};

constexpr std::size_t kNestingMax = 32;

template <typename T>
void fill(JsonReader& reader, Tensor& tensor) {
  Filler<T> filler(reader, tensor.dtype(), tensor.mutable_values<T>());
  filler.fill(kNestingMax);
  if (!reader.failed() && filler.filled() != tensor.size()) {
    reader.fail("data has " + std::to_string(filler.filled()) + " elements, the shape " +
                tensor::to_string(tensor.shape()) + " has " + std::to_string(tensor.size()));
  }
}

void read_strings(JsonReader& reader, std::size_t depth_max, std::size_t count_max,
                  std::vector<std::string>& out) {
  reader.begin_array();
  while (reader.next_item()) {
    if (reader.peek() == JsonReader::Kind::kArray) {
      if (depth_max == 0) return reader.fail("data is nested deeper than the protocol allows");
      read_strings(reader, depth_max - 1, count_max, out);
    } else if (out.size() == count_max) {
      return reader.fail("data has more elements than the shape, which has " +
                         std::to_string(count_max));
    } else {
      out.push_back(reader.string());
    }
  }
}

Result<Tensor> read_data(JsonReader& reader, DType dtype, const tensor::Shape& shape) {
  TRY(const std::size_t count, tensor::elements(shape));
  // Every element takes at least two characters: reject a larger shape before allocating memory.
  if (count > reader.left()) {
    return Error(Code::kInvalid, "shape " + tensor::to_string(shape) +
                                     " asks for more elements than data can hold");
  }
  if (dtype == DType::kBytes) {
    std::vector<std::string> items;
    read_strings(reader, kNestingMax, count, items);
    TRY_VOID(reader.status());
    return Tensor::of_strings(shape, items);
  }
  TRY(Tensor tensor, Tensor::allocate(dtype, shape));
  tensor::visit_dtype(dtype, [&]<typename T>(std::type_identity<T>) {
    if constexpr (!std::is_same_v<T, tensor::Bytes>) fill<T>(reader, tensor);
  });
  TRY_VOID(reader.status());
  return tensor;
}

Status check_shape(const tensor::Shape& shape, const Limits& limits) {
  std::size_t others = 1;
  bool empty = false;
  for (const std::int64_t size : shape) {
    if (size > limits.dimension_max) {
      return Error(Code::kInvalid, "shape " + tensor::to_string(shape) +
                                       " has a dimension larger than " +
                                       std::to_string(limits.dimension_max));
    }
    if (size == 0) {
      empty = true;
    } else {
      others = std::min<std::size_t>(others, limits.elements_with_zero_max + 1) *
               static_cast<std::size_t>(size);
    }
  }
  if (!empty || others <= limits.elements_with_zero_max) return {};
  return Error(Code::kInvalid,
               "shape " + tensor::to_string(shape) +
                   " has no elements, and its other dimensions multiply to more than " +
                   std::to_string(limits.elements_with_zero_max));
}

template <typename T>
void write_float(T value, std::string& out) {
  if (!std::isfinite(value)) {
    out += "null";
    return;
  }
  char text[32];
  out.append(text, std::to_chars(text, text + sizeof text, value).ptr);
}

void write_data(const Tensor& tensor, std::string& out) {
  bool first = true;
  tensor::visit_dtype(tensor.dtype(), [&]<typename T>(std::type_identity<T>) {
    if constexpr (std::is_same_v<T, tensor::Bytes>) {
      for (const std::string_view item : tensor.strings()) {
        if (!std::exchange(first, false)) out += ',';
        write_string(item, out);
      }
    } else {
      for (const T value : tensor.values<T>()) {
        if (!std::exchange(first, false)) out += ',';
        if constexpr (std::is_same_v<T, bool>) {
          out += value ? "true" : "false";
        } else if constexpr (std::is_floating_point_v<T>) {
          write_float(value, out);
        } else if constexpr (tensor::kIsHalf<T>) {
          write_float(value.value(), out);
        } else {
          char text[32];
          out.append(text, std::to_chars(text, text + sizeof text, value).ptr);
        }
      }
    }
  });
}

}  // namespace

Result<Parts> split(std::shared_ptr<const std::string> body,
                    std::optional<std::string_view> json_length) {
  const std::string_view all = *body;
  if (!json_length) return Parts{std::move(body), all, {}};
  const auto length = parse_integer<std::size_t>(*json_length);
  if (!length) return Error(Code::kInvalid, std::string(kJsonLengthHeader) + " is not a number");
  if (*length > all.size()) {
    return Error(Code::kInvalid, std::string(kJsonLengthHeader) + " says " +
                                     std::to_string(*length) + " bytes, the body has " +
                                     std::to_string(all.size()));
  }
  return Parts{std::move(body), all.substr(0, *length), all.substr(*length)};
}

Result<std::vector<tensor::Named>> TensorReader::read(JsonReader& reader, std::string_view what) {
  std::vector<tensor::Named> out;
  reader.begin_array();
  while (reader.next_item()) {
    if (out.size() == limits_.tensors_max) {
      return Error(Code::kInvalid, "more than " + std::to_string(limits_.tensors_max) + " " +
                                       std::string(what) + "s");
    }
    auto one = read_one(reader);
    if (!one.ok())
      return std::move(one).error().context(std::string(what) + " " + std::to_string(out.size()));
    for (const tensor::Named& other : out) {
      if (other.name == one->name)
        return Error(Code::kInvalid, std::string(what) + " \"" + one->name + "\" occurs twice");
    }
    out.push_back(std::move(one).value());
  }
  return out;
}

Result<tensor::Named> TensorReader::read_one(JsonReader& reader) {
  std::optional<std::string> name;
  std::optional<DType> dtype;
  std::optional<tensor::Shape> shape;
  std::optional<Tensor> tensor;
  std::optional<std::string_view> later;  // `data`, if it precedes type or shape
  std::optional<std::uint64_t> binary_size;
  std::string member;
  reader.begin_object();
  while (reader.next_member(member)) {
    if (member == "name") {
      name = reader.string();
    } else if (member == "datatype") {
      const std::string text = reader.string();
      dtype = tensor::parse_dtype(text);
      if (!dtype && !reader.failed()) return Error(Code::kInvalid, "no datatype \"" + text + "\"");
    } else if (member == "shape") {
      shape = read_shape(reader, limits_.rank_max);
      if (!reader.failed()) TRY_VOID(check_shape(*shape, limits_));
    } else if (member == "data") {
      if (tensor || later) return Error(Code::kInvalid, "data occurs twice");
      if (dtype && shape) {
        auto made = read_data(reader, *dtype, *shape);
        if (!made.ok())
          return name ? std::move(made).error().context("\"" + *name + "\"")
                      : std::move(made).error();
        tensor = std::move(made).value();
      } else {
        later = reader.skip();
      }
    } else if (member == "parameters") {
      TRY(const codec::Json parameters, read_parameters(reader, limits_));
      if (const codec::Json* size = parameters.find("binary_data_size")) {
        if (!size->is_integer() || size->as_integer() < 0)
          return Error(Code::kInvalid, "binary_data_size must be an integer of 0 or more");
        binary_size = static_cast<std::uint64_t>(size->as_integer());
      }
    } else {
      reader.skip();
    }
  }
  TRY_VOID(reader.status());
  if (!name || name->empty()) return Error(Code::kInvalid, "has no name");
  const std::string quoted = "\"" + *name + "\"";
  if (!dtype) return Error(Code::kInvalid, quoted + " has no datatype");
  if (!shape) return Error(Code::kInvalid, quoted + " has no shape");
  if (binary_size) {
    if (tensor || later)
      return Error(Code::kInvalid, quoted + " has both data and binary_data_size");
    if (*binary_size > binary_.size()) {
      return Error(Code::kInvalid, quoted + " has " + std::to_string(*binary_size) +
                                       " bytes of binary data, " + std::to_string(binary_.size()) +
                                       " are left in the body");
    }
    const auto bytes = std::as_bytes(std::span<const char>(binary_.data(), *binary_size));
    binary_.remove_prefix(*binary_size);
    auto made = Tensor::over(*dtype, *shape, bytes, parts_.body);
    if (!made.ok()) return std::move(made).error().context(quoted);
    return tensor::Named{std::move(*name), std::move(made).value()};
  }
  if (later) {
    JsonReader again(*later);
    auto made = read_data(again, *dtype, *shape);
    if (!made.ok()) return std::move(made).error().context(quoted);
    if (auto status = again.finish(); !status.ok())
      return std::move(status).context(quoted).error();
    tensor = std::move(made).value();
  }
  if (!tensor) return Error(Code::kInvalid, quoted + " has no data");
  return tensor::Named{std::move(*name), std::move(*tensor)};
}

Status TensorReader::finish() const {
  if (binary_.empty()) return {};
  return Error(Code::kInvalid,
               std::to_string(binary_.size()) + " bytes of the body belong to no tensor");
}

tensor::Shape read_shape(JsonReader& reader, std::size_t rank_max) {
  tensor::Shape shape;
  reader.begin_array();
  while (reader.next_item()) {
    const JsonReader::Number number = reader.number();
    if (!number.integral || number.negative ||
        number.magnitude > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      reader.fail("each dimension of shape must be an integer of 0 or more");
    } else if (shape.size() == rank_max) {
      reader.fail("shape has more than " + std::to_string(rank_max) + " dimensions");
    } else {
      shape.push_back(static_cast<std::int64_t>(number.magnitude));
    }
  }
  return shape;
}

Result<codec::Json> read_parameters(JsonReader& reader, const Limits& limits) {
  const std::string_view text = reader.skip();
  TRY_VOID(reader.status());
  if (text.size() > limits.parameters_bytes_max)
    return Error(Code::kInvalid, "parameters is larger than " +
                                     std::to_string(limits.parameters_bytes_max) + " bytes");
  auto parsed = codec::parse_json(text);
  if (!parsed.ok()) return std::move(parsed).error().context("parameters");
  return parsed;
}

void write_string(std::string_view text, std::string& out) {
  codec::write_json(codec::Json(text), out);
}

Encoding encoding_for(const Tensor& tensor, Encoding encoding) {
  if (encoding == Encoding::kBinary) return Encoding::kBinary;
  if (tensor.dtype() != DType::kBytes) return encoding;
  for (const std::string_view item : tensor.strings()) {
    const bool plain = std::all_of(item.begin(), item.end(),
                                   [](char c) { return static_cast<unsigned char>(c) < 0x80; });
    if (plain) continue;
    std::string quoted;
    write_string(item, quoted);
    // Invalid UTF-8 is written as U+FFFD: a round trip finds out.
    if (const auto back = codec::parse_json(quoted); !back.ok() || back->as_string() != item)
      return Encoding::kBinary;
  }
  return encoding;
}

void write_tensor(const tensor::Named& tensor, Encoding encoding, std::string& out) {
  out += "{\"name\":";
  write_string(tensor.name, out);
  out += ",\"shape\":" + tensor::to_string(tensor.tensor.shape()) + ",\"datatype\":\"";
  out += to_string(tensor.tensor.dtype());
  if (encoding == Encoding::kBinary) {
    out +=
        "\",\"parameters\":{\"binary_data_size\":" + std::to_string(tensor.tensor.bytes().size()) +
        "}}";
  } else {
    out += "\",\"data\":[";
    write_data(tensor.tensor, out);
    out += "]}";
  }
}

}  // namespace varda::oip::internal
