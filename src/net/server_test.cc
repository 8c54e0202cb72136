#include "net/server.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <semaphore>
#include <sstream>
#include <thread>

#include "base/mutex.h"
#include "base/testing/eventually.h"
#include "net/client.h"
#include "net/testing/feed.h"
#include "net/testing/raw_socket.h"

namespace varda::net {
namespace server_test {

using namespace std::chrono_literals;
using testing::Feed;
using testing::RawSocket;

Response text(std::string body, int status = 200) {
  Response response;
  response.status = status;
  response.body = std::move(body);
  return response;
}

Handler echo() {
  return inline_handler([](const Request& request) {
    if (request.path() == "/empty") return text("", 204);
    if (request.path() == "/inject") {
      Response response = text("ok");
      response.headers.add("X-Text", "a\r\nX-Evil: 1");
      return response;
    }
    return text(request.method + " " + request.target + " " + request.body);
  });
}

std::unique_ptr<Server> serve(Server::Options options, Handler handler = echo()) {
  auto server = Server::create(std::move(options), std::move(handler));
  CHECK(server.ok());
  return std::move(*server);
}

std::string unescape(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\' || i + 1 == text.size()) {
      out += text[i];
      continue;
    }
    const char c = text[++i];
    out += c == 'r' ? '\r' : c == 'n' ? '\n' : c == '0' ? '\0' : c;
  }
  return out;
}

/// Status lines, bodies and the rest, without header fields.
std::string outline(const std::string& wire) {
  std::string out;
  std::size_t at = 0;
  while (at < wire.size()) {
    const auto end = wire.find("\r\n\r\n", at);
    if (end == std::string::npos) return out + "?" + wire.substr(at);
    const std::string header = wire.substr(at, end + 2 - at);
    out += header.substr(9, 3);
    if (header.find("\r\nConnection: close\r\n") != std::string::npos) out += " close";
    at = end + 4;
    std::size_t length = 0;
    if (const auto field = header.find("\r\nContent-Length: "); field != std::string::npos)
      length = std::stoul(header.substr(field + 18));
    if (header.starts_with("HTTP/1.1 2") && wire.compare(at, 9, "HTTP/1.1 ") != 0) {
      out += " [" + wire.substr(at, length) + "]";
      at += length;
    } else if (!header.starts_with("HTTP/1.1 2") && !header.starts_with("HTTP/1.1 1")) {
      at += length;
    }
    out += ";";
  }
  return out;
}

TEST(Server, AnswersMatchTheWireCases) {
  Server::Options options;
  options.header_bytes_max = 2048;
  options.body_bytes_max = 1000;
  auto server = serve(options);
  std::ifstream file(VARDA_TESTDATA "/wire/cases.txt");
  ASSERT_TRUE(file);
  int cases = 0;
  std::string name, request;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("# ")) {
      name = line.substr(2);
      request.clear();
    } else if (line.starts_with("> ")) {
      request += unescape(line.substr(2));
    } else if (line.starts_with("< ")) {
      SCOPED_TRACE(name);
      ++cases;
      if (const auto mark = request.find("{x*");
          mark != std::string::npos) {  // {x*3000}: 3000 times x
        const auto end = request.find('}', mark);
        request.replace(mark, end + 1 - mark,
                        std::string(std::stoul(request.substr(mark + 3)), 'x'));
      }
      for (const std::size_t piece : {request.size(), std::size_t{1}}) {
        SCOPED_TRACE(piece);
        RawSocket socket(server->port());
        for (std::size_t at = 0; at < request.size(); at += piece)
          socket.write(std::string_view(request).substr(at, piece));
        socket.finish_writing();
        EXPECT_EQ(outline(socket.read_all()), line == "< -" ? "" : line.substr(2));
        EXPECT_TRUE(socket.closed());
      }
    }
  }
  EXPECT_GT(cases, 25);
}

