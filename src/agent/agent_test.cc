// The agent over the real API server in memory, a real HTTP file server and the machine's disk.
#include "agent/agent.h"

#include <fstream>
#include <gtest/gtest.h>
#include <sstream>
#include <thread>
#include <unistd.h>

#include "api/edgeai/edge_node.h"
#include "api/kind.h"
#include "apiserver/testing/in_memory.h"
#include "artifact/testing/archives.h"
#include "codec/yaml.h"
#include "net/client.h"
#include "net/server.h"

namespace varda::agent {
namespace agent_test {

using artifact::testing::model_archive;
using artifact::testing::TarBuilder;
using codec::Json;
using codec::Sha256;

constexpr const char* kNode = "/apis/edgeai.io/v1alpha1/edgenodes/edge0";

/// Serves files by path, and a model server's repository index, over a real socket.
class FileServer {
 public:
  FileServer() {
    server_ = net::Server::create({}, net::inline_handler([this](const net::Request& request) {
                                    return answer(request);
                                  }))
                  .value();
  }
  ~FileServer() { server_->stop(std::chrono::milliseconds(0)); }
  std::string url(const std::string& path = "") const {
    return "http://" + server_->address() + path;
  }
  void put(const std::string& path, std::string bytes) {
    const MutexLock lock(mutex_);
    files_[path] = std::move(bytes);
  }
  int requests() const { return requests_; }  // for files
  int polls() const { return polls_; }        // of the repository index

 private:
  net::Response answer(const net::Request& request) {
    const MutexLock lock(mutex_);
    net::Response response;
    ++(request.method == "GET" ? requests_ : polls_);
    const auto found = files_.find(std::string(request.path()));
    if (found == files_.end()) {
      response.status = 404;
    } else {
      response.body = found->second;
    }
    return response;
  }
  Mutex mutex_;
  std::map<std::string, std::string> files_ GUARDED_BY(mutex_);
  std::atomic<int> requests_ = 0, polls_ = 0;
  std::unique_ptr<net::Server> server_;
};

class AgentTest : public ::testing::Test {
 protected:
  AgentTest() {
    std::string pattern = ::testing::TempDir() + "varda-agent-XXXXXX";
    CHECK(mkdtemp(pattern.data()) != nullptr);
    data = pattern;
    authorizer = apiserver::node_authorizer();
    apiserver::InMemoryApiServer::Options options;
    options.server.authorizer = authorizer.get();
    options.crds = api::crds();
    api = std::make_unique<apiserver::InMemoryApiServer>(std::move(options));
    // A switch between agent and API server; down: requests are refused.
    auto node = std::shared_ptr(
        api->transport_as({.name = "system:node:edge0", .groups = {"system:nodes"}}));
    transport = std::make_unique<Switch>(std::move(node), link_up);
    client = std::make_unique<kube::Client>(*transport, kube::Client::Options{});
    http = net::make_client({});
  }
  ~AgentTest() override {
    stop_agent();
    std::error_code ignored;
    std::filesystem::remove_all(data, ignored);
  }

  class Switch final : public net::HttpClient {
   public:
    Switch(std::shared_ptr<net::HttpClient> next, const std::atomic<bool>& up)
        : next_(std::move(next)), up_(up) {}
    Result<net::ClientResponse> send(const Context& ctx, net::ClientRequest request) override {
      if (!up_) return Error(Code::kUnavailable, "no route to host");
      if (request.method != "GET") {
        const MutexLock lock(mutex_);
        if (!is_about_disk(request))
          writes_.push_back(request.method + " " + request.url + " " + request.body);
      } else if (request.url.find("watch=") != std::string::npos) {
        ++watches_;
      }
      return next_->send(ctx, std::move(request));
    }
    /// All writes of the agent, except disk figures, which other programs change.
    std::vector<std::string> writes() {
      const MutexLock lock(mutex_);
      return writes_;
    }
    int watches() const { return watches_; }

