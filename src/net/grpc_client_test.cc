#include "net/grpc_client.h"

#include <filesystem>
#include <future>
#include <gtest/gtest.h>
#include <thread>
#include <unistd.h>

#include "base/testing/eventually.h"
#include "net/testing/grpc_server.h"

namespace varda::net {
namespace {

using testing::CannedGrpcCall;
using testing::CannedGrpcServer;
using testing::GrpcReply;

class GrpcClientTest : public ::testing::Test {
 protected:
  GrpcClientTest() {
    char pattern[] = "/tmp/varda-grpc-XXXXXX";
    directory_ = ::mkdtemp(pattern);
    socket = directory_ / "s";
  }
  ~GrpcClientTest() override {
    std::error_code error;
    std::filesystem::remove_all(directory_, error);
  }
  static Context soon() { return Context::background().with_timeout(std::chrono::seconds(60)); }

  std::filesystem::path directory_;
  std::string socket;
};

TEST_F(GrpcClientTest, CallsShareOneConnection) {
  const CannedGrpcServer server(socket, [](const CannedGrpcCall& call) {
    return GrpcReply::of(call.method + " " + call.message);
  });
  const auto client = make_grpc_client({.unix_socket = socket});
  for (int i = 0; i < 5; ++i) {
    const auto answer = client->call(soon(), "/a.B/C", "hello");
    ASSERT_TRUE(answer.ok()) << answer.error();
    EXPECT_EQ(*answer, "/a.B/C hello");
  }
  EXPECT_EQ(server.connections(), 1);
}

TEST_F(GrpcClientTest, EmptyAndLargeMessagesRoundTrip) {
  const CannedGrpcServer server(
      socket, [](const CannedGrpcCall& call) { return GrpcReply::of(call.message); });
  const auto client = make_grpc_client({.unix_socket = socket});
  for (const std::size_t size : {0u, 1u, 16379u, 16384u, 65535u, 65536u, 3'000'000u}) {
    std::string message(size, 'x');
    if (size > 0) message.back() = '!';
    const auto answer = client->call(soon(), "/a.B/C", message);
    ASSERT_TRUE(answer.ok()) << size << ": " << answer.error();
    EXPECT_EQ(*answer == message, true) << size;
  }
}

TEST_F(GrpcClientTest, AnswerAboveTheLimitIsExhaustedAndTheClientStaysUsable) {
  const CannedGrpcServer server(socket, [](const CannedGrpcCall& call) {
    return GrpcReply::of(std::string(call.message == "big" ? 5000 : 10, 'x'));
  });
  const auto client = make_grpc_client({.unix_socket = socket, .message_bytes_max = 1000});
  EXPECT_EQ(client->call(soon(), "/a.B/C", "big").error().code(), Code::kExhausted);
  EXPECT_TRUE(client->call(soon(), "/a.B/C", "small").ok());
}

TEST_F(GrpcClientTest, StatusBecomesAnErrorWithTheServerMessage) {
  int status = 0;
  const CannedGrpcServer server(socket, [&](const CannedGrpcCall&) {
    return GrpcReply::error(status, "no such container \"%E2%82%AC\" 100%");
  });
  const auto client = make_grpc_client({.unix_socket = socket});
  const std::pair<int, Code> cases[] = {
      {1, Code::kCancelled},    {2, Code::kInternal},     {3, Code::kInvalid},
      {4, Code::kTimeout},      {5, Code::kNotFound},     {6, Code::kAlreadyExists},
      {7, Code::kForbidden},    {8, Code::kExhausted},    {9, Code::kConflict},
      {12, Code::kUnsupported}, {14, Code::kUnavailable}, {16, Code::kUnauthenticated},
      {99, Code::kInternal}};
  for (const auto& [number, code] : cases) {
    status = number;
    const auto answer = client->call(soon(), "/a.B/C", "");
    ASSERT_FALSE(answer.ok());
    EXPECT_EQ(answer.error().code(), code) << number;
    EXPECT_EQ(answer.error().message(), "no such container \"\xE2\x82\xAC\" 100%");
  }
  EXPECT_EQ(server.connections(), 1);
}

TEST_F(GrpcClientTest, ErrorAfterAMessageIsAnError) {
  const CannedGrpcServer server(socket, [](const CannedGrpcCall&) {
    GrpcReply reply = GrpcReply::of("half an answer");
    reply.status = 13;
    reply.message = "broke";
    return reply;
  });
  const auto answer = make_grpc_client({.unix_socket = socket})->call(soon(), "/a.B/C", "");
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().message(), "broke");
}

TEST_F(GrpcClientTest, NonGrpcAnswerIsUnavailableAndDescribed) {
  GrpcReply reply;
  const CannedGrpcServer server(socket, [&](const CannedGrpcCall&) { return reply; });
  const auto client = make_grpc_client({.unix_socket = socket});
  const auto expect = [&](const std::string& fragment) {
    const auto answer = client->call(soon(), "/a.B/C", "");
    ASSERT_FALSE(answer.ok()) << fragment;
    EXPECT_EQ(answer.error().code(), Code::kUnavailable) << fragment;
    EXPECT_NE(answer.error().message().find(fragment), std::string::npos) << answer.error();
    EXPECT_NE(answer.error().message().find(socket), std::string::npos) << answer.error();
  };
  reply.http_status = 404;
  reply.content_type = "text/html";
  reply.status.reset();
  expect("HTTP status 404");
  reply = GrpcReply::of("x");
  reply.body[0] = '\1';
  expect("compressed");
  reply = GrpcReply::of("four");
  reply.body.pop_back();
  expect("not one message");
  reply.body = "abc";
  expect("incomplete");
  reply = {};
  expect("incomplete");
  reply.reset = 2;
  expect("HTTP/2 error 2");
  reply = {};
  reply.close = true;
  expect("ended before the answer");
}

TEST_F(GrpcClientTest, MissingServerIsUnavailable) {
  const auto answer = make_grpc_client({.unix_socket = socket})->call(soon(), "/a.B/C", "");
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().code(), Code::kUnavailable);
  EXPECT_NE(answer.error().message().find(socket), std::string::npos);
}

