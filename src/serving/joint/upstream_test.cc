#include "serving/joint/upstream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "net/client.h"
#include "net/testing/raw_socket.h"

namespace varda::serving::joint {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr auto kAnswer =
    R"({"model_name":"big","model_version":"7","outputs":[{"name":"y","shape":[1],"datatype":"FP32","data":[1]}]})";

InferCall call_of(std::string body, net::Headers headers = {}) {
  return InferCall::of(
      {.method = "POST", .target = "/", .headers = std::move(headers), .body = std::move(body)},
      SteadyTime{});
}

constexpr auto kAny = Upstream::Connection::kAny;

// "" for an answer, else "REASON: message".
std::string outcome(const Called& called) {
  return called.failure
             ? std::string(to_string(called.failure->reason)) + ": " + called.failure->message
             : "";
}

TEST(Upstream, BodyIsForwardedUnchangedWithoutAuthorization) {
  net::Request seen;
  const auto http = net::loopback(net::inline_handler([&](const net::Request& request) {
    seen = request;
    return net::Response{200, {}, kAnswer, nullptr};
  }));
  const Upstream upstream({*http, *http}, {});
  const std::string body = "{\"any\": bytes}\x01\xff";
  const Called called = upstream.infer(Context::background(), "http://cloud:1/", "digits big",
                                       call_of(body, {{"content-type", "application/octet-stream"},
                                                      {"Inference-Header-Content-Length", "14"},
                                                      {"Authorization", "Bearer of the edge"}}),
                                       kAny);
  EXPECT_EQ(outcome(called), "");
  EXPECT_EQ(called.answer.model_version, "7");
  EXPECT_EQ(called.bytes_sent, body.size());
  EXPECT_EQ(seen.body, body);
  EXPECT_EQ(seen.method, "POST");
  EXPECT_THAT(seen.target, ::testing::EndsWith("/v2/models/digits%20big/infer"));
  EXPECT_EQ(seen.headers.find("Content-Type"), "application/octet-stream");
  EXPECT_EQ(seen.headers.find("Inference-Header-Content-Length"), "14");
  EXPECT_FALSE(seen.headers.find("Authorization"))
      << "what clients are let in with here is nobody else's business";
}

TEST(Upstream, AnswersMapToReasons) {
  struct Case {
    int status;
    std::string body;
    std::string outcome;
  };
  for (const Case& c : std::vector<Case>{
           {200, "<html>welcome</html>", "Failed: the answer violates the protocol: offset 0"},
           {200, "", "Failed: the answer violates the protocol"},
           {200, R"({"outputs":[{"name":"y"}]})", "Failed: the answer violates the protocol"},
           {204, "", "Failed: HTTP 204"},
           {302, "", "Failed: HTTP 302"},
           {400, R"({"error":"no such input"})", "Refused: HTTP 400: no such input"},
           {404, "not json", "Refused: HTTP 404"},
           {429, "", "Overloaded: HTTP 429"},
           {500, R"({"error":"out of luck"})", "Failed: HTTP 500: out of luck"},
           {503, R"({"reason":"loading"})", "Overloaded: HTTP 503: loading"},
       }) {
    const auto http = net::loopback(net::inline_handler([&](const net::Request&) {
      return net::Response{c.status, {}, c.body, nullptr};
    }));
    const Called called =
        Upstream({*http, *http}, {})
            .infer(Context::background(), "http://cloud", "m", call_of("x"), kAny);
    EXPECT_THAT(outcome(called), StartsWith(c.outcome)) << c.status << " " << c.body;
  }
}

TEST(Upstream, ConnectionFailuresMapToReasons) {
  const auto http = net::make_client({});
  const Upstream upstream({*http, *http}, {});
  const auto call = [&](int port, std::chrono::milliseconds patience) {
    return upstream.infer(Context::background().with_timeout(patience),
                          "http://127.0.0.1:" + std::to_string(port), "m", call_of("x"), kAny);
  };
  constexpr std::chrono::seconds kLong{30};
  {
    net::testing::CannedServer server(
        "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"model_name\":");
    EXPECT_THAT(outcome(call(server.port(), kLong)), StartsWith("Failed: the answer broke off: "));
  }
  {
    net::testing::CannedServer server("");
    const Called called = call(server.port(), kLong);
    EXPECT_THAT(outcome(called), StartsWith("Unreachable: "));
    EXPECT_FALSE(called.failure->surely_unanswered)
        << "it read the request and may have done it: " << outcome(called);
    EXPECT_EQ(called.bytes_sent, 1u);
  }
  {
    net::testing::CannedServer server("SSH-2.0-OpenSSH\r\n\r\n");
    const Called called = call(server.port(), kLong);
    EXPECT_THAT(outcome(called), StartsWith("Unreachable: "));
    EXPECT_FALSE(called.failure->surely_unanswered) << outcome(called);
    EXPECT_EQ(called.bytes_sent, 1u);
  }
  const Called refused = call(1, kLong);
  EXPECT_THAT(outcome(refused), StartsWith("Unreachable: ")) << "nobody listens";
  EXPECT_TRUE(refused.failure->surely_unanswered) << outcome(refused);
  EXPECT_EQ(refused.bytes_sent, 0u);
  // Cancelled before there was a connection: by the deadline, then by a stop.
  EXPECT_EQ(call(1, std::chrono::milliseconds(0)).bytes_sent, 0u);
  std::stop_source hung_up;
  hung_up.request_stop();
  const Called early =
      upstream.infer(Context(hung_up.get_token()), "http://127.0.0.1:1", "m", call_of("x"), kAny);
  EXPECT_EQ(early.failure->message, "the call was cancelled");
  EXPECT_EQ(early.bytes_sent, 0u);
  EXPECT_THAT(outcome(upstream.infer(Context::background(), "not a url", "m", call_of("x"), kAny)),
              StartsWith("Failed: "));
}

TEST(Upstream, ServerThatDoesNotAnswerIsATimeout) {
  // A handler that keeps its responders and never completes them.
  std::vector<net::Responder> responders;
  const auto http = net::loopback(
      [&](net::Request, net::Responder respond) { responders.push_back(std::move(respond)); });
  const Called called = Upstream({*http, *http}, {})
                            .infer(Context::background().with_timeout(std::chrono::milliseconds(1)),
                                   "http://cloud", "m", call_of("x"), kAny);
  EXPECT_THAT(outcome(called), StartsWith("Timeout: "));
}

TEST(Upstream, MemoryForAnswersIsLimited) {
  const auto http = net::loopback(net::inline_handler([&](const net::Request&) {
    return net::Response{200, {}, kAnswer, nullptr};
  }));
  const std::size_t size = std::string_view(kAnswer).size();
  const Upstream upstream({*http, *http}, {}, 2 * size);
  const auto call = [&] {
    return upstream.infer(Context::background(), "http://cloud", "m", call_of("x"), kAny);
  };
  {
    const Called first = call();
    const Called second = call();
    EXPECT_EQ(outcome(second), "");
    const Called third = call();
    EXPECT_THAT(outcome(third), StartsWith("InFlightLimit: "));
    EXPECT_FALSE(third.failure->tier_at_fault);
  }
  EXPECT_EQ(outcome(call()), "") << "the others are gone";
  const Upstream narrow({*http, *http}, {}, 1);
  EXPECT_EQ(outcome(narrow.infer(Context::background(), "http://cloud", "m", call_of("x"), kAny)),
            "")
      << "alone, however large";
}

TEST(Upstream, ReadinessChecksTheModelAndItsAccess) {
  std::vector<std::string> targets;
  int status = 200, status_of_metadata = 200;
  const auto http = net::loopback(net::inline_handler([&](const net::Request& request) {
    targets.push_back(request.target);
    const bool state = request.target.ends_with("/ready");
    return net::Response{state ? status : status_of_metadata,
                         {},
                         state ? R"({"ready":true})" : R"({"error":"why"})",
                         nullptr};
  }));
  const Upstream upstream({*http, *http}, {});
  const auto ready = [&] {
    return outcome(upstream.ready(Context::background(), "http://cloud", "m"));
  };
  EXPECT_EQ(ready(), "");
  EXPECT_THAT(targets, ::testing::ElementsAre("/v2/models/m/ready", "/v2/models/m"));
  status_of_metadata = 401;
  EXPECT_EQ(ready(), "Refused: HTTP 401: why") << "a tier that is ready and closed to this server";
  status_of_metadata = 404;
  EXPECT_EQ(ready(), "") << "metadata are asked for the access alone";
  status = 503;
  EXPECT_EQ(ready(), "Overloaded: HTTP 503");
}

}  // namespace
}  // namespace varda::serving::joint