   private:
    static bool is_about_disk(const net::ClientRequest& request) {
      const auto body = codec::parse_json(request.body);
      if (!body.ok()) return false;
      const Json& status = std::as_const(*body)["status"];
      const Json& summary = status["summary"];  // contains the figure as text
      const bool summary_of_disk =
          summary.is_null() || (summary.size() == 1 && summary.contains("disk"));
      return status.contains("disk") && summary_of_disk &&
             status.size() == (summary.is_null() ? 1u : 2u);
    }
    std::shared_ptr<net::HttpClient> next_;
    const std::atomic<bool>& up_;
    std::atomic<int> watches_ = 0;
    Mutex mutex_;
    std::vector<std::string> writes_ GUARDED_BY(mutex_);
  };

  void start_agent(Runner runner = Runner::kNone, std::map<std::string, std::string> images = {}) {
    Options options;
    options.node_name = "edge0";
    options.data_directory = data;
    options.runner = runner;
    options.on_stop = OnStop::kEndContainers;
    options.stop_grace = std::chrono::milliseconds(500);
    options.images = std::move(images);
    options.retry_first = std::chrono::milliseconds(20);
    options.poll_busy = std::chrono::milliseconds(20);
    options.poll_steady = std::chrono::milliseconds(50);
    options.link_backoff_max = std::chrono::milliseconds(200);
    options.watch_timeout = watch_timeout;
    options.reporter = reporter;
    options.until = until;
    options.node_period = std::chrono::milliseconds(20);
    options.metrics = &registry;
    auto opened = Agent::open(std::move(options), *client, *http);
    ASSERT_TRUE(opened.ok()) << opened.error();
    agent = std::move(*opened);
    thread = std::jthread(
        [this](const std::stop_token& stop) { EXPECT_TRUE(agent->run(Context(stop)).ok()); });
  }
  void stop_agent() {
    thread = {};  // stops and joins
    agent.reset();
  }

  static Json version(const std::string& name, const std::string& url, const std::string& archive) {
    return Json::object({{"version", name}, {"url", url}, {"sha256", Sha256::of(archive).hex()}});
  }
  /// Writes the spec like the operator, once the agent has created the object.
  void set_model(const Json& versions, const std::string& target, const std::string& serving = "") {
    Json model = Json::object({{"key", "default/digits"},
                               {"modelName", "digits"},
                               {"framework", "onnx"},
                               {"versions", versions},
                               {"target", target}});
    if (!serving.empty()) model.set("serving", Json::object({{"url", serving}}));
    set_models(Json::array({model}));
  }
  void set_models(Json models) {
    eventually([this] { return api->get(kNode).status == 200; });
    const auto reply = api->merge_patch(
        kNode, Json::object({{"spec", Json::object({{"models", std::move(models)}})}}));
    ASSERT_EQ(reply.status, 200) << reply.text;
    generation = reply.body.at("metadata/generation").as_integer();
  }
  const Json status() {
    return api->get(kNode).body.at("status");
  }  // const: reading must not make members
  std::string exposed() {
    return status()["models"].as_array().empty()
               ? ""
               : status()["models"].as_array()[0]["exposed"].as_string();
  }
  const Json version_report(const std::string& name) {
    const Json now = status();
    for (const Json& model : now["models"].as_array())
      for (const Json& one : model["versions"].as_array())
        if (one["version"].as_string() == name) return one;
    return {};
  }
  std::string serving_version() {
    const Json now = status();
    return now["models"].as_array().empty()
               ? ""
               : now["models"].as_array()[0].at("serving/version").as_string();
  }

  template <typename Condition>
  void eventually(Condition condition) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!condition()) {
      ASSERT_LT(std::chrono::steady_clock::now(), end) << codec::write_yaml(api->get(kNode).body);
      std::this_thread::sleep_for(
          std::chrono::milliseconds(5));  // polls an external effect; bounded by `end`
    }
  }
  std::string text(const os::Path& path) {
    std::ifstream in(path);
    std::stringstream out;
    out << in.rdbuf();
    return out.str();
  }

