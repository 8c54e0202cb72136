// ChildProbe's reading of exit statuses, with shells as children; and the repository's reaction,
// with a scripted probe.
#include "serving/load_probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>

#include "base/mutex.h"
#include "serving/repository.h"
#include "serving/testing/model_directory.h"

namespace varda::serving {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const ModelVersion::Source kSource{"m", "2", "/models/m/2"};

std::optional<LoadFailure> probe_with(const std::string& script,
                                      const Context& ctx = Context::background(),
                                      milliseconds timeout = std::chrono::minutes(1)) {
  ChildProbe probe({.program = "/bin/sh",
                    .arguments = {"-c", script, "sh"},
                    .environment = {{"PATH", "/usr/bin:/bin"}},
                    .timeout = timeout,
                    .retry_interval = milliseconds(30),
                    .crash_retry_interval = milliseconds(3600)});
  return probe.probe(ctx, kSource);
}

TEST(ChildProbe, SuccessReportedByTheChildIsAccepted) {
  EXPECT_EQ(probe_with(R"(echo some log; echo 'varda-serve probe-load: {"loads":true}')"),
            std::nullopt);
}

TEST(ChildProbe, ChildGetsTheModelToLoad) {
  const auto failure = probe_with(R"(echo "$@"; kill -9 $$)");
  EXPECT_THAT(failure->message, HasSubstr("--probe-load m/2"));
}

TEST(ChildProbe, EveryWayToEndHasItsFailure) {
  struct Row {
    const char* script;
    const char* code;
    const char* message;
    std::optional<milliseconds> retry_after;
  };
  const milliseconds soon(30), late(3600);
  const Row rows[] = {
      {R"(echo 'varda-serve probe-load: {"loads":false,"message":"torn","mayPass":false}'; exit 3)",
       "LoadFailed", "torn", std::nullopt},
      {R"(echo 'varda-serve probe-load: {"loads":false,"message":"no memory","mayPass":true}'; exit 3)",
       "LoadFailed", "no memory", soon},
      {"echo free: invalid pointer; kill -6 $$", "LoadCrashed",
       "the engine ended its process while loading (SIGABRT); last output: free: invalid pointer",
       late},
      {"kill -11 $$", "LoadCrashed", "the engine ended its process while loading (SIGSEGV)", late},
      {"kill -9 $$", "LoadCrashed",
       "the engine ended its process while loading (SIGKILL); memory may have run out", late},
      {"exit 7", "LoadCrashed", "the engine ended its process while loading (exit code 7)", late},
      // An engine that calls exit(0) has loaded nothing.
      {"echo bye; exit 0", "LoadCrashed",
       "the engine ended its process while loading (exit code 0); last output: bye", late},
      // A reported success before a crash does not count.
      {R"(echo 'varda-serve probe-load: {"loads":true}'; kill -11 $$)", "LoadCrashed",
       "the engine ended its process while loading (SIGSEGV)", late},
      {"exit 3", "LoadCrashed", "the engine ended its process while loading (exit code 3)", late},
  };
  for (const Row& row : rows) {
    const auto failure = probe_with(row.script);
    ASSERT_TRUE(failure) << row.script;
    EXPECT_EQ(failure->code, row.code) << row.script;
    EXPECT_EQ(failure->message, row.message) << row.script;
    EXPECT_EQ(failure->retry_after, row.retry_after) << row.script;
  }
}

TEST(ChildProbe, HangingChildIsEndedAtTheTimeout) {
  const auto failure = probe_with("exec sleep 1000", Context::background(), milliseconds(50));
  EXPECT_EQ(failure->code, "LoadTimedOut");
  std::stop_source stop;
  stop.request_stop();
  EXPECT_TRUE(probe_with("exec sleep 1000", Context(stop.get_token())));
}

TEST(ChildProbe, ModelPassesIfNoChildCanBeStarted) {
  ChildProbe probe({.program = "/nonexistent/varda-serve", .arguments = {}, .environment = {}});
  EXPECT_EQ(probe.probe(Context::background(), kSource), std::nullopt);
}

class FakeProbe final : public LoadProbe {
 public:
  std::optional<LoadFailure> probe(const Context&, const ModelVersion::Source& source) override {
    MutexLock lock(mutex_);
    probed_.push_back(source.version);
    const auto it = failures_.find(source.version);
    return it == failures_.end() ? std::nullopt : std::optional(it->second);
  }
  void set_failure(const std::string& version, LoadFailure failure) {
    MutexLock lock(mutex_);
    failures_.insert_or_assign(version, std::move(failure));
  }
  std::vector<std::string> probed() {
    MutexLock lock(mutex_);
    return probed_;
  }

