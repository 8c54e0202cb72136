// Inference requests and responses: bytes <-> tensors.
//
// A body is JSON, or (binary tensor extension) JSON followed by the bytes of those tensors that say binary_data_size in their
// parameters; the header Inference-Header-Content-Length then gives the length of the JSON.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "codec/json.h"
#include "tensor/tensor.h"

namespace varda::oip {

/// The header's name.
inline constexpr std::string_view kJsonLengthHeader = "Inference-Header-Content-Length";

struct Limits {
  std::size_t tensors_max = 128;  // inputs, and outputs
  std::size_t rank_max = 16;
  std::size_t id_bytes_max = 1024;
  std::size_t parameters_bytes_max = 64 << 10;  // of one "parameters" object
  // A dimension beside a 0 needs no bytes in the body, yet a model may allocate by it.
  std::int64_t dimension_max = std::int64_t{1} << 26;
  std::size_t elements_beside_zero_max = 1 << 20;  // product of the dimensions that are not 0
};

enum class Encoding { kJson, kBinary };

struct RequestedOutput {
  std::string name;
  Encoding encoding = Encoding::kJson;
};

struct InferRequest {
  std::string id;
  std::vector<tensor::Named> inputs;
  std::vector<RequestedOutput> outputs;              // empty: all, as the model orders them
  Encoding encoding = Encoding::kJson;               // of outputs not named
  std::optional<std::chrono::microseconds> timeout;  // the request's own deadline (parameter "timeout")
};

/// Reads a request body. Tensors given in binary stay in `body`, which they keep alive. `json_length` is the header's value where
/// it is there. kInvalid: not JSON, a missing or twice given field, types, shapes and data that do not agree, numbers that do not
/// fit their type; the message names the input. kUnsupported: what the protocol has and we do not.
Result<InferRequest> parse_infer_request(std::shared_ptr<const std::string> body, std::optional<std::string_view> json_length,
                                         const Limits& limits = {});

/// A body and what its headers say.
struct Message {
  std::string body;
  std::optional<std::size_t> json_length;  // set: Inference-Header-Content-Length, application/octet-stream; else application/json
  std::string_view content_type() const { return json_length ? "application/octet-stream" : "application/json"; }
};

/// Bodies without an "id" if it is empty.
Message write_infer_request(const InferRequest& request);

struct InferResponse {
  std::string model_name;
  std::string model_version;
  std::string id;
  std::vector<tensor::Named> outputs;
  codec::Json parameters = nullptr;  // an object, or null: none
};

/// `encodings` has one entry an output, or is empty for JSON throughout. Strings that are not UTF-8 always go in
/// binary, since JSON cannot hold them. NaN and infinities, which it lacks too, become null.
Message write_infer_response(const InferResponse& response, std::span<const Encoding> encodings);

/// kInvalid as for requests.
Result<InferResponse> parse_infer_response(std::shared_ptr<const std::string> body, std::optional<std::string_view> json_length,
                                           const Limits& limits = {});

}  // namespace varda::oip
