// Inference requests and responses: conversion between bytes and tensors.
//
// A body is JSON. With the binary tensor extension, the bytes of all tensors with binary_data_size
// in their parameters follow the JSON. The header Inference-Header-Content-Length then has the
// length of the JSON.
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

/// Name of that header.
inline constexpr std::string_view kJsonLengthHeader = "Inference-Header-Content-Length";

struct Limits {
  std::size_t tensors_max = 128;  // limit for inputs, and for outputs
  std::size_t rank_max = 16;
  std::size_t id_bytes_max = 1024;
  std::size_t parameters_bytes_max = 64 << 10;  // per "parameters" object
  // A dimension beside a 0 needs no bytes in the body, but a model may allocate memory for it.
  std::int64_t dimension_max = std::int64_t{1} << 26;
  std::size_t elements_with_zero_max = 1 << 20;  // product of the nonzero dimensions
};

enum class Encoding { kJson, kBinary };

struct RequestedOutput {
  std::string name;
  Encoding encoding = Encoding::kJson;
};

struct InferRequest {
  std::string id;
  std::vector<tensor::Named> inputs;
  std::vector<RequestedOutput> outputs;  // empty: all, in the model's order
  Encoding encoding = Encoding::kJson;   // for outputs without an entry
  std::optional<std::chrono::microseconds>
      timeout;  // the request's own deadline (parameter "timeout")
};

/// Parses a request body. Binary tensors refer to `body` and keep it alive. `json_length` is the
/// value of the header, if present. kInvalid: not JSON, a missing or duplicate field, inconsistent
/// types, shapes and data, or numbers out of range; the message names the input. kUnsupported: a
/// part of the protocol that we do not implement.
Result<InferRequest> parse_infer_request(std::shared_ptr<const std::string> body,
                                         std::optional<std::string_view> json_length,
                                         const Limits& limits = {});

/// A body with the values of its headers.
struct Message {
  std::string body;
  std::optional<std::size_t> json_length;  // the header's value; absent: plain JSON
  std::string_view content_type() const {
    return json_length ? "application/octet-stream" : "application/json";
  }
};

/// An empty "id" is omitted.
Message write_infer_request(const InferRequest& request);

struct InferResponse {
  std::string model_name;
  std::string model_version;
  std::string id;
  std::vector<tensor::Named> outputs;
  codec::Json parameters = nullptr;  // an object, or null: none
};

/// Whether each output can be written as `encodings` says, with the meaning of
/// write_infer_response(). kInvalid: a BYTES output is wanted in JSON and is not UTF-8, which JSON
/// cannot hold.
Status check_encodings(std::span<const tensor::Named> outputs, std::span<const Encoding> encodings);

/// `encodings` has one entry per output, or is empty for JSON throughout. JSON cannot hold strings
/// that are not UTF-8, so these are always binary. NaN and infinities become null in JSON.
Message write_infer_response(const InferResponse& response, std::span<const Encoding> encodings);

/// kInvalid: as for requests.
Result<InferResponse> parse_infer_response(std::shared_ptr<const std::string> body,
                                           std::optional<std::string_view> json_length,
                                           const Limits& limits = {});

}  // namespace varda::oip
