#include "net/grpc_server.h"

#include <atomic>
#include <future>
#include <gtest/gtest.h>
#include <thread>

#include "base/testing/eventually.h"
#include "net/certificates.h"
#include "net/client.h"
#include "net/grpc_client.h"
#include "net/grpc_status.h"
#include "net/server.h"
#include "net/testing/grpc_peer.h"
#include "net/testing/raw_socket.h"

namespace varda::net {
namespace grpc_server_test {

using namespace std::chrono_literals;
using testing::GrpcEnd;
using testing::GrpcPeer;

GrpcHandler echo(GrpcThreads& threads) {
  return threads.unary([](const Context&, const GrpcRequest& request,
                          std::string_view message) -> Result<std::string> {
    return request.method + " " + std::string(message);
  });
}

std::unique_ptr<GrpcServer> serve(GrpcHandler handler, GrpcServer::Options options = {}) {
  auto server = GrpcServer::create(std::move(options), std::move(handler));
  CHECK(server.ok());
  return std::move(server).value();
}

/// A call whose events a test sees.
struct Probe {
  Mutex mutex;
  CondVar changed;
  std::vector<std::string> messages GUARDED_BY(mutex);
  int ends GUARDED_BY(mutex) = 0;
  int drains GUARDED_BY(mutex) = 0;
  std::vector<Status> done GUARDED_BY(mutex);
  std::shared_ptr<GrpcCall> call GUARDED_BY(mutex);
  std::vector<GrpcMessage> held GUARDED_BY(mutex);
  bool hold = false;

