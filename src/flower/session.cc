#include "flower/session.h"

#include <utility>

#include "base/check.h"
#include "base/mutex.h"

namespace varda::flower {
namespace {

class CallSession final : public Session {
 public:
  explicit CallSession(std::shared_ptr<net::GrpcCall> call) : call_(std::move(call)) {}

  const net::GrpcRequest& request() const override { return call_->request(); }

  void ask(std::shared_ptr<const std::string> instruction, Answered answered) override {
    bool left = false;
    {
      const MutexLock lock(mutex_);
      CHECK(!answered_);
      left = over_;
      if (!left) answered_ = std::move(answered);
    }
    if (left) return answered(gone());
    // Large instructions follow each other only after an answer, so the buffer never refuses one.
    (void)call_->send(std::move(instruction));
    call_->read();
  }

  void finish(Status status) override { call_->finish(std::move(status)); }

  /// Null: nothing was asked.
  Answered take_answered() {
    const MutexLock lock(mutex_);
    return std::exchange(answered_, nullptr);
  }

  void over() {
    Answered answered;
    {
      const MutexLock lock(mutex_);
      over_ = true;
      answered.swap(answered_);
    }
    if (answered) answered(gone());
  }

 private:
  static Error gone() { return Error(Code::kUnavailable, "the client left"); }

  const std::shared_ptr<net::GrpcCall> call_;
  Mutex mutex_;
  Answered answered_ GUARDED_BY(mutex_);
  bool over_ GUARDED_BY(mutex_) = false;
};

class JoinEvents final : public net::GrpcEvents {
 public:
  JoinEvents(SessionListener& listener, const MessageLimits& limits,
             std::shared_ptr<CallSession> session)
      : listener_(listener), limits_(limits), session_(std::move(session)) {
    listener_.joined(session_);
  }

  void on_message(net::GrpcMessage message) override {
    const Session::Answered answered = session_->take_answered();
    if (!answered) return;
    const auto owner = std::make_shared<const net::GrpcMessage>(std::move(message));
    Result<ClientMessage> parsed = parse_client_message(owner->bytes, limits_);
    if (!parsed.ok()) {
      session_->finish(parsed.error());
      return answered(parsed.error());
    }
    answered(Answer{.owner = owner, .message = std::move(parsed).value()});
  }

  void on_end() override { session_->finish({}); }

  void on_done(const Status&) override {
    session_->over();
    listener_.left(session_);
  }

 private:
  SessionListener& listener_;
  const MessageLimits limits_;
  const std::shared_ptr<CallSession> session_;
};

}  // namespace

net::GrpcHandler join(SessionListener& listener, MessageLimits limits) {
  return [&listener, limits](std::shared_ptr<net::GrpcCall> call) {
    return std::make_unique<JoinEvents>(listener, limits,
                                        std::make_shared<CallSession>(std::move(call)));
  };
}

}  // namespace varda::flower