 private:
  Mutex mutex_;
  std::map<std::string, LoadFailure> failures_ GUARDED_BY(mutex_);
  std::vector<std::string> probed_ GUARDED_BY(mutex_);
};

class RepositoryWithProbe : public ::testing::Test {
 protected:
  void start() {
    repository_.reset();
    repository_ = Repository::open({.directory = models_.path(),
                                    .defaults = {},
                                    .check_interval = std::chrono::hours(1),
                                    .probe = &probe_},
                                   os::real_file_system(), engines_, registry_)
                      .value();
    settle();
  }
  void settle() {
    const Status status =
        repository_->wait_settled(Context::background().with_timeout(std::chrono::seconds(60)));
    ASSERT_TRUE(status.ok()) << status.error();
  }
  std::vector<std::string> index() {
    std::vector<std::string> out;
    for (const oip::IndexEntry& e : repository_->index())
      out.push_back(e.version + " " + e.state +
                    (e.code.empty() ? "" : " " + e.code + ": " + e.reason));
    return out;
  }
  // Ends the server after the agent has recorded the active version.
  void stop() {
    for (const oip::IndexEntry& e : repository_->index())
      if (e.state == "READY") models_.last_good("m", e.version + " " + e.files);
    repository_.reset();
  }

  static constexpr auto kModel = "tensor FP32 -1 1\n";
  testing::ModelDirectory models_;
  metrics::Registry registry_;
  infer::Engines engines_{{VARDA_ENGINES}};
  FakeProbe probe_;
  std::unique_ptr<Repository> repository_;
};

TEST_F(RepositoryWithProbe, CrashingVersionIsNotLoadedAndTheOldOneServes) {
  models_.add("m", "1", kModel);
  models_.target("m", "1");
  start();
  EXPECT_THAT(probe_.probed(), ElementsAre("1"));
  probe_.set_failure("2", {"LoadCrashed", "SIGSEGV", std::nullopt});
  models_.add("m", "2", "crash_load 9\n");
  models_.target("m", "2");
  settle();
  EXPECT_THAT(index(), ElementsAre("1 READY", "2 UNAVAILABLE LoadCrashed: SIGSEGV"));
  models_.add("m", "3", kModel);
  models_.target("m", "3");
  settle();
  EXPECT_THAT(index(), ElementsAre("3 READY"));
  EXPECT_THAT(probe_.probed(), ElementsAre("1", "2", "3"));
}

TEST_F(RepositoryWithProbe, RestartServesTheLastGoodVersionIfTheTargetFails) {
  models_.add("m", "1", kModel);
  models_.target("m", "1");
  start();
  stop();
  probe_.set_failure("2", {"LoadCrashed", "SIGSEGV", std::nullopt});
  models_.add("m", "2", "crash_load 9\n");
  models_.target("m", "2");
  start();
  EXPECT_THAT(index(), ElementsAre("1 READY", "2 UNAVAILABLE LoadCrashed: SIGSEGV"));
  EXPECT_THAT(probe_.probed(), ElementsAre("1", "2")) << "what served here before needs no try-out";
  // A missing target is no reason to serve nothing, either.
  stop();
  models_.target("m", "9");
  start();
  EXPECT_THAT(index(), ElementsAre("1 READY", "9 UNAVAILABLE"));
}

TEST_F(RepositoryWithProbe, ServedVersionIsProbedAgainOnlyIfItsFilesChanged) {
  models_.add("m", "1", kModel);
  models_.target("m", "1");
  start();
  stop();
  start();
  EXPECT_THAT(probe_.probed(), ElementsAre("1"));
  stop();
  models_.remove("m/1");
  models_.add("m", "1", std::string(kModel) + "scale 2\n");
  start();
  EXPECT_THAT(probe_.probed(), ElementsAre("1", "1"));
  EXPECT_THAT(index(), ElementsAre("1 READY"));
}

TEST_F(RepositoryWithProbe, FailingLastGoodVersionIsSkippedAndTheTargetServes) {
  models_.add("m", "1", "fail_load torn\n");
  models_.add("m", "2", kModel);
  models_.target("m", "2");
  models_.last_good("m", "1 0123456789abcdef");
  start();
  EXPECT_THAT(index(), ElementsAre("2 READY"));
  EXPECT_THAT(probe_.probed(), ElementsAre("1", "2"));
}

TEST_F(RepositoryWithProbe, TransientFailureIsProbedAgain) {
  probe_.set_failure("1", {"LoadCrashed", "SIGKILL", milliseconds(0)});
  models_.add("m", "1", kModel);
  models_.target("m", "1");
  repository_ = Repository::open({.directory = models_.path(),
                                  .defaults = {},
                                  .check_interval = milliseconds(1),
                                  .probe = &probe_},
                                 os::real_file_system(), engines_, registry_)
                    .value();
  const Context ctx = Context::background().with_timeout(std::chrono::seconds(60));
  while (probe_.probed().size() < 3) ASSERT_TRUE(ctx.check().ok());
}

}  // namespace
}  // namespace varda::serving