  os::Path data;
  std::unique_ptr<apiserver::Authorizer> authorizer;
  std::unique_ptr<apiserver::InMemoryApiServer> api;
  std::atomic<bool> link_up = true;
  std::chrono::seconds watch_timeout{10};
  meta::Reporter reporter = meta::Reporter::kThisMachine;
  Until until = Until::kStopped;
  std::unique_ptr<Switch> transport;
  std::unique_ptr<kube::Client> client;
  std::unique_ptr<net::HttpClient> http;
  metrics::Registry registry;
  FileServer files;
  std::int64_t generation = 0;
  std::unique_ptr<Agent> agent;
  std::jthread thread;
  const std::string three = model_archive("three"), four = model_archive("four");
};

TEST_F(AgentTest, AgentCreatesEdgeNodeAndReportsModelRoot) {
  start_agent();
  eventually([this] { return !status()["modelRoot"].as_string().empty(); });
  const Json now = status();
  EXPECT_EQ(now["modelRoot"].as_string(), (data / "models").string());
  EXPECT_EQ(now["address"].as_string(), agent->node_address());
  EXPECT_EQ(now["agentVersion"].as_string(), VARDA_VERSION);
  EXPECT_GT(now.at("disk/capacityBytes").as_integer(), 0);
}

/// The EdgeNode that the operator makes for the agent of a Job.
class JobAgentTest : public AgentTest {
 protected:
  void assign() {
    const Json spec = Json::object(
        {{"models", Json::array({Json::object(
                        {{"key", "default/run.training-worker"},
                         {"versions", Json::array({version("3", files.url("/3"), three)})},
                         {"target", "3"}})})},
         {"workers", Json::array({Json::object({{"key", "default/run-training-worker"},
                                                {"uid", "u"},
                                                {"owner", "TrainingModel/run"},
                                                {"assignment", Json::object()}})})}});
    const auto reply = api->post("/apis/edgeai.io/v1alpha1/edgenodes",
                                 Json::object({{"apiVersion", "edgeai.io/v1alpha1"},
                                               {"kind", "EdgeNode"},
                                               {"metadata", Json::object({{"name", "edge0"}})},
                                               {"spec", spec}}));
    ASSERT_EQ(reply.status, 201) << reply.text;
  }
  void install() {
    until = Until::kInstalled;
    start_agent();
    assign();
    thread.join();
    stop_agent();
  }
  const os::Path token() { return data / "workers/default/run-training-worker/token"; }
};

TEST_F(JobAgentTest, EndsOnceFilesAndTokensAreOnTheDisk) {
  until = Until::kInstalled;
  start_agent();
  eventually([this] { return transport->watches() >= 1; });
  assign();  // fails if the agent has made the EdgeNode
  eventually([this] { return version_report("3")["reason"].as_string() == "DownloadFailed"; });
  EXPECT_EQ(text(data / "models/default/run.training-worker/target"), "");
  files.put("/3", three);
  thread.join();
  EXPECT_EQ(text(data / "models/default/run.training-worker/target"), "3\n");
  EXPECT_NE(text(token()), "");
  EXPECT_EQ(exposed(), "3");
}

TEST_F(JobAgentTest, EndsOnceTheRunHasNoWorker) {
  files.put("/3", three);
  install();
  until = Until::kUnassigned;
  start_agent();
  const int first = transport->watches();
  eventually([&] { return transport->watches() > first && exposed() == "3"; });
  ASSERT_EQ(
      api->merge_patch(kNode, Json::object({{"spec", Json::object({{"workers", Json::array()}})}}))
          .status,
      200);
  thread.join();
}

TEST_F(JobAgentTest, EndsOnceItsEdgeNodeIsGoneAndMakesNoOther) {
  files.put("/3", three);
  install();
  until = Until::kUnassigned;
  start_agent();
  const int first = transport->watches();
  eventually([&] { return transport->watches() > first; });
  ASSERT_EQ(api->remove(kNode).status, 200);
  thread.join();
  EXPECT_EQ(api->get(kNode).status, 404);
  // A restarted container finds the same.
  stop_agent();
  start_agent();
  thread.join();
  EXPECT_EQ(api->get(kNode).status, 404);
}

