// Fixture for a model with tiers: a repository of echo models, and a scripted server above it.
#pragma once

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <gtest/gtest.h>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "codec/json.h"
#include "serving/handler.h"
#include "serving/testing/model_directory.h"

namespace varda::serving {

using codec::Json;

inline constexpr auto kModel = "tensor FP32 -1 2\n";
inline constexpr auto kBig =
    R"({"model_name":"big","model_version":"9","outputs":[{"name":"y","shape":[1,2],"datatype":"FP32","data":[0.125,7]}]})";

// The server of the later tiers. Thread-safe.
class Cloud {
 public:
  using Answer = std::function<net::Response(const net::Request&)>;

  void handle(net::Request request, net::Responder respond) {
    Answer chosen;
    {
      MutexLock lock(mutex_);
      const bool infers = request.method == "POST";
      if (infers) respond.on_disconnect([this] { ++ended_; });
      chosen = infers ? infer_ : ready_;
      if (infers) requests_.push_back(request);
      if (infers && holds_) {
        held_.push_back(std::move(respond));
        return;
      }
    }
    respond(chosen(request));
  }
  void infers(Answer answer) {
    MutexLock lock(mutex_);
    infer_ = std::move(answer);
  }
  void infers(int status, const std::string& body) {
    infers([=](const net::Request&) { return net::Response{status, {}, body, nullptr}; });
  }
  void is_ready(int status) {
    MutexLock lock(mutex_);
    ready_ = [=](const net::Request&) { return net::Response{status, {}, "{}", nullptr}; };
  }
  /// Leaves requests unanswered until release().
  void hold() {
    MutexLock lock(mutex_);
    holds_ = true;
  }
  void release() {
    std::vector<net::Responder> held;
    {
      MutexLock lock(mutex_);
      holds_ = false;
      held.swap(held_);
    }
    for (net::Responder& respond : held) respond({200, {}, kBig, nullptr});
  }
  std::vector<net::Request> requests() const {
    MutexLock lock(mutex_);
    return requests_;
  }
  /// Waits until callers have given up `count` calls.
  [[nodiscard]] bool wait_for_ended(int count) const {
    const Context ctx = Context::background().with_timeout(std::chrono::seconds(60));
    while (ended_ < count && ctx.check().ok()) std::this_thread::yield();
    return ended_ >= count;
  }
  void wait_for_requests(std::size_t count) const {
    const Context ctx = Context::background().with_timeout(std::chrono::seconds(60));
    while (requests().size() < count) ASSERT_TRUE(ctx.check().ok());
  }

