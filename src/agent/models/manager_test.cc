// Reports about downloads, over a scripted store, in virtual time and one thread.
#include "agent/models/manager.h"

#include <gtest/gtest.h>

#include "node/testing/fakes.h"
#include "os/testing/memory_file_system.h"

namespace varda::agent::models {
namespace {

using artifact::Phase;
using artifact::ProgressSink;
using codec::Json;
using codec::Sha256;
using std::chrono::seconds;

/// Calls the test's function in the middle of a download.
class ScriptedStore final : public artifact::Store {
 public:
  std::function<void(const ProgressSink&)> download;
  std::optional<artifact::Installed> present;
  std::vector<artifact::Request> requests;

  artifact::Outcome<artifact::Installed> ensure(const Context&, const artifact::Request& request,
                                                const ProgressSink& progress) override {
    requests.push_back(request);
    download(progress);
    return artifact::Failure{artifact::Reason::kDownloadFailed,
                             Error(Code::kUnavailable, "broken off")};
  }
  std::optional<artifact::Installed> find(const Sha256&) override { return present; }
  std::vector<Sha256> list() const override { return {}; }
  std::uint64_t bytes() const override { return 0; }
  void keep(std::set<Sha256>) override {}
  Result<std::uint64_t> evict(std::uint64_t) override { return std::uint64_t{0}; }
  Status remove(const Sha256&) override { return {}; }
};

class NoHttp final : public net::HttpClient {
 public:
  Result<net::ClientResponse> send(const Context&, net::ClientRequest) override {
    return Error(Code::kUnavailable, "there is no network");
  }
};

class ModelManagerTest : public ::testing::Test {
 protected:
  ModelManagerTest() {
    auto node = api::EdgeNode::from_json(Json::object(
        {{"apiVersion", api::EdgeNode::resource().api_version()},
         {"kind", api::EdgeNode::resource().kind},
         {"metadata", Json::object({{"name", "edge0"}, {"generation", 2}})},
         {"spec",
          Json::object(
              {{"models", Json::array({Json::object(
                              {{"key", "default/digits"},
                               {"framework", "onnx"},
                               {"target", "3"},
                               {"versions", Json::array({Json::object(
                                                {{"version", "3"},
                                                 {"url", "http://files/3"},
                                                 {"sha256", Sha256::of("3").hex()}})})}})})}})}}));
    CHECK(node.ok());
    manager.on_publish([this] {
      api::EdgeNodeStatus status;
      (void)manager.put_report(status, {});
      disk = status.disk;
      if (status.models.empty()) return;
      const api::EdgeVersionReport& version = status.models[0].versions[0];
      format = version.format;
      reports.push_back(version.state + " " + std::to_string(version.bytes_done) + "/" +
                        std::to_string(version.bytes_total));
    });
    manager.load();
    tasks = manager.tasks();
    manager.apply({{"", node->metadata.generation}, node->spec});
    spec = node->spec;
  }

  /// Steps the named task if it is due.
  void run(const std::string& name) {
    for (const runtime::Task& task : tasks) {
      const auto due = task.due();
      if (task.name != name || !due || *due > clock.now()) continue;
      task.step(ctx);
      return;
    }
  }
  /// Advances time in steps of a second and runs due tasks, like run().
  void pass(int count) {
    for (int i = 0; i < count; ++i) {
      clock.advance(seconds(1));
      run("models");
    }
  }
  static constexpr std::uint64_t kMiB = 1 << 20;