TEST_F(AgentTest, AgentOnAnotherMachineReportsNoLoopbackNodeAddress) {
  reporter = meta::Reporter::kAnotherMachine;
  start_agent(Runner::kProcess, {{"sleeper", "/bin/sleep 1000"}});
  eventually(
      [this] { return !api->get("/api/v1/nodes/edge0").body.at("status/addresses").empty(); });
  const auto report_problems = [&](const char* kind, const std::string& path) {
    return meta::address_problems(kind, api->get(path).body["status"], reporter).size();
  };
  EXPECT_EQ(report_problems("Node", "/api/v1/nodes/edge0"), 0u);
  constexpr const char* kPods = "/api/v1/namespaces/default/pods";
  for (const std::string name : {"own", "host"}) {
    Json pod =
        *codec::parse_json(R"({"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"default"},
      "spec":{"nodeName":"edge0","terminationGracePeriodSeconds":5,"containers":[{"name":"server","image":"sleeper"}]}})");
    pod["metadata"].set("name", name);
    pod["spec"].set("hostNetwork", name == "host");
    ASSERT_EQ(api->post(kPods, pod).status, 201);
    const std::string path = std::string(kPods) + "/" + name;
    eventually([&] { return api->get(path).body.at("status/phase").as_string() == "Running"; });
    EXPECT_FALSE(api->get(path).body.at("status/podIP").as_string().empty())
        << "the agent asks its model servers there";
    EXPECT_EQ(report_problems("Pod", path), 0u) << name;
    EXPECT_FALSE(api->get(path).body["status"].contains("hostIP"));
    api->remove(path);
    eventually([&] { return api->get(path).status == 404; });
  }
  eventually([this] { return !status()["modelRoot"].as_string().empty(); });
  EXPECT_FALSE(status().contains("address"));
}

TEST_F(AgentTest, AgentInstallsExposesAndSwitchesTargetVersion) {
  files.put("/3", three);
  files.put("/4", four);
  start_agent();
  set_model(Json::array({version("3", files.url("/3"), three)}), "3");
  eventually([this] { return exposed() == "3"; });
  EXPECT_EQ(text(data / "models/default/digits/target"), "3\n");
  EXPECT_EQ(text(data / "models/default/digits/3/model.onnx"), "three");
  EXPECT_EQ(version_report("3")["state"].as_string(), "Ready");
  // Datasets and workers may observe the list later than models.
  eventually([this] { return status()["observedGeneration"].as_integer() == generation; });

  set_model(
      Json::array({version("3", files.url("/3"), three), version("4", files.url("/4"), four)}),
      "4");
  eventually([this] { return exposed() == "4"; });
  EXPECT_EQ(text(data / "models/default/digits/target"), "4\n");
  EXPECT_EQ(text(data / "models/default/digits/4/model.onnx"), "four");
  EXPECT_EQ(text(data / "models/default/digits/3/model.onnx"), "three") << "the way back stays";
  EXPECT_NE(registry.text().find("varda_agent_installs_total{result=\"Installed\"} 2"),
            std::string::npos)
      << registry.text();
}

TEST_F(AgentTest, WrongDigestKeepsOldTargetAndRollbackClearsFailure) {
  files.put("/3", three);
  files.put("/5", "not what was promised");
  start_agent();
  set_model(Json::array({version("3", files.url("/3"), three)}), "3");
  eventually([this] { return exposed() == "3"; });
  set_model(
      Json::array({version("3", files.url("/3"), three), version("5", files.url("/5"), four)}),
      "5");
  eventually([this] { return version_report("5")["state"].as_string() == "Failed"; });
  EXPECT_EQ(version_report("5")["reason"].as_string(), "DigestMismatch");
  const std::string message = version_report("5")["message"].as_string();
  EXPECT_NE(message.find(Sha256::of(four).hex()), std::string::npos) << message;
  EXPECT_NE(message.find(Sha256::of("not what was promised").hex()), std::string::npos) << message;
  EXPECT_EQ(exposed(), "3");
  EXPECT_EQ(text(data / "models/default/digits/target"), "3\n");
  set_model(Json::array({version("3", files.url("/3"), three)}), "3");
  eventually([this] { return version_report("5").is_null(); });
  EXPECT_EQ(exposed(), "3");
}

