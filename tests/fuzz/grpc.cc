// HTTP/2 and gRPC as a server reads them, in memory.
//
// The first byte selects the cuts, the second the handler. Bytes in any cuts give the same events,
// no message exceeds the limit, each call ends once, and no reserved memory is lost.
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "input.h"
#include "net/internal/grpc_session.h"

namespace {

using namespace varda;       // NOLINT: a program of one file
using namespace varda::net;  // NOLINT
using internal::GrpcSession;
using internal::ReceiveBudget;

constexpr std::size_t kBudget = 150'000;

struct Run {
  std::vector<std::string> events;
  bool failed = false;
};

class Recorder final : public GrpcEvents {
 public:
  Recorder(Run& run, std::shared_ptr<GrpcCall> call, unsigned mode, std::size_t number)
      : run_(run), call_(std::move(call)), mode_(mode), number_(std::to_string(number)) {
    const GrpcRequest& request = call_->request();
    std::string text = number_ + " " + request.method;
    for (const auto& [name, value] : request.metadata.all()) text += " " + name + "=" + value;
    run_.events.push_back(text);
    if ((mode_ & 1) == 0) call_->read();
  }
  ~Recorder() override { CHECK(done_); }
  void on_message(GrpcMessage message) override {
    CHECK(!done_ && message.bytes.size() <= 100'000);
    run_.events.push_back(number_ + " message " + message.bytes);
    if ((mode_ & 2) != 0) (void)call_->send(message.bytes);
    if ((mode_ & 4) != 0 && message.bytes.empty()) return call_->finish({});
    call_->read();
  }
  void on_end() override {
    CHECK(!done_);
    run_.events.push_back(number_ + " end");
    if ((mode_ & 8) != 0) call_->finish(Error(Code::kNotFound, "no\n%"));
  }
  void on_done(const Status&) override {
    CHECK(!done_);
    done_ = true;
  }

 private:
  Run& run_;
  const std::shared_ptr<GrpcCall> call_;
  const unsigned mode_;
  const std::string number_;
  bool done_ = false;
};

Run run(std::string_view bytes, std::size_t step, unsigned mode) {
  Run out;
  std::size_t calls = 0;
  const auto budget = std::make_shared<ReceiveBudget>(kBudget);
  GrpcServer::Options options;
  options.message_bytes_max = 100'000;
  options.received_bytes_max = kBudget;
  options.header_bytes_max = 1024;
  options.streams_max = 4;
  options.window_bytes = 16384;
  options.control_frames_burst = 100;
  const GrpcHandler handler = [&](std::shared_ptr<GrpcCall> call) -> std::unique_ptr<GrpcEvents> {
    const std::size_t number = ++calls;
    if ((mode & 16) != 0 && number % 2 == 0) {
      call->finish(Error(Code::kForbidden, "no"));
      return nullptr;
    }
    return std::make_unique<Recorder>(out, std::move(call), mode, number);
  };
  const auto mailbox = std::make_shared<internal::Mailbox>([] {});
  SteadyTime now{};
  {
    const auto session =
        GrpcSession::create({.options = options,
                             .handler = handler,
                             .peer = {.address = "127.0.0.1:1"},
                             .budget = budget,
                             .make_wake =
                                 [&](std::int32_t stream) {
                                   auto wake = std::make_shared<internal::StreamWake>();
                                   wake->mailbox = mailbox;
                                   wake->request = static_cast<std::uint64_t>(stream);
                                   return wake;
                                 }},
                            now);
    const auto deliver = [&] {
      for (auto mail = mailbox->take(); !mail.empty(); mail = mailbox->take())
        for (const auto& one : mail) session->wake(static_cast<std::int32_t>(one.request), now);
    };
    while (!bytes.empty() && !out.failed) {
      const std::size_t count = std::min(step, bytes.size());
      out.failed = !session->feed(bytes.substr(0, count), now).ok();
      bytes.remove_prefix(count);
    }
    // Everything else comes after the input: the events above do not depend on the cuts.
    const Run before = out;
    std::string sent;
    deliver();
    (void)session->output(sent, 1 << 20, now);
    for (int i = 0; i < 20; ++i) {
      const SteadyTime due = session->deadline();
      if (due == SteadyTime::max()) break;
      now = std::max(now, due);
      if (!session->on_time(now).ok()) break;
      deliver();
      (void)session->output(sent, 1 << 20, now);
    }
    session->abort(Error(Code::kUnavailable, "stop"), now);
    (void)session->output(sent, 1 << 20, now);
    session->closed(Error(Code::kUnavailable, "closed"));
    CHECK(session->calls() == 0);
    out = before;
  }
  CHECK(budget->request(kBudget, [] {})->granted());
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  varda::fuzz::Input input(data, size);
  const std::size_t step = input.byte() % 64 + 1;
  const unsigned mode = input.byte();
  // Without the preface nothing follows.
  std::string bytes((mode & 32) != 0 ? "" : "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
  bytes += input.rest();
  const Run whole = run(bytes, bytes.size() + 1, mode), pieces = run(bytes, step, mode);
  // A fault ends the input at the next cut.
  if (!whole.failed) CHECK(!pieces.failed && whole.events == pieces.events);
  const std::size_t same = std::min(whole.events.size(), pieces.events.size());
  for (std::size_t i = 0; i < same; ++i) CHECK(whole.events[i] == pieces.events[i]);
  return 0;
}
