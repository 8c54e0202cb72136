// Labels and moves of kept samples, over an in-memory disk and a scripted bigger model.
#include "agent/samples/manager.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "codec/image.h"
#include "net/http.h"
#include "os/testing/memory_file_system.h"
#include "spool/id.h"
#include "spool/spool.h"
#include "tensor/npy.h"

namespace varda::agent::samples {
namespace manager_test {

using spool::Facts;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const os::Path kSpool = "/agent/samples/default/digits", kData = "/data/digits";

class HandClock final : public Clock {
 public:
  SteadyTime now() const override { return now_; }
  WallTime wall() const override {
    return WallTime(std::chrono::seconds(1'800'000'000)) + (now_ - SteadyTime());
  }
  void advance(Duration by) { now_ += by; }

 private:
  SteadyTime now_{std::chrono::hours(1)};
};

/// The datasets of the node: facts of an in-memory disk below one root.
class Tree final : public os::ReadableTree {
 public:
  explicit Tree(os::FileSystem& fs) : fs_(fs) {}
  Result<os::FileFacts> facts(const os::Path& path) override {
    if (!path.string().starts_with("/data/")) return Error(Code::kForbidden, "not allowed");
    TRY(const auto info, fs_.stat(path));
    if (!info) return Error(Code::kNotFound, "no such file");
    return os::FileFacts{.kind = info->kind};
  }
  Result<std::unique_ptr<os::ReadableFile>> open(const os::Path&) override {
    return Error(Code::kUnsupported, "");
  }
  Result<std::unique_ptr<os::ReadableDirectory>> list(const os::Path&) override {
    return Error(Code::kUnsupported, "");
  }

 private:
  os::FileSystem& fs_;
};

/// The bigger model: two classes, with these probabilities.
class BigModel {
 public:
  std::string data = "0.05,0.95";
  int status = 200;
  int asked = 0;
  std::string outputs = R"([{"name":"y","datatype":"FP32","shape":[-1,2]}])";
  std::string request;             // the last one
  std::function<void()> thinking;  // runs before each answer

  net::Response answer(const net::Request& request) {
    net::Response out;
    out.status = status;
    if (request.method == "GET") {
      out.body =
          R"({"name":"big","versions":["9"],"platform":"echo","inputs":[{"name":"x","datatype":"FP32","shape":[-1,2]}],"outputs":)" +
          outputs + R"(,"parameters":{"labels":["cat","dog"]}})";
      return out;
    }
    ++asked;
    this->request = request.body;
    if (thinking) thinking();
    out.body =
        R"({"model_name":"big","model_version":"9","outputs":[{"name":"y","shape":[1,2],"datatype":"FP32","data":[)" +
        data + "]}]}";
    return out;
  }
};

class SamplesManager : public ::testing::Test {
 protected:
  SamplesManager() {
    CHECK(fs_.make_directories(kData, 0755).ok());
    start();
    apply({.path = kData.string()});
  }
  void start() {
    manager_ = std::make_unique<Manager>(
        Manager::Options{.root = "/agent/samples", .clock = &clock_}, fs_,
        [this]() -> Result<std::unique_ptr<os::ReadableTree>> {
          return std::unique_ptr<os::ReadableTree>(std::make_unique<Tree>(fs_));
        },
        *http_, *state_, *rng_);
    manager_->load();
    manager_->on_publish([this] { ++published_; });
  }
  void apply(api::EdgeSamples work) {
    work.key = "default/digits";
    work.uid = "u1";
    core::WorkList list;
    list.spec.samples = {work};
    manager_->apply(list);
  }
  void apply_asking(std::optional<double> minimum = {}) {
    api::EdgeSamples work;
    work.path = kData.string();
    work.url = "http://big";
    work.model = "big";
    work.minimum = minimum;
    apply(work);
  }
  api::EdgeSamplesReport step() {
    clock_.advance(std::chrono::seconds(1));
    for (const runtime::Task& task : manager_->tasks()) task.step(Context::background());
    api::EdgeNodeStatus status;
    manager_->put_report(status, {});
    CHECK(status.samples.size() == 1);
    return status.samples[0];
  }
  std::string add(std::optional<spool::PseudoLabel> label = {}, tensor::Shape shape = {2}) {
    Facts facts;
    facts.reason = Facts::kHard;
    facts.format = Facts::kNpy;
    facts.pseudo_label = std::move(label);
    const auto spool = spool::Spool::open({.root = kSpool, .bounds = {}}, fs_, *rng_).value();
    const std::string bytes =
        tensor::npy_header(tensor::DType::kFp32, shape) + std::string(8, '\0');
    CHECK(spool->offer(facts, bytes, "", clock_.wall()).value());
    return spool::pending_ids(fs_, kSpool)->back();
  }
  void drop(const std::string& name, const std::string& text = "x") {
    CHECK(fs_.make_directories((kSpool / name).parent_path(), 0755).ok());
    CHECK(os::write_file_atomically(fs_, kSpool / name, text).ok());
  }
  std::vector<std::string> files(const std::string& below) {
    auto names = fs_.list(kData / below);
    return names.ok() ? *names : std::vector<std::string>();
  }

  os::testing::MemoryFileSystem fs_;
  HandClock clock_;
  BigModel big_;
  const std::unique_ptr<net::HttpClient> http_ = net::loopback(
      net::inline_handler([this](const net::Request& request) { return big_.answer(request); }));
  const std::unique_ptr<core::StateStore> state_ = core::StateStore::in_memory();
  const std::unique_ptr<Rng> rng_ = seeded_rng(3);
  std::unique_ptr<Manager> manager_;
  int published_ = 0;
};

TEST_F(SamplesManager, LabelledSampleMovesIntoTheFolderOfItsClass) {
  const std::string id = add();
  EXPECT_EQ(step().pending, 1);
  ASSERT_TRUE(spool::label(fs_, kSpool, id, "good").ok());
  const api::EdgeSamplesReport report = step();
  EXPECT_EQ(report.state, "Ready");
  EXPECT_EQ(report.moved, 1);
  EXPECT_EQ(report.labelled, 0);
  EXPECT_EQ(report.pending, 0);
  EXPECT_THAT(files("good"), ElementsAre(id + ".npy"));
}

TEST_F(SamplesManager, DroppedFileGetsAnIdOnceItHasSettled) {
  drop("label/good/holiday.JPEG");
  clock_.advance(std::chrono::hours(24 * 365));  // the disk has the machine's time
  EXPECT_EQ(step().moved, 1);
  ASSERT_EQ(files("good").size(), 1u);
  EXPECT_TRUE(spool::is_id(files("good")[0].substr(0, 26)));
  EXPECT_THAT(files("good")[0], HasSubstr(".jpg"));
}

TEST_F(SamplesManager, PseudoLabelOfATierMovesTheSample) {
  const std::string id = add(spool::PseudoLabel{"7", 0.95, "cloud"});
  const api::EdgeSamplesReport report = step();
  EXPECT_EQ(report.moved, 1);
  EXPECT_EQ(report.moved_pseudo, 1);
  EXPECT_THAT(files("7"), ElementsAre(id + ".npy"));
  EXPECT_THAT(spool::list(fs_, kSpool).value(), IsEmpty());
}

TEST_F(SamplesManager, BiggerModelLabelsWhatItIsSureOf) {
  apply_asking();
  const std::string sure = add();
  EXPECT_EQ(step().asked, 1);
  EXPECT_EQ(step().moved_pseudo, 1);
  EXPECT_THAT(files("dog"), ElementsAre(sure + ".npy"));
  big_.data = "0.6,0.4";
  const std::string unsure = add();
  EXPECT_EQ(step().unsure, 1);
  EXPECT_EQ(step().asked, 2);
  EXPECT_EQ(big_.asked, 2) << "a sample is asked once";
  const Facts facts = spool::read_facts(fs_, kSpool, unsure).value();
  EXPECT_THAT(facts.answers, ElementsAre(spool::Answer{"big", "9", {{"cat", 0.6000000238418579}}}));
  EXPECT_FALSE(facts.pseudo_label);
}

TEST_F(SamplesManager, QuickModelLabelsManySamplesInOneLook) {
  apply_asking();
  for (int i = 0; i < 100; ++i) add();
  EXPECT_EQ(step().moved_pseudo, 64);
  EXPECT_EQ(step().moved_pseudo, 100);
  EXPECT_EQ(files("dog").size(), 100u);
}

TEST_F(SamplesManager, SlowModelIsAskedOnceInALook) {
  apply_asking();
  big_.thinking = [this] { clock_.advance(std::chrono::seconds(2)); };
  for (int i = 0; i < 3; ++i) add();
  EXPECT_EQ(step().asked, 1);
  EXPECT_EQ(step().asked, 2);
}

TEST_F(SamplesManager, LabelWithoutAPlaceStaysWithTheSample) {
  api::EdgeSamples work;
  work.url = "http://big";
  work.model = "big";
  apply(work);
  const std::string id = add();
  EXPECT_EQ(step().asked, 1);
  EXPECT_EQ(spool::read_facts(fs_, kSpool, id).value().pseudo_label->label, "dog");
  apply_asking();
  EXPECT_EQ(step().moved_pseudo, 1);
  EXPECT_EQ(big_.asked, 1);
}

TEST_F(SamplesManager, DimensionsOfOneAreNoDifferenceBetweenModels) {
  apply_asking();
  add({}, {1, 2});
  EXPECT_EQ(step().moved_pseudo, 1);
  EXPECT_THAT(big_.request, HasSubstr("\"shape\":[1,2]"));
}

TEST_F(SamplesManager, UnreachableModelPausesAndMovesContinue) {
  apply_asking();
  big_.status = 503;
  add();
  EXPECT_EQ(step().reason, "ModelUnreachable");
  const int asked = big_.asked, published = published_;
  EXPECT_EQ(step().reason, "ModelUnreachable") << "the pause is no recovery";
  EXPECT_EQ(published_, published);
  drop("label/good/a.png");
  clock_.advance(std::chrono::hours(24 * 365));
  big_.status = 200;
  EXPECT_EQ(step().moved, 2);
  EXPECT_EQ(big_.asked, asked + 1);
}

TEST_F(SamplesManager, UnreachableModelStaysInTheReport) {
  apply_asking();
  big_.status = 503;
  add();
  EXPECT_EQ(step().reason, "ModelUnreachable");
  const int published = published_, asked = big_.asked;
  for (int i = 0; i < 8; ++i) EXPECT_EQ(step().reason, "ModelUnreachable");
  EXPECT_EQ(big_.asked, asked) << "the pause is not over";
  EXPECT_EQ(published_, published);
}

TEST_F(SamplesManager, WaitingSamplesAreReadOnce) {
  for (int i = 0; i < 50; ++i) add();
  EXPECT_EQ(step().pending, 50);
  int opened = 0;
  fs_.on_call([&](std::string_view call, const os::Path&) {
    opened += call == "open" ? 1 : 0;
    return Status();
  });
  EXPECT_EQ(step().pending, 50);
  EXPECT_EQ(opened, 0);
  fs_.on_call(nullptr);
  const std::string last = add();
  ASSERT_TRUE(spool::label(fs_, kSpool, last, "good").ok());
  EXPECT_EQ(step().moved, 1);
  apply_asking(0.5);
  for (int i = 0; i < 13; ++i) step();
  EXPECT_EQ(big_.asked, 50) << "other work reads them again";
  EXPECT_EQ(step().moved_pseudo, 50);
}

TEST_F(SamplesManager, ModelOfAnotherKindIsNoFaultOfTheSamples) {
  apply_asking();
  big_.outputs = "[]";
  add();
  EXPECT_EQ(step().reason, "ModelUnusable");
  EXPECT_EQ(step().reason, "ModelUnusable");
  big_.outputs = BigModel().outputs;
  apply_asking(0.5);
  EXPECT_EQ(step().moved_pseudo, 1) << "a changed work list ends the pause";
}

TEST_F(SamplesManager, PathOutsideOfTheRootsIsRefused) {
  apply({.path = "/etc"});
  const std::string id = add();
  ASSERT_TRUE(spool::label(fs_, kSpool, id, "good").ok());
  const api::EdgeSamplesReport report = step();
  EXPECT_EQ(report.state, "Failed");
  EXPECT_EQ(report.reason, "PathForbidden");
  EXPECT_EQ(report.labelled, 1) << "the label waits";
  apply({.path = "/data/missing"});
  EXPECT_EQ(step().reason, "PathNotFound");
  apply({.path = kData.string()});
  EXPECT_EQ(step().moved, 1);
}

TEST_F(SamplesManager, LinkInTheDatasetIsNotFollowed) {
  ASSERT_TRUE(fs_.make_directories("/outside", 0755).ok());
  ASSERT_TRUE(fs_.symlink("/outside", kData / "good").ok());
  const std::string id = add();
  ASSERT_TRUE(spool::label(fs_, kSpool, id, "good").ok());
  EXPECT_EQ(step().reason, "WriteFailed");
  EXPECT_THAT(fs_.list("/outside").value(), IsEmpty());
}

TEST_F(SamplesManager, LinkInTheSpoolIsRefusedWithItsPath) {
  ASSERT_TRUE(os::write_file_atomically(fs_, "/secret.npy", "secret").ok());
  const os::Path sample = kSpool / "pending" / (add() + ".npy");
  ASSERT_TRUE(fs_.remove(sample).ok());
  ASSERT_TRUE(fs_.symlink("/secret.npy", sample).ok());
  api::EdgeSamplesReport report = step();
  EXPECT_EQ(report.reason, "LinkRefused");
  EXPECT_THAT(report.message, HasSubstr(sample.string()));
  ASSERT_TRUE(fs_.remove(sample).ok());
  EXPECT_EQ(step().reason, "");
  ASSERT_TRUE(fs_.make_directories(kSpool / "label/good", 0755).ok());
  ASSERT_TRUE(fs_.symlink("/secret.npy", kSpool / "label/good/a.npy").ok());
  report = step();
  EXPECT_EQ(report.reason, "LinkRefused");
  EXPECT_THAT(report.message, HasSubstr("label/good/a.npy"));
  EXPECT_THAT(files("good"), IsEmpty());
}

TEST_F(SamplesManager, LinkThatReplacesAFileDuringTheMoveStaysOutOfTheDataset) {
  const std::string file = add() + ".npy";
  const os::Path labelled = kSpool / "label/good" / file;
  ASSERT_TRUE(fs_.make_directories(labelled.parent_path(), 0755).ok());
  ASSERT_TRUE(fs_.rename(kSpool / "pending" / file, labelled).ok());
  bool swapped = false;
  fs_.on_call([&](std::string_view call, const os::Path& path) {
    if (call != "rename" || path != labelled || std::exchange(swapped, true)) return Status();
    CHECK(fs_.remove(labelled).ok() && fs_.symlink("/secret.npy", labelled).ok());
    return Status();
  });
  EXPECT_EQ(step().reason, "WriteFailed");
  EXPECT_TRUE(swapped);
  EXPECT_THAT(files("good"), IsEmpty());
}

TEST_F(SamplesManager, FactsWithoutTheirSampleAreRemoved) {
  const std::string id = add();
  EXPECT_EQ(step().pending, 1);
  ASSERT_TRUE(fs_.remove(kSpool / "pending" / (id + ".npy")).ok());
  EXPECT_EQ(step().pending, 0);
  EXPECT_FALSE(fs_.stat(kSpool / "pending" / (id + ".json")).value());
}

TEST_F(SamplesManager, CountsSurviveARestartAndBelongToOneObject) {
  ASSERT_TRUE(spool::label(fs_, kSpool, add(), "good").ok());
  EXPECT_EQ(step().moved, 1);
  start();
  apply({.path = kData.string()});
  EXPECT_EQ(step().moved, 1);
  core::WorkList list;
  list.spec.samples.push_back({.key = "default/digits", .uid = "u2", .path = kData.string()});
  manager_->apply(list);
  EXPECT_EQ(step().moved, 0);
}

TEST_F(SamplesManager, AgentWithoutAWorkListPublishesToo) {
  start();
  const runtime::Task task = manager_->tasks().front();
  EXPECT_TRUE(task.due().has_value()) << "the node's first report waits for every component";
  task.step(Context::background());
  EXPECT_EQ(published_, 1);
  EXPECT_EQ(task.due(), std::nullopt);
}

TEST_F(SamplesManager, UnchangedStateIsPublishedOnce) {
  add();
  step();
  const int published = published_;
  step();
  step();
  EXPECT_EQ(published_, published);
}

}  // namespace manager_test
}  // namespace varda::agent::samples
