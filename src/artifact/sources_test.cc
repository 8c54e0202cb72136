// Several sources of one archive: the order, resuming at another source, and the message when all
// fail.
#include <gtest/gtest.h>

#include "artifact/internal/source_history.h"
#include "artifact/store.h"
#include "artifact/testing/archives.h"
#include "artifact/testing/manual_clock.h"
#include "artifact/testing/origin.h"
#include "os/testing/memory_file_system.h"

namespace varda::artifact {
namespace sources_test {

using testing::ManualClock;
using testing::Origin;

const Context kForever = Context::background();
constexpr const char* kA = "http://a/m.tar";
constexpr const char* kB = "http://b/m.tar?signature=hush";
constexpr const char* kC = "http://c/m.tar";

std::string noise(std::size_t size, std::uint32_t seed = 1) {
  std::string bytes(size, '\0');
  for (char& c : bytes) c = static_cast<char>((seed = seed * 1664525 + 1013904223) >> 24);
  return bytes;
}

class SourcesTest : public ::testing::Test {
 protected:
  SourcesTest() { CHECK(fs.make_directories("/data", 0755).ok()); }

  std::unique_ptr<Store> open() {
    auto store =
        Store::open({.root = "/data/artifacts", .transport = {.clock = &clock}}, fs, origin);
    CHECK(store.ok());
    return std::move(*store);
  }
  Request request() const {
    return {
        .url = kA, .mirrors = {kB, kC}, .digest = codec::Sha256::of(archive), .framework = "onnx"};
  }
  std::vector<std::string> requested_urls() const {
    std::vector<std::string> urls;
    for (const auto& seen : origin.seen()) urls.push_back(seen.url);
    return urls;
  }
  /// The first connection to `url` breaks after `bytes`; later ones get no answer.
  void break_for_good(const std::string& url, std::size_t bytes, const std::string& etag) {
    origin.put(url, Origin::File{.bytes = archive, .etag = etag, .break_after = bytes});
    origin.on_request([this, url] {
      int times = 0;
      for (const std::string& one : requested_urls()) times += one == url ? 1 : 0;
      if (times == 1) origin.remove(url);
    });
  }
  std::vector<std::string> scratch() { return *fs.list("/data/artifacts/.scratch"); }

