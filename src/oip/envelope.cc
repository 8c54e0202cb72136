#include "oip/envelope.h"

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "codec/json_reader.h"
#include "codec/text.h"
#include "oip/internal/tensors.h"

namespace varda::oip {
namespace {

using codec::Json;
using codec::JsonReader;

constexpr std::size_t kVersionBytesMax = 128;
constexpr std::int64_t kDay = 86'400'000'000;  // in microseconds; a longer deadline counts as none

// Counts the elements of `data`; the client parses the values.
std::size_t count_elements(JsonReader& reader, tensor::DType dtype, std::size_t depth_max) {
  std::size_t count = 0;
  reader.begin_array();
  while (reader.next_item()) {
    const JsonReader::Kind kind = reader.peek();
    if (kind == JsonReader::Kind::kArray && depth_max > 0) {
      count += count_elements(reader, dtype, depth_max - 1);
      continue;
    }
    const bool is_text = kind == JsonReader::Kind::kString;
    if (is_text != (dtype == tensor::DType::kBytes) || kind == JsonReader::Kind::kArray ||
        kind == JsonReader::Kind::kObject) {
      reader.fail("data has a value that is not " + std::string(tensor::to_string(dtype)));
    } else if (is_text) {
      (void)reader.skip();
    } else if (kind == JsonReader::Kind::kNumber) {
      (void)reader.number();
    } else {
      (void)reader.value();
    }
    ++count;
  }
  return count;
}

// Checks that data and shape agree.
Status check_data(std::string_view data, tensor::DType dtype, const tensor::Shape& shape,
                  const Limits& limits) {
  TRY(const std::size_t wanted, tensor::elements(shape));
  JsonReader reader(data);
  const std::size_t count = count_elements(reader, dtype, limits.rank_max);
  TRY_VOID(reader.finish());
  if (count == wanted) return {};
  return Error(Code::kInvalid, "data has " + std::to_string(count) + " elements, the shape " +
                                   tensor::to_string(shape) + " has " + std::to_string(wanted));
}

// Reads one output. Adds its binary_data_size to `binary_bytes`.
Status check_output(JsonReader& reader, const Limits& limits, std::size_t& binary_bytes) {
  bool has_name = false, has_shape = false, is_binary = false;
  std::optional<tensor::DType> dtype;
  tensor::Shape sizes;
  std::optional<std::string_view> data;
  std::size_t own_bytes = 0;
  std::string member;
  reader.begin_object();
  while (reader.next_member(member)) {
    if (member == "name") {
      has_name = !reader.string().empty();
    } else if (member == "datatype") {
      dtype = tensor::parse_dtype(reader.string());
    } else if (member == "shape") {
      sizes = internal::read_shape(reader, limits.rank_max);
      has_shape = !reader.failed();
    } else if (member == "parameters") {
      TRY(const Json parameters, internal::read_parameters(reader, limits));
      if (const Json* size = parameters.find("binary_data_size")) {
        is_binary = size->is_integer() && size->as_integer() >= 0;
        if (!is_binary)
          return Error(Code::kInvalid, "binary_data_size must be an integer of 0 or more");
        own_bytes = static_cast<std::size_t>(size->as_integer());
        if (own_bytes > SIZE_MAX / 2 - binary_bytes)
          return Error(Code::kInvalid, "binary_data_size is too large");
        binary_bytes += own_bytes;
      }
    } else if (member == "data") {
      const bool is_array = reader.peek() == JsonReader::Kind::kArray;
      const std::string_view text = reader.skip();
      if (is_array) data = text;
    } else {
      reader.skip();
    }
  }
  TRY_VOID(reader.status());
  if (!has_name || !dtype || !has_shape)
    return Error(Code::kInvalid, "an output lacks a name, a datatype or a shape");
  if (data.has_value() == is_binary)
    return Error(Code::kInvalid, "an output has data either in JSON or in binary");
  if (data) return check_data(*data, *dtype, sizes, limits);
  if (*dtype == tensor::DType::kBytes) return {};
  TRY(const std::size_t elements, tensor::elements(sizes));
  const std::size_t each = tensor::element_bytes(*dtype);
  if (own_bytes % each != 0 || own_bytes / each != elements) {
    return Error(Code::kInvalid, "the shape " + tensor::to_string(sizes) + " of " +
                                     std::string(tensor::to_string(*dtype)) + " is not that of " +
                                     std::to_string(own_bytes) + " bytes");
  }
  return {};
}

Status check_outputs(std::string_view text, const Limits& limits, std::size_t binary) {
  JsonReader reader(text);
  std::size_t count = 0, binary_bytes = 0;
  reader.begin_array();
  while (reader.next_item()) {
    if (++count > limits.tensors_max)
      return Error(Code::kInvalid, "more than " + std::to_string(limits.tensors_max) + " outputs");
    TRY_VOID(check_output(reader, limits, binary_bytes));
  }
  TRY_VOID(reader.finish());
  if (count == 0) return Error(Code::kInvalid, "the answer has no outputs");
  if (binary_bytes != binary) {
    return Error(Code::kInvalid, "the outputs have " + std::to_string(binary_bytes) +
                                     " bytes of binary data, the body has " +
                                     std::to_string(binary));
  }
  return {};
}

}  // namespace

Result<Envelope> open_infer_response(std::shared_ptr<const std::string> body,
                                     std::optional<std::string_view> json_length,
                                     const Limits& limits) {
  TRY(const internal::Parts parts, internal::split(std::move(body), json_length));
  Envelope out;
  out.body = parts.body;
  out.binary = parts.binary;
  out.has_binary = json_length.has_value();
  JsonReader reader(parts.json);
  std::string member;
  reader.begin_object();
  while (reader.next_member(member)) {
    if (member == "model_name") {
      out.model_name = reader.string();
    } else if (member == "model_version") {
      out.model_version = reader.string();
      out.model_version = codec::clipped(out.model_version, kVersionBytesMax);
    } else if (member == "id") {
      out.id = reader.string();
    } else if (member == "parameters") {
      TRY(out.parameters, internal::read_parameters(reader, limits));
    } else if (member == "outputs") {
      out.outputs = reader.skip();
    } else {
      reader.skip();
    }
  }
  TRY_VOID(reader.finish());
  if (out.outputs.empty()) return Error(Code::kInvalid, "the answer has no outputs");
  TRY_VOID(check_outputs(out.outputs, limits, parts.binary.size()));
  return out;
}

Preamble read_preamble(const std::shared_ptr<const std::string>& body,
                       std::optional<std::string_view> json_length, const Limits& limits) {
  const auto parts = internal::split(body, json_length);
  if (!parts.ok()) return {};
  Preamble out;
  JsonReader reader(parts->json);
  std::string member;
  reader.begin_object();
  while (reader.next_member(member)) {
    if (member == "id" && reader.peek() == JsonReader::Kind::kString) {
      out.id = reader.string();
      if (out.id.size() > limits.id_bytes_max) out.id.clear();
    } else if (member == "parameters") {
      const Json parameters = internal::read_parameters(reader, limits).value_or(Json());
      const Json* timeout = parameters.find("timeout");
      if (timeout != nullptr && timeout->is_integer() && timeout->as_integer() > 0) {
        out.timeout = std::chrono::microseconds(std::min(timeout->as_integer(), kDay));
      }
    } else {
      reader.skip();
    }
  }
  return reader.finish().ok() ? out : Preamble{};
}

Message reseal(const Envelope& envelope, std::string_view model_name,
               std::string_view model_version, const Json& parameters) {
  Message out;
  std::string& json = out.body;
  json.reserve(envelope.outputs.size() + envelope.binary.size() + 256);
  json += "{\"model_name\":";
  internal::write_string(model_name, json);
  json += ",\"model_version\":";
  internal::write_string(model_version, json);
  if (!envelope.id.empty()) {
    json += ",\"id\":";
    internal::write_string(envelope.id, json);
  }
  if (parameters.is_object()) {
    json += ",\"parameters\":";
    json += codec::write_json(parameters);
  }
  json += ",\"outputs\":";
  json += envelope.outputs;
  json += '}';
  if (envelope.has_binary) {
    out.json_length = json.size();
    json += envelope.binary;
  }
  return out;
}

}  // namespace varda::oip
