#include "oip/infer.h"

#include "codec/json_reader.h"
#include "oip/internal/tensors.h"

namespace varda::oip {
namespace {

using codec::Json;
using codec::JsonReader;
using internal::Parts;
using internal::TensorReader;

Result<Encoding> encoding_of(const Json& value, std::string_view name) {
  if (!value.is_bool())
    return Error(Code::kInvalid, "parameter " + std::string(name) + " must be true or false");
  return value.as_bool() ? Encoding::kBinary : Encoding::kJson;
}

Status read_parameters(const Json& parameters, InferRequest& request) {
  if (!parameters.is_object()) return Error(Code::kInvalid, "parameters must be an object");
  if (const Json* binary = parameters.find("binary_data_output")) {
    TRY(request.encoding, encoding_of(*binary, "binary_data_output"));
  }
  if (const Json* timeout = parameters.find("timeout")) {
    if (!timeout->is_integer() || timeout->as_integer() < 0) {
      return Error(Code::kInvalid, "parameter timeout must be a whole number of microseconds");
    }
    // No request waits longer than a day; a longer deadline counts as a day.
    constexpr std::int64_t kDay = 86'400'000'000;
    if (timeout->as_integer() > 0)
      request.timeout = std::chrono::microseconds(std::min(timeout->as_integer(), kDay));
  }
  if (const Json* sequence = parameters.find("sequence_id");
      sequence != nullptr && sequence->as_integer() != 0) {
    return Error(Code::kUnsupported, "sequences are not supported");
  }
  return {};
}

struct PendingOutput {
  std::string name;
  std::optional<Encoding> encoding;
};

Result<std::vector<PendingOutput>> read_outputs(JsonReader& reader, const Limits& limits) {
  std::vector<PendingOutput> out;
  reader.begin_array();
  while (reader.next_item()) {
    PendingOutput output;
    std::string member;
    reader.begin_object();
    while (reader.next_member(member)) {
      if (member == "name") {
        output.name = reader.string();
      } else if (member == "parameters") {
        TRY(const Json parameters, internal::read_parameters(reader, limits));
        if (const Json* binary = parameters.find("binary_data")) {
          TRY(output.encoding, encoding_of(*binary, "binary_data"));
        }
        if (parameters["classification"].as_integer() > 0) {
          return Error(Code::kUnsupported,
                       "parameter classification is not supported: request the output itself");
        }
      } else {
        reader.skip();
      }
    }
    TRY_VOID(reader.status());
    if (output.name.empty())
      return Error(Code::kInvalid, "output " + std::to_string(out.size()) + " has no name");
    for (const PendingOutput& other : out) {
      if (other.name == output.name)
        return Error(Code::kInvalid, "output \"" + output.name + "\" is requested twice");
    }
    if (out.size() == limits.tensors_max)
      return Error(Code::kInvalid, "more than " + std::to_string(limits.tensors_max) + " outputs");
    out.push_back(std::move(output));
  }
  return out;
}

Message assemble(std::string json, std::span<const tensor::Named> tensors,
                 std::span<const Encoding> encodings) {
  std::size_t binary = 0;
  bool any = false;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (encodings[i] == Encoding::kBinary) {
      binary += tensors[i].tensor.bytes().size();
      any = true;
    }
  }
  Message out{std::move(json), std::nullopt};
  if (!any) return out;
  out.json_length = out.body.size();
  out.body.reserve(out.body.size() + binary);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (encodings[i] != Encoding::kBinary) continue;
    const auto bytes = tensors[i].tensor.bytes();
    out.body.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  return out;
}

std::vector<Encoding> final_encodings(std::span<const tensor::Named> tensors,
                                      std::span<const Encoding> wanted) {
  std::vector<Encoding> out;
  out.reserve(tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    out.push_back(
        internal::encoding_for(tensors[i].tensor, i < wanted.size() ? wanted[i] : Encoding::kJson));
  }
  return out;
}

void write_tensors(std::span<const tensor::Named> tensors, std::span<const Encoding> encodings,
                   std::string& out) {
  out += '[';
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (i > 0) out += ',';
    internal::write_tensor(tensors[i], encodings[i], out);
  }
  out += ']';
}

}  // namespace

