// Upstream: one call of another server that answers the Open Inference Protocol, and what became of it.
#pragma once

#include <cstdint>
#include <string>

#include "base/context.h"
#include "base/result.h"
#include "net/http.h"
#include "oip/envelope.h"
#include "serving/inference.h"

namespace varda::serving::joint {

/// Why a call brought no answer, in the words of docs/design/017-joint-inference.md.
enum class CallFailure : std::uint8_t {
  kNone,
  kTimeout,      // nothing, or not all of it, within the deadline
  kUnreachable,  // no connection, or one that broke before the answer
  kRefused,      // 4xx
  kFailed,       // 5xx, an answer that broke off, or none of the protocol
  kOverloaded,   // 429, 503
};

struct Called {
  CallFailure failure = CallFailure::kNone;
  std::string message;           // what is wrong, for people; "" without a failure
  oip::Envelope answer;          // without a failure
  std::uint64_t bytes_sent = 0;  // of the body
};

/// Thread-safe. `http` outlives it.
class Upstream {
 public:
  Upstream(net::HttpClient& http, oip::Limits limits) : http_(http), limits_(limits) {}

  /// Sends the request on as it came, but for the model's name. Blocks until the answer, the deadline or a stop request.
  Called infer(const Context& ctx, const std::string& url, const std::string& model, const InferCall& call) const;
  /// Whether the model answers there: GET …/ready.
  Called ready(const Context& ctx, const std::string& url, const std::string& model) const;

 private:
  Called exchange(const Context& ctx, net::ClientRequest request, net::HttpClient::Answer& answer) const;

  net::HttpClient& http_;
  const oip::Limits limits_;
};

}  // namespace varda::serving::joint