TEST_F(AgentTest, MissingArchiveIsRetriedUntilAvailable) {
  start_agent();
  set_model(Json::array({version("3", files.url("/3"), three)}), "3");
  eventually([this] { return version_report("3")["reason"].as_string() == "DownloadFailed"; });
  files.put("/3", three);
  eventually([this] { return exposed() == "3"; });
}

TEST_F(AgentTest, HostileArchiveIsRefusedOnceAndNothingIsExposed) {
  const std::string evil = TarBuilder().file("model.onnx").file("../../evil").tar();
  files.put("/e", evil);
  start_agent();
  set_model(Json::array({version("e", files.url("/e"), evil)}), "e");
  eventually([this] { return version_report("e")["reason"].as_string() == "UnsafeArchive"; });
  EXPECT_EQ(exposed(), "");
  EXPECT_EQ(files.requests(), 1);
  EXPECT_FALSE(std::filesystem::exists(data / "models/default/digits/target"));
}

TEST_F(AgentTest, IdleAgentWritesNothing) {
  watch_timeout = std::chrono::seconds(1);
  files.put("/3", three);
  files.put("/v2/repository/index", R"([{"name":"digits","version":"3","state":"READY"}])");
  start_agent();
  set_model(Json::array({version("3", files.url("/3"), three)}), "3", files.url());
  eventually([this] { return serving_version() == "3"; });
  eventually([this] { return status()["observedGeneration"].as_integer() == generation; });
  // Until a new watch has shown the last write to the agent, the agent may send that write again.
  const int first = transport->watches();
  eventually([&] { return transport->watches() >= first + 2; });
  // The status is complete, so any further write is an error: during polls of the model server, on
  // a new watch, and after a restart.
  const std::vector<std::string> before = transport->writes();
  for (int lives = 0; lives < 2; ++lives) {
    const int polls = files.polls(), watches = transport->watches();
    eventually([&] { return files.polls() >= polls + 20 && transport->watches() >= watches + 2; });
    if (lives == 0) {
      stop_agent();
      start_agent();
    }
  }
  EXPECT_EQ(transport->writes(), before);
}

TEST_F(AgentTest, ServingReportFollowsModelServerIndex) {
  files.put("/3", three);
  files.put("/4", four);
  files.put("/v2/repository/index", R"([{"name":"digits","version":"3","state":"READY"}])");
  start_agent();
  const auto versions =
      Json::array({version("3", files.url("/3"), three), version("4", files.url("/4"), four)});
  set_model(versions, "3", files.url());
  eventually([this] { return serving_version() == "3"; });
  files.put(
      "/v2/repository/index",
      R"([{"name":"digits","version":"3","state":"READY"},{"name":"digits","version":"4","state":"UNAVAILABLE","reason":"bad opset"}])");
  set_model(versions, "4", files.url());
  const auto serving = [this] { return status()["models"].as_array()[0]["serving"]; };
  eventually([&] { return serving()["failedVersion"].as_string() == "4"; });
  EXPECT_EQ(serving()["version"].as_string(), "3");
  EXPECT_EQ(serving()["state"].as_string(), "Ready");
  EXPECT_EQ(serving()["reason"].as_string(), "LoadFailed");
  EXPECT_EQ(serving()["message"].as_string(), "bad opset");
  files.put("/v2/repository/index", R"([{"name":"digits","version":"4","state":"READY"}])");
  eventually([this] { return serving_version() == "4"; });
  EXPECT_EQ(serving()["failedVersion"].as_string(), "");
}

TEST_F(AgentTest, RemovedModelIsHiddenAndItsArtifactStays) {
  files.put("/3", three);
  start_agent();
  set_model(Json::array({version("3", files.url("/3"), three)}), "3");
  eventually([this] { return exposed() == "3"; });
  set_models(Json::array());
  eventually([this] {
    return status()["models"].as_array().empty() &&
           !std::filesystem::exists(data / "models/default");
  });
  EXPECT_TRUE(std::filesystem::exists(data / "artifacts" / Sha256::of(three).hex() / "model.onnx"));
  set_model(Json::array({version("3", files.url("/3"), three)}), "3");
  eventually([this] { return exposed() == "3"; });
  EXPECT_EQ(files.requests(), 1);
}

