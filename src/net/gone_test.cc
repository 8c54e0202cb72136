// Reports of disconnected clients to handlers: Responder::on_disconnect().
#include <atomic>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <thread>
#include <unistd.h>

#include "base/mutex.h"
#include "base/rng.h"
#include "net/client.h"
#include "net/server.h"
#include "net/testing/raw_socket.h"

namespace varda::net {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::RawSocket;
using ::testing::StartsWith;

constexpr auto kRequest = "GET /a HTTP/1.1\r\nHost: a\r\n\r\n";
constexpr auto kInterim = "HTTP/1.1 100 Continue\r\n\r\n";

// A handler that keeps its requests until a test answers them, and records disconnected clients.
// Thread-safe.
class HoldingHandler {
 public:
  Handler handler() {
    return [this](Request request, Responder respond) {
      if (!unregistered) {
        respond.on_disconnect([this, target = request.target, alive = alive_] {
          MutexLock lock(mutex_);
          disconnected_.push_back(target);
          changed_.notify_all();
        });
      }
      MutexLock lock(mutex_);
      waiting_.push_back(std::move(respond));
      changed_.notify_all();
    };
  }
  void answer_all(const std::string& body = "ok") {
    std::vector<Responder> waiting;
    {
      MutexLock lock(mutex_);
      waiting.swap(waiting_);
    }
    for (Responder& respond : waiting) respond({200, {}, body, nullptr});
  }
  [[nodiscard]] bool wait_for_requests(std::size_t count) {
    return wait([&]() REQUIRES(mutex_) { return waiting_.size() >= count; });
  }
  /// Targets of the requests with disconnected clients; waits for `count` of them.
  std::vector<std::string> disconnected(std::size_t count) {
    EXPECT_TRUE(wait([&]() REQUIRES(mutex_) { return disconnected_.size() >= count; }));
    MutexLock lock(mutex_);
    return disconnected_;
  }
  /// The number of callbacks still held.
  long callbacks() const { return alive_.use_count() - 1; }

  std::atomic<bool> unregistered{false};  // handlers do not register on_disconnect()

 private:
  template <typename Condition>
  bool wait(const Condition& condition) EXCLUDES(mutex_) {
    const SteadyTime until = system_clock().now() + 60s;
    MutexLock lock(mutex_);
    while (!condition()) {
      if (!changed_.wait_until(mutex_, until)) return condition();
    }
    return true;
  }

  const std::shared_ptr<int> alive_ = std::make_shared<int>();
  Mutex mutex_;
  CondVar changed_;
  std::vector<Responder> waiting_ GUARDED_BY(mutex_);
  std::vector<std::string> disconnected_ GUARDED_BY(mutex_);
};

class Disconnect : public ::testing::Test {
 protected:
  void serve(Server::Options options = {}) {
    server_ = Server::create(std::move(options), handler_.handler()).value();
  }