Result<InferRequest> parse_infer_request(std::shared_ptr<const std::string> body,
                                         std::optional<std::string_view> json_length,
                                         const Limits& limits) {
  TRY(const Parts parts, internal::split(std::move(body), json_length));
  JsonReader reader(parts.json);
  TensorReader tensors(parts, limits);
  InferRequest request;
  std::optional<std::vector<tensor::Named>> inputs;
  std::vector<PendingOutput> outputs;
  std::string member;
  reader.begin_object();
  while (reader.next_member(member)) {
    if (member == "inputs") {
      if (inputs) return Error(Code::kInvalid, "inputs occurs twice");
      TRY(inputs, tensors.read(reader, "input"));
    } else if (member == "outputs") {
      TRY(outputs, read_outputs(reader, limits));
    } else if (member == "id") {
      request.id = reader.string();
      if (request.id.size() > limits.id_bytes_max) {
        return Error(Code::kInvalid,
                     "id is longer than " + std::to_string(limits.id_bytes_max) + " bytes");
      }
    } else if (member == "parameters") {
      TRY(const Json parameters, internal::read_parameters(reader, limits));
      TRY_VOID(read_parameters(parameters, request));
    } else {
      reader.skip();
    }
  }
  TRY_VOID(reader.finish());
  if (!inputs || inputs->empty()) return Error(Code::kInvalid, "the request has no inputs");
  TRY_VOID(tensors.finish());
  request.inputs = std::move(*inputs);
  for (PendingOutput& output : outputs)
    request.outputs.push_back({std::move(output.name), output.encoding.value_or(request.encoding)});
  return request;
}

Message write_infer_request(const InferRequest& request) {
  // The request's encoding is for responses; inputs are always written in binary here.
  const std::vector<Encoding> encodings(request.inputs.size(), Encoding::kBinary);
  std::string json = "{";
  if (!request.id.empty()) {
    json += "\"id\":";
    internal::write_string(request.id, json);
    json += ',';
  }
  std::string parameters;
  if (request.encoding == Encoding::kBinary) parameters += "\"binary_data_output\":true";
  if (request.timeout)
    parameters += (parameters.empty() ? "" : ",") + std::string("\"timeout\":") +
                  std::to_string(request.timeout->count());
  if (!parameters.empty()) json += "\"parameters\":{" + parameters + "},";
  json += "\"inputs\":";
  write_tensors(request.inputs, encodings, json);
  if (!request.outputs.empty()) {
    json += ",\"outputs\":[";
    for (std::size_t i = 0; i < request.outputs.size(); ++i) {
      json += i > 0 ? ",{\"name\":" : "{\"name\":";
      internal::write_string(request.outputs[i].name, json);
      json += request.outputs[i].encoding == Encoding::kBinary
                  ? ",\"parameters\":{\"binary_data\":true}}"
                  : ",\"parameters\":{\"binary_data\":false}}";
    }
    json += ']';
  }
  json += '}';
  return assemble(std::move(json), request.inputs, encodings);
}

Status check_encodings(std::span<const tensor::Named> outputs,
                       std::span<const Encoding> encodings) {
  const std::vector<Encoding> possible = final_encodings(outputs, encodings);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const Encoding wanted = i < encodings.size() ? encodings[i] : Encoding::kJson;
    if (possible[i] == wanted) continue;
    return Error(Code::kInvalid,
                 "output \"" + outputs[i].name +
                     "\" has bytes that are not UTF-8, which JSON cannot hold: ask for binary data "
                     "with the " +
                     "parameter binary_data of the output, or binary_data_output of the request");
  }
  return {};
}

Message write_infer_response(const InferResponse& response, std::span<const Encoding> wanted) {
  const std::vector<Encoding> encodings = final_encodings(response.outputs, wanted);
  std::string json = "{\"model_name\":";
  internal::write_string(response.model_name, json);
  json += ",\"model_version\":";
  internal::write_string(response.model_version, json);
  if (!response.id.empty()) {
    json += ",\"id\":";
    internal::write_string(response.id, json);
  }
  if (response.parameters.is_object()) {
    json += ",\"parameters\":";
    json += codec::write_json(response.parameters);
  }
  json += ",\"outputs\":";
  write_tensors(response.outputs, encodings, json);
  json += '}';
  return assemble(std::move(json), response.outputs, encodings);
}

Result<InferResponse> parse_infer_response(std::shared_ptr<const std::string> body,
                                           std::optional<std::string_view> json_length,
                                           const Limits& limits) {
  TRY(const Parts parts, internal::split(std::move(body), json_length));
  JsonReader reader(parts.json);
  TensorReader tensors(parts, limits);
  InferResponse response;
  std::string member;
  reader.begin_object();
  while (reader.next_member(member)) {
    if (member == "model_name") {
      response.model_name = reader.string();
    } else if (member == "model_version") {
      response.model_version = reader.string();
    } else if (member == "id") {
      response.id = reader.string();
    } else if (member == "parameters") {
      TRY(response.parameters, internal::read_parameters(reader, limits));
    } else if (member == "outputs") {
      TRY(response.outputs, tensors.read(reader, "output"));
    } else {
      reader.skip();
    }
  }
  TRY_VOID(reader.finish());
  TRY_VOID(tensors.finish());
  return response;
}

}  // namespace varda::oip
