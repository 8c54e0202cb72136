// Upstream: one call of another server over the Open Inference Protocol, with its outcome.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/context.h"
#include "net/http.h"
#include "oip/envelope.h"
#include "serving/inference.h"
#include "serving/joint/byte_budget.h"
#include "tiers/reason.h"

namespace varda::serving::joint {

struct Called {
  std::optional<tiers::Failure> failure;
  oip::Envelope answer;          // of infer(), if there is no failure
  std::uint64_t bytes_sent = 0;  // of the body; the full size, unless no connection was made
};

/// Thread-safe.
class Upstream {
 public:
  /// Clients with a connection pool and without one, for retries that need a new connection.
  struct Clients {
    net::HttpClient& pooled;
    net::HttpClient& fresh;
  };
  enum class Connection : std::uint8_t { kAny, kNew };

  /// The clients outlive this object.
  Upstream(Clients clients, oip::Limits limits, std::size_t answer_bytes_max = kAnswerBytesMax)
      : clients_(clients),
        limits_(limits),
        answers_(std::make_shared<ByteBudget>(answer_bytes_max)) {}

  /// Byte limit for all answers held at a time. A sole answer may use the limit of one answer.
  static constexpr std::size_t kAnswerBytesMax = std::size_t{128} << 20;

  /// Forwards the request with only the model's name changed. Blocks until the answer, the deadline
  /// or a stop request. Reason InFlightLimit: the byte limit has no room for the answer.
  Called infer(const Context& ctx, const std::string& url, const std::string& model,
               const InferCall& call, Connection connection) const;
  /// Asks GET …/ready whether the model answers there. A closed server answers that to every
  /// client. So a read of the model's metadata then shows whether the server would answer this
  /// client.
  Called ready(const Context& ctx, const std::string& url, const std::string& model) const;

 private:
  static Called exchange(const Context& ctx, net::HttpClient& http, net::ClientRequest request,
                         net::HttpClient::Answer& answer, ByteBudget::Share& share,
                         std::uint64_t& bytes_sent);

  const Clients clients_;
  const oip::Limits limits_;
  const std::shared_ptr<ByteBudget> answers_;
};

}  // namespace varda::serving::joint
