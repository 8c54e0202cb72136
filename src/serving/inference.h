// One inference on one version of a model: from a request's bytes to tensors, and from tensors to an answer's bytes.
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

/// A request for an inference as it came. Cheap to copy.
struct InferCall {
  std::shared_ptr<const std::string> body;
  std::string content_type;                // "" where there was none
  std::optional<std::string> json_length;  // oip::kJsonLengthHeader
  SteadyTime arrived;

  static InferCall of(net::Request request, SteadyTime arrived);
  std::size_t bytes() const { return body->size(); }
};

/// What came of it.
struct Inferred {
  std::string id;                        // of the request
  std::vector<tensor::Named> outputs;    // those asked for, in the order asked; they may outlive the version
  std::vector<oip::Encoding> encodings;  // of each
  std::vector<tensor::Named> others;     // asked for by `also` alone
  std::size_t samples = 1;               // rows, where the model takes several at a time
};

/// Reads the request (of Content-Type image/jpeg or image/png the image itself, for what takes images) and runs the version on the
/// calling thread; only jobs of its executor() do that. `also` names outputs that the caller wants to see whatever the request asks
/// for; they cost nothing where the request has them anyway. kInvalid, kUnsupported: the request. kTimeout: it waited longer than
/// it may. Others: the engine.
Result<Inferred> infer(ModelVersion& version, const InferCall& call, std::span<const std::string> also, const oip::Limits& limits);

/// The answer. `parameters` as oip::InferResponse has them.
net::Response infer_response(const std::string& model, const std::string& version, Inferred inferred,
                             codec::Json parameters = nullptr);

/// {"error": …} with the status of the error's code.
net::Response error_response(const Error& error);

}  // namespace varda::serving