  os::testing::MemoryFileSystem fs;
  Origin origin;
  ManualClock clock;
  const std::string archive = testing::model_archive(noise(50'000));
};

TEST_F(SourcesTest, MirrorsAreTriedInOrderAfterAFailure) {
  origin.put(kA, archive);
  origin.put(kB, archive);
  ASSERT_TRUE(open()->ensure(kForever, request()).ok());
  EXPECT_EQ(requested_urls(), std::vector<std::string>{kA});
  ASSERT_TRUE(open()->remove(codec::Sha256::of(archive)).ok());
  origin.remove(kA);
  ASSERT_TRUE(open()->ensure(kForever, request()).ok());
  EXPECT_EQ(requested_urls(), (std::vector<std::string>{kA, kA, kB}));
}

TEST_F(SourcesTest, FailedSourceIsTriedLastForFiveMinutes) {
  const auto store = open();
  origin.put(kB, archive);
  ASSERT_TRUE(store->ensure(kForever, request()).ok());
  // Another archive on the same servers.
  const std::string other = testing::model_archive("other");
  Request second{.url = "http://a/2.tar",
                 .mirrors = {"http://b/2.tar"},
                 .digest = codec::Sha256::of(other),
                 .framework = "onnx"};
  origin.put("http://a/2.tar", other);
  origin.put("http://b/2.tar", other);
  ASSERT_TRUE(store->ensure(kForever, second).ok());
  EXPECT_EQ(requested_urls().back(), "http://b/2.tar");
  ASSERT_TRUE(store->remove(second.digest).ok());
  clock.advance(std::chrono::minutes(6));
  ASSERT_TRUE(store->ensure(kForever, second).ok());
  EXPECT_EQ(requested_urls().back(), "http://a/2.tar");
}

TEST_F(SourcesTest, NextSourceResumesWithoutTheOtherValidator) {
  break_for_good(kA, 20'000, "\"a\"");
  origin.put(kB, Origin::File{.bytes = archive, .etag = "\"b\""});
  ASSERT_TRUE(open()->ensure(kForever, request()).ok());
  const auto seen = origin.seen();
  ASSERT_EQ(seen.size(), 3u);
  EXPECT_EQ(seen[1].url, kA);
  EXPECT_EQ(seen[1].if_range, "\"a\"");
  EXPECT_EQ(seen[2].url, kB);
  EXPECT_EQ(seen[2].range, "bytes=20000-");
  EXPECT_EQ(seen[2].if_range, "");
  EXPECT_EQ(origin.bytes_served(), archive.size());
}

TEST_F(SourcesTest, ValidatorOfTheSourceIsReusedAfterARestart) {
  break_for_good(kA, 20'000, "\"a\"");
  EXPECT_FALSE(open()->ensure(kForever, request()).ok());
  origin.on_request({});
  origin.put(kA, Origin::File{.bytes = archive, .etag = "\"a\""});
  ASSERT_TRUE(open()->ensure(kForever, request()).ok());
  EXPECT_EQ(origin.seen().back().if_range, "\"a\"");
  EXPECT_EQ(origin.seen().back().range, "bytes=20000-");
  EXPECT_EQ(origin.bytes_served(), archive.size());
}

TEST_F(SourcesTest, MirrorWithOtherBytesCostsNoEarlierBytes) {
  const auto store = open();
  break_for_good(kA, 20'000, "");
  origin.put(kB, testing::model_archive(noise(50'000, 7)));
  origin.put(kC, archive);
  ASSERT_TRUE(store->ensure(kForever, request()).ok());
  EXPECT_EQ(requested_urls(), (std::vector<std::string>{kA, kA, kB, kC}));
  EXPECT_EQ(origin.seen().back().range, "bytes=20000-");
}

TEST_F(SourcesTest, SourceWithWrongBytesIsTriedLastForAnHour) {
  const auto store = open();
  origin.put(kA, testing::model_archive(noise(50'000, 7)));
  origin.put(kB, archive);
  origin.put(kC, archive);
  for (const char* last : {kB, kB, kA}) {
    ASSERT_TRUE(store->ensure(kForever, request()).ok());
    EXPECT_EQ(requested_urls().back(), last);
    ASSERT_TRUE(store->remove(codec::Sha256::of(archive)).ok());
    clock.advance(std::chrono::minutes(40));
    if (requested_urls().size() > 2) origin.put(kA, archive);  // repaired
  }
  EXPECT_EQ(requested_urls(), (std::vector<std::string>{kA, kB, kB, kA}));
}

TEST_F(SourcesTest, LoginPageDuringADownloadKeepsTheSpool) {
  break_for_good(kA, 20'000, "");
  EXPECT_FALSE(open()->ensure(kForever, request()).ok());
  origin.on_request({});
  origin.put(
      kA, Origin::File{
              .bytes = "<html>please log in</html>", .content_type = "text/html", .ranges = false});
  const auto failed = open()->ensure(kForever, request());
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().reason, Reason::kDownloadFailed);
  EXPECT_NE(failed.error().error.message().find("HTML page"), std::string::npos)
      << failed.error().error;
  origin.put(kA, archive);
  ASSERT_TRUE(open()->ensure(kForever, request()).ok());
  EXPECT_EQ(origin.seen().back().range, "bytes=20000-");
}

TEST_F(SourcesTest, SourceWithoutRangesIsTriedLastAndStartsOver) {
  break_for_good(kA, 20'000, "");
  origin.put(kB, Origin::File{.bytes = archive, .ranges = false});
  ASSERT_TRUE(open()->ensure(kForever, request()).ok());
  EXPECT_EQ(requested_urls(), (std::vector<std::string>{kA, kA, kB, kC, kB}));
  EXPECT_EQ(origin.seen().back().range, "");
}

TEST_F(SourcesTest, ErrorListsEverySourceAndTheMostHopefulReason) {
  origin.put(kA, testing::model_archive("other"));
  origin.put(kB, Origin::File{.bytes = "gone", .status = 404});
  const auto outcome = open()->ensure(kForever, request());
  ASSERT_FALSE(outcome.ok());
  EXPECT_EQ(outcome.error().reason, Reason::kDownloadFailed);
  const std::string& text = outcome.error().error.message();
  EXPECT_TRUE(text.starts_with("none of 3 sources delivered the archive: expected sha256 "))
      << text;
  for (const char* part :
       {"from http://a/m.tar", "http://b/m.tar: HTTP 404", "http://c/m.tar: connection refused"})
    EXPECT_NE(text.find(part), std::string::npos) << text;
  EXPECT_EQ(text.find("hush"), std::string::npos) << text;

  for (const char* url : {kA, kB, kC}) origin.put(url, testing::model_archive("other"));
  EXPECT_EQ(open()->ensure(kForever, request()).error().reason, Reason::kDigestMismatch);
}

TEST_F(SourcesTest, UnsafeArchiveWithTheRightDigestEndsTheSearch) {
  const std::string bad = testing::TarBuilder().file("../out", "x").tar();
  for (const char* url : {kA, kB, kC}) origin.put(url, bad);
  const auto outcome =
      open()->ensure(kForever, {.url = kA, .mirrors = {kB, kC}, .digest = codec::Sha256::of(bad)});
  ASSERT_FALSE(outcome.ok());
  EXPECT_EQ(outcome.error().reason, Reason::kUnsafeArchive);
  EXPECT_EQ(requested_urls(), std::vector<std::string>{kA});
  EXPECT_TRUE(scratch().empty());
}

TEST_F(SourcesTest, BusyServerIsNotTriedBeforeRetryAfter) {
  origin.put(kA, Origin::File{.bytes = "busy", .status = 503, .headers = {{"Retry-After", "120"}}});
  const Request alone{.url = kA, .digest = codec::Sha256::of(archive), .framework = "onnx"};
  const auto store = open();
  EXPECT_EQ(store->ensure(kForever, alone).error().retry_after, std::chrono::seconds(120));
  clock.advance(std::chrono::seconds(50));
  EXPECT_EQ(store->ensure(kForever, alone).error().retry_after, std::chrono::seconds(70));
  EXPECT_EQ(requested_urls().size(), 1u);
  // A mirror is not affected by the wait.
  origin.put(kB, archive);
  EXPECT_TRUE(store->ensure(kForever, request()).ok());
  EXPECT_EQ(requested_urls().back(), kB);
  ASSERT_TRUE(store->remove(codec::Sha256::of(archive)).ok());
  clock.advance(std::chrono::minutes(10));
  origin.put(kA, archive);
  EXPECT_TRUE(store->ensure(kForever, alone).ok());
}

TEST(SourceHistory, HistoryHoldsABoundedNumberOfSources) {
  ManualClock clock;
  SourceHistory history(clock);
  for (int i = 0; i < 5000; ++i)
    history.failed("http://h" + std::to_string(i) + "/x", SourceHistory::Trouble::kNoResponse,
                   std::chrono::seconds(0));
  const auto order = history.order({"http://h4999/x", "http://fresh/x", "http://fresh/x"});
  EXPECT_EQ(order, (std::vector<std::string>{"http://fresh/x", "http://h4999/x"}));
}

}  // namespace sources_test
}  // namespace varda::artifact
