// Upstream: one call of another server that answers the Open Inference Protocol, and what became of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/context.h"
#include "cascade/reason.h"
#include "net/http.h"
#include "oip/envelope.h"
#include "serving/inference.h"
#include "serving/joint/byte_budget.h"

namespace varda::serving::joint {

struct Called {
  std::optional<cascade::Failure> failure;
  oip::Envelope answer;          // of infer(), without a failure
  std::uint64_t bytes_sent = 0;  // of the body; all of them, unless there was no connection to send them on
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
  Upstream(Clients clients, oip::Limits limits, std::size_t answer_bytes_max = kAnswerBytesMax)
      : clients_(clients), limits_(limits), answers_(std::make_shared<ByteBudget>(answer_bytes_max)) {}

  /// Of all answers there are at a time. A single one may have as many bytes as an answer may have.
  static constexpr std::size_t kAnswerBytesMax = std::size_t{128} << 20;

  /// InFlightLimit: there is no room for its answer beside the others. Sends the request on as it came, but for the model's name.
  /// Blocks until the answer, the deadline or a stop request.
  Called infer(const Context& ctx, const std::string& url, const std::string& model, const InferCall& call,
               Connection connection) const;
  /// Whether the model answers there: GET …/ready.
  Called ready(const Context& ctx, const std::string& url, const std::string& model) const;

 private:
  static Called exchange(const Context& ctx, net::HttpClient& http, net::ClientRequest request, net::HttpClient::Answer& answer,
                         ByteBudget::Share& share, std::uint64_t& bytes_sent);

  const Clients clients_;
  const oip::Limits limits_;
  const std::shared_ptr<ByteBudget> answers_;
};

}  // namespace varda::serving::joint