TEST_F(AgentTest, OfflineRestartWorksFromDiskAndReportsAfterReconnect) {
  files.put("/3", three);
  start_agent();
  set_model(
      Json::array({version("3", files.url("/3"), three), version("4", files.url("/4"), four)}),
      "4");
  eventually([this] { return version_report("3")["state"].as_string() == "Ready"; });
  stop_agent();
  const std::string address = status()["address"].as_string();

  link_up = false;
  files.put("/4", four);  // the file server is up, the API server is down
  start_agent();
  eventually([this] { return text(data / "models/default/digits/target") == "4\n"; });
  EXPECT_EQ(exposed(), "") << "it cannot have been told";
  link_up = true;
  eventually([this] { return exposed() == "4"; });
  EXPECT_EQ(status()["address"].as_string(), address);
  EXPECT_EQ(files.requests() >= 3, true);
}

TEST_F(AgentTest, OfflineRestartReportsServingAndFailuresAfterReconnect) {
  const std::string evil = TarBuilder().file("model.onnx").file("../../evil").tar();
  files.put("/e", evil);
  files.put("/3", three);
  files.put("/v2/repository/index", R"([{"name":"digits","version":"3","state":"READY"}])");
  start_agent();
  set_model(
      Json::array({version("3", files.url("/3"), three), version("e", files.url("/e"), evil)}), "3",
      files.url());
  eventually([this] {
    return serving_version() == "3" && version_report("e")["reason"].as_string() == "UnsafeArchive";
  });
  const auto before = status();
  const int requests = files.requests();

  // The server's state while the API server is down, and after another restart.
  link_up = false;
  files.put("/v2/repository/index",
            R"([{"name":"digits","version":"3","state":"UNAVAILABLE","reason":"out of memory"}])");
  stop_agent();
  start_agent();
  stop_agent();
  start_agent();
  EXPECT_EQ(status(), before) << "it cannot have been told";
  link_up = true;
  eventually([this] {
    return status()["models"].as_array()[0]["serving"]["state"].as_string() != "Ready";
  });
  EXPECT_EQ(status()["models"].as_array()[0]["serving"]["message"].as_string(), "out of memory");
  EXPECT_EQ(exposed(), "3");
  EXPECT_EQ(version_report("3")["state"].as_string(), "Ready");
  EXPECT_EQ(version_report("e")["reason"].as_string(), "UnsafeArchive");
  EXPECT_EQ(version_report("e")["message"],
            before["models"].as_array()[0]["versions"].as_array()[1]["message"]);
  EXPECT_EQ(files.requests(), requests) << "nothing is fetched again, not even what was refused";
}

TEST_F(AgentTest, FailureSurvivesRestart) {
  const std::string evil = TarBuilder().file("model.onnx").device("null").tar();
  files.put("/e", evil);
  start_agent();
  set_model(Json::array({version("e", files.url("/e"), evil)}), "e");
  eventually([this] { return version_report("e")["reason"].as_string() == "UnsafeArchive"; });
  stop_agent();
  const Json before = version_report("e");
  start_agent();
  files.put("/3", three);
  set_model(
      Json::array({version("e", files.url("/e"), evil), version("3", files.url("/3"), three)}),
      "3");
  eventually([this] { return exposed() == "3"; });
  EXPECT_EQ(version_report("e")["reason"], before["reason"]);
  EXPECT_EQ(version_report("e")["message"], before["message"]);
  EXPECT_EQ(files.requests(), 2) << "the hostile archive is not fetched again";
}