TEST(Server, PipelinedRequestsAreAnsweredInOrder) {
  HandlerPool pool({.threads = 4, .queue_max = 100});
  auto server = serve({}, pool.wrap([](const Request& request) { return text(request.target); }));
  RawSocket socket(server->port());
  std::string requests, expected;
  for (int i = 0; i < 50; ++i) {
    requests += "GET /" + std::to_string(i) + " HTTP/1.1\r\nHost: a\r\n\r\n";
    expected += "200 [/" + std::to_string(i) + "];";
  }
  socket.write(requests);
  socket.finish_writing();
  EXPECT_EQ(outline(socket.read_all()), expected);
}

TEST(Server, RefusalIsJsonIfConfigured) {
  auto server = serve({.body_bytes_max = 10, .json_refusals = true});
  RawSocket large(server->port());
  large.write("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\n");
  const std::string answer = large.read_all();
  EXPECT_NE(answer.find("HTTP/1.1 413 "), std::string::npos) << answer;
  EXPECT_NE(answer.find("Content-Type: application/json"), std::string::npos) << answer;
  EXPECT_NE(answer.find(R"({"error":"the request body is larger than 10 bytes"})"),
            std::string::npos)
      << answer;
}

TEST(Server, HandlerTextCannotInjectHeaders) {
  auto server = serve({});
  RawSocket socket(server->port());
  socket.write("GET /inject HTTP/1.1\r\nHost: a\r\n\r\n");
  const std::string answer = socket.read_until("ok");
  EXPECT_EQ(answer.find("\nX-Evil"), std::string::npos) << answer;
}

