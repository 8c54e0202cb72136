// Workers of a node through the API, over a disk that can fail, in virtual time.
#include "agent/workers/manager.h"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <set>

#include "agent/workers/api.h"
#include "artifact/testing/manual_clock.h"
#include "codec/yaml.h"
#include "os/testing/memory_file_system.h"

namespace varda::agent::workers {
namespace manager_test {

using artifact::testing::ManualClock;
using codec::Json;
using std::chrono::milliseconds;

Json json(std::string_view text) { return codec::parse_json(text).value(); }
const Context kForever = Context::background();

/// A store that can be full, and that counts its writes.
class Disk final : public store::Store {
 public:
  Result<std::optional<store::Entry>> get(std::string_view key) override {
    return inner_->get(key);
  }
  Result<store::Page> list(const store::ListOptions& options) override {
    return inner_->list(options);
  }
  Result<store::Revision> commit(std::vector<store::Op> ops) override {
    if (full) return Error(Code::kExhausted, "disk full");
    ++writes;
    return inner_->commit(std::move(ops));
  }
  Result<std::unique_ptr<store::Watch>> watch(std::string, store::Revision) override {
    return Error(Code::kUnsupported, "no");
  }
  store::Revision revision() const override { return inner_->revision(); }
  store::Revision oldest() const override { return inner_->oldest(); }
  Status compact(store::Revision) override { return {}; }

  bool full = false;
  int writes = 0;

 private:
  std::unique_ptr<store::Store> inner_ = store::open_memory();
};

struct Answer {
  int status = 0;  // 0: not answered yet
  net::Headers headers;
  Json body;
  std::string message() const { return body["message"].as_string(); }
};

class Workers : public ::testing::Test {
 protected:
  Workers() { create_manager(); }

  /// Restarts the agent; memory is lost, as after kill -9.
  void restart() {
    api_.reset();
    manager_ =
        std::make_unique<Manager>(Manager::Options{.directory = "/data/workers", .clock = &clock_},
                                  fs_, *state_store_, *rng_);
    manager_->on_publish([this] {
      api::EdgeNodeStatus status;
      const core::ListId list = manager_->put_report(status, {});
      published = std::move(status.workers);
      published_for = list.uid + "/" + std::to_string(list.generation);
      ++times_published;
    });
    if (list_) manager_->apply(*list_);
    manager_->load();
    api_ = std::make_unique<Api>(Api::Options{.node_name = "edge0", .clock = &clock_}, *manager_);
  }
  /// Restarts with an empty disk.
  void create_manager() {
    api_.reset();
    manager_.reset();
    auto disk = std::make_unique<Disk>();
    disk_ = disk.get();
    state_store_ = core::StateStore::over(std::move(disk));
    list_.reset();
    (void)fs_.remove_all("/data");
    CHECK(fs_.make_directories("/data", 0700).ok());
    restart();
  }
  /// Delivers the operator's list like Core, which delivers it again after a restart.
  void want(const std::string& workers) {
    node_.metadata.uid = "n1";
    ++node_.metadata.generation;
    node_.spec = {};
    for (const Json& one : codec::parse_yaml(workers).value().as_array())
      node_.spec.workers.push_back({one["key"].as_string(),
                                    one["uid"].as_string(),
                                    one["owner"].as_string(),
                                    one["assignment"],
                                    {},
                                    {}});
    connect();
  }
  /// Connects the link; the server has the last report.
  void connect() {
    if (times_published > 0) node_.status.workers = published;
    manager_->adopt(node_.status);
    list_ = core::WorkList{{node_.metadata.uid, node_.metadata.generation}, node_.spec};
    manager_->apply(*list_);
    settle();
  }
  void settle() {
    for (int i = 0; i < 100; ++i) {
      bool any = false;
      for (const runtime::Task& task : manager_->tasks()) {
        if (const auto due = task.due(); due && *due <= clock_.now()) {
          task.step(kForever);
          any = true;
        }
      }
      if (!any) return;
    }
    FAIL() << "it never comes to rest";
  }
  void pass(milliseconds time) {
    for (milliseconds passed{0}; passed < time; passed += milliseconds(50)) {
      clock_.advance(milliseconds(50));
      settle();
    }
  }

  std::string token_of(const std::string& key) {
    return os::read_file(fs_, "/data/workers/" + key + "/token", 4096).value_or("");
  }
  /// Sends a request; the answer arrives after a step.
  std::shared_ptr<Answer> send(const std::string& token, const std::string& method,
                               const std::string& target, const std::string& body = "") {
    auto answer = std::make_shared<Answer>();
    net::Request request{
        .method = method, .target = target, .headers = {}, .body = body, .peer = {}};
    if (!token.empty()) request.headers.add("Authorization", "Bearer " + token);
    api_->handler()(std::move(request), net::Responder([answer](net::Response response) {
                      answer->status = response.status;
                      answer->headers = response.headers;
                      answer->body = codec::parse_json(response.body).value_or(Json());
                    }));
    return answer;
  }
  Answer call(const std::string& token, const std::string& method, const std::string& target,
              const std::string& body = "") {
    const auto answer = send(token, method, target, body);
    settle();
    if (answer->status == 0) pass(milliseconds(50));
    return *answer;
  }
  const Json& report(std::size_t worker = 0) const { return published.at(worker).report; }

