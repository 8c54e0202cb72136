#include <gtest/gtest.h>
#include <set>

#include "base/context.h"
#include "base/log_scope.h"
#include "base/metrics.h"
#include "base/result.h"
#include "base/rng.h"

namespace varda {
namespace {

Result<int> half(int n) {
  if (n % 2 != 0) return Error(Code::kInvalid, "odd");
  return n / 2;
}

Result<std::string> quarter(int n) {
  TRY(const int h, half(n));
  TRY(const int q, half(h).context("second half"));
  return std::to_string(q);
}

TEST(Result, TryUnwrapsTheValueOrReturnsTheError) {
  EXPECT_EQ(quarter(8).value(), "2");
  EXPECT_EQ(quarter(3).error().message(), "odd");
  EXPECT_EQ(quarter(6).error().message(), "second half: odd");
  EXPECT_TRUE(quarter(6).error().terminal());
}

TEST(Context, StopAndDeadlineEndASleepEarly) {
  std::stop_source source;
  source.request_stop();
  EXPECT_EQ(Context(source.get_token()).sleep_for(std::chrono::hours(1)).error().code(),
            Code::kCancelled);
  EXPECT_EQ(Context()
                .with_timeout(std::chrono::milliseconds(1))
                .sleep_for(std::chrono::hours(1))
                .error()
                .code(),
            Code::kTimeout);
}

TEST(Rng, EqualSeedsGiveEqualSequencesAndUuidsHaveVersionFour) {
  auto a = seeded_rng(7), b = seeded_rng(7);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(a->next(), b->next());
  std::set<std::string> seen;
  for (int i = 0; i < 100; ++i) {
    const std::string id = system_rng().uuid();
    EXPECT_EQ(id.size(), 36u);
    EXPECT_EQ(id[14], '4');
    EXPECT_TRUE(seen.insert(id).second);
  }
}

TEST(Log, ScopeFieldsFollowTheFieldsOfTheLine) {
  const auto line_of = [](log::Format format, auto&& write) {
    log::configure(format, log::Level::kInfo);
    ::testing::internal::CaptureStderr();
    write();
    std::string out = ::testing::internal::GetCapturedStderr();
    log::configure(log::Format::kText, log::Level::kInfo);
    return out;
  };
  const auto work = [] {
    const log::Scope outer({{"controller", "models"}, {"name", "a"}});
    const log::Scope inner({{"reconcileID", "7"}, {"name", "b"}});
    log::info("done", {{"controller", "own"}, {"count", 3}});
  };
  const std::string json = line_of(log::Format::kJson, work);
  EXPECT_NE(
      json.find(R"("message":"done","controller":"own","count":3,"reconcileID":"7","name":"b"})"),
      std::string::npos)
      << json;
  const std::string text = line_of(log::Format::kText, work);
  EXPECT_NE(text.find("done controller=own count=3 reconcileID=7 name=b\n"), std::string::npos)
      << text;
  const std::string after = line_of(log::Format::kText, [] { log::info("after"); });
  EXPECT_EQ(after.find("controller"), std::string::npos) << after;
}

TEST(Metrics, TextContainsEveryFamilyInPrometheusFormat) {
  metrics::Registry registry;
  registry.counter("varda_requests_total", "Requests.", {{"code", "200"}}).add(3);
  registry.histogram("varda_seconds", "Latency.", {0.1, 1}).observe(0.5);
  EXPECT_EQ(registry.text(),
            "# HELP varda_requests_total Requests.\n# TYPE varda_requests_total "
            "counter\nvarda_requests_total{code=\"200\"} 3\n"
            "# HELP varda_seconds Latency.\n# TYPE varda_seconds "
            "histogram\nvarda_seconds_bucket{le=\"0.1\"} 0\n"
            "varda_seconds_bucket{le=\"1\"} 1\nvarda_seconds_bucket{le=\"+Inf\"} "
            "1\nvarda_seconds_sum 0.5\nvarda_seconds_count 1\n");
}

TEST(Metrics, GuardedGaugeReadsZeroAfterTheGuardEnds) {
  metrics::Registry registry;
  auto source = std::make_unique<int>(7);
  {
    const metrics::SourceGuard guard;
    registry.gauge_from("varda_open", "Open.", {},
                        guard.guarded([&source] { return static_cast<double>(*source); }));
    EXPECT_NE(registry.text().find("varda_open 7\n"), std::string::npos);
  }
  source.reset();
  EXPECT_NE(registry.text().find("varda_open 0\n"), std::string::npos);
}

}  // namespace
}  // namespace varda