TEST_F(GrpcClientTest, ClosedPooledConnectionIsReplaced) {
  CannedGrpcServer server(socket,
                          [](const CannedGrpcCall& call) { return GrpcReply::of(call.message); });
  const auto client = make_grpc_client({.unix_socket = socket});
  ASSERT_TRUE(client->call(soon(), "/a.B/C", "1").ok());
  server.drop_connections();
  ASSERT_TRUE(client->call(soon(), "/a.B/C", "2").ok());
  EXPECT_EQ(server.connections(), 2);
}

TEST_F(GrpcClientTest, GoAwayEndsTheReuseOfAConnection) {
  const CannedGrpcServer server(socket, [](const CannedGrpcCall& call) {
    GrpcReply reply = GrpcReply::of(call.message);
    reply.go_away = true;
    return reply;
  });
  const auto client = make_grpc_client({.unix_socket = socket});
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(client->call(soon(), "/a.B/C", "x").ok());
  EXPECT_EQ(server.connections(), 3);
}

TEST_F(GrpcClientTest, AnswerThatArrivedBeforeTheEndIsRead) {
  // The server closes after GOAWAY and the answer. The client, which has read a part, has frames to
  // send meanwhile.
  const CannedGrpcServer server(socket, [](const CannedGrpcCall& call) {
    GrpcReply reply = GrpcReply::of(call.message);
    reply.go_away = true;
    return reply;
  });
  const auto client = make_grpc_client({.unix_socket = socket});
  const std::string message(50'000, 'x');
  for (int i = 0; i < 100; ++i) {
    const auto answer = client->call(soon(), "/a.B/C", message);
    ASSERT_TRUE(answer.ok()) << answer.error();
  }
}

TEST_F(GrpcClientTest, RefusedCallIsRetried) {
  int calls = 0;
  const CannedGrpcServer server(socket, [&](const CannedGrpcCall&) {
    GrpcReply reply = GrpcReply::of("at last");
    if (++calls == 1) reply.reset = 7;  // REFUSED_STREAM
    return reply;
  });
  const auto answer = make_grpc_client({.unix_socket = socket})->call(soon(), "/a.B/C", "");
  ASSERT_TRUE(answer.ok()) << answer.error();
  EXPECT_EQ(calls, 2);
}

TEST_F(GrpcClientTest, PossiblyExecutedCallIsNotRepeated) {
  std::atomic<int> calls = 0;
  const CannedGrpcServer server(socket, [&](const CannedGrpcCall&) {
    GrpcReply reply = GrpcReply::of("x");
    reply.close = ++calls > 1;
    return reply;
  });
  const auto client = make_grpc_client({.unix_socket = socket});
  ASSERT_TRUE(client->call(soon(), "/a.B/C", "").ok());
  EXPECT_FALSE(client->call(soon(), "/a.B/C", "").ok());
  EXPECT_EQ(calls, 2);
}

TEST_F(GrpcClientTest, DeadlineEndsACallAndIsSentToTheServer) {
  std::promise<CannedGrpcCall> seen;
  const CannedGrpcServer server(socket, [&](const CannedGrpcCall& call) {
    if (call.message == "wait") seen.set_value(call);
    GrpcReply reply = GrpcReply::of("x");
    reply.no_answer = call.message == "wait";
    return reply;
  });
  const auto client = make_grpc_client({.unix_socket = socket});
  const auto answer = client->call(
      Context::background().with_timeout(std::chrono::milliseconds(200)), "/a.B/C", "wait");
  EXPECT_EQ(answer.error().code(), Code::kTimeout);
  auto arrived = seen.get_future();
  ASSERT_EQ(arrived.wait_for(kTestPatience), std::future_status::ready)
      << "the server sees the call";
  const CannedGrpcCall call = arrived.get();
  ASSERT_TRUE(call.timeout.ends_with("m")) << call.timeout;
  EXPECT_LE(std::stoi(call.timeout), 200);
  EXPECT_TRUE(client->call(soon(), "/a.B/C", "go").ok());
}

TEST_F(GrpcClientTest, StopRequestCancelsTheCallAndClosesTheConnection) {
  std::promise<void> arrived;
  const CannedGrpcServer server(socket, [&](const CannedGrpcCall&) {
    arrived.set_value();
    GrpcReply reply;
    reply.no_answer = true;
    return reply;
  });
  const auto client = make_grpc_client({.unix_socket = socket});
  std::stop_source stop;
  std::jthread stopper([&] {
    EXPECT_EQ(arrived.get_future().wait_for(kTestPatience), std::future_status::ready)
        << "the server sees the call";
    stop.request_stop();
  });
  EXPECT_EQ(client->call(Context(stop.get_token()), "/a.B/C", "").error().code(), Code::kCancelled);
  EXPECT_TRUE(
      eventually("the server has no connection", [&] { return server.open_connections() == 0; }));
}

TEST_F(GrpcClientTest, ConcurrentCallsDoNotBlockEachOther) {
  std::promise<void> release;
  const std::shared_future<void> released = release.get_future().share();
  const CannedGrpcServer server(socket, [&](const CannedGrpcCall& call) {
    if (call.message == "slow") released.wait();
    return GrpcReply::of(call.message);
  });
  const auto client = make_grpc_client({.unix_socket = socket});
  std::jthread slow([&] { EXPECT_TRUE(client->call(soon(), "/a.B/C", "slow").ok()); });
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(client->call(soon(), "/a.B/C", "quick").ok());
  release.set_value();
}

TEST_F(GrpcClientTest, ManyThreadsShareAClient) {
  const CannedGrpcServer server(
      socket, [](const CannedGrpcCall& call) { return GrpcReply::of(call.message); });
  const auto client = make_grpc_client({.unix_socket = socket, .idle_connections_max = 2});
  std::vector<std::jthread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) {
        const std::string message = std::to_string(t * 1000 + i);
        const auto answer = client->call(soon(), "/a.B/C", message);
        ASSERT_TRUE(answer.ok()) << answer.error();
        ASSERT_EQ(*answer, message);
      }
    });
  }
}

}  // namespace
}  // namespace varda::net
