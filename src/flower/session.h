// One Flower client: its open call of flwr.proto.FlowerService/Join.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "flower/messages.h"
#include "net/grpc_server.h"

namespace varda::flower {

/// The method that Flower clients call.
inline constexpr std::string_view kJoinMethod = "/flwr.proto.FlowerService/Join";

/// A client's answer. The views of `message` point into `owner`.
struct Answer {
  std::shared_ptr<const net::GrpcMessage> owner;
  ClientMessage message;
};

/// Thread-safe.
class Session {
 public:
  virtual ~Session() = default;
  virtual const net::GrpcRequest& request() const = 0;
  using Answered = std::function<void(Result<Answer>)>;
  /// Sends an instruction (messages.h). The client answers one instruction after the other, so a
  /// second ask() before the answer CHECKs. `answered` is called once, on an I/O thread, and must
  /// not block. kUnavailable: the client left. kInvalid: the answer is malformed, and the call is
  /// over.
  virtual void ask(std::shared_ptr<const std::string> instruction, Answered answered) = 0;
  /// Ends the call. Clients of `flwr` report a status other than OK as an exception.
  virtual void finish(Status status) = 0;
};

/// Notified on I/O threads; must not block.
class SessionListener {
 public:
  virtual void joined(std::shared_ptr<Session> session) = 0;
  /// The last notification of this session. An open ask() is answered before.
  virtual void left(const std::shared_ptr<Session>& session) = 0;

 protected:
  ~SessionListener() = default;
};

/// The handler of kJoinMethod. `listener` outlives the server.
net::GrpcHandler join(SessionListener& listener, MessageLimits limits = {});

}  // namespace varda::flower