TEST_F(AgentTest, DeletedEdgeNodeIsRecreatedAndModelsStayExposed) {
  files.put("/3", three);
  start_agent();
  set_model(Json::array({version("3", files.url("/3"), three)}), "3");
  eventually([this] { return exposed() == "3"; });
  const std::string uid = api->get(kNode).body.at("metadata/uid").as_string();
  EXPECT_EQ(api->remove(kNode).status, 200);
  eventually([&] {
    const auto reply = api->get(kNode);
    return reply.status == 200 && reply.body.at("metadata/uid").as_string() != uid &&
           !reply.body.at("status").empty();
  });
  const Json again = api->get(kNode).body;
  EXPECT_LE(again.at("status/observedGeneration").as_integer(),
            again.at("metadata/generation").as_integer());
  EXPECT_EQ(text(data / "models/default/digits/target"), "3\n");
}

TEST_F(AgentTest, SecondAgentOnTheSameDirectoryIsRefused) {
  start_agent();
  Options options;
  options.node_name = "edge0";
  options.data_directory = data;
  const auto second = Agent::open(std::move(options), *client, *http);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code(), Code::kUnavailable) << second.error();
}

TEST_F(AgentTest, RunnerRegistersNodeRunsPodsAndDeletesEndedPods) {
  start_agent(Runner::kProcess, {{"sleeper", "/bin/sleep 1000"}});
  eventually(
      [this] { return !api->get("/api/v1/nodes/edge0").body.at("status/addresses").empty(); });
  const Json node = api->get("/api/v1/nodes/edge0").body;
  EXPECT_EQ(node["metadata"]["labels"]["edgeai.io/layer"].as_string(), "edge");
  EXPECT_EQ(node.at("status/addresses").as_array()[0]["address"].as_string(),
            agent->node_address());

  constexpr const char* kPods = "/api/v1/namespaces/default/pods";
  const std::string pod_path = std::string(kPods) + "/web";
  const Json pod = *codec::parse_json(
      R"({"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","namespace":"default"},
      "spec":{"nodeName":"edge0","terminationGracePeriodSeconds":5,"containers":[{"name":"server","image":"sleeper"}]}})");
  ASSERT_EQ(api->post(kPods, pod).status, 201);
  eventually([&] { return api->get(pod_path).body.at("status/phase").as_string() == "Running"; });
  EXPECT_EQ(api->get(pod_path).body.at("status/hostIP").as_string(), agent->node_address());

  // Without a link, a restarted agent keeps the pod running; the new status waits for the link.
  stop_agent();
  link_up = false;
  start_agent(Runner::kProcess, {{"sleeper", "/bin/sleep 1000"}});
  link_up = true;
  const auto restarts = [&] {
    const Json statuses = api->get(pod_path).body.at("status/containerStatuses");
    return statuses.empty() ? -1 : statuses.as_array()[0]["restartCount"].as_integer();
  };
  eventually([&] {
    return restarts() == 1 && api->get(pod_path).body.at("status/phase").as_string() == "Running";
  });

  // A Node that is deleted while its agent runs is created again.
  api->remove("/api/v1/nodes/edge0");
  eventually(
      [this] { return !api->get("/api/v1/nodes/edge0").body.at("status/addresses").empty(); });

  api->remove(pod_path);
  eventually([&] { return api->get(pod_path).status == 404; });
  eventually([&] { return std::filesystem::is_empty(data / "pods"); });
}

TEST_F(AgentTest, InvalidOptionIsNamedInError) {
  for (const auto& [spoil, message] :
       std::vector<std::pair<std::function<void(Options&)>, std::string>>{
           {[](Options& o) { o.node_name = "No Name"; }, "node name"},
           {[](Options& o) { o.data_directory = "relative"; }, "data directory"},
           {[](Options& o) { o.layer = "fog"; }, "layer"},
           {[](Options& o) { o.file_roots = {"models"}; }, "file root"}}) {
    Options options;
    options.node_name = "edge0";
    options.data_directory = data / "other";
    spoil(options);
    const auto agent_or = Agent::open(std::move(options), *client, *http);
    ASSERT_FALSE(agent_or.ok()) << message;
    EXPECT_EQ(agent_or.error().code(), Code::kInvalid);
    EXPECT_NE(agent_or.error().message().find(message), std::string::npos) << agent_or.error();
  }
}

}  // namespace agent_test
}  // namespace varda::agent
