#include <atomic>
#include <gtest/gtest.h>
#include <thread>

#include "base/mutex.h"
#include "base/testing/eventually.h"
#include "net/server.h"
#include "net/testing/raw_socket.h"

namespace varda::net {
namespace streamed_body_test {

using namespace std::chrono_literals;
using testing::RawSocket;

Response answer(int status, std::string body) {
  Response out;
  out.status = status;
  out.body = std::move(body);
  return out;
}

/// Counts of all receivers; they refuse bodies beyond `bytes_max`.
struct Uploads {
  std::atomic<std::size_t> bytes{0}, largest_piece{0};
  std::atomic<int> finished{0}, destroyed{0};
  std::size_t bytes_max = SIZE_MAX;
  std::atomic<std::size_t> full_at{SIZE_MAX};  // receivers are full from this number of bytes on
  std::chrono::milliseconds body_window{10000};
  Mutex mutex;
  std::function<void()> wake GUARDED_BY(mutex);

  void resume() {
    full_at = SIZE_MAX;
    const MutexLock lock(mutex);
    wake();
  }

  class Receiver final : public BodyReceiver {
   public:
    explicit Receiver(Uploads& uploads) : uploads_(uploads) {}
    ~Receiver() override { ++uploads_.destroyed; }
    std::optional<Response> write(std::string_view bytes) override {
      uploads_.largest_piece = std::max<std::size_t>(uploads_.largest_piece, bytes.size());
      if ((uploads_.bytes += bytes.size()) > uploads_.bytes_max) return answer(507, "full");
      return std::nullopt;
    }
    bool ready() override { return uploads_.bytes < uploads_.full_at; }
    void on_ready(std::function<void()> wake) override {
      const MutexLock lock(uploads_.mutex);
      uploads_.wake = std::move(wake);
    }
    void finish(Responder respond) override {
      ++uploads_.finished;
      respond(answer(201, std::to_string(uploads_.bytes)));
    }

   private:
    Uploads& uploads_;
  };

  std::unique_ptr<Server> serve() {
    Server::Options options;
    options.body_bytes_max = SIZE_MAX;
    options.body_window = body_window;
    options.body_bytes_max_of = [](std::string_view, std::string_view) { return std::size_t{16}; };
    options.receive = [this](const Request& head) -> Reception {
      if (head.path() == "/closed") return {.receiver = nullptr, .refusal = answer(403, "closed")};
      if (head.path() != "/upload") return {};
      return {.receiver = std::make_unique<Receiver>(*this), .refusal = std::nullopt};
    };
    auto server = Server::create(std::move(options), inline_handler([](const Request& request) {
                                   return answer(200, request.path() == "/" ? request.body : "?");
                                 }));
    CHECK(server.ok());
    return std::move(*server);
  }
};

std::string put(const std::string& path, std::size_t length, const std::string& more = "") {
  return "PUT " + path + " HTTP/1.1\r\nHost: x\r\nContent-Length: " + std::to_string(length) +
         "\r\n" + more + "\r\n";
}

TEST(StreamedBody, PiecesReachTheReceiverAndNoneStayInMemory) {
  Uploads uploads;
  const auto server = uploads.serve();
  RawSocket socket(server->port());
  constexpr std::size_t kBytes = 8 << 20;
  socket.write(put("/upload", kBytes) + std::string(kBytes, 'x'));
  EXPECT_NE(socket.read_until("8388608").find("HTTP/1.1 201"), std::string::npos);
  EXPECT_LE(uploads.largest_piece, 64u << 10);
  EXPECT_EQ(uploads.finished, 1);
  // The connection serves the next request, whose body goes to the handler.
  socket.write(put("/", 2) + "hi");
  EXPECT_NE(socket.read_until("hi").find("HTTP/1.1 200"), std::string::npos);
  socket.write(put("/", 17) + std::string(17, 'x'));
  EXPECT_NE(socket.read_all().find("HTTP/1.1 413"), std::string::npos);
  EXPECT_EQ(uploads.destroyed, 1);
}

TEST(StreamedBody, ChunkedAndEmptyBodiesReachTheReceiver) {
  Uploads uploads;
  const auto server = uploads.serve();
  RawSocket socket(server->port());
  socket.write(put("/upload", 0));
  EXPECT_NE(socket.read_until("\r\n\r\n0").find("HTTP/1.1 201"), std::string::npos);
  socket.write(
      "PUT /upload HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
      "3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n");
  EXPECT_NE(socket.read_until("\r\n\r\n5").find("HTTP/1.1 201"), std::string::npos);
}

TEST(StreamedBody, RefusalPrecedesTheBodyIfTheClientWaits) {
  Uploads uploads;
  const auto server = uploads.serve();
  RawSocket socket(server->port());
  socket.write(put("/closed", 1 << 20, "Expect: 100-continue\r\n"));
  const std::string refused = socket.read_all();
  EXPECT_NE(refused.find("HTTP/1.1 403"), std::string::npos) << refused;
  EXPECT_EQ(refused.find("100 Continue"), std::string::npos) << refused;
  RawSocket accepted(server->port());
  accepted.write(put("/upload", 3, "Expect: 100-continue\r\n"));
  accepted.read_until("100 Continue\r\n\r\n");
  accepted.write("abc");
  EXPECT_NE(accepted.read_until("\r\n\r\n3").find("HTTP/1.1 201"), std::string::npos);
}

TEST(StreamedBody, RefusalInTheMiddleEndsTheReceiver) {
  Uploads uploads;
  uploads.bytes_max = 1000;
  const auto server = uploads.serve();
  RawSocket socket(server->port());
  socket.write(put("/upload", 100'000) + std::string(2000, 'x'));
  EXPECT_NE(socket.read_until("full").find("HTTP/1.1 507"), std::string::npos);
  EXPECT_EQ(uploads.finished, 0);
  EXPECT_EQ(uploads.destroyed, 1);
}

TEST(StreamedBody, LostClientEndsTheReceiverWithoutFinish) {
  Uploads uploads;
  const auto server = uploads.serve();
  {
    RawSocket socket(server->port());
    socket.write(put("/upload", 100'000) + std::string(2000, 'x'));
    ASSERT_TRUE(eventually([&] { return uploads.bytes == 2000u; }));
  }
  EXPECT_TRUE(eventually([&] { return uploads.destroyed == 1; }));
  EXPECT_EQ(uploads.finished, 0);
}

TEST(StreamedBody, FullReceiverStopsTheBodyAndItsTime) {
  Uploads uploads;
  uploads.full_at = 100'000;
  uploads.body_window = 1s;  // a busy machine pauses the client too
  const auto server = uploads.serve();
  RawSocket socket(server->port());
  constexpr std::size_t kBytes = 32 << 20;  // more than the kernel's buffers
  std::jthread client([&] { socket.write(put("/upload", kBytes) + std::string(kBytes, 'x')); });
  ASSERT_TRUE(eventually([&] { return uploads.bytes >= 100'000u; }));
  const SteadyTime later = system_clock().now() + 3 * uploads.body_window / 2;
  ASSERT_TRUE(eventually([&] { return system_clock().now() > later; }));
  EXPECT_LE(uploads.bytes, 100'000u + (256 << 10));
  EXPECT_EQ(uploads.destroyed, 0);
  uploads.resume();
  client.join();
  EXPECT_NE(socket.read_until("33554432").find("HTTP/1.1 201"), std::string::npos);
}

}  // namespace streamed_body_test
}  // namespace varda::net
