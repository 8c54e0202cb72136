// Upstream: one call of another server that answers the Open Inference Protocol, and what became of it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/context.h"
#include "cascade/reason.h"
#include "net/http.h"
#include "oip/envelope.h"
#include "serving/inference.h"

namespace varda::serving::joint {

struct Called {
  std::optional<cascade::Failure> failure;
  oip::Envelope answer;          // of infer(), without a failure
  std::uint64_t bytes_sent = 0;  // of the body
};

/// Thread-safe.
class Upstream {
 public:
  /// Clients with a pool of connections and without one, for what must not meet a connection that was used before.
  struct Clients {
    net::HttpClient& pooled;
    net::HttpClient& fresh;
  };
  enum class Connection : std::uint8_t { kAny, kNew };

  /// The clients outlive it.
  Upstream(Clients clients, oip::Limits limits) : clients_(clients), limits_(limits) {}

  /// Sends the request on as it came, but for the model's name. Blocks until the answer, the deadline or a stop request.
  Called infer(const Context& ctx, const std::string& url, const std::string& model, const InferCall& call,
               Connection connection) const;
  /// Whether the model answers there: GET …/ready.
  Called ready(const Context& ctx, const std::string& url, const std::string& model) const;

 private:
  static Called exchange(const Context& ctx, net::HttpClient& http, net::ClientRequest request, net::HttpClient::Answer& answer);

  const Clients clients_;
  const oip::Limits limits_;
};

}  // namespace varda::serving::joint
