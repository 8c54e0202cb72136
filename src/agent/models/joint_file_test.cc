// joint.json and tier counters of a node, over a disk that may fail, in virtual time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "agent/models/manager.h"
#include "net/http.h"
#include "node/testing/fakes.h"
#include "os/testing/memory_file_system.h"

namespace varda::agent::models {
namespace joint_file_test {

using codec::Json;
using codec::Sha256;
using std::chrono::seconds;
using ::testing::HasSubstr;

constexpr const char* kFile = "/models/default/digits.edge/joint.json";

/// Has every archive installed.
class FullStore final : public artifact::Store {
 public:
  artifact::Outcome<artifact::Installed> ensure(const Context&, const artifact::Request&,
                                                const artifact::ProgressSink&) override {
    return artifact::Installed{.directory = "/artifacts/one", .bytes = 1};
  }
  std::optional<artifact::Installed> find(const Sha256&) override {
    return artifact::Installed{.directory = "/artifacts/one", .bytes = 1};
  }
  std::vector<Sha256> list() const override { return {}; }
  std::uint64_t bytes() const override { return 0; }
  void keep(std::set<Sha256>) override {}
  Result<std::uint64_t> evict(std::uint64_t) override { return std::uint64_t{0}; }
  Status remove(const Sha256&) override { return {}; }
};

/// The model's server, as far as the agent uses it.
class Server final : public net::HttpClient {
 public:
  std::string joint;                   // the answer about tiers; "": 404
  std::vector<std::string> requested;  // requests about tiers
  int joint_status = 200;
  static constexpr const char* kIndex = R"([{"name": "digits", "version": "3", "state": "READY"}])";
  std::string index = kIndex;
  bool away = false;

  Result<net::ClientResponse> send(const Context& ctx, net::ClientRequest request) override {
    if (away || !request.url.starts_with(kUrl))
      return Error(Code::kUnavailable, "no route to host");
    request.url.erase(0, std::string(kUrl).size());
    return answers_->send(ctx, std::move(request));
  }
  static constexpr const char* kUrl = "http://127.9.0.1:9000";

 private:
  const std::unique_ptr<net::HttpClient> answers_ =
      net::loopback(net::inline_handler([this](const net::Request& request) {
        net::Response out;
        out.body = index;
        if (request.method == "POST") return out;
        requested.emplace_back(request.path());
        out.body = joint;
        out.status = joint.empty() ? 404 : joint_status;
        return out;
      }));
};

/// A manager that can be restarted over the same disk.
class JointFile : public ::testing::Test {
 protected:
  JointFile() {
    CHECK(fs.make_directories("/artifacts/one", 0755).ok());
    CHECK(os::write_file_atomically(fs, "/artifacts/one/model.onnx", "one").ok());
    start();
  }
  void start() {
    manager.reset();
    tree = artifact::ModelTree::open(fs, "/models").value();
    manager = std::make_unique<Manager>(Manager::Options{.clock = &clock}, store, *tree, fs, http,
                                        *state_store, *rng);
    manager->on_publish([this] {
      published = {};
      (void)manager->put_report(published, {});
      if (on_publish) on_publish();
    });
    if (list) manager->apply(*list);
    manager->load();
    tasks = manager->tasks();
    run();
  }
  void want(const std::string& joint, const std::string& target = "3",
            const std::string& serving = "") {
    Json model = Json::object({{"key", "default/digits.edge"},
                               {"modelName", "digits"},
                               {"framework", "onnx"},
                               {"target", target}});
    Json version = Json::object(
        {{"version", "3"}, {"url", "http://files/3"}, {"sha256", Sha256::of("3").hex()}});
    model.set("versions", Json::array({std::move(version)}));
    if (!serving.empty()) model.set("serving", Json::object({{"url", serving}}));
    if (!joint.empty()) model.set("joint", codec::parse_json(joint).value());
    want_models(Json::array({std::move(model)}));
  }
  void want_models(Json models) {
    auto node = api::EdgeNode::from_json(Json::object(
        {{"apiVersion", api::EdgeNode::resource().api_version()},
         {"kind", api::EdgeNode::resource().kind},
         {"metadata",
          Json::object({{"name", "edge0"}, {"uid", "n1"}, {"generation", ++generation}})},
         {"spec", Json::object({{"models", std::move(models)},
                                {"later", true}})}}));  // "no models" is an assignment as well
    CHECK(node.ok());
    list = core::WorkList{{node->metadata.uid, node->metadata.generation}, node->spec};
    manager->adopt({});
    manager->apply(*list);
    run();
  }
  /// Runs everything that is due.
  void run() {
    for (int round = 0; round < 10; ++round)
      for (const runtime::Task& task : tasks)
        if (const auto due = task.due(); due && *due <= clock.now()) task.step(ctx);
  }
  void pass(seconds time) {
    clock.advance(time);
    run();
  }
  std::string file() {
    const auto text = os::read_file(fs, kFile);
    return text.ok() ? *text : "";
  }
  std::uint64_t inode() { return (*fs.stat(kFile))->inode; }
  std::string target() { return tree->target("default/digits.edge").value().value_or(""); }
  /// "STATE REASON" of the version, and the reason of the joint's problem.
  std::string summary() {
    if (published.models.empty()) return "nothing";
    const api::EdgeModelReport& model = published.models[0];
    return model.versions[0].state + " " + model.versions[0].reason + ", " +
           model.joint.at("problem/reason").as_string();
  }

