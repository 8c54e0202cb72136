// Answers of a container runtime. A letter selects the kind (h: bytes of its HTTP/2 connection, l:
// its log file, m: any message); then come the bytes.
#include <string>

#include "base/check.h"
#include "codec/protobuf.h"
#include "input.h"
#include "net/internal/http2_call.h"
#include "node/internal/cri.h"
#include "node/internal/cri_log.h"

namespace {

using namespace varda;  // NOLINT: a program of one file

class Canned final : public net::GrpcClient {
 public:
  explicit Canned(std::string_view answer) : answer_(answer) {}
  Result<std::string> call(const Context&, std::string_view, std::string_view) override {
    return answer_;
  }

 private:
  const std::string answer_;
};

void read_message(std::string_view bytes) {
  Canned grpc(bytes);
  node::cri::Runtime runtime(grpc);
  const Context ctx = Context::background();
  codec::ProtoReader reader(bytes);
  while (reader.next()) (void)reader.entry();
  // A message with broken encoding is never a valid answer.
  const bool broken = !reader.status().ok();
  CHECK(runtime.containers(ctx, {}).ok() == !broken);
  CHECK(runtime.sandboxes(ctx, {}).ok() == !broken);
  CHECK(runtime.status(ctx).ok() == !broken);
  CHECK(runtime.container_status(ctx, "c").ok() == !broken);
  CHECK(runtime.image(ctx, "web").ok() == !broken);
  (void)runtime.version(ctx);
  (void)runtime.sandbox_address(ctx, "s");
  (void)runtime.exec(ctx, "c", {"true"});
}

// Any pieces give the same result as the whole.
void read_log(std::string_view bytes, std::size_t piece) {
  node::internal::CriLog whole, pieces;
  const std::string once = whole.take(bytes) + whole.finish();
  std::string parts;
  for (std::size_t at = 0; at < bytes.size(); at += piece)
    parts += pieces.take(bytes.substr(at, piece));
  CHECK(parts + pieces.finish() == once);
}

void read_connection(std::string_view bytes) {
  const auto call = net::internal::Http2Call::create(4096);
  CHECK(call->begin({.method = "/a.B/C", .timeout = "1m", .message = "x"}).ok());
  while (!bytes.empty() && !call->done()) {
    for (auto out = call->output(); out.ok() && !out->empty(); out = call->output()) {
    }
    const std::string_view piece = bytes.substr(0, 64);
    bytes.remove_prefix(piece.size());
    if (!call->feed(piece).ok()) return;
  }
  CHECK(call->take().body.size() <= 4096);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  varda::fuzz::Input input(data, size);
  switch (input.byte()) {
    case 'h':
      read_connection(input.rest());
      break;
    case 'l':
      read_log(input.rest(), std::size_t{input.byte()} + 1);
      break;
    default:
      read_message(input.rest());
  }
  return 0;
}
