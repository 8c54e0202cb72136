// The part of a call that all threads share. Its session acts on it.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "base/mutex.h"
#include "net/grpc_server.h"
#include "net/internal/mailbox.h"

namespace varda::net::internal {

using SharedMessage = std::shared_ptr<const std::string>;

class CallState final : public GrpcCall {
 public:
  CallState(GrpcRequest request, std::size_t send_bytes_max, std::shared_ptr<StreamWake> wake)
      : request_(std::move(request)), send_bytes_max_(send_bytes_max), wake_(std::move(wake)) {}

  const GrpcRequest& request() const override { return request_; }
  void read() override EXCLUDES(mutex_);
  Status send(SharedMessage message) override EXCLUDES(mutex_);
  void finish(Status status) override EXCLUDES(mutex_);

  // For the session, on its thread.

  /// True once for each read().
  bool take_read() EXCLUDES(mutex_);
  std::deque<SharedMessage> take_messages() EXCLUDES(mutex_);
  /// Set after finish(). take_messages() comes first, so that no message is lost in between.
  std::optional<Status> finished() const EXCLUDES(mutex_);
  /// One message is written. True: it was the last.
  bool sent(std::size_t bytes) EXCLUDES(mutex_);
  /// The call is over; drops unsent messages.
  void end() EXCLUDES(mutex_);

 private:
  const GrpcRequest request_;
  const std::size_t send_bytes_max_;
  const std::shared_ptr<StreamWake> wake_;
  mutable Mutex mutex_;
  std::deque<SharedMessage> messages_ GUARDED_BY(mutex_);  // not taken yet
  std::size_t queued_ GUARDED_BY(mutex_) = 0;              // messages, also taken ones
  std::size_t queued_bytes_ GUARDED_BY(mutex_) = 0;
  bool read_ GUARDED_BY(mutex_) = false;
  bool over_ GUARDED_BY(mutex_) = false;
  std::optional<Status> finish_ GUARDED_BY(mutex_);
};

}  // namespace varda::net::internal