  GrpcHandler handler() {
    return [this](std::shared_ptr<GrpcCall> opened) -> std::unique_ptr<GrpcEvents> {
      {
        const MutexLock lock(mutex);
        call = std::move(opened);
      }
      changed.notify_all();
      struct Events final : GrpcEvents {
        explicit Events(Probe& p) : probe(p) {}
        void on_message(GrpcMessage message) override {
          probe.note([&]() REQUIRES(probe.mutex) {
            probe.messages.push_back(message.bytes);
            if (probe.hold) probe.held.push_back(std::move(message));
          });
        }
        void on_end() override {
          probe.note([&]() REQUIRES(probe.mutex) { ++probe.ends; });
        }
        void on_drained() override {
          probe.note([&]() REQUIRES(probe.mutex) { ++probe.drains; });
        }
        void on_done(const Status& status) override {
          probe.note([&]() REQUIRES(probe.mutex) { probe.done.push_back(status); });
        }
        Probe& probe;
      };
      return std::make_unique<Events>(*this);
    };
  }
  // The analysis does not see that the lambda's mutex is the one of this object.
  template <typename Change>
  void note(const Change& change) VARDA_TS(no_thread_safety_analysis) {
    {
      const MutexLock lock(mutex);
      change();
    }
    changed.notify_all();
  }
  template <typename Done>
  void wait(const char* what, const Done& is_done) VARDA_TS(no_thread_safety_analysis) {
    const MutexLock lock(mutex);
    const auto until = std::chrono::steady_clock::now() + kTestPatience;
    while (!is_done()) ASSERT_TRUE(changed.wait_until(mutex, until)) << what;
  }
  std::shared_ptr<GrpcCall> wait_call() {
    wait("the call begins", [&]() REQUIRES(mutex) { return call != nullptr; });
    const MutexLock lock(mutex);
    return call;
  }
  Status wait_done() {
    wait("the call is over", [&]() REQUIRES(mutex) { return !done.empty(); });
    const MutexLock lock(mutex);
    EXPECT_EQ(done.size(), 1u);
    return done.front();
  }
};

TEST(GrpcServerAdopts, OnePortServesHttpAndGrpc) {
  GrpcThreads threads({});
  const auto grpc = serve(threads.unary([](const Context&, const GrpcRequest& request,
                                           std::string_view message) -> Result<std::string> {
    return (request.peer.stream_identity ? request.peer.stream_identity->worker : "nameless") +
           " " + std::string(message);
  }),
                          {.listen = ""});
  EXPECT_EQ(grpc->address(), "");
  Server::Options options{.proxy = ProxyReception{.header = ProxyReception::Header::kOptional,
                                                  .trust = {.trust_unsigned_loopback = true}}};
  options.http2 = [&](std::unique_ptr<Tunnel> connection, const Peer& peer) {
    Peer named = peer;
    named.stream_identity = StreamIdentity{.node = "edge0", .worker = "default/w", .job_uid = "u"};
    grpc->adopt(std::move(connection), std::move(named));
  };
  const auto server =
      Server::create(options, inline_handler([](const Request& request) {
                       return Response{.body = "http " + std::string(request.path())};
                     }))
          .value();
  const Context soon = Context::background().with_timeout(60s);
  const auto client = make_grpc_client({.unix_socket = "", .address = server->address()});
  for (const std::size_t size : {1u, 300'000u}) {
    const std::string message(size, 'x');
    const auto answer = client->call(soon, "/a.B/C", message);
    ASSERT_TRUE(answer.ok()) << answer.error();
    EXPECT_EQ(*answer, "default/w " + message);
  }
  const auto answer = make_client({})->call(soon, {.url = "http://" + server->address() + "/path"});
  ASSERT_TRUE(answer.ok()) << answer.error();
  EXPECT_EQ(answer->body, "http /path");
  EXPECT_EQ(grpc->connections(), 1u);
  grpc->stop(0ms);
  EXPECT_FALSE(client->call(soon, "/a.B/C", "late").ok()) << "adopted after the end";
  server->stop(0ms);
}

// A request may arrive byte by byte, and begin like the preface of HTTP/2.
TEST(GrpcServerAdopts, RequestThatBeginsLikeThePrefaceIsServed) {
  const auto grpc = serve([](std::shared_ptr<GrpcCall>) { return nullptr; }, {.listen = ""});
  Server::Options options;
  options.http2 = [&](std::unique_ptr<Tunnel> connection, const Peer& peer) {
    grpc->adopt(std::move(connection), peer);
  };
  const auto server = Server::create(options, inline_handler([](const Request& request) {
                                       return Response{.body = request.method};
                                     }))
                          .value();
  testing::RawSocket socket(server->port());
  for (const char c : std::string("PROPFIND / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"))
    socket.write(std::string(1, c));
  EXPECT_NE(socket.read_all().find("PROPFIND"), std::string::npos);
}

TEST(GrpcServer, OwnClientGetsAnswersOfAnySize) {
  GrpcThreads threads({});
  const auto server = serve(grpc_methods({{"/a.B/Echo", echo(threads)}}));
  const auto client = make_grpc_client({.address = server->address()});
  for (const std::size_t size : {0u, 1u, 16379u, 65536u, 3'000'000u}) {
    const std::string message(size, 'x');
    const auto answer = client->call(Context::background().with_timeout(60s), "/a.B/Echo", message);
    ASSERT_TRUE(answer.ok()) << answer.error();
    EXPECT_EQ(*answer == "/a.B/Echo " + message, true) << size;
  }
  EXPECT_EQ(server->connections(), 1u);
}

TEST(GrpcServer, ErrorsArriveAsTheirStatus) {
  GrpcThreads threads({});
  Code code = Code::kInvalid;
  const auto server = serve(threads.unary(
      [&](const Context&, const GrpcRequest&, std::string_view) -> Result<std::string> {
        return Error(code, "50% of \xE2\x82\xAC\n");
      }));
  const auto client = make_grpc_client({.address = server->address()});
  for (const Code one : {Code::kInvalid, Code::kNotFound, Code::kAlreadyExists, Code::kConflict,
                         Code::kUnauthenticated, Code::kForbidden, Code::kExhausted, Code::kCorrupt,
                         Code::kUnavailable, Code::kTimeout, Code::kCancelled, Code::kUnsupported,
                         Code::kInternal}) {
    code = one;
    const auto answer = client->call(Context::background().with_timeout(60s), "/a.B/C", "");
    ASSERT_FALSE(answer.ok());
    EXPECT_EQ(answer.error().code(), one) << to_string(one);
    EXPECT_EQ(answer.error().message(), "50% of \xE2\x82\xAC\n");
  }
  EXPECT_EQ(grpc_status_of(Code::kGone), 9);
}

TEST(GrpcServer, UnknownMethodIsUnimplemented) {
  const auto server = serve(grpc_methods({}));
  GrpcPeer peer(server->port());
  const auto [answer, end] = peer.call("/a.B/None", "x");
  EXPECT_EQ(end.grpc_status, 12);
  EXPECT_EQ(end.grpc_message, "no method /a.B/None");
}

TEST(GrpcServer, OtherHttpIsRefusedWithHttpStatus) {
  const auto server = serve(grpc_methods({}));
  GrpcPeer peer(server->port());
  EXPECT_EQ(peer.call("/", "", {{"content-type", "text/html"}}).second.http_status, 415);
  EXPECT_EQ(peer.call("/", "", {{":method", "GET"}}).second.http_status, 405);
  EXPECT_EQ(peer.call("/", "", {{"content-type", "application/grpc+proto"}}).second.grpc_status,
            12);
  EXPECT_EQ(peer.call("/", "", {{"grpc-timeout", "soon"}}).second.grpc_status, 3);
  EXPECT_EQ(peer.call("/", "", {{"grpc-encoding", "gzip"}}).second.grpc_status, 12);
  EXPECT_EQ(peer.call("/", "", {{"x-long", std::string(20'000, 'x')}}).second.grpc_status, 8);
  EXPECT_EQ(server->connections(), 1u);
}

TEST(GrpcServer, HandlerSeesMetadataPeerAndDeadline) {
  Probe probe;
  const auto server = serve(probe.handler());
  GrpcPeer peer(server->port());
  const SteadyTime before = system_clock().now();
  peer.open("/a.B/C", {{"job", "digits"}, {"grpc-timeout", "90S"}});
  const GrpcRequest& request = probe.wait_call()->request();
  EXPECT_EQ(request.method, "/a.B/C");
  EXPECT_EQ(request.metadata.find("job"), "digits");
  EXPECT_EQ(request.metadata.find("te"), std::nullopt);
  EXPECT_TRUE(request.peer.address.starts_with("127.0.0.1:")) << request.peer.address;
  ASSERT_TRUE(request.deadline);
  EXPECT_GE(*request.deadline, before + 90s);
}

TEST(GrpcServer, MessagesFlowBothWaysOnOneCall) {
  Probe probe;
  const auto server = serve(probe.handler());
  GrpcPeer peer(server->port());
  const auto stream = peer.open("/a.B/Join");
  const auto call = probe.wait_call();
  ASSERT_TRUE(call->send("first").ok());
  EXPECT_EQ(peer.read(stream), "first");
  call->read();
  peer.send(stream, "one");
  peer.send(stream, "two");
  probe.wait("one message", [&]() REQUIRES(probe.mutex) { return probe.messages.size() == 1; });
  call->read();
  probe.wait("two messages", [&]() REQUIRES(probe.mutex) { return probe.messages.size() == 2; });
  peer.end(stream);
  call->read();
  probe.wait("the end", [&]() REQUIRES(probe.mutex) { return probe.ends == 1; });
  ASSERT_TRUE(call->send("last").ok());
  call->finish({});
  EXPECT_EQ(call->send("late").error().code(), Code::kCancelled);
  EXPECT_EQ(peer.read(stream), "last");
  EXPECT_EQ(peer.read(stream), std::nullopt);
  EXPECT_EQ(peer.wait_end(stream).grpc_status, 0);
  EXPECT_TRUE(probe.wait_done().ok());
  const MutexLock lock(probe.mutex);
  EXPECT_EQ(probe.messages, (std::vector<std::string>{"one", "two"}));
}

TEST(GrpcServer, UnaskedMessagesWaitInTheClient) {
  Probe probe;
  const auto server = serve(probe.handler(), {.window_bytes = 16384});
  GrpcPeer peer(server->port());
  const auto stream = peer.open("/a.B/Join");
  const auto call = probe.wait_call();
  for (int i = 0; i < 40; ++i) peer.send(stream, std::string(1000, static_cast<char>('a' + i)));
  // Another call of the connection is not held up.
  const auto other = peer.open("/a.B/Join");
  probe.wait("the second call",
             [&]() REQUIRES(probe.mutex) { return probe.call && probe.call != call; });
  const auto second = probe.wait_call();
  second->read();
  peer.send(other, "quick");
  probe.wait("the second call's message",
             [&]() REQUIRES(probe.mutex) { return probe.messages.size() == 1; });
  for (int i = 0; i < 40; ++i) {
    call->read();
    peer.run_for(1ms);
    const auto wanted = static_cast<std::size_t>(i) + 2;
    for (int j = 0; j < 6000; ++j) {
      {
        const MutexLock lock(probe.mutex);
        if (probe.messages.size() == wanted) break;
      }
      peer.run_for(10ms);
    }
    const MutexLock lock(probe.mutex);
    ASSERT_EQ(probe.messages.size(), wanted);
    ASSERT_EQ(probe.messages.back().front(), static_cast<char>('a' + i));
  }
}

TEST(GrpcServer, MalformedMessagesEndTheCallOnly) {
  Probe probe;
  const auto server = serve(probe.handler(), {.message_bytes_max = 1000});
  GrpcPeer peer(server->port());
  const auto refused = [&](std::string_view bytes, bool end) {
    const auto stream = peer.open("/a.B/C");
    probe.wait_call()->read();
    {
      const MutexLock lock(probe.mutex);
      probe.call = nullptr;
    }
    peer.send_raw(stream, bytes);
    if (end) peer.end(stream);
    return peer.wait_end(stream).grpc_status;
  };
  using namespace std::string_view_literals;
  EXPECT_EQ(refused("\x01\0\0\0\x01x"sv, false), 12) << "compressed";
  EXPECT_EQ(refused("\x02\0\0\0\x01x"sv, false), 3) << "unknown flag";
  EXPECT_EQ(refused("\0\xff\xff\xff\xff"sv, false), 8) << "too large";
  EXPECT_EQ(refused("\0\0\0\x03\xe9"sv, false), 8) << "one byte too large";
  EXPECT_EQ(refused("\0\0\0\0\x05half"sv, true), 3) << "cut";
  EXPECT_EQ(refused("\0\0"sv, true), 3) << "cut prefix";
  EXPECT_TRUE(peer.open_to_calls());
}

TEST(GrpcServer, UnaryCallNeedsExactlyOneMessage) {
  GrpcThreads threads({});
  const auto server = serve(echo(threads));
  GrpcPeer peer(server->port());
  const auto none = peer.open("/a.B/C");
  peer.end(none);
  EXPECT_EQ(peer.wait_end(none).grpc_status, 3);
  const auto two = peer.open("/a.B/C");
  peer.send(two, "1");
  peer.send(two, "2");
  EXPECT_EQ(peer.wait_end(two).grpc_status, 3);
}

TEST(GrpcServer, ClientResetCancelsTheHandler) {
  GrpcThreads threads({});
  std::promise<void> entered;
  std::promise<Code> ended;
  const auto server = serve(threads.streaming([&](GrpcStream& stream) -> Status {
    entered.set_value();
    const auto message = stream.read();
    ended.set_value(message.ok() ? Code::kInternal : message.error().code());
    return {};
  }));
  GrpcPeer peer(server->port());
  const auto stream = peer.open("/a.B/C");
  entered.get_future().wait();
  peer.reset(stream);
  auto code = ended.get_future();
  ASSERT_EQ(code.wait_for(kTestPatience), std::future_status::ready);
  EXPECT_EQ(code.get(), Code::kCancelled);
}

TEST(GrpcServer, DisconnectCancelsEveryCall) {
  Probe probe;
  const auto server = serve(probe.handler());
  auto peer = std::make_unique<GrpcPeer>(server->port());
  peer->open("/a.B/C");
  const auto call = probe.wait_call();
  peer.reset();
  EXPECT_EQ(probe.wait_done().error().code(), Code::kCancelled);
  EXPECT_EQ(call->send("late").error().code(), Code::kCancelled);
  EXPECT_TRUE(eventually("no connection", [&] { return server->connections() == 0; }));
}

TEST(GrpcServer, DeadlineEndsTheCallOnBothSides) {
  Probe probe;
  const auto server = serve(probe.handler());
  GrpcPeer peer(server->port());
  const auto stream = peer.open("/a.B/C", {{"grpc-timeout", "50m"}});
  EXPECT_EQ(peer.wait_end(stream).grpc_status, 4);
  EXPECT_EQ(probe.wait_done().error().code(), Code::kTimeout);
}

TEST(GrpcServer, BlockingStreamEchoesManyMessages) {
  GrpcThreads threads({});
  const auto server = serve(threads.streaming([](GrpcStream& stream) -> Status {
    while (true) {
      TRY(const auto message, stream.read());
      if (!message) return {};
      TRY_VOID(stream.write("<" + message->bytes + ">"));
    }
  }),
                            {.send_bytes_max = 100});
  GrpcPeer peer(server->port());
  const auto stream = peer.open("/a.B/C");
  for (int i = 0; i < 300; ++i) peer.send(stream, std::to_string(i));
  peer.end(stream);
  for (int i = 0; i < 300; ++i) ASSERT_EQ(peer.read(stream), "<" + std::to_string(i) + ">");
  EXPECT_EQ(peer.read(stream), std::nullopt);
  EXPECT_EQ(peer.wait_end(stream).grpc_status, 0);
}

TEST(GrpcServer, SlowReaderMeetsABoundedBufferAndThenTheWriteTimeout) {
  Probe probe;
  const auto server = serve(probe.handler(), {.send_bytes_max = 1000, .write_timeout = 300ms});
  GrpcPeer peer(server->port(), {.reads = false});
  const auto stream = peer.open("/a.B/C");
  const auto call = probe.wait_call();
  // One message may be larger than the buffer, and than the client's window of 65,535 bytes.
  ASSERT_TRUE(call->send(std::string(200'000, 'x')).ok());
  EXPECT_EQ(call->send("more").error().code(), Code::kExhausted);
  EXPECT_EQ(peer.wait_end(stream).reset, 8u);
  EXPECT_EQ(probe.wait_done().error().code(), Code::kUnavailable);
}

TEST(GrpcServer, DrainedBufferIsReported) {
  Probe probe;
  const auto server = serve(probe.handler(), {.send_bytes_max = 1000});
  GrpcPeer peer(server->port());
  const auto stream = peer.open("/a.B/C");
  const auto call = probe.wait_call();
  ASSERT_TRUE(call->send(std::string(200'000, 'x')).ok());
  EXPECT_EQ(peer.read(stream)->size(), 200'000u);
  probe.wait("the buffer is empty", [&]() REQUIRES(probe.mutex) { return probe.drains == 1; });
  EXPECT_TRUE(call->send("more").ok());
}

TEST(GrpcServer, SlowMessageEndsTheCall) {
  Probe probe;
  const auto server = serve(probe.handler(), {.message_window = 100ms});
  GrpcPeer peer(server->port());
  const auto stream = peer.open("/a.B/C");
  probe.wait_call()->read();
  using namespace std::string_view_literals;
  peer.send_raw(stream, "\0\0\0\x10\0slow"sv);
  EXPECT_EQ(peer.wait_end(stream).grpc_status, 14);
}

TEST(GrpcServer, LargeMessagesTakeTurnsInTheBudget) {
  Probe probe;
  probe.hold = true;
  const auto server =
      serve(probe.handler(), {.message_bytes_max = 300'000, .received_bytes_max = 400'000});
  GrpcPeer first(server->port()), second(server->port());
  const auto a = first.open("/a.B/C");
  probe.wait_call()->read();
  first.send(a, std::string(300'000, 'a'));
  while (true) {
    first.run_for(10ms);
    const MutexLock lock(probe.mutex);
    if (probe.messages.size() == 1) break;
  }
  {
    const MutexLock lock(probe.mutex);
    probe.call = nullptr;
  }
  const auto b = second.open("/a.B/C");
  probe.wait_call()->read();
  second.send(b, std::string(300'000, 'b'));
  second.run_for(100ms);
  {
    const MutexLock lock(probe.mutex);
    EXPECT_EQ(probe.messages.size(), 1u) << "the second message waits for the budget";
    probe.held.clear();
  }
  for (int i = 0; i < 6000; ++i) {
    second.run_for(10ms);
    const MutexLock lock(probe.mutex);
    if (probe.messages.size() == 2) break;
  }
  const MutexLock lock(probe.mutex);
  ASSERT_EQ(probe.messages.size(), 2u);
  EXPECT_EQ(probe.messages[1] == std::string(300'000, 'b'), true);
}

TEST(GrpcServer, DrainSendsGoawayAndOpenCallsContinue) {
  Probe probe;
  const auto server = serve(probe.handler());
  GrpcPeer peer(server->port());
  const auto stream = peer.open("/a.B/C");
  const auto call = probe.wait_call();
  server->drain();
  EXPECT_EQ(peer.wait_goaway(), 0u);
  ASSERT_TRUE(call->send("still here").ok());
  EXPECT_EQ(peer.read(stream), "still here");
  call->finish({});
  EXPECT_EQ(peer.wait_end(stream).grpc_status, 0);
  EXPECT_EQ(peer.wait_closed(), 0u);
}

TEST(GrpcServer, StopEndsOpenCallsAsUnavailable) {
  Probe probe;
  const auto server = serve(probe.handler());
  GrpcPeer peer(server->port());
  const auto stream = peer.open("/a.B/C");
  probe.wait_call();
  std::jthread stopper([&] { server->stop(0ms); });
  EXPECT_EQ(peer.wait_end(stream).grpc_status, 14);
  EXPECT_EQ(probe.wait_done().error().code(), Code::kUnavailable);
  peer.wait_closed();
}

TEST(GrpcServer, QuietConnectionGetsPingsAndASilentOneIsClosed) {
  Probe probe;
  const auto server = serve(probe.handler(), {.keepalive_time = 50ms, .keepalive_timeout = 200ms});
  GrpcPeer peer(server->port());
  peer.open("/a.B/C");
  probe.wait_call();
  for (int i = 0; i < 6000 && peer.pings_received() < 2; ++i) peer.run_for(10ms);
  EXPECT_GE(peer.pings_received(), 2);
  // From here on the peer answers nothing.
  EXPECT_EQ(probe.wait_done().error().code(), Code::kCancelled);
  EXPECT_TRUE(eventually("no connection", [&] { return server->connections() == 0; }));
}

TEST(GrpcServer, ConnectionWithoutCallsIsClosedWithGoaway) {
  const auto server = serve(grpc_methods({}), {.idle_timeout = 50ms});
  GrpcPeer peer(server->port());
  peer.ping();
  EXPECT_EQ(peer.wait_closed(), 0u);
}

TEST(GrpcServer, ClientThatSaysNothingIsClosed) {
  const auto server = serve(grpc_methods({}), {.handshake_timeout = 50ms});
  testing::RawSocket silent(server->port());
  silent.read_all();
  EXPECT_TRUE(silent.closed());
}

TEST(GrpcServer, OtherProtocolIsClosed) {
  const auto server = serve(grpc_methods({}));
  testing::RawSocket browser(server->port());
  browser.write("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  browser.read_all();
  EXPECT_TRUE(browser.closed());
}

TEST(GrpcServer, FloodsOfCheapFramesAreCutOff) {
  const auto server =
      serve(grpc_methods({}), {.control_frames_burst = 100, .control_frames_per_second = 1});
  const auto flood = [&](const std::string& frame) {
    GrpcPeer peer(server->port());
    peer.ping();
    std::string all;
    for (int i = 0; i < 200; ++i) all += frame;
    peer.write_raw(all);
    return peer.wait_closed();
  };
  constexpr std::uint32_t kCalm = 11;
  EXPECT_EQ(flood(std::string("\0\0\x08\x06\0\0\0\0\0", 9) + std::string(8, 'p')), kCalm) << "PING";
  EXPECT_EQ(flood(std::string("\0\0\0\x04\0\0\0\0\0", 9)), kCalm) << "SETTINGS";
  EXPECT_EQ(flood(std::string("\0\0\x04\x08\0\0\0\0\0\0\0\0\x01", 13)), kCalm) << "WINDOW_UPDATE";
}

TEST(GrpcServer, RapidResetIsCutOff) {
  Probe probe;
  const auto server =
      serve(probe.handler(), {.control_frames_burst = 100, .control_frames_per_second = 1});
  GrpcPeer peer(server->port());
  for (int i = 0; i < 150 && peer.open_to_calls(); ++i) peer.reset(peer.open("/a.B/C"));
  EXPECT_EQ(peer.wait_closed(), 11u);
}

TEST(GrpcServer, StreamsPerConnectionAreLimited) {
  Probe probe;
  const auto server = serve(probe.handler(), {.streams_max = 2});
  GrpcPeer peer(server->port());
  peer.ping();
  peer.run_for(20ms);  // the client may not know the limit yet
  const auto first = peer.open("/a.B/C");
  peer.open("/a.B/C");
  const auto third = peer.open("/a.B/C");  // nghttp2 keeps it until another call ends
  peer.reset(first);
  probe.wait("the first call is over", [&]() REQUIRES(probe.mutex) { return !probe.done.empty(); });
  peer.run_for(20ms);
  peer.reset(third);
}

TEST(GrpcServer, FullServerClosesConnectionsWithoutCalls) {
  Probe probe;
  const auto server = serve(probe.handler(), {.connections_max = 2});
  GrpcPeer busy(server->port()), idle(server->port());
  busy.open("/a.B/C");
  probe.wait_call();
  idle.ping();
  GrpcPeer next(server->port());
  const auto stream = next.open("/a.B/C");
  idle.wait_closed();
  (void)stream;
  EXPECT_TRUE(eventually("two connections", [&] { return server->connections() == 2; }));
}

TEST(GrpcServer, ManyThreadsSendOnManyCalls) {
  GrpcThreads threads({.threads = 4});
  const auto server = serve(grpc_methods({{"/a.B/Echo", echo(threads)}}), {.io_threads = 2});
  const auto client = make_grpc_client({.address = server->address()});
  std::vector<std::jthread> clients;
  for (int t = 0; t < 4; ++t) {
    clients.emplace_back([&, t] {
      for (int i = 0; i < 100; ++i) {
        const std::string message = std::to_string(t * 1000 + i);
        const auto answer =
            client->call(Context::background().with_timeout(60s), "/a.B/Echo", message);
        ASSERT_TRUE(answer.ok()) << answer.error();
        ASSERT_EQ(*answer, "/a.B/Echo " + message);
      }
    });
  }
}

TEST(GrpcServer, FullQueueOfThreadsRefusesCalls) {
  std::promise<void> release;
  auto released = release.get_future().share();
  std::atomic<int> entered = 0;
  GrpcThreads threads({.threads = 1, .queue_max = 1});
  const auto server = serve(threads.unary(
      [&](const Context&, const GrpcRequest&, std::string_view) -> Result<std::string> {
        ++entered;
        released.wait();
        return std::string("done");
      }));
  GrpcPeer peer(server->port());
  const auto send = [&] {
    const auto stream = peer.open("/a.B/C");
    peer.send(stream, "x");
    peer.end(stream);
    return stream;
  };
  const auto running = send();
  ASSERT_TRUE(eventually("the handler runs", [&] { return entered == 1; }));
  const auto waiting = send();
  EXPECT_EQ(peer.wait_end(send()).grpc_status, 8);
  release.set_value();
  EXPECT_EQ(peer.wait_end(running).grpc_status, 0);
  EXPECT_EQ(peer.wait_end(waiting).grpc_status, 0);
}

TEST(GrpcServer, BadOptionsAreInvalid) {
  EXPECT_EQ(GrpcServer::create({}, nullptr).error().code(), Code::kInvalid);
  EXPECT_EQ(GrpcServer::create({.received_bytes_max = 1}, grpc_methods({})).error().code(),
            Code::kInvalid);
  EXPECT_EQ(GrpcServer::create({.io_threads = 0}, grpc_methods({})).error().code(), Code::kInvalid);
}

}  // namespace grpc_server_test
}  // namespace varda::net
