// One inference on one version of a model: request bytes to tensors, and tensors to response bytes.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "codec/json.h"
#include "net/http.h"
#include "oip/infer.h"
#include "serving/model_version.h"

namespace varda::serving {

/// An inference request as received. Cheap to copy.
struct InferCall {
  std::shared_ptr<const std::string> body;
  std::string content_type;                // "" if the header is missing
  std::optional<std::string> json_length;  // oip::kJsonLengthHeader
  SteadyTime arrived;

  static InferCall of(net::Request request, SteadyTime arrived);
  std::size_t bytes() const { return body->size(); }
};

/// Result of one inference.
struct Inferred {
  std::string id;                        // of the request
  std::vector<tensor::Named> outputs;    // in the requested order; may outlive the version
  std::vector<oip::Encoding> encodings;  // one for each output
  std::vector<tensor::Named> others;     // outputs requested by `also` alone
  std::size_t samples = 1;               // rows, if the model takes batches
};

/// Parses the request and runs the version on the calling thread; only jobs of its executor() may
/// call this. With Content-Type image/jpeg or image/png the body is the image itself, for models
/// that take images. `also` names outputs that the caller needs besides the requested ones; an
/// output that is requested anyway costs nothing. kInvalid, kUnsupported: the request is wrong.
/// kTimeout: the request was queued longer than allowed. Other codes come from the engine.
Result<Inferred> infer(ModelVersion& version, const InferCall& call,
                       std::span<const std::string> also, const oip::Limits& limits);

/// The outputs with the others.
std::vector<tensor::Named> all_outputs(const Inferred& inferred);

/// The HTTP response. `parameters` as in oip::InferResponse.
net::Response infer_response(const std::string& model, const std::string& version,
                             Inferred inferred, codec::Json parameters = nullptr);

/// {"error": …} with the HTTP status for the error's code.
net::Response error_response(const Error& error);

}  // namespace varda::serving