TEST(Server, ContinueIsSentBeforeAnExpectedBody) {
  auto server = serve({});
  RawSocket socket(server->port());
  socket.write("PUT /x HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
  EXPECT_EQ(socket.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  socket.write("hi");
  EXPECT_NE(socket.read_until("hi").find("PUT /x hi"), std::string::npos);
}

TEST(Server, HeadResponseHasALengthButNoBody) {
  auto server = serve({});
  RawSocket socket(server->port());
  socket.write("HEAD /abc HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
  const std::string answer = socket.read_all();
  EXPECT_NE(answer.find("Content-Length: 10\r\n"), std::string::npos) << answer;
  EXPECT_TRUE(answer.ends_with("\r\n\r\n"));
}

TEST(Server, SlowHeaderGets408AndIdleConnectionIsClosed) {
  // Two servers, so that a slow first byte does not hit the other timeout.
  Server::Options impatient;
  impatient.header_timeout = 40ms;
  const auto with_header_timeout = serve(impatient);
  RawSocket slow(with_header_timeout->port());
  slow.write("GET / HT");
  EXPECT_EQ(outline(slow.read_all()).substr(0, 9), "408 close");
  Server::Options options;
  options.idle_timeout = 40ms;
  auto server = serve(options);
  RawSocket idle(server->port());
  EXPECT_EQ(idle.read_all(), "");
  EXPECT_TRUE(idle.closed());
}

TEST(Server, StalledBodyGets408) {
  Server::Options options;
  options.body_window = 40ms;
  auto server = serve(options);
  RawSocket socket(server->port());
  socket.write("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc");
  EXPECT_EQ(outline(socket.read_all()).substr(0, 9), "408 close");
}

TEST(Server, DrippedBodyGets408) {
  Server::Options options;
  options.body_window = 40ms;
  options.body_bytes_per_second_min = 1'000'000;
  auto server = serve(options);
  RawSocket socket(server->port());
  socket.write("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n");
  // The body is far from complete at every check, however late.
  std::string answer;
  for (int i = 0; i < 100'000 && answer.empty(); ++i) {
    socket.write("a");
    answer = socket.read_until("\r\n\r\n", 2ms);
  }
  EXPECT_EQ(outline(answer + socket.read_all()).substr(0, 9), "408 close");
}

TEST(Server, SlowBodyGets408DespiteAFastStart) {
  Server::Options options;
  options.body_window = 100ms;
  options.body_bytes_per_second_min = 10'000;
  auto server = serve(options);
  RawSocket socket(server->port());
  socket.write("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 2000000\r\n\r\n" +
               std::string(1'000'000, 'a'));
  // At most 500 bytes a second follow.
  std::string answer;
  for (int i = 0; i < 5'000 && answer.empty(); ++i) {
    socket.write("a");
    answer = socket.read_until("\r\n\r\n", 2ms);
  }
  EXPECT_EQ(outline(answer).substr(0, 9), "408 close");
}

TEST(Server, ErrorNamesTheExceededLimit) {
  Server::Options options;
  options.body_bytes_max = 10;
  options.header_bytes_max = 500;
  auto server = serve(options);
  RawSocket body(server->port());
  body.write("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\n");
  EXPECT_NE(body.read_all().find("larger than 10 bytes"), std::string::npos);
  RawSocket header(server->port());
  header.write("GET / HTTP/1.1\r\nHost: a\r\nA: " + std::string(600, 'a') + "\r\n\r\n");
  EXPECT_NE(header.read_all().find("larger than 500 bytes"), std::string::npos);
}

TEST(Server, StreamChunksAreSentImmediately) {
  auto feed = std::make_shared<Feed>();
  auto server = serve({}, [&](Request, Responder respond) {
    Response response;
    response.stream = feed->stream();
    respond(std::move(response));
  });
  auto client = make_client({});
  auto response =
      client->send(Context().with_timeout(60s), {.url = "http://" + server->address() + "/"});
  ASSERT_TRUE(response.ok()) << response.error();
  feed->write("one");
  EXPECT_EQ(**response->body->read(), "one");
  feed->write("two");
  EXPECT_EQ(**response->body->read(), "two");
  feed->end();
  EXPECT_EQ(*response->body->read(), std::nullopt);
  EXPECT_TRUE(feed->wait_released(60s));
}

TEST(Server, IdleStreamIsReleasedWhenItsClientDisconnects) {
  auto feed = std::make_shared<Feed>();
  auto server = serve({}, [&](Request, Responder respond) {
    Response response;
    response.stream = feed->stream();
    respond(std::move(response));
  });
  {
    RawSocket socket(server->port());
    socket.write("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    EXPECT_NE(socket.read_until("\r\n\r\n"), "");
    EXPECT_FALSE(feed->released());
  }
  EXPECT_TRUE(feed->wait_released(60s));
}

TEST(Server, StreamOfAClientThatDoesNotReadIsPausedAndClosed) {
  Server::Options options;
  options.stream_buffer_bytes_max = 128 << 10;
  options.write_timeout = 100ms;
  auto feed = std::make_shared<Feed>();
  auto server = serve(options, [&](Request, Responder respond) {
    Response response;
    response.stream = feed->stream();
    respond(std::move(response));
  });
  for (int i = 0; i < 1000; ++i) feed->write(std::string(64 << 10, 'x'));
  RawSocket socket(server->port());
  socket.write("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_TRUE(feed->wait_released(60s));
  // Socket buffers hold some bytes; the server itself holds few.
  EXPECT_LT(feed->taken_bytes(), 32u << 20);
}

TEST(Server, LargeStreamArrivesWhole) {
  auto feed = std::make_shared<Feed>();
  std::string expected;
  for (int i = 0; i < 200; ++i) {
    std::string piece(50'000 + static_cast<std::size_t>(i), static_cast<char>('a' + i % 26));
    expected += piece;
    feed->write(std::move(piece));
  }
  feed->end();
  for (const bool declared : {false, true}) {
    auto source = std::make_shared<Feed>();
    source->write(expected);
    source->end();
    auto server = serve({}, [&](Request, Responder respond) {
      Response response;
      response.stream = declared ? source->stream() : feed->stream();
      if (declared) response.headers.add("Content-Length", std::to_string(expected.size()));
      respond(std::move(response));
    });
    auto answer = make_client({})->call(Context().with_timeout(60s),
                                        {.url = "http://" + server->address() + "/"});
    ASSERT_TRUE(answer.ok()) << answer.error();
    EXPECT_TRUE(answer->body == expected);
    EXPECT_EQ(answer->headers.find("Transfer-Encoding").has_value(), !declared);
  }
}

TEST(Server, AnswersFromOtherThreadsAndDroppedRespondersReachTheClient) {
  std::vector<std::thread> threads;
  std::mutex mutex;
  auto server = serve({}, [&](Request request, Responder respond) {
    std::lock_guard lock(mutex);
    threads.emplace_back(
        [request = std::move(request), respond = std::make_shared<Responder>(std::move(respond))] {
          if (request.target == "/drop") return;
          (*respond)(text("late"));
        });
  });
  auto client = make_client({});
  const std::string base = "http://" + server->address();
  EXPECT_EQ(client->call(Context().with_timeout(60s), {.url = base + "/"})->body, "late");
  EXPECT_EQ(client->call(Context().with_timeout(60s), {.url = base + "/drop"})->status, 500);
  server->stop(1s);
  for (auto& thread : threads) thread.join();
}

TEST(Server, ResponderMayOutliveItsServer) {
  std::shared_ptr<Responder> held;
  std::atomic<bool> arrived = false;
  auto server = serve({}, [&](Request, Responder respond) {
    held = std::make_shared<Responder>(std::move(respond));
    arrived = true;
  });
  RawSocket socket(server->port());
  socket.write("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
  ASSERT_TRUE(eventually("the request arrives", [&] { return arrived.load(); }));
  server.reset();
  (*held)(text("too late"));
  EXPECT_EQ(socket.read_all(), "");
}

TEST(Server, DrainClosesConnectionsAfterTheNextResponse) {
  auto server = serve({});
  RawSocket socket(server->port());
  socket.write("GET /1 HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_EQ(socket.read_until("/1").find("Connection: close"), std::string::npos);
  server->drain();
  socket.write("GET /2 HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_NE(socket.read_all().find("Connection: close"), std::string::npos);
  RawSocket fresh(server->port());
  fresh.write("GET /3 HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_NE(fresh.read_all().find("/3"), std::string::npos);
}

TEST(Server, StopWaitsForRequestsInFlight) {
  std::atomic<int> state = 0;
  HandlerPool pool({.threads = 1, .queue_max = 8});
  auto server = serve({}, pool.wrap([&](const Request&) {
    state = 1;
    state.wait(1);
    return text("finished");
  }));
  RawSocket busy(server->port());
  RawSocket idle(server->port());
  busy.write("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
  ASSERT_TRUE(eventually("the request is handled", [&] { return state > 0; }));
  std::thread stopper([&] { server->stop(60s); });
  EXPECT_EQ(idle.read_all(), "");  // closed at once
  state = 2;
  state.notify_all();
  EXPECT_NE(busy.read_all().find("finished"), std::string::npos);
  stopper.join();
  server->stop(60s);  // a second stop has no effect
}

TEST(Server, StopClosesConnectionsAfterTheGracePeriod) {
  auto feed = std::make_shared<Feed>();
  auto server = serve({}, [&](Request, Responder respond) {
    Response response;
    response.stream = feed->stream();
    respond(std::move(response));
  });
  RawSocket socket(server->port());
  socket.write("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_NE(socket.read_until("\r\n\r\n"), "");
  server->stop(10ms);
  EXPECT_TRUE(feed->released());
  socket.read_all();
  EXPECT_TRUE(socket.closed());
}

TEST(Server, UsedAddressIsUnavailableAndBadAddressIsInvalid) {
  auto server = serve({});
  Server::Options options;
  options.listen = server->address();
  auto second = Server::create(options, echo());
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code(), Code::kUnavailable);
  for (const char* bad : {"nonsense", "host:80", "127.0.0.1:70000", "unix:"}) {
    options.listen = bad;
    EXPECT_EQ(Server::create(options, echo()).error().code(), Code::kInvalid) << bad;
  }
}

TEST(Server, UnixSocketServesAndRefusesASecondServer) {
  const std::string path = std::filesystem::temp_directory_path() /
                           ("varda-net-" + std::to_string(::getpid()) + ".sock");
  Server::Options options;
  options.listen = "unix:" + path;
  {
    auto server = serve(options);
    EXPECT_EQ(server->address(), "unix:" + path);
    EXPECT_EQ(Server::create(options, echo()).error().code(), Code::kUnavailable);
    auto client = make_client({.unix_socket = path});
    EXPECT_EQ(client->call(Context().with_timeout(60s), {.url = "http://local/x"})->body,
              "GET /x ");
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

constexpr const char* kGetA = "GET /a HTTP/1.1\r\nHost: a\r\n\r\n";

TEST(Server, FullServerEvictsTheLongestIdleConnection) {
  Server::Options options;
  options.connections_max = 2;
  auto server = serve(options);
  RawSocket oldest(server->port()), older(server->port());
  for (auto* socket : {&oldest, &older}) {
    socket->write(kGetA);
    EXPECT_NE(socket->read_until("/a").find("/a"), std::string::npos);
  }
  RawSocket newest(server->port());
  newest.write(kGetA);
  EXPECT_NE(newest.read_until("/a").find("/a"), std::string::npos);
  EXPECT_EQ(oldest.read_all(), "");
  EXPECT_TRUE(oldest.closed());
  older.write(kGetA);
  EXPECT_NE(older.read_until("/a").find("/a"), std::string::npos) << "it was used later";
}

TEST(Server, FullServerEvictsConnectionsWithoutRequests) {
  Server::Options options;
  options.connections_max = 8;
  options.io_threads = 2;
  auto server = serve(options);
  std::vector<std::unique_ptr<RawSocket>> idle_sockets;
  for (int i = 0; i < 40; ++i) idle_sockets.push_back(std::make_unique<RawSocket>(server->port()));
  for (int i = 0; i < 3; ++i) {
    RawSocket client(server->port());
    client.write(kGetA);
    EXPECT_NE(client.read_until("/a").find("/a"), std::string::npos);
  }
}

Server::Options without_timeouts() {
  Server::Options options;
  options.header_timeout = options.idle_timeout = options.body_window = options.write_timeout = 1h;
  return options;
}

TEST(Server, FullServerEvictsUnfinishedRequests) {
  for (const std::string half :
       {"G", "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 60000\r\n\r\n0123456789"}) {
    SCOPED_TRACE(half.substr(0, 4));
    Server::Options options = without_timeouts();
    options.connections_max = 8;
    options.io_threads = 2;
    auto server = serve(options);
    std::vector<std::unique_ptr<RawSocket>> sockets;
    for (int i = 0; i < 40; ++i) {
      sockets.push_back(std::make_unique<RawSocket>(server->port()));
      sockets.back()->write(kGetA + half);
      ASSERT_NE(sockets.back()->read_until("/a").find("/a"), std::string::npos);
    }
    for (int i = 0; i < 3; ++i) {
      RawSocket client(server->port());
      client.write(kGetA);
      ASSERT_NE(client.read_until("/a").find("/a"), std::string::npos);
    }
  }
}

TEST(Server, OldestUnfinishedRequestIsEvictedFirst) {
  Server::Options options = without_timeouts();
  options.connections_max = 3;
  // A wait begins just after the answer before it was sent. With two threads the older one could
  // begin later.
  options.io_threads = 1;
  Mutex mutex;
  std::vector<Responder> waiting;
  auto server = serve(options, [&](Request request, Responder respond) {
    if (request.target != "/wait") return respond(text(request.target));
    MutexLock lock(mutex);
    waiting.push_back(std::move(respond));
  });
  RawSocket handled(server->port());
  handled.write("GET /wait HTTP/1.1\r\nHost: a\r\n\r\n");
  ASSERT_TRUE(eventually("the request is handled", [&] {
    MutexLock lock(mutex);
    return !waiting.empty();
  }));
  RawSocket older(server->port());
  older.write(std::string(kGetA) + "GET");
  EXPECT_NE(older.read_until("/a").find("/a"), std::string::npos);
  RawSocket newer(server->port());
  newer.write(std::string(kGetA) + "GET");
  EXPECT_NE(newer.read_until("/a").find("/a"), std::string::npos);
  RawSocket newest(server->port());
  newest.write(kGetA);
  EXPECT_NE(newest.read_until("/a").find("/a"), std::string::npos);
  EXPECT_EQ(older.read_all(), "");
  EXPECT_TRUE(older.closed());
  newer.write(" /b HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_NE(newer.read_until("/b").find("/b"), std::string::npos);
  {
    MutexLock lock(mutex);
    waiting.front()(text("late"));
  }
  EXPECT_NE(handled.read_until("late").find("late"), std::string::npos);
}

TEST(Server, ClientThatDoesNotReadItsAnswerIsEvicted) {
  Server::Options options = without_timeouts();
  options.connections_max = 1;
  auto feed = std::make_shared<Feed>();
  for (int i = 0; i < 1000; ++i) feed->write(std::string(64 << 10, 'x'));
  auto server = serve(options, [&](Request request, Responder respond) {
    Response response = text(request.target);
    if (request.target == "/large") response.stream = feed->stream();
    respond(std::move(response));
  });
  RawSocket unread_client(server->port());
  unread_client.write("GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
  ASSERT_TRUE(eventually("the answer begins", [&] { return feed->taken_bytes() > 0; }));
  RawSocket client(server->port());
  client.write(kGetA);
  EXPECT_NE(client.read_until("/a").find("/a"), std::string::npos);
  EXPECT_TRUE(feed->wait_released(60s));
}

TEST(Server, ConnectionAboveTheLimitWaitsWhileAllOthersAreServed) {
  Server::Options options;
  options.connections_max = 2;
  Mutex mutex;
  std::vector<Responder> waiting;
  auto server = serve(options, [&](Request, Responder respond) {
    MutexLock lock(mutex);
    waiting.push_back(std::move(respond));
  });
  const auto has_waiting = [&](std::size_t count) {
    MutexLock lock(mutex);
    return waiting.size() == count;
  };
  RawSocket first(server->port()), second(server->port());
  for (auto* socket : {&first, &second}) socket->write(kGetA);
  ASSERT_TRUE(eventually([&] { return has_waiting(2); }));
  RawSocket third(server->port());
  third.write(kGetA);
  EXPECT_EQ(third.read_until("HTTP", 50ms), "");
  EXPECT_TRUE(has_waiting(2));
  {
    MutexLock lock(mutex);
    waiting.front()(text("done"));
  }
  EXPECT_TRUE(eventually([&] { return has_waiting(3); })) << "whoever is answered gives way";
  MutexLock lock(mutex);
  waiting.clear();
}

TEST(Server, ConnectionsPerAddressAreLimited) {
  Server::Options options;
  options.connections_per_address_max = 2;
  auto server = serve(options);
  auto first = std::make_unique<RawSocket>(server->port());
  RawSocket second(server->port());
  for (auto* socket : {first.get(), &second}) {
    socket->write(kGetA);
    EXPECT_NE(socket->read_until("/a").find("/a"), std::string::npos);
  }
  RawSocket third(server->port());
  EXPECT_EQ(third.read_all(), "");
  first.reset();
  const bool back = eventually([&] {
    RawSocket again(server->port());
    again.write(kGetA);
    return again.read_until("/a").find("/a") != std::string::npos;
  });
  EXPECT_TRUE(back);
}

std::string put_header(std::size_t length) {
  return "PUT /a HTTP/1.1\r\nHost: a\r\nContent-Length: " + std::to_string(length) + "\r\n\r\n";
}

TEST(Server, SlowestLargeBodyIsEvictedAboveTheSharedLimit) {
  Server::Options options;
  options.bodies_bytes_max = 300'000;
  options.io_threads = 1;    // with "100 Continue" below, the bodies begin in the order of the test
  options.body_window = 1h;  // no body times out before that
  auto server = serve(options);
  std::vector<std::unique_ptr<RawSocket>> stalled;
  for (int i = 0; i < 3; ++i) {
    stalled.push_back(std::make_unique<RawSocket>(server->port()));
    stalled.back()->write(
        "PUT /a HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 200000\r\n\r\n");
    ASSERT_NE(stalled.back()->read_until("100 Continue\r\n\r\n").find("100 Continue"),
              std::string::npos);
    stalled.back()->write(std::string(150'000, 'x'));
  }
  for (int i = 0; i < 3; ++i) {
    RawSocket client(server->port());
    client.write(put_header(200'000) + std::string(200'000, 'y'));
    EXPECT_EQ(outline(client.read_until("yyy")).substr(0, 3), "200");
  }
  // 503, if its own bytes were the last to be counted.
  EXPECT_THAT(outline(stalled.front()->read_all()).substr(0, 9),
              ::testing::AnyOf("408 close", "503 close"));
}

TEST(Server, BodiesOfRunningRequestsAreNeverEvicted) {
  Server::Options options;
  options.bodies_bytes_max = 300'000;
  Mutex mutex;
  std::vector<Responder> waiting;
  auto server = serve(options, [&](Request request, Responder respond) {
    if (request.body.size() < 200'000) return respond(text("done"));
    MutexLock lock(mutex);
    waiting.push_back(std::move(respond));
  });
  RawSocket busy(server->port());
  busy.write(put_header(250'000) + std::string(250'000, 'x'));
  ASSERT_TRUE(eventually("the request is handled", [&] {
    MutexLock lock(mutex);
    return !waiting.empty();
  }));
  const auto put = [&](std::size_t length) {
    RawSocket socket(server->port());
    socket.write(put_header(length) + std::string(length, 'y'));
    return outline(socket.read_until("\r\n\r\n")).substr(0, 3);
  };
  EXPECT_EQ(put(100'000), "503");
  EXPECT_EQ(put(60'000), "200") << "small bodies do not count";
  {
    MutexLock lock(mutex);
    waiting.front()(text("done"));
  }
  EXPECT_NE(busy.read_until("done").find("done"), std::string::npos);
  EXPECT_EQ(put(100'000), "200");
}

TEST(Server, BodyLimitDependsOnMethodAndPath) {
  Server::Options options;
  options.body_bytes_max_of = [](std::string_view method, std::string_view path) -> std::size_t {
    return method == "PUT" && path == "/large" ? 1000 : 10;
  };
  auto server = serve(options);
  const auto status = [&](const std::string& target, const std::string& framing,
                          const std::string& body) {
    RawSocket socket(server->port());
    socket.write("PUT " + target + " HTTP/1.1\r\nHost: a\r\n" + framing + "\r\n\r\n" + body);
    return outline(socket.read_until("\r\n\r\n")).substr(0, 3);
  };
  const std::string hundred(100, 'x');
  EXPECT_EQ(status("/large?a=b", "Content-Length: 100", hundred), "200");
  EXPECT_EQ(status("/small", "Content-Length: 100", hundred), "413");
  EXPECT_EQ(status("/small", "Content-Length: 10", std::string(10, 'x')), "200");
  EXPECT_EQ(status("/small", "Transfer-Encoding: chunked", "64\r\n" + hundred + "\r\n0\r\n\r\n"),
            "413");
}

TEST(Server, ClosedConnectionAdmitsAWaitingConnection) {
  Server::Options options;
  options.io_threads = 4;
  options.connections_max = 4;
  auto server =
      *Server::create(options, inline_handler([](const Request&) { return text("here"); }));
  for (int round = 0; round < 200; ++round) {
    std::vector<std::unique_ptr<RawSocket>> sockets;
    for (int i = 0; i < 5; ++i) {  // the fifth waits
      sockets.push_back(std::make_unique<RawSocket>(server->port()));
      sockets.back()->write("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    }
    for (int i = 0; i < 4; ++i) sockets[static_cast<std::size_t>(i)]->read_until("here");
    for (int i = 0; i < 4; ++i) sockets[static_cast<std::size_t>(i)].reset();
    ASSERT_NE(sockets.back()->read_until("here"), "") << "round " << round;
  }
}

TEST(Server, ConnectionAcceptedDuringAChoiceIsNotEvicted) {
  std::binary_semaphore blocked(0), unblock(0);
  Mutex mutex;
  std::vector<Responder> held;
  auto server = serve({.io_threads = 3, .connections_max = 5},
                      [&](const Request& request, Responder respond) {
                        if (request.path() == "/hold") {
                          MutexLock lock(mutex);
                          held.push_back(std::move(respond));
                          return;
                        }
                        if (request.path() == "/block") {
                          blocked.release();
                          unblock.acquire();
                        }
                        respond(text("here"));
                      });
  const auto get = [](RawSocket& socket, const std::string& path) {
    socket.write("GET " + path + " HTTP/1.1\r\nHost: a\r\n\r\n");
  };
  // Connections go to the threads in turn: 0, 1, 2, 0, 1 and the sixth, which waits, to 2.
  std::vector<std::unique_ptr<RawSocket>> sockets;
  for (std::size_t i = 0; i < 5; ++i) {
    sockets.push_back(std::make_unique<RawSocket>(server->port()));
    if (i == 1) continue;
    get(*sockets.back(), "/hold");
    ASSERT_TRUE(eventually("the request is held", [&] {
      MutexLock lock(mutex);
      return held.size() == (i == 0 ? 1 : i);
    }));
  }
  get(*sockets[1], "/block");
  blocked.acquire();
  RawSocket sixth(server->port());  // begins a choice, which reaches thread 1 and waits there
  get(sixth, "/");
  std::this_thread::sleep_for(50ms);
  {
    MutexLock lock(mutex);
    Response last = text("here");
    last.headers.add("Connection", "close");
    held.front()(std::move(last));
  }
  sockets.front().reset();
  EXPECT_NE(sixth.read_until("here"), "");
  unblock.release();
  // The thread continues the choice before it serves the second request.
  EXPECT_NE(sockets[1]->read_until("here"), "");
  get(*sockets[1], "/");
  EXPECT_NE(sockets[1]->read_until("here"), "");
  for (int i = 0; i < 2; ++i) {
    get(sixth, "/");
    EXPECT_NE(sixth.read_until("here"), "");
  }
  MutexLock lock(mutex);
  for (std::size_t i = 1; i < held.size(); ++i) held[i](text("here"));
}

TEST(Server, IdleConnectionsDoNotBlockRequests) {
  auto server = serve({.io_threads = 2});
  std::vector<std::unique_ptr<RawSocket>> idle;
  for (int i = 0; i < 400; ++i) idle.push_back(std::make_unique<RawSocket>(server->port()));
  auto client = make_client({});
  EXPECT_EQ(client->call(Context().with_timeout(60s), {.url = "http://" + server->address() + "/x"})
                ->status,
            200);
  idle.back()->write("GET /y HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_NE(idle.back()->read_until("/y").find("/y"), std::string::npos);
}

TEST(HandlerPool, FullQueueReturns429AndShutdownReturns503) {
  std::atomic<int> running = 0;
  std::atomic<bool> go = false;
  auto pool = std::make_unique<HandlerPool>(HandlerPool::Options{.threads = 1, .queue_max = 1});
  const Handler handler = pool->wrap([&](const Request&) {
    running = 1;
    go.wait(false);
    return text("done");
  });
  std::atomic<int> statuses[3] = {0, 0, 0};
  const auto send_request = [&](int i) {
    handler(Request(), Responder([&, i](Response response) { statuses[i] = response.status; }));
  };
  send_request(0);
  EXPECT_TRUE(eventually("the first request is handled", [&] { return running > 0; }));
  send_request(1);
  send_request(2);
  EXPECT_EQ(statuses[2], 429);
  std::thread ender([&] { pool.reset(); });
  EXPECT_TRUE(eventually("the second request is answered", [&] { return statuses[1] != 0; }));
  EXPECT_EQ(statuses[1], 503);  // the request had not started
  go = true;
  go.notify_all();
  ender.join();
  EXPECT_EQ(statuses[0], 200);
}

}  // namespace server_test
}  // namespace varda::net
