#include "oip/envelope.h"

#include "codec/json_reader.h"
#include "oip/internal/tensors.h"

namespace varda::oip {
namespace {

using codec::Json;
using codec::JsonReader;

// One output. Adds to `binary_bytes` what it says to have behind the JSON.
Status look_at_output(JsonReader& reader, const Limits& limits, std::size_t& binary_bytes) {
  bool has_name = false, has_type = false, has_shape = false, has_data = false, is_binary = false;
  std::string member;
  reader.begin_object();
  while (reader.next_member(member)) {
    if (member == "name") {
      has_name = !reader.string().empty();
    } else if (member == "datatype") {
      has_type = tensor::parse_dtype(reader.string()).has_value();
    } else if (member == "shape") {
      const Json shape = reader.value();
      has_shape = shape.is_array() && shape.as_array().size() <= limits.rank_max;
      for (const Json& size : shape.as_array()) has_shape = has_shape && size.is_integer() && size.as_integer() >= 0;
    } else if (member == "parameters") {
      const Json parameters = reader.value();
      if (const Json* size = parameters.find("binary_data_size")) {
        is_binary = size->is_integer() && size->as_integer() >= 0;
        if (!is_binary) return Error(Code::kInvalid, "binary_data_size is no whole number from 0 on");
        const auto bytes = static_cast<std::size_t>(size->as_integer());
        if (bytes > SIZE_MAX / 2 - binary_bytes) return Error(Code::kInvalid, "binary_data_size is beyond measure");
        binary_bytes += bytes;
      }
    } else if (member == "data") {
      has_data = reader.peek() == JsonReader::Kind::kArray;
      reader.skip();
    } else {
      reader.skip();
    }
  }
  TRY_VOID(reader.status());
  if (!has_name || !has_type || !has_shape) return Error(Code::kInvalid, "an output lacks a name, a datatype or a shape");
  if (has_data == is_binary) return Error(Code::kInvalid, "an output has data either in JSON or in binary");
  return {};
}

Status look_at_outputs(std::string_view text, const Limits& limits, std::size_t binary) {
  JsonReader reader(text);
  std::size_t count = 0, binary_bytes = 0;
  reader.begin_array();
  while (reader.next_item()) {
    if (++count > limits.tensors_max) return Error(Code::kInvalid, "more than " + std::to_string(limits.tensors_max) + " outputs");
    TRY_VOID(look_at_output(reader, limits, binary_bytes));
  }
  TRY_VOID(reader.finish());
  if (binary_bytes != binary) {
    return Error(Code::kInvalid, "the outputs have " + std::to_string(binary_bytes) + " bytes of binary data, the body has " +
                                     std::to_string(binary));
  }
  return {};
}

}  // namespace

Result<Envelope> open_infer_response(std::shared_ptr<const std::string> body, std::optional<std::string_view> json_length,
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
    } else if (member == "id") {
      out.id = reader.string();
    } else if (member == "parameters") {
      out.parameters = reader.value();
    } else if (member == "outputs") {
      out.outputs = reader.skip();
    } else {
      reader.skip();
    }
  }
  TRY_VOID(reader.finish());
  if (out.outputs.empty()) return Error(Code::kInvalid, "the answer has no outputs");
  TRY_VOID(look_at_outputs(out.outputs, limits, parts.binary.size()));
  return out;
}

Message reseal(const Envelope& envelope, std::string_view model_name, std::string_view model_version, const Json& parameters) {
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
