#include "net/http.h"

#include <future>
#include <gtest/gtest.h>
#include <thread>

#include "net/testing/feed.h"

namespace varda::net {
namespace {

using namespace std::chrono_literals;
using testing::Feed;

TEST(Headers, NamesCompareWithoutCase) {
  Headers headers{{"Content-Type", "a"}, {"X", "1"}, {"content-type", "b"}};
  EXPECT_EQ(headers.find("CONTENT-TYPE"), "a");
  headers.set("content-TYPE", "c");
  EXPECT_EQ(headers.find("Content-Type"), "c");
  EXPECT_EQ(headers.all().size(), 2u);
  headers.remove("x");
  EXPECT_FALSE(headers.find("X"));
}

TEST(Request, TargetIsSplitAtTheFirstQuestionMark) {
  Request request;
  request.target = "/api?watch=1?2";
  EXPECT_EQ(request.path(), "/api");
  EXPECT_EQ(request.query(), "watch=1?2");
  request.target = "/api";
  EXPECT_EQ(request.query(), "");
}

TEST(Responder, ResponderDroppedWithoutAnAnswerSends500) {
  int status = 0;
  {
    Responder dropped([&](Response response) { status = response.status; });
  }
  EXPECT_EQ(status, 500);
}

TEST(Responder, SecondAnswerIsIgnored) {
  int answers = 0;
  {
    Responder respond([&](Response) { ++answers; });
    Responder moved = std::move(respond);
    moved(Response());
    moved(Response());
  }
  EXPECT_EQ(answers, 1);
}

TEST(Loopback, RequestAndAnswerPassThrough) {
  auto client = loopback(inline_handler([](const Request& request) {
                           Response response;
                           response.status = 201;
                           response.headers.add("X-Peer", request.peer.address);
                           response.body =
                               request.method + " " + request.target + " " + request.body;
                           return response;
                         }),
                         {.address = "test", .certificate_common_name = ""});
  auto answer = client->call(Context(), {.method = "POST", .url = "/a?b", .body = "c"});
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(answer->status, 201);
  EXPECT_EQ(answer->body, "POST /a?b c");
  EXPECT_EQ(answer->headers.find("x-peer"), "test");
  EXPECT_EQ(client->call(Context(), {.url = "https://host:1/x"})->body, "GET /x ");
  EXPECT_EQ(client->call(Context(), {.method = "HEAD", .url = "/x"})->body, "");
}

TEST(Loopback, StreamIsReleasedWithItsReader) {
  auto feed = std::make_shared<Feed>();
  auto client = loopback([&](Request, Responder respond) {
    Response response;
    response.stream = feed->stream();
    respond(std::move(response));
  });
  auto response = client->send(Context().with_timeout(60s), {.url = "/"});
  ASSERT_TRUE(response.ok());
  std::thread writer([&] { feed->write("one"); });
  EXPECT_EQ(**response->body->read(), "one");
  writer.join();
  feed->write("two");
  EXPECT_EQ(**response->body->read(), "two");
  EXPECT_FALSE(feed->released());
  response->body.reset();
  EXPECT_TRUE(feed->wait_released(60s));
}

TEST(Loopback, EndOfTheStreamEndsTheBody) {
  auto feed = std::make_shared<Feed>();
  feed->write("all");
  feed->end();
  auto client = loopback([&](Request, Responder respond) {
    Response response;
    response.stream = feed->stream();
    respond(std::move(response));
  });
  EXPECT_EQ(client->call(Context().with_timeout(60s), {.url = "/"})->body, "all");
}

TEST(Loopback, StopAndDeadlineEndWaitsForHeaderAndBody) {
  auto feed = std::make_shared<Feed>();
  auto unanswered = loopback([](Request, Responder respond) {
    // Not answered while the test waits; static, so that it is kept.
    static std::vector<std::shared_ptr<Responder>> responders;
    responders.push_back(std::make_shared<Responder>(std::move(respond)));
  });
  EXPECT_EQ(unanswered->send(Context().with_timeout(20ms), {.url = "/"}).error().code(),
            Code::kTimeout);
  auto streaming = loopback([&](Request, Responder respond) {
    Response response;
    response.stream = feed->stream();
    respond(std::move(response));
  });
  std::stop_source stop;
  auto response = streaming->send(Context(stop.get_token()), {.url = "/"});
  ASSERT_TRUE(response.ok());
  std::thread stopper([&] { stop.request_stop(); });
  EXPECT_EQ(response->body->read().error().code(), Code::kCancelled);
  stopper.join();
}

TEST(Client, CallRefusesBodiesBeyondTheLimit) {
  auto client = loopback(inline_handler([](const Request&) {
    Response response;
    response.body = std::string(100, 'x');
    return response;
  }));
  EXPECT_EQ(client->call(Context(), {.url = "/", .max_response_bytes = 99}).error().code(),
            Code::kExhausted);
  EXPECT_TRUE(client->call(Context(), {.url = "/", .max_response_bytes = 100}).ok());
}

}  // namespace
}  // namespace varda::net