  static std::string accuracy(double value) {
    return R"({"models": {"models.edgeai.io/default/digits": {"metrics": {"accuracy": )" +
           codec::write_json(Json(value)) + "}}}}";
  }

  ManualClock clock_;
  os::testing::MemoryFileSystem fs_;
  Disk* disk_ = nullptr;
  std::unique_ptr<core::StateStore> state_store_;
  std::unique_ptr<Rng> rng_ = seeded_rng(1);
  std::unique_ptr<Manager> manager_;
  std::unique_ptr<Api> api_;
  api::EdgeNode node_;
  std::optional<core::WorkList> list_;

  std::vector<api::EdgeWorkerReport> published;
  std::string published_for;
  int times_published = 0;
};

constexpr const char* kOne =
    "[{key: default/eval, uid: j1, owner: TrainingModel/pets, assignment: {round: 1}}]";

TEST_F(Workers, AgentWithoutWorkListReportsAtOnce) {
  settle();
  EXPECT_EQ(times_published, 1);
  EXPECT_EQ(published_for, "/0");
}

TEST_F(Workers, NewWorkListIsAnsweredAtOnce) {
  want(kOne);
  EXPECT_EQ(published_for, "n1/1");
  want(kOne);
  EXPECT_EQ(published_for, "n1/2");
  ASSERT_EQ(call(token_of("default/eval"), "PUT", "/v1/progress", R"({"step": 1})").status, 202);
  const int before = times_published;
  connect();
  EXPECT_EQ(times_published, before) << "the same list again is none";
}

TEST_F(Workers, TokenInFileGivesAccessToAssignment) {
  want(kOne);
  const auto info = fs_.stat("/data/workers/default/eval/token").value();
  ASSERT_TRUE(info.has_value());
  EXPECT_EQ(info->mode, 0600U);
  const Answer answer = call(token_of("default/eval"), "GET", "/v1/assignment");
  ASSERT_EQ(answer.status, 200) << answer.message();
  EXPECT_EQ(answer.body["worker"].as_string(), "default/eval");
  EXPECT_EQ(answer.body["uid"].as_string(), "j1");
  EXPECT_EQ(answer.body["owner"].as_string(), "TrainingModel/pets");
  EXPECT_EQ(answer.body["node"].as_string(), "edge0");
  EXPECT_EQ(answer.body["assignment"], json(R"({"round": 1})"));
}

TEST_F(Workers, InvalidTokenIsRefusedOnEveryPath) {
  want(kOne);
  for (const std::string& token :
       {std::string(), std::string("x"), token_of("default/eval").substr(1),
        token_of("default/eval") + "0"}) {
    for (const Api::Route& route : Api::routes()) {
      const Answer answer = call(token, std::string(route.method), std::string(route.path));
      EXPECT_EQ(answer.status, 401);
      EXPECT_EQ(answer.body["kind"].as_string(), "Status");
      EXPECT_EQ(answer.headers.find("WWW-Authenticate"), "Bearer");
    }
    EXPECT_EQ(call(token, "GET", "/").status, 401) << "nor which paths there are";
  }
}

TEST_F(Workers, TokenGivesAccessToOneWorkerOnly) {
  want("[{key: default/a, uid: j1, assignment: 1}, {key: default/b, uid: j1, assignment: 2}]");
  EXPECT_NE(token_of("default/a"), token_of("default/b"));
  EXPECT_EQ(call(token_of("default/b"), "GET", "/v1/assignment").body["assignment"], Json(2));
  ASSERT_EQ(call(token_of("default/b"), "PUT", "/v1/results/r", R"({"data": 1})").status, 200);
  pass(milliseconds(1000));
  EXPECT_FALSE(report(0).contains("results"));
  EXPECT_TRUE(report(1).contains("results"));
  EXPECT_EQ(call(token_of("default/b"), "POST", "/v1/register",
                 R"({"version": "1", "worker": "default/a"})")
                .status,
            403);
}

TEST_F(Workers, WaitEndsWhenAssignmentChanges) {
  want(kOne);
  const std::string token = token_of("default/eval");
  const std::string first = call(token, "GET", "/v1/assignment").body["revision"].as_string();
  const auto waiting = send(token, "GET", "/v1/assignment?after=" + first + "&timeoutSeconds=20");
  settle();
  EXPECT_EQ(waiting->status, 0);
  want("[{uid: j1, key: default/eval, assignment: {round: 1}, owner: TrainingModel/pets}]");
  EXPECT_EQ(waiting->status, 0) << "the same in other order";
  want("[{key: default/eval, uid: j1, owner: TrainingModel/pets, assignment: {round: 2}}]");
  ASSERT_EQ(waiting->status, 200);
  EXPECT_EQ(waiting->body.at("assignment/round").as_integer(), 2);
  const std::string second = waiting->body["revision"].as_string();
  EXPECT_NE(second, first);
  EXPECT_EQ(call(token, "GET", "/v1/assignment?after=" + first).body["revision"].as_string(),
            second)
      << "who comes late waits for nothing";

  const auto in_vain = send(token, "GET", "/v1/assignment?after=" + second + "&timeoutSeconds=20");
  pass(milliseconds(19950));
  EXPECT_EQ(in_vain->status, 0);
  pass(milliseconds(50));
  ASSERT_EQ(in_vain->status, 200);
  EXPECT_EQ(in_vain->body["revision"].as_string(), second);
  restart();
  EXPECT_EQ(
      call(token, "GET", "/v1/assignment?timeoutSeconds=0&after=x").body["revision"].as_string(),
      second)
      << "also after a restart";
}

TEST_F(Workers, TooManyWaitsEndTheOldest) {
  want(kOne);
  const std::string token = token_of("default/eval");
  const std::string now = call(token, "GET", "/v1/assignment").body["revision"].as_string();
  std::vector<std::shared_ptr<Answer>> waits;
  for (std::size_t i = 0; i <= Manager::kWaitingMax; ++i)
    waits.push_back(send(token, "GET", "/v1/assignment?after=" + now));
  EXPECT_EQ(waits.front()->status, 200);
  EXPECT_EQ(waits.at(1)->status, 0);
}

TEST_F(Workers, RemovedWorkerLosesTokenRecordAndWaits) {
  want(kOne);
  const std::string token = token_of("default/eval");
  const std::string now = call(token, "GET", "/v1/assignment").body["revision"].as_string();
  ASSERT_EQ(call(token, "PUT", "/v1/results/r", R"({"data": 1})").status, 200);
  const auto waiting = send(token, "GET", "/v1/assignment?after=" + now);
  want("[]");
  EXPECT_EQ(waiting->status, 401);
  EXPECT_EQ(call(token, "GET", "/v1/assignment").status, 401);
  EXPECT_FALSE(fs_.stat("/data/workers/default").value().has_value());
  EXPECT_TRUE(state_store_->entries("workers/").value().empty());
  pass(milliseconds(1000));
  EXPECT_TRUE(published.empty());
}

TEST_F(Workers, RecreatedWorkerGetsANewTokenAndEmptyState) {
  want(kOne);
  const std::string token = token_of("default/eval");
  ASSERT_EQ(call(token, "PUT", "/v1/results/r", accuracy(0.9)).status, 200);
  pass(milliseconds(1000));
  EXPECT_EQ(report()["sequence"].as_integer(), 1);
  want("[{key: default/eval, uid: j2}]");
  EXPECT_EQ(call(token, "GET", "/v1/assignment").status, 401);
  const std::string other = token_of("default/eval");
  EXPECT_NE(other, token);
  pass(milliseconds(1000));
  EXPECT_EQ(published.at(0).uid, "j2");
  EXPECT_EQ(report(), Json::object());
  ASSERT_EQ(call(other, "PUT", "/v1/results/r", accuracy(0.5)).status, 200);
  pass(milliseconds(1000));
  EXPECT_EQ(report()["sequence"].as_integer(), 1);
}

// A job that moves to another node and back is the same worker. The operator accepts only greater
// sequences from it.
TEST_F(Workers, ReturningWorkerContinuesItsSequence) {
  want(kOne);
  ASSERT_EQ(call(token_of("default/eval"), "PUT", "/v1/results/r", accuracy(0.9)).status, 200);
  pass(milliseconds(1000));
  ASSERT_EQ(report()["sequence"].as_integer(), 1);
  want("[]");
  pass(milliseconds(1000));
  restart();
  want(kOne);
  ASSERT_EQ(call(token_of("default/eval"), "PUT", "/v1/results/r", accuracy(0.5)).status, 200);
  pass(milliseconds(1000));
  EXPECT_EQ(report()["models"], json(accuracy(0.5))["models"]);
  EXPECT_EQ(report()["sequence"].as_integer(), 2);
}

TEST_F(Workers, TokenSurvivesRestartAndDamagedTokenIsReplaced) {
  want(kOne);
  const std::string token = token_of("default/eval");
  restart();
  EXPECT_EQ(token_of("default/eval"), token);
  EXPECT_EQ(call(token, "GET", "/v1/assignment").status, 200);
  for (const std::string& damaged :
       {std::string(), token.substr(0, 20), "varda-worker.000000000000." + std::string(64, 'a')}) {
    ASSERT_TRUE(
        os::write_file_atomically(fs_, "/data/workers/default/eval/token", damaged, 0644).ok());
    restart();
    EXPECT_NE(token_of("default/eval"), damaged);
    EXPECT_EQ(call(token_of("default/eval"), "GET", "/v1/assignment").status, 200);
    EXPECT_EQ(fs_.stat("/data/workers/default/eval/token").value()->mode, 0600U);
  }
}

TEST_F(Workers, ReportContainsAllReceivedItems) {
  want(kOne);
  const std::string token = token_of("default/eval");
  const Answer registered =
      call(token, "POST", "/v1/register", R"({"version": "1.2", "capabilities": ["resume"]})");
  ASSERT_EQ(registered.status, 200) << registered.message();
  EXPECT_EQ(registered.body.at("assignment/round").as_integer(), 1)
      << "who registers knows what to do";
  EXPECT_EQ(
      call(token, "PUT", "/v1/progress", R"({"fraction": 0.25, "message": "epoch 1"})").status,
      202);
  EXPECT_EQ(call(token, "PUT", "/v1/metrics", R"({"metrics": {"loss": 0.5}})").status, 202);
  ASSERT_EQ(call(token, "PUT", "/v1/results/final", accuracy(0.93)).status, 200);
  pass(milliseconds(1000));
  const std::string at = "2026-01-01T00:00:0";  // of the test's clock
  ASSERT_EQ(published.size(), 1U);
  EXPECT_EQ(published[0].key, "default/eval");
  EXPECT_EQ(published[0].uid, "j1");
  EXPECT_EQ(published_for, "n1/1");
  EXPECT_EQ(report()["models"], json(accuracy(0.93))["models"]);
  EXPECT_EQ(report()["sequence"].as_integer(), 1);
  EXPECT_EQ(report().at("registered/version").as_string(), "1.2");
  EXPECT_TRUE(report().at("registered/time").as_string().starts_with(at));
  EXPECT_EQ(report().at("progress/message").as_string(), "epoch 1");
  EXPECT_EQ(report()["metrics"], json(R"({"loss": 0.5})"));
  EXPECT_TRUE(report()["results"].contains("final"));
}

TEST_F(Workers, FrequentProgressIsReportedOnceASecond) {
  want(kOne);
  const std::string token = token_of("default/eval");
  pass(milliseconds(2000));
  const int reported_before = times_published, writes_before = disk_->writes;
  for (int i = 0; i < 2000; ++i) {
    ASSERT_EQ(send(token, "PUT", "/v1/progress", R"({"step": )" + std::to_string(i) + "}")->status,
              202);
    clock_.advance(milliseconds(10));
    settle();
  }
  EXPECT_LE(times_published - reported_before, 21);
  EXPECT_GE(times_published - reported_before, 15);
  EXPECT_LE(disk_->writes - writes_before, 5);
  pass(milliseconds(1000));
  EXPECT_EQ(report().at("progress/step").as_integer(), 1999);
}

TEST_F(Workers, ConcurrentResultsShareOneDiskWrite) {
  want(kOne);
  const std::string token = token_of("default/eval");
  const int before = disk_->writes;
  std::vector<std::shared_ptr<Answer>> answers;
  for (int i = 0; i < 50; ++i)
    answers.push_back(send(token, "PUT", "/v1/results/r" + std::to_string(i), R"({"data": 1})"));
  for (const auto& answer : answers)
    EXPECT_EQ(answer->status, 0) << "not acknowledged before it is safe";
  settle();
  for (const auto& answer : answers) EXPECT_EQ(answer->status, 200) << answer->message();
  EXPECT_EQ(disk_->writes - before, 1);
}

TEST_F(Workers, TooManyRequestsGet429WithRetryAfter) {
  want("[{key: default/a, uid: j1}, {key: default/b, uid: j1}]");
  const std::string token = token_of("default/a");
  int refused = 0;
  std::shared_ptr<Answer> last;
  for (int i = 0; i < 100; ++i) {
    last = send(token, "PUT", "/v1/results/r", R"({"data": )" + std::to_string(i) + "}");
    settle();
    if (last->status == 429) ++refused;
  }
  EXPECT_EQ(refused, 36) << "64 at once";
  EXPECT_EQ(last->headers.find("Retry-After"), "1");
  EXPECT_EQ(
      last->message(),
      "worker default/a sends too many requests: at most 20 a second of registrations and results");
  EXPECT_EQ(call(token_of("default/b"), "PUT", "/v1/results/r", R"({"data": 1})").status, 200)
      << "the other one is another one";
  pass(milliseconds(1000));
  EXPECT_EQ(call(token, "PUT", "/v1/results/r", R"({"data": "last"})").status, 200);
  for (int i = 0; i < 100; ++i) (void)send("wrong", "GET", "/v1/assignment");
  EXPECT_EQ(send("wrong", "GET", "/v1/assignment")->status, 429);
  EXPECT_EQ(call(token, "GET", "/v1/assignment").status, 200)
      << "strangers take nothing from workers";
}

TEST_F(Workers, AcknowledgedResultIsReportedAfterRestart) {
  want(kOne);
  const std::string token = token_of("default/eval");
  ASSERT_EQ(call(token, "PUT", "/v1/results/a", accuracy(0.9)).status, 200);
  restart();  // before any report
  times_published = 0;
  settle();
  clock_.advance(std::chrono::hours(100));
  settle();
  ASSERT_EQ(times_published, 1);
  EXPECT_TRUE(report()["results"].contains("a"));
  // The last write may or may not have recorded the sequence; with a link it is known.
  connect();
  pass(milliseconds(1000));
  EXPECT_EQ(report()["sequence"].as_integer(), 1);
  EXPECT_EQ(report()["models"], json(accuracy(0.9))["models"]);
  restart();
  settle();
  EXPECT_EQ(report()["sequence"].as_integer(), 1) << "said again, under the same number";
}

TEST_F(Workers, CountsInTheReportDoNotShrinkAfterAKill) {
  for (int seconds = 0; seconds < 8; ++seconds) {
    create_manager();
    want(kOne);
    const std::string token = token_of("default/eval");
    for (const char* count : {"4", "7"}) {
      const std::string body = R"({"metrics": {"inferenceNumber": )" + std::string(count) + "}}";
      ASSERT_EQ(call(token, "PUT", "/v1/metrics", body).status, 202);
    }
    pass(milliseconds(1000) * seconds);
    const auto reported = report().at("metrics/inferenceNumber").as_integer();
    restart();
    settle();
    EXPECT_GE(report().at("metrics/inferenceNumber").as_integer(), reported) << seconds << " s";
  }
}

TEST_F(Workers, EachSequenceStandsForOneSetOfModels) {
  want(kOne);
  const std::string token = token_of("default/eval");
  std::map<std::int64_t, std::string> seen;
  for (int i = 0; i < 40; ++i) {
    if (i % 3 == 0) {
      ASSERT_EQ(call(token, "PUT", "/v1/results/a", accuracy(0.01 * (i / 2))).status, 200);
    }
    if (i % 5 == 0) disk_->full = !disk_->full;
    if (i % 5 == 0) (void)call(token, "PUT", "/v1/results/b", accuracy(0.5 + 0.01 * i));
    if (i % 5 == 0) pass(milliseconds(1000));
    disk_->full = false;
    if (i % 4 == 0) restart();
    if (i % 7 == 0) pass(milliseconds(i * 20));
    settle();
    if (!published.empty() && report().contains("sequence")) {
      const auto [at, first] =
          seen.emplace(report()["sequence"].as_integer(), codec::write_json(report()["models"]));
      EXPECT_EQ(at->second, codec::write_json(report()["models"])) << at->first;
    }
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(seen.size(), 5U);
}

TEST_F(Workers, LostDiskRestoresStateFromServer) {
  want(kOne);
  ASSERT_EQ(call(token_of("default/eval"), "PUT", "/v1/results/a", accuracy(0.9)).status, 200);
  pass(milliseconds(1000));
  ASSERT_EQ(call(token_of("default/eval"), "PUT", "/v1/results/a", accuracy(0.8)).status, 200);
  pass(milliseconds(1000));
  ASSERT_EQ(report()["sequence"].as_integer(), 2);
  const std::string before = codec::write_json(report());
  create_manager();
  connect();
  EXPECT_EQ(codec::write_json(report()), before) << "nothing is taken back";
  ASSERT_EQ(call(token_of("default/eval"), "PUT", "/v1/results/b", accuracy(0.95)).status, 200);
  pass(milliseconds(1000));
  EXPECT_EQ(report()["sequence"].as_integer(), 3);
  EXPECT_TRUE(report()["results"].contains("a"));
}

TEST_F(Workers, UnwrittenResultIsNeitherAcknowledgedNorReported) {
  want(kOne);
  const std::string token = token_of("default/eval");
  ASSERT_EQ(call(token, "PUT", "/v1/results/a", accuracy(0.9)).status, 200);
  pass(milliseconds(1000));
  disk_->full = true;
  const Answer refused = call(token, "PUT", "/v1/results/a", accuracy(0.1));
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.message(), "the report cannot be written to this node's disk now: disk full");
  EXPECT_EQ(call(token, "PUT", "/v1/results/a", accuracy(0.9)).status, 200)
      << "that is there already";
  EXPECT_EQ(call(token, "PUT", "/v1/progress", R"({"step": 7})").status, 202);
  pass(milliseconds(2000));
  EXPECT_EQ(report()["models"], json(accuracy(0.9))["models"]);
  EXPECT_EQ(report().at("progress/step").as_integer(), 7) << "progress promises nothing";
  disk_->full = false;
  pass(milliseconds(6000));
  restart();
  settle();
  EXPECT_EQ(report().at("progress/step").as_integer(), 7) << "kept once there was room";
}

TEST_F(Workers, TokenWriteIsRetriedAfterFullDisk) {
  want("[]");
  fs_.on_call([](std::string_view call, const os::Path& path) {
    const bool token = call == "write" && path.string().find("token") != std::string::npos;
    return token ? Status(Error(Code::kExhausted, "disk full")) : Status();
  });
  want(kOne);
  pass(milliseconds(1000));
  EXPECT_TRUE(report()["problem"].as_string().starts_with("it has no token: "))
      << codec::write_json(report());
  fs_.on_call(nullptr);
  pass(milliseconds(6000));
  EXPECT_EQ(call(token_of("default/eval"), "GET", "/v1/assignment").status, 200);
  EXPECT_FALSE(report().contains("problem"));
}

TEST_F(Workers, InvalidWorkerNameIsReportedAndCreatesNoFile) {
  want("[{key: default/../../etc, uid: j1}, {key: default/eval, uid: j1}]");
  pass(milliseconds(1000));
  ASSERT_EQ(published.size(), 2U);
  EXPECT_TRUE(report(0).contains("problem"));
  EXPECT_FALSE(report(1).contains("problem"));
  EXPECT_EQ(fs_.list("/data/workers").value(), std::vector<std::string>{"default"});
  EXPECT_EQ(fs_.list("/data").value(), std::vector<std::string>{"workers"});
}

TEST_F(Workers, ReportsOfAllWorkersFitTheSizeLimit) {
  std::string list = "[";
  for (int i = 0; i < 64; ++i)
    list += (i > 0 ? ", " : "") + std::string("{key: default/w") + std::to_string(i) + ", uid: j1}";
  want(list + "]");
  for (int i = 0; i < 64; ++i) {
    const std::string body = R"({"data": ")" + std::string(i == 0 ? 10 : 20 << 10, 'x') + "\"}";
    for (const char* name : {"a", "b"})
      ASSERT_EQ(call(token_of("default/w" + std::to_string(i)), "PUT",
                     std::string("/v1/results/") + name, body)
                    .status,
                200);
  }
  pass(milliseconds(30000));
  std::size_t bytes = 0;
  for (const api::EdgeWorkerReport& one : published) bytes += codec::write_json(one.report).size();
  EXPECT_LE(bytes, Manager::kReportBytesMax + 64 * 64);
  EXPECT_FALSE(report(0).contains("cut")) << "who says little is heard";
  EXPECT_EQ(
      report(1)["cut"].as_string(),
      "left out, because the reports of this node's workers exceed the size limit: 2 of 2 results");
}

TEST_F(Workers, AgentStopAnswersWaitsWith503) {
  want(kOne);
  const std::string token = token_of("default/eval");
  const std::string now = call(token, "GET", "/v1/assignment").body["revision"].as_string();
  const auto waiting = send(token, "GET", "/v1/assignment?after=" + now);
  const auto result = send(token, "PUT", "/v1/results/a", R"({"data": 1})");
  manager_->finish();
  EXPECT_EQ(waiting->status, 503);
  EXPECT_EQ(result->status, 200) << "that could be kept";
  EXPECT_EQ(send(token, "PUT", "/v1/progress", R"({"step": 1})")->status, 503);
  EXPECT_EQ(send(token, "PUT", "/v1/results/a", R"({"data": 2})")->status, 503);
}

// ---- the contract

struct Wrong {
  const char *method, *target;
  std::string body;
  int status;
  const char* message;
};

TEST_F(Workers, InvalidRequestGetsStatusWithReason) {
  want(kOne);
  const Wrong cases[] = {
      {"GET", "/v2/assignment", "", 404,
       "no such path; paths are GET /v1/assignment, POST /v1/register, PUT /v1/progress, PUT "
       "/v1/metrics, PUT "
       "/v1/results/{name}"},
      {"POST", "/v1/assignment", "", 405, "this path takes GET only"},
      {"DELETE", "/v1/results/a", "", 405, "this path takes PUT only"},
      {"GET", "/v1/assignment?timeoutSeconds=301", "", 400,
       "timeoutSeconds: expected a whole number from 0 to 300"},
      {"GET", "/v1/assignment?timeoutSeconds=-1", "", 400,
       "timeoutSeconds: expected a whole number from 0 to 300"},
      {"GET", "/v1/assignment?wait=1", "", 400,
       "unknown parameter, expected after, timeoutSeconds"},
      {"PUT", "/v1/progress?x=1", R"({"step": 1})", 400, "this path accepts no parameters"},
      {"PUT", "/v1/progress", "{\"message\": \"\xc3\"}", 400, "body: it is not JSON: "},
      {"PUT", "/v1/progress", R"({"setp": 1})", 400,
       "body: unknown member \"setp\", did you mean \"step\"?"},
      {"PUT", "/v1/results/a%2fb", R"({"data": 1})", 400,
       "the name of a result must have 1 to 63 letters, digits, '.', '_' and '-'"},
      {"PUT", "/v1/results/", R"({"data": 1})", 404, "no such path"},
      {"PUT", "/v1/results/a", "{\"data\": \"" + std::string(kBodyBytesMax, 'x') + "\"}", 413,
       "the body has 32780 bytes, and 32768 are allowed"},
      {"PUT", "/v1/results/a",
       R"({"models": {"models.edgeai.io/kube-system/m": {"metrics": {"a": 1}}}})", 403,
       "models.\""},
  };
  for (const Wrong& one : cases) {
    const Answer answer = call(token_of("default/eval"), one.method, one.target, one.body);
    EXPECT_EQ(answer.status, one.status) << one.target;
    EXPECT_EQ(answer.body["kind"].as_string(), "Status");
    EXPECT_EQ(answer.body["status"].as_string(), "Failure");
    EXPECT_EQ(answer.body["code"].as_integer(), one.status);
    EXPECT_FALSE(answer.body["reason"].as_string().empty());
    EXPECT_TRUE(answer.message().starts_with(one.message)) << answer.message();
    EXPECT_EQ(answer.headers.find("Allow").has_value(), one.status == 405);
  }
  pass(milliseconds(1000));
  EXPECT_EQ(report(), Json::object()) << "nothing of that was taken";
}

/// Counts the lines of captured standard error (the log) with `text`.
std::size_t lines_with(const std::string& log, std::string_view text) {
  std::size_t count = 0;
  for (std::size_t at = log.find(text); at != std::string::npos; at = log.find(text, at + 1))
    ++count;
  return count;
}

TEST_F(Workers, RepeatedRejectionsAreLoggedOncePerReason) {
  want(kOne);
  const std::string token = token_of("default/eval");
  ::testing::internal::CaptureStderr();
  for (int second = 0; second < 30; ++second) {
    EXPECT_EQ(call(token, "PUT", "/v1/metrics", R"({"metrics": {"a": "high"}})").status, 400);
    EXPECT_EQ(call(token, "PUT", "/v1/progress", R"({"setp": 1})").status, 400);
    EXPECT_EQ(call(token, "PUT", "/v1/progress", R"({"step": 1})").status, 202)
        << "what goes to and fro fills no log";
    EXPECT_EQ(call("nobody's", "PUT", "/v1/metrics", "x").status, 401) << "anybody could say that";
    pass(milliseconds(1000));
  }
  std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(lines_with(log, "worker request rejected"), 2u) << log;
  EXPECT_NE(log.find("worker=default/eval request=metrics status=400"), std::string::npos) << log;
  EXPECT_NE(log.find("unknown member"), std::string::npos) << log;
  EXPECT_EQ(log.find("nobody"), std::string::npos) << log;

  ::testing::internal::CaptureStderr();
  pass(milliseconds(60'000));
  EXPECT_EQ(call(token, "PUT", "/v1/metrics", R"({"metrics": {"a": "high"}})").status, 400);
  EXPECT_EQ(call(token, "PUT", "/v1/metrics",
                 "{\"metrics\": \"" + std::string(kBodyBytesMax, 'x') + "\"}")
                .status,
            413);
  log = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(lines_with(log, "worker request rejected"), 1u) << log;
  EXPECT_NE(log.find("status=413"), std::string::npos) << log;
}

TEST_F(Workers, QuestionForAMissingFileIsNoRejection) {
  want(kOne);
  const std::string token = token_of("default/eval");
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(call(token, "HEAD", "/v1/artifacts/model").status, 404);
  EXPECT_EQ(call(token, "HEAD", "/v1/artifacts/.wrong").status, 404) << "this agent has none";
  EXPECT_EQ(call(token, "GET", "/v1/artifacts/model").status, 405);
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(lines_with(log, "worker request rejected"), 1u) << log;
  EXPECT_NE(log.find("status=405"), std::string::npos) << log;
}

/// Returns the violation of the document's schema, or "". Supports the subset of JSON Schema that
/// the document uses.
std::string unlike(const Json& document, const Json& schema, const Json& value,
                   const std::string& at) {
  if (schema.contains("$ref")) {
    const std::string ref = schema["$ref"].as_string();
    CHECK(ref.starts_with("#/"));
    const Json& target = document.at(ref.substr(2));
    if (target.is_null()) return at + ": no such schema " + ref;
    return unlike(document, target, value, at);
  }
  const std::string type = schema["type"].as_string();
  const bool fits =
      type.empty() || (type == "object" && value.is_object()) ||
      (type == "array" && value.is_array()) || (type == "string" && value.is_string()) ||
      (type == "integer" && value.is_integer()) || (type == "number" && value.is_number()) ||
      (type == "boolean" && value.is_bool());
  if (!fits) return at + ": no " + type;
  if (schema["enum"].is_array()) {
    bool any = false;
    for (const Json& one : schema["enum"].as_array()) any = any || one == value;
    if (!any) return at + ": none of the words it may be";
  }
  for (const Json& name : schema["required"].as_array())
    if (!value.contains(name.as_string())) return at + ": without " + name.as_string();
  for (const auto& [name, member] : value.as_object()) {
    const Json* known = schema["properties"].find(name);
    if (known == nullptr) known = schema.find("additionalProperties");
    if (known == nullptr || *known == Json(true)) continue;
    if (*known == Json(false)) return at + ": has " + name + " too";
    if (const std::string why = unlike(document, *known, member, at + "." + name); !why.empty())
      return why;
  }
  for (const Json& item : value.as_array())
    if (const std::string why = unlike(document, schema["items"], item, at + "[]"); !why.empty())
      return why;
  return "";
}

class Document : public Workers {
 protected:
  static Json read() {
    std::ifstream file(std::string(VARDA_SOURCE_DIR) + "/docs/reference/worker-api.yaml");
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    return codec::parse_yaml(text).value();
  }
  static std::string lower(std::string_view text) {
    std::string out(text);
    for (char& c : out) c = static_cast<char>(c | 0x20);
    return out;
  }
  const Json document = read();
};

TEST_F(Document, DocumentListsExactlyTheServedRoutes) {
  std::set<std::string> served, described;
  for (const Api::Route& route : Api::routes())
    served.insert(lower(route.method) + " " + std::string(route.path));
  for (const auto& [path, item] : document["paths"].as_object()) {
    for (const auto& [method, operation] : item.as_object())
      if (method != "parameters") described.insert(method + " " + path);
  }
  EXPECT_EQ(served, described);
}

TEST_F(Document, ServerAcceptsExamplesAndAnswersAsDescribed) {
  want(kOne);
  int examples = 0;
  for (const auto& [path, item] : document["paths"].as_object()) {
    for (const auto& [method, operation] : item.as_object()) {
      if (method == "parameters" || path == "/v1/artifacts/{name}") continue;  // api_artifacts_test
      if (path == "/v1/streams/{name}") continue;                              // streams_test
      const Json& content = operation.at("requestBody/content")["application/json"];
      std::vector<Json> bodies;
      for (const auto& [name, example] : content["examples"].as_object())
        bodies.push_back(example["value"]);
      if (operation["requestBody"].is_null()) bodies.emplace_back();
      ASSERT_FALSE(bodies.empty()) << path;
      for (const Json& body : bodies) {
        EXPECT_EQ(body.is_null() ? "" : unlike(document, content["schema"], body, "body"), "")
            << path;
        std::string target = path, verb = method;
        for (char& c : verb) c = static_cast<char>(c & ~0x20);
        if (const auto brace = target.find('{'); brace != std::string::npos)
          target = target.substr(0, brace) + "final";
        const Answer answer = call(token_of("default/eval"), verb, target,
                                   body.is_null() ? "" : codec::write_json(body));
        const Json* described = operation["responses"].find(std::to_string(answer.status));
        ASSERT_NE(described, nullptr) << path << " " << answer.status << " " << answer.message();
        EXPECT_LT(answer.status, 300) << path << " " << answer.message();
        const Json& schema = described->at("content")["application/json"]["schema"];
        ASSERT_FALSE(schema.is_null()) << path;
        EXPECT_EQ(unlike(document, schema, answer.body, "answer"), "") << path;
        for (const auto& [name, example] :
             described->at("content")["application/json"]["examples"].as_object())
          EXPECT_EQ(unlike(document, schema, example["value"], "example"), "") << path;
        ++examples;
      }
    }
  }
  EXPECT_GE(examples, 5);
  // The document and the server have the same members.
  const Json& schemas = document.at("components/schemas");
  for (const auto& [schema, target] : {std::pair("Registration", "POST /v1/register"),
                                       {"Progress", "PUT /v1/progress"},
                                       {"Metrics", "PUT /v1/metrics"},
                                       {"Result", "PUT /v1/results/x"}}) {
    const std::string where = target;
    const auto blank = where.find(' ');
    std::set<std::string> described;
    for (const auto& [name, member] : schemas[schema]["properties"].as_object())
      described.insert(name);
    const std::string message = call(token_of("default/eval"), where.substr(0, blank),
                                     where.substr(blank + 1), R"({"zzzzzzzzzzzz": 1})")
                                    .message();
    std::set<std::string> taken;
    std::string names = message.substr(message.find("expected ") + 9) + ", ";
    for (std::size_t comma = 0; (comma = names.find(", ")) != std::string::npos;
         names = names.substr(comma + 2))
      taken.insert(names.substr(0, comma));
    EXPECT_EQ(taken, described) << schema;
  }
}

TEST_F(Document, DocumentDescribesRefusals) {
  want(kOne);
  const std::string token = token_of("default/eval");
  const Json& schema = document.at("components/schemas/Status");
  ASSERT_FALSE(schema.is_null());
  const auto refused = [&](const Answer& answer, const char* path, const char* method, int status) {
    EXPECT_EQ(answer.status, status);
    EXPECT_EQ(unlike(document, schema, answer.body, "Status"), "");
    EXPECT_TRUE(document["paths"][path][method]["responses"].contains(std::to_string(status)))
        << path << " " << status;
  };
  for (const auto& [path, item] : document["paths"].as_object()) {
    for (const auto& [method, operation] : item.as_object()) {
      if (method == "parameters") continue;
      for (const char* status : {"400", "401", "429", "503"})
        EXPECT_TRUE(operation["responses"].contains(status)) << path << " " << status;
    }
  }
  refused(call("", "GET", "/v1/assignment"), "/v1/assignment", "get", 401);
  refused(call(token, "GET", "/v1/assignment?x=1"), "/v1/assignment", "get", 400);
  refused(call(token, "PUT", "/v1/results/a", std::string(40000, ' ')), "/v1/results/{name}", "put",
          413);
  refused(call(token, "POST", "/v1/register", R"({"version": "1", "worker": "default/b"})"),
          "/v1/register", "post", 403);
  disk_->full = true;
  refused(call(token, "PUT", "/v1/results/a", R"({"data": 1})"), "/v1/results/{name}", "put", 503);
}

}  // namespace manager_test
}  // namespace varda::agent::workers