  Context ctx;
  node::testing::ManualClock clock;
  os::testing::MemoryFileSystem fs;
  Server http;
  FullStore store;
  std::unique_ptr<Rng> rng = seeded_rng(1);
  std::unique_ptr<core::StateStore> state_store = core::StateStore::in_memory();
  std::int64_t generation = 0;
  std::optional<core::WorkList> list;
  api::EdgeNodeStatus published;
  std::function<void()> on_publish;
  std::optional<artifact::ModelTree> tree;
  std::unique_ptr<Manager> manager;
  std::vector<runtime::Task> tasks;
};

TEST_F(JointFile, FileIsWrittenBeforeFirstTargetAndFollowsWorkList) {
  bool in_order = true;
  fs.on_call([&](std::string_view call, const os::Path& path) -> Status {
    if (call == "rename" && path.filename() == ".new-line" && target().empty() && file().empty() &&
        fs.stat(path.parent_path() / "3")->has_value())
      in_order = false;
    return {};
  });
  want(R"({"version": 1})");
  fs.on_call({});
  EXPECT_TRUE(in_order) << "a version was shown before the tiers were there";
  EXPECT_EQ(file(), "{\"version\":1}\n");
  EXPECT_EQ(target(), "3");
  EXPECT_EQ(summary(), "Ready , ");
  want(R"({"version": 2})");
  EXPECT_EQ(file(), "{\"version\":2}\n");
  want("");
  EXPECT_EQ(file(), "");
  EXPECT_EQ(target(), "3");
  want(R"({"version": 3})", "");
  EXPECT_EQ(file(), "{\"version\":3}\n");
  want_models(Json::array());
  EXPECT_TRUE(tree->keys()->empty());
}

TEST_F(JointFile, UnchangedFileIsNotRewrittenAndLostFileIsRestored) {
  want(R"({"version": 1, "tiers": []})");
  const std::uint64_t before = inode();
  want(R"({"tiers": [], "version": 1})");
  start();
  pass(seconds(300));
  EXPECT_EQ(inode(), before);
  // The file was lost: it is written again from the state store, without a network.
  ASSERT_TRUE(fs.remove(kFile).ok());
  start();
  EXPECT_EQ(file(), "{\"tiers\":[],\"version\":1}\n") << "as it was last wanted";
  EXPECT_EQ(target(), "3");
}

TEST_F(JointFile, FullDiskDelaysFirstVersionUntilFileIsWritten) {
  fs.on_call([](std::string_view call, const os::Path& path) -> Status {
    return call == "write" && path.filename() == ".new-line"
               ? Status(Error(Code::kExhausted, "no space left on device"))
               : Status();
  });
  want(R"({"version": 1})");
  EXPECT_EQ(summary(), "Failed DiskFull, DiskFull");
  EXPECT_EQ(target(), "");
  EXPECT_EQ(published.models[0].versions[0].message,
            "joint.json cannot be written: no space left on device");
  fs.on_call({});
  pass(seconds(5));
  EXPECT_EQ(summary(), "Ready , ");
  EXPECT_EQ(target(), "3");
  EXPECT_EQ(file(), "{\"version\":1}\n");
}

TEST_F(JointFile, FullDiskKeepsOldFileAndReportsDiskFull) {
  want(R"({"version": 1})");
  fs.on_call([](std::string_view call, const os::Path&) -> Status {
    return call == "write" ? Status(Error(Code::kExhausted, "no space left on device")) : Status();
  });
  want(R"({"version": 2})");
  EXPECT_EQ(file(), "{\"version\":1}\n");
  EXPECT_EQ(summary(), "Ready , DiskFull");
  EXPECT_EQ(target(), "3");
  fs.on_call({});
  pass(seconds(5));
  EXPECT_EQ(summary(), "Ready , ");
  EXPECT_EQ(file(), "{\"version\":2}\n");
}

TEST_F(JointFile, OversizedFileIsRefusedAndOldFileStays) {
  want(R"({"version": 1})");
  want("{\"version\": 2, \"service\": \"" + std::string(Manager::kJointBytesMax, 'x') + "\"}");
  EXPECT_EQ(file(), "{\"version\":1}\n");
  EXPECT_EQ(summary(), "Ready , Refused");
  want(R"({"version": 3})");
  EXPECT_EQ(summary(), "Ready , ");
  EXPECT_EQ(file(), "{\"version\":3}\n");
}

TEST_F(JointFile, ServerCountersAreReportedAndSurviveAgentRestart) {
  http.joint =
      R"({"instance": "a", "counters": {"inferences": 3, "answered": {"edge": 3}}, "tiers": [{"name": "edge", "state": "Ready"}]})";
  want(R"({"version": 1})", "3", Server::kUrl);
  EXPECT_EQ(http.requested.front(), "/v2/models/digits/joint");
  const auto counted = [this] {
    return published.models[0].joint.at("counters/inferences").as_integer(-1);
  };
  ASSERT_EQ(published.models[0].serving->state, "Ready");
  EXPECT_EQ(counted(), 3);
  EXPECT_EQ(published.models[0].joint["tiers"].size(), 1u);
  EXPECT_TRUE(published.models[0].joint["instance"].is_null());
  const std::string epoch = published.models[0].joint["epoch"].as_string();
  EXPECT_EQ(epoch.size(), 36u);
  // The agent is killed while the server restarts.
  http.joint =
      R"({"instance": "b", "counters": {"inferences": 2, "answered": {"edge": 2}}, "tiers": [{"name": "edge", "state": "Ready"}]})";
  start();
  for (int second = 0; second < 20; ++second) pass(seconds(1));
  EXPECT_EQ(counted(), 5);
  EXPECT_EQ(published.models[0].joint["epoch"].as_string(), epoch);
  // An idle server is polled, but causes no report.
  const std::size_t before = http.requested.size();
  int updated = 0;
  on_publish = [&updated] { ++updated; };
  for (int second = 0; second < 60; ++second) pass(seconds(1));
  EXPECT_EQ(updated, 0);
  EXPECT_GE(http.requested.size(), before + 25);
  EXPECT_LE(http.requested.size(), before + 35);
  // Answers without tiers, and invalid answers, change nothing. A model without tiers is not
  // polled.
  for (const char* answer :
       {"", "[", R"({"instance": "b", "counters": {"inferences": -2}, "tiers": []})"}) {
    http.joint = answer;
    for (int second = 0; second < 20; ++second) pass(seconds(1));
    EXPECT_EQ(counted(), 5);
  }
  want("", "3", Server::kUrl);
  http.requested.clear();
  for (int second = 0; second < 20; ++second) pass(seconds(1));
  EXPECT_TRUE(http.requested.empty());
  EXPECT_TRUE(published.models[0].joint.is_null());
}

TEST_F(JointFile, AgentStopSavesLastServerCounters) {
  const auto counted = [this] {
    return published.models[0].joint.at("counters/inferences").as_integer(-1);
  };
  http.joint = R"({"instance": "a", "counters": {"inferences": 3}, "tiers": []})";
  want(R"({"version": 1})", "3", Server::kUrl);
  ASSERT_EQ(counted(), 3);
  // Both stop, the agent first.
  http.joint = R"({"instance": "a", "counters": {"inferences": 8}, "tiers": []})";
  manager->finish();
  http.joint = R"({"instance": "b", "counters": {"inferences": 1}, "tiers": []})";
  start();
  for (int second = 0; second < 20; ++second) pass(seconds(1));
  EXPECT_EQ(counted(), 9);
}

// Persistent errors appear in the log, but do not flood it.
TEST_F(JointFile, RejectedAnswerIsLoggedOncePerReason) {
  const std::string good = R"({"instance": "a", "counters": {"inferences": 3}, "tiers": []})";
  const auto logged = [&](const std::string& answer, int status = 200) {
    ::testing::internal::CaptureStderr();
    pass(seconds(61));
    for (int second = 0; second < 30; ++second) {
      http.joint = answer;
      http.joint_status = status;
      pass(seconds(2));
      http.joint = good;  // valid answers in between
      http.joint_status = 200;
      if (second % 7 == 3) pass(seconds(2));
    }
    pass(seconds(122));
    const std::string log = ::testing::internal::GetCapturedStderr();
    const std::string line = "tier statistics of a model server rejected";
    const std::size_t at = log.find(line);
    if (at == std::string::npos) return std::string();
    EXPECT_EQ(log.find(line, at + 1), std::string::npos) << log;
    return log.substr(at, log.find('\n', at) - at);
  };
  http.joint = good;
  want(R"({"version": 1})", "3", Server::kUrl);
  EXPECT_EQ(logged(good), "");
  EXPECT_EQ(logged("", 404), "") << "it knows of no tiers, or of none yet";
  EXPECT_THAT(logged("{\"instance\": \"a\", \"more\": \"" + std::string(256 << 10, 'x') + "\"}"),
              HasSubstr("more than 256 KiB"));
  EXPECT_THAT(logged("{\"instance\""), HasSubstr("model=default/digits.edge error=\"invalid: "));
  EXPECT_THAT(logged("[]"), HasSubstr("it is not an object"));
  EXPECT_THAT(logged("oops", 500), HasSubstr("HTTP 500"));
  EXPECT_EQ(published.models[0].joint.at("counters/inferences").as_integer(), 3)
      << "what was taken stays";
}

TEST_F(JointFile, UnreadableVersionStatusIsReportedAndLoggedOnce) {
  http.joint = R"({"instance": "a", "counters": {"inferences": 3}, "tiers": []})";
  want(R"({"version": 1})", "3", Server::kUrl);
  pass(seconds(1));
  ASSERT_EQ(published.models[0].serving->state, api::EdgeServingReport::kReady);
  for (const auto& [index, why] : {std::pair<std::string, std::string>{"<html>", "cannot be read"},
                                   {"[\"" + std::string(1 << 20, 'x') + "\"]", "cannot be read"}}) {
    http.index = index;
    ::testing::internal::CaptureStderr();
    for (int i = 0; i < 30; ++i) pass(seconds(2));
    const std::string log = ::testing::internal::GetCapturedStderr();
    const std::string line = "version status of a model server unreadable";
    EXPECT_NE(log.find(line), std::string::npos) << log;
    EXPECT_EQ(log.find(line), log.rfind(line)) << log;
    EXPECT_EQ(published.models[0].serving->state, api::EdgeServingReport::kUnreachable);
    EXPECT_THAT(published.models[0].serving->message, HasSubstr(why));
    http.index = Server::kIndex;
    for (int i = 0; i < 40; ++i) pass(seconds(2));
    EXPECT_EQ(published.models[0].serving->state, api::EdgeServingReport::kReady);
  }
}

TEST_F(JointFile, AgentStopSkipsUnresponsiveServer) {
  http.joint = R"({"instance": "a", "counters": {"inferences": 3}, "tiers": []})";
  want(R"({"version": 1})", "3", Server::kUrl);
  http.away = true;
  for (int second = 0; second < 20; ++second) pass(seconds(1));
  const std::size_t before = http.requested.size();
  http.away = false;
  manager->finish();
  EXPECT_EQ(http.requested.size(), before);
}

TEST_F(JointFile, TotalSizeOfTierReportsIsBounded) {
  http.joint = R"({"instance": "a", "counters": {"n": 1}, "tiers": [], "more": ")" +
               std::string(12 << 10, 'x') + "\"}";
  Json models = Json::array();
  for (int i = 10; i < 60; ++i) {
    Json version = Json::object(
        {{"version", "3"}, {"url", "http://files/3"}, {"sha256", Sha256::of("3").hex()}});
    models.push_back(Json::object({{"key", "default/m" + std::to_string(i) + ".edge"},
                                   {"modelName", "digits"},
                                   {"target", "3"},
                                   {"versions", Json::array({std::move(version)})},
                                   {"serving", Json::object({{"url", Server::kUrl}})},
                                   {"joint", Json::object({{"version", 1}})}}));
  }
  want_models(std::move(models));
  pass(seconds(1));
  ASSERT_EQ(published.models.size(), 50u);
  EXPECT_EQ(published.models.front().joint.at("counters/n").as_integer(), 1);
  EXPECT_EQ(published.models.back().joint.at("problem/reason").as_string(), "TooMuch");
  EXPECT_LT(codec::write_json(published.to_json()).size(), 512u << 10);
}

// Whatever call fails, a server never finds a version without its tiers, and a working disk repairs
// everything.
TEST_F(JointFile, WorkingDiskRepairsStateAfterAnyFailedCall) {
  for (int nth = 1; nth < 200; ++nth) {
    want_models(Json::array());
    ASSERT_TRUE(tree->keys()->empty());
    bool fault = false;
    int seen = 0;
    fs.on_call([&](std::string_view, const os::Path&) -> Status {
      if (++seen != nth) return {};
      fault = true;
      return Error(Code::kInternal, "input/output error");
    });
    want(R"({"version": 1})");
    fs.on_call({});
    if (!target().empty()) {
      EXPECT_EQ(file(), "{\"version\":1}\n") << nth;
    }
    for (int minute = 0; minute < 3; ++minute) pass(seconds(61));
    EXPECT_EQ(summary(), "Ready , ") << nth;
    EXPECT_EQ(target(), "3") << nth;
    EXPECT_EQ(file(), "{\"version\":1}\n") << nth;
    if (!fault) return;
  }
  FAIL() << "there is no end of calls";
}

}  // namespace joint_file_test
}  // namespace varda::agent::models
