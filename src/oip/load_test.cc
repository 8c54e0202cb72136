#include "oip/load.h"

#include <array>
#include <atomic>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "net/server.h"
#include "oip/infer.h"
#include "oip/metadata.h"
#include "oip/route.h"

namespace varda::oip {
namespace {

using namespace std::chrono_literals;
using ::testing::DoubleNear;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(LatencyBuckets, AllValuesAreZeroWithoutRequests) {
  const LatencyBuckets none;
  for (const double share : {0.0, 0.5, 1.0}) EXPECT_EQ(none.milliseconds_at(share), 0);
  EXPECT_EQ(none.milliseconds_max(), 0);
}

TEST(LatencyBuckets, MillisecondsAtReturnsPercentiles) {
  LatencyBuckets all;
  for (int i = 1000; i >= 1; --i) all.add(i * 1ms);  // the order does not matter
  EXPECT_THAT(all.milliseconds_at(0), DoubleNear(1, 0.02));
  EXPECT_THAT(all.milliseconds_at(0.5), DoubleNear(500, 10));
  EXPECT_THAT(all.milliseconds_at(0.99), DoubleNear(990, 20));
  EXPECT_THAT(all.milliseconds_at(1), DoubleNear(1000, 20));
  EXPECT_EQ(all.milliseconds_max(), 1000);
}

TEST(LatencyBuckets, EveryLatencyIsWithinTwoPerCent) {
  for (double expected = 0.002; expected < 1.8e6; expected *= 1.37) {  // 2 µs to half an hour
    LatencyBuckets one, two;
    one.add(
        std::chrono::duration_cast<Duration>(std::chrono::duration<double, std::milli>(expected)));
    two.add(one);
    two.add(2h);  // the maximum must not bound the result
    EXPECT_THAT(two.milliseconds_at(0), DoubleNear(expected, expected * 0.02)) << expected;
    EXPECT_LE(one.milliseconds_at(0.5), one.milliseconds_max());
  }
}

TEST(LatencyBuckets, NegativeTinyAndHugeLatenciesAreAccepted) {
  LatencyBuckets all;
  all.add(-1s);
  all.add(Duration::zero());
  all.add(1ns);
  EXPECT_LE(all.milliseconds_at(1), 0.0011);
  all.add(std::chrono::hours(1000));
  EXPECT_EQ(all.milliseconds_max(), 3.6e9);
  EXPECT_GT(all.milliseconds_at(1), 1.8e6);  // the last bucket is unbounded
  EXPECT_LE(all.milliseconds_at(0.5), 0.0011);
}

TEST(LatencyBuckets, MergedBucketsEqualDirectCounting) {
  LatencyBuckets even, odd, all;
  for (int i = 1; i <= 2000; ++i) {
    (i % 2 == 0 ? even : odd).add(i * 17us);
    all.add(i * 17us);
  }
  even.add(odd);
  for (const double share : {0.0, 0.1, 0.5, 0.9, 0.99, 1.0})
    EXPECT_EQ(even.milliseconds_at(share), all.milliseconds_at(share));
  EXPECT_EQ(even.milliseconds_max(), all.milliseconds_max());
}

TEST(Turns, TurnsAreSpreadEvenlyOverClients) {
  const LoadOptions options{.clients = 4, .rate = 100};
  std::vector<Duration> due;
  for (std::uint64_t i = 0; i < 3; ++i) {
    for (std::size_t client = 0; client < 4; ++client) due.push_back(turn_of(options, i, client));
  }
  for (std::size_t i = 0; i < due.size(); ++i)
    EXPECT_LE(std::chrono::abs(due[i] - static_cast<std::int64_t>(i) * 10ms), 1ns) << i;
}

TEST(Turns, TurnsAreImmediateWithoutARate) {
  for (const double rate : {0.0, -1.0})
    EXPECT_EQ(turn_of({.clients = 4, .rate = rate}, 1000, 3), Duration::zero());
}

TEST(Turns, VeryLowRatesCapTheWaitAtOneYear) {
  for (const double rate : {1e-9, 1e-300, 5e-324})
    EXPECT_EQ(turn_of({.clients = 1, .rate = rate}, 1, 0), 24h * 365) << rate;
  EXPECT_EQ(turn_of({.clients = 1, .rate = 1e-300}, 0, 0), Duration::zero());
}

TEST(AnsweredRequests, SumsTheVersionsOfOneModel) {
  const char* text =
      "# HELP nv_inference_request_success Number of requests\n"
      "# TYPE nv_inference_request_success counter\n"
      "nv_inference_request_success{model=\"digits\",version=\"1\"} 12\n"
      "nv_inference_request_success{model=\"digits\",version=\"2\"} 30 1767323045000\n"  // + time
      "nv_inference_request_success{version=\"3\",model=\"digits\"} 1e2\n"
      "nv_inference_request_success{model=\"digits2\",version=\"1\"} 1000\n"
      "nv_inference_request_success{base_model=\"digits\",model=\"other\"} 1000\n"
      "nv_inference_request_success{base_model=\"digits\",model=\"digits\"} 1000\n"
      "nv_inference_request_failure{model=\"digits\",version=\"1\"} 1000\n"
      "nv_inference_request_success_total{model=\"digits\"} 1000";
  EXPECT_EQ(answered_requests(text, "digits").value(), 1142u);
  EXPECT_EQ(answered_requests(text, "digits2").value(), 1000u);
}

TEST(AnsweredRequests, InvalidCountsAreIgnored) {
  const std::string head = "nv_inference_request_success{model=\"digits\"}";
  for (const char* value : {"", " ", " x", " -1", " NaN", " +Inf", " 1e300", "5"}) {
    const auto counted = answered_requests(head + value + "\n", "digits");
    ASSERT_FALSE(counted.ok()) << '"' << value << '"';
    EXPECT_EQ(counted.error().code(), Code::kNotFound);
    EXPECT_EQ(counted.error().message(), "no request is counted for model digits");
  }
  EXPECT_EQ(answered_requests(head + " -1\n" + head + " 7\r\n\n\n", "digits").value(), 7u);
  EXPECT_FALSE(answered_requests("", "digits").ok());
}

LoadReport report() {
  LoadReport out;
  out.url = "http://server";
  out.model = "digits";
  out.clients = 2;
  out.seconds = 1.23456;
  out.requests = 5;
  out.failures = 2;
  out.reused = 3;
  out.fresh = 2;
  out.versions["1"] = {.count = 3, .first = 0.1, .last = 1.0006};
  out.errors["503: " + std::string(300, 'x')] = {.count = 2, .first = 0.5, .last = 0.5};
  for (int i = 0; i < 3; ++i) out.latencies.add(2ms);
  return out;
}

TEST(LoadReport, TextReportListsVersionsFailuresAndReplicas) {
  LoadReport load = report();
  const std::string text = load.to_text();
  EXPECT_THAT(
      text,
      HasSubstr(
          "5 requests in 1.2 s, 2 failed; latency p50 1.99 ms, p99 1.99 ms, longest 2.00 ms\n"));
  EXPECT_THAT(text, HasSubstr("version 1: 3, from second 0.1 to 1.0\n"));
  EXPECT_THAT(text,
              HasSubstr("failed: 503: " + std::string(300, 'x') + ": 2, from second 0.5 to 0.5\n"));
  EXPECT_THAT(text, Not(HasSubstr("waited for")));
  load.reached = false;
  load.replicas = {{"http://a", 4, ""}, {"http://b", 0, "Connection refused"}};
  EXPECT_THAT(
      load.to_text(),
      HasSubstr(
          "http://a: 4 answered\nhttp://b: Connection refused\nthe version waited for did not"));
}

TEST(LoadReport, JsonReportListsVersionsErrorsAndReplicas) {
  LoadReport load = report();
  const codec::Json json = load.to_json();
  EXPECT_EQ(json["seconds"].as_double(), 1.235);
  EXPECT_EQ(json["requests"].as_integer(), 5);
  EXPECT_EQ(codec::write_json(json["connections"]), R"({"kept":3,"new":2})");
  EXPECT_EQ(codec::write_json(json["versions"]),
            R"([{"version":"1","requests":3,"firstSecond":0.1,"lastSecond":1.001}])");
  EXPECT_EQ(json["errors"].as_array().at(0)["message"].as_string().size(), 200u);
  EXPECT_EQ(json["latencyMs"]["max"].as_double(), 2);
  EXPECT_TRUE(json["reachedVersion"].as_bool());
  EXPECT_FALSE(json.contains("replicas"));
  load.replicas = {{"http://a", 4, ""}, {"http://b", 0, "Connection refused"}};
  EXPECT_EQ(
      codec::write_json(load.to_json()["replicas"]),
      R"([{"url":"http://a","answered":4},{"url":"http://b","answered":0,"error":"Connection refused"}])");
}

/// A model server with answers from a test.
class ModelServer {
 public:
  /// `answer` takes the number of a request, from 0. It returns a version, or "!" and the message
  /// of an error.
  explicit ModelServer(std::function<std::string(std::uint64_t)> answer)
      : answer_(std::move(answer)) {
    server_ =
        net::Server::create(
            {}, net::inline_handler([this](const net::Request& request) { return serve(request); }))
            .value();
  }
  ~ModelServer() { server_->stop(0ms); }

  std::string url() const { return "http://" + server_->address(); }
  std::uint64_t requests() const { return requests_; }
  std::atomic<std::uint64_t> counted_before = 0;

 private:
  net::Response serve(const net::Request& request) {
    if (request.path() == "/metrics") {
      const std::uint64_t all = counted_before + good_;
      return {200,
              {},
              "nv_inference_request_success{model=\"digits\",version=\"1\"} " +
                  std::to_string(all) + "\n",
              nullptr};
    }
    const auto found = parse_route(request.method, request.path());
    if (!found.route || found.route->model != "digits")
      return {404, {}, error_body("no such model"), nullptr};
    if (found.route->call == Call::kModelMetadata) {
      return {200,
              {},
              write(ModelMetadata{"digits",
                                  {"1"},
                                  "test",
                                  {{"image", tensor::DType::kFp32, {-1, 1, 1, 2}}},
                                  {{"p", tensor::DType::kFp32, {-1, 2}}},
                                  {}}),
              nullptr};
    }
    const std::string answer = answer_(requests_++);
    if (answer.starts_with("!")) return {503, {}, error_body(answer.substr(1)), nullptr};
    auto infer = parse_infer_request(std::make_shared<const std::string>(request.body),
                                     request.headers.find(kJsonLengthHeader));
    if (!infer.ok()) return {400, {}, error_body(infer.error().message()), nullptr};
    const tensor::Tensor scores = infer->inputs[0].tensor.reshaped({1, 2}).value();
    const std::array<Encoding, 1> encodings = {infer->outputs[0].encoding};
    Message message = write_infer_response({"digits", answer, "", {{"p", scores}}}, encodings);
    net::Response response{200, {}, std::move(message.body), nullptr};
    if (message.json_length)
      response.headers.add(std::string(kJsonLengthHeader), std::to_string(*message.json_length));
    ++good_;
    return response;
  }

  const std::function<std::string(std::uint64_t)> answer_;
  std::atomic<std::uint64_t> requests_ = 0, good_ = 0;
  std::unique_ptr<net::Server> server_;
};

const std::vector<Images> kImages = {{2, 1, 2, 1, {1, 9, 7, 2}}, {1, 1, 2, 1, {3, 3}}};

LoadOptions until_two(const ModelServer& server) {
  return {.url = server.url(), .model = "digits", .clients = 2, .until_version = "2"};
}

TEST(PutLoad, LoadEndsOnceEveryClientSawTheVersion) {
  ModelServer server([](std::uint64_t i) { return i < 20 ? "1" : "2"; });
  server.counted_before = 100;
  LoadOptions options = until_two(server);
  options.replicas = {server.url(), server.url() + "/nothing"};
  const LoadReport load = put_load(Context::background(), options, kImages).value();
  EXPECT_TRUE(load.reached);
  EXPECT_EQ(load.requests, server.requests());
  EXPECT_EQ(load.failures, 0u);
  EXPECT_EQ(load.versions.at("1").count, 20u);
  EXPECT_EQ(load.versions.at("2").count, load.requests - 20);
  EXPECT_GE(load.versions.at("2").count, 2u);
  EXPECT_LE(load.versions.at("1").first, load.versions.at("1").last);
  // One client keeps its connection, the other client opens a new one for each request.
  EXPECT_GE(load.reused, 1u);
  EXPECT_GE(load.fresh, 1u);
  EXPECT_EQ(load.reused + load.fresh, load.requests);
  ASSERT_EQ(load.replicas.size(), 2u);
  EXPECT_EQ(load.replicas[0].answered, load.requests);
  EXPECT_EQ(load.replicas[1].error, "/metrics answered 404");
}

TEST(PutLoad, CountsFailuresByMessageUpToALimit) {
  ModelServer server([](std::uint64_t i) {
    return i < 20 ? "!error " + std::to_string(i) : i < 24 ? std::string("!again") : "2";
  });
  const LoadReport load = put_load(Context::background(), until_two(server), kImages).value();
  EXPECT_TRUE(load.reached);
  EXPECT_EQ(load.failures, 24u);
  EXPECT_EQ(load.requests, server.requests());
  EXPECT_EQ(load.errors.size(), LoadReport::kErrorsMax);
  EXPECT_EQ(load.versions.at("2").count, load.requests - 24);
}

TEST(PutLoad, LoadEndsAtTheTimeLimit) {
  ModelServer server([](std::uint64_t) { return "1"; });
  LoadOptions options = until_two(server);
  options.longest = 0ms;
  const LoadReport load = put_load(Context::background(), options, kImages).value();
  EXPECT_FALSE(load.reached);
  EXPECT_EQ(load.requests, 0u);
}

TEST(PutLoad, LoadEndsWhenTheContextStops) {
  std::stop_source stop;
  ModelServer server([&](std::uint64_t i) {
    if (i == 10) stop.request_stop();
    return "1";
  });
  const LoadReport load = put_load(Context(stop.get_token()), until_two(server), kImages).value();
  EXPECT_FALSE(load.reached);
  EXPECT_GE(load.requests, 11u);
  EXPECT_EQ(load.failures, 0u);
}

// A client that waits long for its turn must not delay the end.
TEST(PutLoad, StopEndsLoadWhileClientsWaitForATurn) {
  std::stop_source stop;
  ModelServer server([&](std::uint64_t) {
    stop.request_stop();
    return "1";
  });
  LoadOptions options = until_two(server);
  options.rate = 1e-3;
  const LoadReport load = put_load(Context(stop.get_token()), options, kImages).value();
  EXPECT_EQ(load.requests, 1u);
}

TEST(PutLoad, RestartedReplicaCountsFromZero) {
  ModelServer replica([](std::uint64_t) { return "2"; });
  replica.counted_before = 500;
  ModelServer answering([&](std::uint64_t) {
    replica.counted_before = 3;
    return "2";
  });
  LoadOptions options = until_two(answering);
  options.replicas = {replica.url()};
  EXPECT_EQ(put_load(Context::background(), options, kImages)->replicas[0].answered, 3u);
}

TEST(PutLoad, AServerWithoutTheModelIsAnError) {
  ModelServer server([](std::uint64_t) { return "1"; });
  LoadOptions options = until_two(server);
  options.model = "letters";
  const auto load = put_load(Context::background(), options, kImages);
  ASSERT_FALSE(load.ok());
  EXPECT_EQ(load.error().code(), Code::kNotFound);
  EXPECT_THAT(load.error().message(), HasSubstr(server.url()));
}

}  // namespace
}  // namespace varda::oip
