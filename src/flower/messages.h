// The messages of flwr.proto.FlowerService/Join.
//
// Source of names and numbers: github.com/adap/flower, src/proto/flwr/proto/transport.proto at
// v1.0.0. Later versions up to framework v1.27 add one type of scalar (uint64) and change nothing
// else. Arrays: flwr.common.parameter, numpy.save() without pickles, tensor_type "numpy.ndarray".
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "tensor/tensor.h"

namespace varda::flower {

struct Blob {
  std::string bytes;
  friend bool operator==(const Blob&, const Blob&) = default;
};
using Scalar = std::variant<double, std::int64_t, std::uint64_t, bool, std::string, Blob>;
using Scalars = std::map<std::string, Scalar>;

// --- from the server ---

std::string encode_reconnect(std::int64_t seconds);
std::string encode_get_properties(const Scalars& config);
std::string encode_get_parameters(const Scalars& config);
enum class Instruction { kFit, kEvaluate };
/// The tensors become arrays of their types, in this order. kUnsupported: NumPy lacks a type.
Result<std::string> encode_instruction(Instruction kind, std::span<const tensor::Named> tensors,
                                       const Scalars& config);

// --- from clients ---

/// `status` of an answer.
struct Outcome {
  enum class Code : std::int64_t {
    kOk = 0,
    kGetPropertiesNotImplemented = 1,
    kGetParametersNotImplemented = 2,
    kFitNotImplemented = 3,
    kEvaluateNotImplemented = 4,
  };
  Code code = Code::kOk;
  std::string message;
  bool ok() const { return code == Code::kOk; }
};

struct Disconnect {
  std::int64_t reason = 0;
};
struct Properties {
  Outcome outcome;
  Scalars properties;
};
/// Views into the message.
struct Parameters {
  std::vector<std::string_view> tensors;  // each as numpy.save() writes it
  std::string tensor_type;
};
struct ParametersAnswer {
  Outcome outcome;
  Parameters parameters;
};
struct FitAnswer {
  Outcome outcome;
  Parameters parameters;
  std::int64_t examples = 0;
  Scalars metrics;
};
struct EvaluateAnswer {
  Outcome outcome;
  float loss = 0;
  std::int64_t examples = 0;
  Scalars metrics;
};
using ClientMessage =
    std::variant<Disconnect, Properties, ParametersAnswer, FitAnswer, EvaluateAnswer>;

struct MessageLimits {
  std::size_t tensors_max = 20'000;
  std::size_t scalars_max = 1000;
  std::size_t text_bytes_max = 64 << 10;  // of a name, a value or a message
};

/// Borrows the bytes of tensors. kInvalid: not a protobuf message, no known kind, or a limit.
Result<ClientMessage> parse_client_message(std::string_view bytes,
                                           const MessageLimits& limits = {});

}  // namespace varda::flower
