#include "serving/inference.h"

#include <algorithm>
#include <utility>

#include "base/caught.h"
#include "base/text.h"
#include "codec/image.h"
#include "oip/route.h"

namespace varda::serving {
namespace {

Error late(Duration waited) {
  return Error(
      Code::kTimeout,
      "the request waited " +
          std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(waited).count()) +
          " ms for an instance, which exceeds its limit");
}

std::size_t samples(const ModelVersion& version, const std::vector<tensor::Named>& inputs) {
  const std::vector<tensor::Spec>& specs = version.metadata().inputs;
  const bool batches = !specs.empty() && !specs[0].shape.empty() && specs[0].shape[0] == -1;
  if (!batches || inputs.empty() || inputs[0].tensor.shape().empty()) return 1;
  return static_cast<std::size_t>(inputs[0].tensor.shape()[0]);
}

// Whether the body is an image itself. The decoder rejects unsupported image types.
bool is_image(std::string_view content_type) {
  constexpr std::string_view kImage = "image/";
  return content_type.size() > kImage.size() && starts_ignoring_case(content_type, kImage);
}

/// Error for a body that is no request, with a hint what to send instead.
Error no_request(const ModelVersion& version, const InferCall& call) {
  const auto format = codec::image_format(*call.body);
  if (format) {
    const bool png = *format == codec::ImageFormat::kPng;
    const std::string what = std::string("the body is a ") + (png ? "PNG" : "JPEG");
    if (version.takes_images())
      return Error(Code::kInvalid,
                   what + ": send it with Content-Type: " + (png ? "image/png" : "image/jpeg"));
    return Error(Code::kInvalid, what + ", and model \"" + version.model() +
                                     "\" takes tensors: its model.yaml declares no preprocess");
  }
  const bool form = call.content_type.starts_with("multipart/");
  return Error(
      Code::kInvalid,
      std::string(call.body->empty() ? "the body is empty"
                  : form             ? "the body is an upload of a form"
                                     : "the body is not a JSON object") +
          ": send JSON, {\"inputs\": [...]}" +
          (version.takes_images() ? ", or a JPEG or PNG with Content-Type: image/jpeg or image/png"
                                  : ""));
}

Result<oip::InferRequest> read_request(const ModelVersion& version, const InferCall& call,
                                       const oip::Limits& limits) {
  const std::size_t first = call.body->find_first_not_of(" \t\r\n");
  const bool picture = is_image(call.content_type);
  if (call.body->empty() ||
      (!picture && (first == std::string::npos || (*call.body)[first] != '{')))
    return no_request(version, call);
  if (picture) {
    if (!version.takes_images()) {
      return Error(Code::kInvalid,
                   "model \"" + version.model() +
                       "\" takes tensors, not images: its model.yaml declares no preprocess");
    }
    oip::InferRequest request;
    TRY(tensor::Tensor image,
        tensor::Tensor::of_strings({1}, std::span<const std::string>(call.body.get(), 1)));
    request.inputs.push_back({std::string(transform::kImageInput), std::move(image)});
    return request;
  }
  std::optional<std::string_view> length;
  if (call.json_length) length = *call.json_length;
  return oip::parse_infer_request(call.body, length, limits);
}

}  // namespace

InferCall InferCall::of(net::Request request, SteadyTime arrived) {
  InferCall call;
  call.content_type = request.headers.find("Content-Type").value_or("");
  call.json_length = request.headers.find(oip::kJsonLengthHeader);
  call.body = std::make_shared<const std::string>(std::move(request.body));
  call.arrived = arrived;
  return call;
}

namespace {

Result<Inferred> infer_or_throw(ModelVersion& version, const InferCall& call,
                                std::span<const std::string> also, const oip::Limits& limits) {
  const Duration waited = system_clock().now() - call.arrived;
  const auto queue_timeout = version.config().queue_timeout;
  if (queue_timeout.count() > 0 && waited > queue_timeout) return late(waited);
  TRY(oip::InferRequest request, read_request(version, call, limits));
  if (request.timeout && waited > *request.timeout) return late(waited);

  Inferred out;
  std::vector<std::string> names;
  for (const oip::RequestedOutput& output : request.outputs) {
    names.push_back(output.name);
    out.encodings.push_back(output.encoding);
  }
  const bool all = names.empty();
  const std::size_t requested = all ? version.metadata().outputs.size() : names.size();
  const auto among_all = [&](const std::string& name) {
    const auto& outputs = version.metadata().outputs;
    return std::any_of(outputs.begin(), outputs.end(),
                       [&](const tensor::Spec& spec) { return spec.name == name; });
  };
  if (all && !std::all_of(also.begin(), also.end(), among_all)) {
    for (const tensor::Spec& spec : version.metadata().outputs) names.push_back(spec.name);
  }
  for (const std::string& name : also) {
    if (!names.empty() && std::find(names.begin(), names.end(), name) == names.end())
      names.push_back(name);
  }
  out.samples = samples(version, request.inputs);
  TRY(out.outputs, version.run(request.inputs, names));
  if (all) out.encodings.assign(requested, request.encoding);
  if (out.outputs.size() > requested) {
    std::move(out.outputs.begin() + static_cast<std::ptrdiff_t>(requested), out.outputs.end(),
              std::back_inserter(out.others));
    out.outputs.resize(requested);
  }
  out.id = std::move(request.id);
  return out;
}

}  // namespace

Result<Inferred> infer(ModelVersion& version, const InferCall& call,
                       std::span<const std::string> also, const oip::Limits& limits) {
  try {
    return infer_or_throw(version, call, also, limits);
  } catch (...) {
    return caught_error();
  }
}

std::vector<tensor::Named> all_outputs(const Inferred& inferred) {
  std::vector<tensor::Named> out = inferred.outputs;
  out.insert(out.end(), inferred.others.begin(), inferred.others.end());
  return out;
}

net::Response infer_response(const std::string& model, const std::string& version,
                             Inferred inferred, codec::Json parameters) {
  const Status possible = oip::check_encodings(inferred.outputs, inferred.encodings);
  if (!possible.ok()) return error_response(possible.error());
  oip::Message message = oip::write_infer_response(
      {model, version, std::move(inferred.id), std::move(inferred.outputs), std::move(parameters)},
      inferred.encodings);
  net::Response response{200,
                         {{"Content-Type", std::string(message.content_type())}},
                         std::move(message.body),
                         nullptr};
  if (message.json_length)
    response.headers.add(std::string(oip::kJsonLengthHeader), std::to_string(*message.json_length));
  return response;
}

net::Response error_response(const Error& error) {
  net::Response out{oip::http_status(error.code()),
                    {{"Content-Type", "application/json"}},
                    oip::error_body(error.message()),
                    nullptr};
  if (error.code() == Code::kExhausted) out.headers.add("Retry-After", "1");
  return out;
}

}  // namespace varda::serving