  HoldingHandler handler_;
  std::unique_ptr<Server> server_;  // destroyed before the handler
};

TEST_F(Disconnect, ResetIsReported) {
  serve();
  RawSocket socket(server_->port());
  socket.write(kRequest);
  ASSERT_TRUE(handler_.wait_for_requests(1));
  socket.reset();
  EXPECT_THAT(handler_.disconnected(1), ElementsAre("/a"));
  handler_.answer_all();
}

TEST_F(Disconnect, CloseIsReported) {
  serve();
  {
    RawSocket socket(server_->port());
    socket.write(kRequest);
    ASSERT_TRUE(handler_.wait_for_requests(1));
  }
  EXPECT_THAT(handler_.disconnected(1), ElementsAre("/a"));
  handler_.answer_all();
}

TEST_F(Disconnect, CloseOfAUnixSocketIsReported) {
  const std::string path = ::testing::TempDir() + "/varda-gone-" + std::to_string(::getpid());
  serve({.listen = "unix:" + path});
  {
    RawSocket socket(path);
    socket.write(kRequest);
    ASSERT_TRUE(handler_.wait_for_requests(1));
  }
  EXPECT_THAT(handler_.disconnected(1), ElementsAre("/a"));
}

TEST_F(Disconnect, HalfClosedClientGetsItsAnswer) {
  serve();
  RawSocket socket(server_->port());
  socket.write(kRequest);
  ASSERT_TRUE(handler_.wait_for_requests(1));
  socket.finish_writing();
  EXPECT_EQ(socket.read_until(kInterim), kInterim)
      << "the end was seen, and the client asked whether it listens";
  handler_.answer_all("late");
  EXPECT_THAT(socket.read_all(), ::testing::EndsWith("\r\n\r\nlate"));
  server_->stop(0ms);
  EXPECT_THAT(handler_.disconnected(0), IsEmpty());
}

TEST_F(Disconnect, HalfClosedClientThatResetsIsReported) {
  serve();
  {
    RawSocket socket(server_->port());
    socket.write(kRequest);
    socket.finish_writing();
    ASSERT_TRUE(handler_.wait_for_requests(1));
    EXPECT_EQ(socket.read_until(kInterim), kInterim);
    EXPECT_THAT(handler_.disconnected(0), IsEmpty());
    socket.reset();
  }
  EXPECT_THAT(handler_.disconnected(1), ElementsAre("/a"));
}

TEST_F(Disconnect, EachPipelinedRequestProbesAHalfClosedClient) {
  serve();
  RawSocket socket(server_->port());
  socket.write("GET /a HTTP/1.1\r\nHost: a\r\n\r\nGET /b HTTP/1.1\r\nHost: a\r\n\r\n");
  socket.finish_writing();
  std::string got = socket.read_until(kInterim);
  EXPECT_EQ(got, kInterim);
  ASSERT_TRUE(handler_.wait_for_requests(1));
  handler_.answer_all("one");
  got = socket.read_until(kInterim);
  EXPECT_THAT(got, ::testing::HasSubstr("\r\n\r\none"));
  ASSERT_TRUE(handler_.wait_for_requests(1));
  socket.reset();
  EXPECT_THAT(handler_.disconnected(1), ElementsAre("/b"));
}

TEST_F(Disconnect, RequestWithoutACallbackSendsNoProbe) {
  serve();
  handler_.unregistered = true;
  RawSocket socket(server_->port());
  socket.write(kRequest);
  socket.finish_writing();
  ASSERT_TRUE(handler_.wait_for_requests(1));
  handler_.answer_all();
  const std::string got = socket.read_all();
  EXPECT_THAT(got, StartsWith("HTTP/1.1 200 OK\r\n"));
}

TEST_F(Disconnect, HalfCloseOfAnHttp10ClientIsReported) {
  serve();
  RawSocket socket(server_->port());
  socket.write("GET /a HTTP/1.0\r\n\r\n");
  ASSERT_TRUE(handler_.wait_for_requests(1));
  socket.finish_writing();
  EXPECT_THAT(handler_.disconnected(1), ElementsAre("/a"));
  EXPECT_EQ(socket.read_all(), "");
}

TEST_F(Disconnect, ClientWithUnreadRequestsIsReportedOnReset) {
  serve();
  std::string ahead;
  while (ahead.size() < (64 << 10)) ahead += "GET /b HTTP/1.1\r\nHost: a\r\n\r\n";
  for (const bool urgent : {false, true}) {
    SCOPED_TRACE(urgent);
    RawSocket socket(server_->port());
    socket.write(kRequest + ahead);
    ASSERT_TRUE(handler_.wait_for_requests(1));
    if (urgent) {
      socket.write_urgent('!');  // the client still waits
      handler_.answer_all();
      EXPECT_THAT(socket.read_until("\r\n\r\nok"), StartsWith("HTTP/1.1 200 OK\r\n"));
      EXPECT_THAT(handler_.disconnected(1), ElementsAre("/a")) << "the one before";
      continue;
    }
    socket.reset();
    EXPECT_THAT(handler_.disconnected(1), ElementsAre("/a"));
    handler_.answer_all();
  }
}

TEST_F(Disconnect, ClientWithSkippedUrgentDataIsReportedOnReset) {
  serve();
  const auto request = [](const std::string& target) {
    return "GET " + target + " HTTP/1.1\r\nHost: a\r\nPad: " + std::string(4000, 'x') + "\r\n\r\n";
  };
  constexpr int kAhead = 20;  // exceeds the read-ahead limit
  std::string ahead;
  for (int i = 0; i < kAhead; ++i) ahead += request("/b");
  RawSocket socket(server_->port());
  socket.write(request("/a") + ahead);
  ASSERT_TRUE(handler_.wait_for_requests(1));
  socket.write_urgent('!');
  for (int i = 0; i < kAhead; ++i) {
    ASSERT_TRUE(handler_.wait_for_requests(1));
    handler_.answer_all();
  }
  ASSERT_TRUE(handler_.wait_for_requests(1)) << "the last one; behind it everything has been read";
  socket.write(request("/c") + ahead);
  handler_.answer_all();
  ASSERT_TRUE(handler_.wait_for_requests(1));
  socket.reset();
  EXPECT_THAT(handler_.disconnected(1), ElementsAre("/c"));
}

TEST_F(Disconnect, AnswerRemovesTheCallback) {
  serve();
  {
    RawSocket socket(server_->port());
    socket.write(kRequest);
    ASSERT_TRUE(handler_.wait_for_requests(1));
    EXPECT_EQ(handler_.callbacks(), 1);
    handler_.answer_all();
    EXPECT_THAT(socket.read_until("ok"), StartsWith("HTTP/1.1 200 OK\r\n"));
    EXPECT_EQ(handler_.callbacks(), 0);
    handler_.unregistered = true;
    socket.write("GET /b HTTP/1.1\r\nHost: a\r\n\r\n");
    ASSERT_TRUE(handler_.wait_for_requests(1));
  }
  server_->stop(0ms);
  EXPECT_THAT(handler_.disconnected(0), IsEmpty()) << "only of the request that was asked about";
}

TEST_F(Disconnect, AnswerWithinTheCallRemovesTheCallback) {
  std::atomic<int> notified{0};
  auto server = Server::create({}, [&](Request, Responder respond) {
                  respond.on_disconnect([&] { ++notified; });
                  respond({200, {}, "ok", nullptr});
                }).value();
  {
    RawSocket socket(server->port());
    socket.write(kRequest);
    EXPECT_THAT(socket.read_until("ok"), StartsWith("HTTP/1.1 200 OK\r\n"));
  }
  server->stop(0ms);
  EXPECT_EQ(notified, 0);
}

TEST_F(Disconnect, StopReportsUnansweredRequests) {
  serve();
  RawSocket socket(server_->port());
  socket.write(kRequest);
  ASSERT_TRUE(handler_.wait_for_requests(1));
  server_->stop(0ms);
  EXPECT_THAT(handler_.disconnected(0), ElementsAre("/a"));
  handler_.answer_all();
}

TEST_F(Disconnect, CancelledTlsClientIsReported) {
  const KeyPair ca = make_ca("test-ca", 24h).value();
  const KeyPair pair =
      make_certificate(ca, {.common_name = "server", .hosts = {"127.0.0.1"}, .server = true})
          .value();
  serve(
      {.tls = TlsServer{
           .certificate_pem = pair.certificate_pem, .key_pem = pair.key_pem, .client_ca_pem = ""}});
  std::stop_source stop;
  std::thread client([&] {
    const auto answer =
        make_client({.tls = {.ca_pem = ca.certificate_pem}})
            ->call(Context(stop.get_token()), {.url = "https://" + server_->address() + "/a"});
    EXPECT_EQ(answer.error().code(), Code::kCancelled);
  });
  EXPECT_TRUE(handler_.wait_for_requests(1));
  stop.request_stop();
  client.join();
  EXPECT_THAT(handler_.disconnected(1), ElementsAre("/a"));
}

TEST_F(Disconnect, CancelledLoopbackCallerIsReported) {
  const auto http = loopback(handler_.handler());
  std::stop_source stop;
  std::thread caller([&] {
    EXPECT_EQ(http->call(Context(stop.get_token()), {.url = "/a"}).error().code(),
              Code::kCancelled);
  });
  EXPECT_TRUE(handler_.wait_for_requests(1));
  stop.request_stop();
  caller.join();
  EXPECT_THAT(handler_.disconnected(0), ElementsAre("/a"));
  EXPECT_EQ(handler_.callbacks(), 0);
  handler_.answer_all();
}

// Clients hang up in every way and at every moment while other threads answer. Each request is
// answered, reported gone, or both if they coincide. No report comes twice and no callback is kept.
TEST(DisconnectFaults, EachDisconnectIsReportedAtMostOnceAndFreesItsCallback) {
  constexpr int kClients = 4, kRounds = 60;
  const auto alive = std::make_shared<int>();
  std::atomic<int> requests{0}, notified{0}, answered{0}, notified_twice{0};
  {
    HandlerPool pool({.threads = 2, .queue_max = 1024});
    Mutex mutex;
    std::vector<Responder> late;  // not answered until the end
    const Handler answering = pool.wrap([&](const Request& request) {
      if (request.target == "/slow") std::this_thread::yield();
      ++answered;
      return Response{200, {}, "ok", nullptr};
    });
    auto server =
        Server::create({.io_threads = 2}, [&](Request request, Responder respond) {
          ++requests;
          respond.on_disconnect([&, once = std::make_shared<std::atomic<bool>>(false), alive] {
            if (once->exchange(true)) ++notified_twice;
            ++notified;
          });
          if (request.target != "/never") return answering(std::move(request), std::move(respond));
          MutexLock lock(mutex);
          late.push_back(std::move(respond));
        }).value();
    std::vector<std::thread> clients;
    for (int c = 0; c < kClients; ++c) {
      clients.emplace_back([&, c] {
        const auto rng = seeded_rng(static_cast<std::uint64_t>(c + 1));
        for (int round = 0; round < kRounds; ++round) {
          RawSocket socket(server->port());
          const std::uint64_t kind = rng->below(3);
          const std::string target = kind == 0 ? "/fast" : kind == 1 ? "/slow" : "/never";
          std::string request = "GET " + target + " HTTP/1." + (rng->below(4) == 0 ? "0" : "1") +
                                "\r\nHost: a\r\n\r\n";
          if (rng->below(3) == 0) request += request;
          socket.write(request);
          for (std::uint64_t i = rng->below(50); i > 0; --i) std::this_thread::yield();
          switch (rng->below(4)) {
            case 0:
              socket.reset();
              break;
            case 1:
              socket.finish_writing();
              if (kind != 2) (void)socket.read_all();
              break;
            case 2:
              if (kind != 2) (void)socket.read_until("ok");
              break;
            default:
              break;  // the destructor closes
          }
        }
      });
    }
    for (std::thread& client : clients) client.join();
    server->stop(0ms);
    EXPECT_EQ(alive.use_count(), 1) << "connections are gone, and what they kept";
    EXPECT_GE(notified + answered, requests);
    EXPECT_GT(notified, 0);
    EXPECT_GT(answered, 0);
  }
  EXPECT_EQ(notified_twice, 0);
}

}  // namespace
}  // namespace varda::net