  Context ctx;
  node::testing::ManualClock clock;
  os::testing::MemoryFileSystem fs;
  NoHttp http;
  ScriptedStore store;
  std::unique_ptr<Rng> rng = seeded_rng(1);
  std::unique_ptr<core::StateStore> state_store = core::StateStore::in_memory();
  artifact::ModelTree tree = artifact::ModelTree::open(fs, "/models").value();
  std::vector<std::string> reports;  // "STATE DONE/TOTAL" of the version, per report
  api::EdgeDisk disk;                // last report
  std::string format;                // of the version, in the last report
  api::EdgeNodeSpec spec;            // the work list
  Manager manager{{.clock = &clock}, store, tree, fs, http, *state_store, *rng};
  std::vector<runtime::Task> tasks;
};

TEST_F(ModelManagerTest, LongDownloadIsReportedEveryTenSecondsUntilItEnds) {
  store.download = [this](const ProgressSink& progress) {
    run("models");
    for (int second = 0; second < 25; ++second) {
      progress({Phase::kDownload, (second + 1) * kMiB, 100 * kMiB});
      progress({Phase::kExtract, 5, 0});
      pass(1);
    }
  };
  run("models");
  run("install");
  run("models");
  pass(300);
  EXPECT_EQ(reports, (std::vector<std::string>{"Pending 0/0", "Downloading 0/0",
                                               "Downloading 10485760/104857600",
                                               "Downloading 20971520/104857600", "Failed 0/0"}));
}

TEST_F(ModelManagerTest, OtherUsersReachNoSamples) {
  // The directory of a node's agent may exist before, and be open to all users.
  CHECK(fs.make_directories("/data/samples/default", 0755).ok());
  Manager keeping{
      {.clock = &clock, .sample_root = "/data/samples"}, store, tree, fs, http, *state_store, *rng};
  spec.models[0].samples = Json::object({{"version", 1}});
  keeping.load();
  std::vector<runtime::Task> steps = keeping.tasks();
  keeping.apply({{"", 3}, spec});
  for (const runtime::Task& task : steps)
    if (task.name == "models") task.step(ctx);
  EXPECT_EQ(fs.stat("/data/samples/default/digits/pending").value()->mode & 0777U, 0775U);
  EXPECT_EQ(fs.stat("/data/samples").value()->mode & 0777U, 0700U);
}

TEST_F(ModelManagerTest, SamplesOfARemovedModelGoThoughItsServerWritesOnceMore) {
  Manager keeping{
      {.clock = &clock, .sample_root = "/data/samples"}, store, tree, fs, http, *state_store, *rng};
  const auto look = [&] {
    clock.advance(seconds(3));
    for (const runtime::Task& task : keeping.tasks()) {
      const auto due = task.due();
      if (task.name == "models" && due && *due <= clock.now()) task.step(ctx);
    }
  };
  keeping.load();
  spec.models[0].samples = Json::object({{"version", 1}});
  keeping.apply({{"", 3}, spec});
  look();
  ASSERT_TRUE(fs.stat("/data/samples/default/digits/pending").value());
  keeping.apply({{"", 4}, {}});
  look();
  EXPECT_FALSE(fs.stat("/data/samples/default/digits").value());
  CHECK(fs.make_directories("/data/samples/default/digits", 0755).ok());
  CHECK(os::write_file_atomically(fs, "/data/samples/default/digits/state.json", "{}").ok());
  look();
  EXPECT_FALSE(fs.stat("/data/samples/default/digits").value());
}

TEST_F(ModelManagerTest, FormatOfAnInstalledTensorflowModelIsReported) {
  CHECK(fs.make_directories("/installed", 0755).ok());
  CHECK(os::write_file_atomically(fs, "/installed/frozen.pb", "graph").ok());
  store.present = artifact::Installed{.directory = "/installed", .bytes = 5};
  spec.models[0].framework = "tensorflow";
  manager.apply({{"", 3}, spec});
  run("models");
  EXPECT_EQ(format, "pb");
}

TEST_F(ModelManagerTest, OtherVersionsOfTheModelAreBasesOfADownload) {
  store.download = [](const ProgressSink&) {};
  const auto version = [](const char* name) {
    api::EdgeModelVersion out;
    out.version = name;
    out.url = std::string("http://files/") + name;
    out.sha256 = Sha256::of(name).hex();
    return out;
  };
  api::EdgeNodeSpec spec;
  spec.models.resize(2);
  spec.models[0].key = "default/digits";
  spec.models[0].target = "4";
  spec.models[0].versions = {version("3"), version("4")};
  spec.models[1].key = "default/other";
  spec.models[1].versions = {version("x")};
  manager.apply({{"", 3}, spec});
  run("models");
  for (int i = 0; i < 3; ++i) run("install");
  std::map<std::string, std::vector<Sha256>> bases;
  for (const artifact::Request& request : store.requests) bases[request.url] = request.bases;
  EXPECT_EQ(bases,
            (std::map<std::string, std::vector<Sha256>>{{"http://files/3", {Sha256::of("4")}},
                                                        {"http://files/4", {Sha256::of("3")}},
                                                        {"http://files/x", {}}}));
}

TEST_F(ModelManagerTest, VersionOnTrialIsExposedAndNamedInItsFile) {
  CHECK(fs.make_directories("/installed", 0755).ok());
  CHECK(os::write_file_atomically(fs, "/installed/model.onnx", "graph").ok());
  store.present = artifact::Installed{.directory = "/installed", .bytes = 5};
  spec.models[0].versions.push_back(spec.models[0].versions[0]);
  spec.models[0].versions[1].version = "4";
  spec.models[0].versions[1].sha256 = Sha256::of("4").hex();
  api::ModelTrial trial;
  trial.version = "4";
  trial.mode = "canary";
  trial.share = 0.5;
  spec.models[0].trial = trial;
  manager.apply({{"", 3}, spec});
  run("models");
  const auto text = [this](const char* name) {
    return os::read_file(fs, std::string("/models/default/digits/") + name, 1000).value_or("");
  };
  EXPECT_EQ(text("trial.json"), R"({"version":"4","mode":"canary","share":0.5})"
                                "\n");
  EXPECT_EQ(text("target"), "3\n");
  EXPECT_EQ(text("4/model.onnx"), "graph");

  // The version becomes the target, and the trial ends with the same list.
  spec.models[0].target = "4";
  spec.models[0].trial.reset();
  manager.apply({{"", 4}, spec});
  run("models");
  EXPECT_EQ(text("target"), "4\n");
  EXPECT_EQ(text("trial.json"), "");
}

TEST_F(ModelManagerTest, TrialFileThatCannotBeWrittenFailsTheTrial) {
  CHECK(fs.make_directories("/installed", 0755).ok());
  CHECK(os::write_file_atomically(fs, "/installed/model.onnx", "graph").ok());
  store.present = artifact::Installed{.directory = "/installed", .bytes = 5};
  api::ModelTrial trial;
  trial.version = "3";
  trial.mode = "shadow";
  spec.models[0].trial = trial;
  CHECK(fs.make_directories("/models/default/digits/trial.json/x", 0755).ok());
  manager.apply({{"", 3}, spec});
  run("models");
  api::EdgeNodeStatus status;
  (void)manager.put_report(status, {});
  ASSERT_TRUE(status.models.at(0).trial);
  EXPECT_EQ(status.models[0].trial->state, "Failed");
  EXPECT_EQ(status.models[0].trial->reason, "WriteFailed");
  EXPECT_EQ(status.models[0].exposed, "3");
}

TEST_F(ModelManagerTest, ADiskThatFillsUpIsReportedWithinSeconds) {
  run("models");
  fs.set_capacity(400 * kMiB);
  pass(3);
  EXPECT_EQ(disk.capacity_bytes, static_cast<std::int64_t>(400 * kMiB));
  EXPECT_GT(disk.available_bytes, static_cast<std::int64_t>(300 * kMiB));
  const auto used = 400 * kMiB - fs.space("/")->available_bytes;
  fs.set_capacity(used);  // the disk is now full
  pass(3);
  EXPECT_EQ(disk.available_bytes, 0);
}

TEST_F(ModelManagerTest, ShortDownloadReportsNoProgress) {
  store.download = [this](const ProgressSink& progress) {
    run("models");
    for (int second = 0; second < 9; ++second) {
      progress({Phase::kDownload, kMiB, 100 * kMiB});
      pass(1);
    }
  };
  run("models");
  run("install");
  run("models");
  EXPECT_EQ(reports, (std::vector<std::string>{"Pending 0/0", "Downloading 0/0", "Failed 0/0"}));
}

TEST_F(ModelManagerTest, StalledDownloadReportsProgressOnce) {
  store.download = [this](const ProgressSink& progress) {
    run("models");
    progress({Phase::kDownload, kMiB, 100 * kMiB});
    pass(60);
  };
  run("models");
  run("install");
  run("models");
  EXPECT_EQ(reports, (std::vector<std::string>{"Pending 0/0", "Downloading 0/0",
                                               "Downloading 1048576/104857600", "Failed 0/0"}));
}

}  // namespace
}  // namespace varda::agent::models