 private:
  mutable Mutex mutex_;
  Answer infer_ GUARDED_BY(mutex_) = [](const net::Request&) {
    return net::Response{200, {}, kBig, nullptr};
  };
  Answer ready_ GUARDED_BY(mutex_) = [](const net::Request&) {
    return net::Response{200, {}, "{}", nullptr};
  };
  std::vector<net::Request> requests_ GUARDED_BY(mutex_);
  bool holds_ GUARDED_BY(mutex_) = false;
  std::atomic<int> ended_{0};
  std::vector<net::Responder> held_ GUARDED_BY(mutex_);
};

class Joint : public ::testing::Test {
 protected:
  static std::string policy(const std::string& name, const std::string& parameters = "{}") {
    return R"({"name":")" + name + R"(","parameters":)" + parameters + "}";
  }
  static std::string margin(const std::string& threshold = "0.5") {
    return policy("Margin", R"({"threshold_margin":")" + threshold + "\"}");
  }
  static std::string joint_file(const std::string& policy, const std::string& url = "http://cloud",
                                int in_flight_max = 64, int deadline_ms = 60000) {
    return R"({"version":1,"service":"default/m","deadlineMs":)" + std::to_string(deadline_ms) +
           R"(,"inFlightMax":)" + std::to_string(in_flight_max) +
           R"(,"tiers":[{"name":"edge","policy":)" + policy + R"(},{"name":"cloud","url":")" + url +
           R"(","model":"big"}]})";
  }
  /// Three tiers: device, edge, cloud; the first two have a policy.
  static std::string three_tiers() {
    return R"({"version":1,"service":"default/m","deadlineMs":60000,"inFlightMax":8,"tiers":[{"name":"device","policy":)" +
           margin() + R"(},{"name":"edge","url":"http://edge","model":"middle","policy":)" +
           margin("0.9") + R"(},{"name":"cloud","url":"http://cloud","model":"big"}]})";
  }

  void start(joint::TierRuntime::Options options = {.check_interval = std::chrono::hours(1)}) {
    tiers_ = std::make_unique<joint::TierRuntime>(
        options, joint::Upstream::Clients{*upstream_, *upstream_}, registry_, *rng_);
    repository_ = Repository::open({.directory = models_.path(),
                                    .defaults = {.instances = 2},
                                    .check_interval = std::chrono::hours(1),
                                    .joint = tiers_.get(),
                                    .samples = keeper_.get()},
                                   os::real_file_system(), engines_, registry_)
                      .value();
    handler_ = make_handler({*repository_, registry_, draining_, "varda-serve", {}, tiers_.get()});
    settle();
  }
  void settle() {
    const Status status =
        repository_->wait_settled(Context::background().with_timeout(std::chrono::seconds(60)));
    ASSERT_TRUE(status.ok()) << status.error();
  }
  void TearDown() override {
    if (tiers_ != nullptr) tiers_->stop();
  }

  std::future<net::Response> begin(const std::string& method, const std::string& target,
                                   std::string body = "", net::Headers headers = {}) {
    auto promise = std::make_shared<std::promise<net::Response>>();
    auto future = promise->get_future();
    handler_({.method = method,
              .target = target,
              .headers = std::move(headers),
              .body = std::move(body)},
             net::Responder(
                 [promise](net::Response response) { promise->set_value(std::move(response)); }));
    return future;
  }
  // A pending answer, and the callback that a connection runs when the client hangs up.
  struct Watched {
    std::future<net::Response> answer;
    net::Responder::OnDisconnect hang_up;
  };
  Watched begin_watched(std::string body) {
    auto promise = std::make_shared<std::promise<net::Response>>();
    Watched out{promise->get_future(), {}};
    handler_(
        {.method = "POST", .target = "/v2/models/m/infer", .body = std::move(body)},
        net::Responder(
            [promise](net::Response response) { promise->set_value(std::move(response)); },
            [&out](net::Responder::OnDisconnect callback) { out.hang_up = std::move(callback); }));
    return out;
  }
  net::Response call(const std::string& method, const std::string& target, std::string body = "",
                     net::Headers headers = {}) {
    return begin(method, target, std::move(body), std::move(headers)).get();
  }
  // One sample: easy for Margin if one number is much larger than the other.
  static std::string body(float a, float b) {
    return R"({"id":"q","inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[)" +
           std::to_string(a) + "," + std::to_string(b) + "]}]}";
  }
  static std::string easy() { return body(1, 0); }
  static std::string hard() { return body(0.5, 0.5); }

  // "VALUE by TIER hard|easy called … fallback …", or "STATUS message".
  static std::string outcome(const net::Response& response) {
    const Json json = codec::parse_json(response.body).value_or(Json());
    if (response.status != 200)
      return std::to_string(response.status) + " " + json["error"].as_string();
    const Json& reported = std::as_const(json)["parameters"];
    std::string out = codec::write_json(json.at("outputs/0/data/0")) + " by " +
                      reported["tier"].as_string() + " " + reported["tier_version"].as_string() +
                      (reported["hard"].as_bool() ? " hard" : " easy");
    if (!reported["called"].as_string().empty())
      out += ", called " + reported["called"].as_string();
    if (reported.contains("fallback")) out += ", fallback " + reported["fallback"].as_string();
    return out;
  }
  std::string infer(std::string body) {
    return outcome(call("POST", "/v2/models/m/infer", std::move(body)));
  }
  Json reported() {
    return codec::parse_json(call("GET", "/v2/models/m/joint").body).value_or(Json());
  }
  std::string counter(const std::string& path) {
    return codec::write_json(reported().at("counters/" + path));
  }
  std::vector<std::string> index() {
    std::vector<std::string> out;
    for (const oip::IndexEntry& e : repository_->index())
      out.push_back(e.name + "/" + e.version + " " + e.state +
                    (e.code.empty() ? "" : " " + e.code));
    return out;
  }
  static std::size_t lines(const std::filesystem::path& file) {
    std::ifstream in(file);
    return static_cast<std::size_t>(std::count(std::istreambuf_iterator<char>(in), {}, '\n'));
  }

  Cloud cloud_;
  testing::ModelDirectory models_;
  metrics::Registry registry_;
  infer::Engines engines_{{VARDA_ENGINES}};
  std::atomic<bool> draining_{false};
  const std::unique_ptr<net::HttpClient> http_ =
      net::loopback([this](net::Request request, net::Responder respond) {
        cloud_.handle(std::move(request), std::move(respond));
      });
  net::HttpClient* upstream_ = http_.get();
  const std::unique_ptr<Rng> rng_ = seeded_rng(7);
  std::unique_ptr<joint::TierRuntime> tiers_;
  std::unique_ptr<sampling::Keeper> keeper_;  // null: no samples are kept
  std::unique_ptr<Repository> repository_;
  net::Handler handler_;
};

}  // namespace varda::serving
