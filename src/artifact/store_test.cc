#include "artifact/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <latch>
#include <thread>

#include "artifact/internal/plain_file.h"
#include "artifact/internal/source.h"
#include "artifact/layout.h"
#include "artifact/model_tree.h"
#include "artifact/testing/archives.h"
#include "artifact/testing/origin.h"
#include "os/testing/memory_file_system.h"

namespace varda::artifact {
namespace store_test {

using testing::Origin;
using testing::TarBuilder;

constexpr const char* kUrl = "http://user:secret@files/model.tar?token=hush";
const Context kForever = Context::background();

class StoreTest : public ::testing::Test {
 protected:
  StoreTest() { CHECK(fs.make_directories("/data", 0755).ok()); }

  std::unique_ptr<Store> open(Store::Options options = {}) {
    options.root = "/data/artifacts";
    auto store = Store::open(options, fs, origin);
    CHECK(store.ok());
    return std::move(*store);
  }
  Request request(const std::string& archive, std::string framework = "onnx",
                  std::string url = kUrl) const {
    return {.url = std::move(url),
            .digest = codec::Sha256::of(archive),
            .framework = std::move(framework)};
  }
  std::string noise(std::size_t size, std::uint32_t seed = 1) const {
    std::string bytes(size, '\0');
    for (char& c : bytes) c = static_cast<char>((seed = seed * 1664525 + 1013904223) >> 24);
    return bytes;
  }
  std::vector<std::string> scratch() { return *fs.list("/data/artifacts/.scratch"); }

  os::testing::MemoryFileSystem fs;
  Origin origin;
  const std::string archive = testing::model_archive(noise(50'000));
};

TEST_F(StoreTest, ArchiveIsUnpackedIntoADirectoryNamedByDigest) {
  origin.put(kUrl, archive);
  const auto store = open();
  const auto installed = store->ensure(kForever, request(archive));
  ASSERT_TRUE(installed.ok()) << installed.error().error;
  EXPECT_EQ(installed->directory, os::Path("/data/artifacts") / codec::Sha256::of(archive).hex());
  EXPECT_EQ(installed->bytes, 50'004u);
  EXPECT_EQ(*os::read_file(fs, installed->directory / "model.onnx"), noise(50'000));
  EXPECT_TRUE(scratch().empty());
}

TEST_F(StoreTest, PresentArtifactNeedsNoNetworkEvenAfterReopening) {
  origin.put(kUrl, archive);
  ASSERT_TRUE(open()->ensure(kForever, request(archive)).ok());
  origin.remove(kUrl);
  const auto store = open();
  const auto again = store->ensure(kForever, request(archive, "onnx", "http://elsewhere/x"));
  ASSERT_TRUE(again.ok()) << again.error().error;
  EXPECT_EQ(again->bytes, 50'004u);
  EXPECT_EQ(origin.seen().size(), 1u);
}

TEST_F(StoreTest, DigestCoversBytesAfterTheEndOfTheArchive) {
  const std::string longer = archive + "and something behind it";
  origin.put(kUrl, longer);
  const auto store = open();
  EXPECT_EQ(store->ensure(kForever, request(archive)).error().reason, Reason::kDigestMismatch);
  EXPECT_TRUE(store->ensure(kForever, request(longer)).ok());
}

TEST_F(StoreTest, DigestErrorNamesBothDigestsAndLeavesNoFiles) {
  const std::string other = testing::model_archive("other");
  origin.put(kUrl, other);
  const auto store = open();
  const auto outcome = store->ensure(kForever, request(archive));
  ASSERT_FALSE(outcome.ok());
  EXPECT_EQ(outcome.error().reason, Reason::kDigestMismatch);
  const std::string& message = outcome.error().error.message();
  EXPECT_NE(message.find("expected sha256 " + codec::Sha256::of(archive).hex()), std::string::npos)
      << message;
  EXPECT_NE(message.find("found " + codec::Sha256::of(other).hex()), std::string::npos) << message;
  EXPECT_EQ(message.find("secret"), std::string::npos) << message;
  EXPECT_EQ(message.find("hush"), std::string::npos) << message;
  EXPECT_TRUE(scratch().empty());
  EXPECT_TRUE(store->list().empty());
}

TEST_F(StoreTest, WrongDigestIsReportedBeforeArchiveContent) {
  origin.put(kUrl, TarBuilder().file("../evil").tar());
  EXPECT_EQ(open()->ensure(kForever, request(archive)).error().reason, Reason::kDigestMismatch);
}

TEST_F(StoreTest, HtmlPageInsteadOfAnArchiveIsTransient) {
  const std::string page = "\n<!DOCTYPE html><html>Please log in</html>";
  for (const char* type : {"text/html; charset=utf-8", "application/octet-stream"}) {
    origin.put(kUrl, Origin::File{.bytes = page, .content_type = type});
    const auto store = open();
    const auto outcome = store->ensure(kForever, request(archive));
    EXPECT_EQ(outcome.error().reason, Reason::kDownloadFailed);
    EXPECT_NE(outcome.error().error.message().find("HTML page"), std::string::npos);
    EXPECT_TRUE(scratch().empty());
  }
  origin.put(kUrl, archive);
  EXPECT_TRUE(open()->ensure(kForever, request(archive)).ok());
}

TEST_F(StoreTest, ErrorStatusIsTransientAndNamesTheStatus) {
  for (const int status : {403, 404, 429, 500, 503}) {
    origin.put(kUrl, Origin::File{.bytes = "no", .status = status});
    const auto outcome = open()->ensure(kForever, request(archive));
    EXPECT_EQ(outcome.error().reason, Reason::kDownloadFailed);
    EXPECT_NE(outcome.error().error.message().find(std::to_string(status)), std::string::npos);
  }
}

TEST_F(StoreTest, BrokenConnectionResumesAtTheSameByte) {
  origin.put(kUrl, Origin::File{.bytes = archive, .etag = "\"v1\"", .break_after = 20'000});
  ASSERT_TRUE(open()->ensure(kForever, request(archive)).ok());
  const auto seen = origin.seen();
  ASSERT_EQ(seen.size(), 3u);
  EXPECT_EQ(seen[1].range, "bytes=20000-");
  EXPECT_EQ(seen[1].if_range, "\"v1\"");
  EXPECT_EQ(seen[2].range, "bytes=40000-");
  EXPECT_EQ(origin.bytes_served(), archive.size());
}

TEST_F(StoreTest, DownloadResumesAfterAKill) {
  origin.put(kUrl, Origin::File{.bytes = archive, .break_after = 20'000});
  int requests = 0;
  origin.on_request([&] {
    if (++requests == 2) origin.remove(kUrl);
  });
  // The second connection is answered (the file is looked up first) and breaks. The third finds no
  // file.
  EXPECT_EQ(open()->ensure(kForever, request(archive)).error().reason, Reason::kDownloadFailed);
  ASSERT_EQ(scratch().size(), 1u);
  origin.on_request({});
  origin.put(kUrl, archive);
  const auto before = origin.bytes_served();
  ASSERT_TRUE(open()->ensure(kForever, request(archive)).ok());
  EXPECT_EQ(origin.bytes_served() - before, archive.size() - before);
  EXPECT_TRUE(scratch().empty());
}

TEST_F(StoreTest, SpoolOfOtherContentIsDroppedAndTheDownloadStartsOver) {
  const auto leave_spool = [&](const std::string& bytes) {
    auto file = fs.open("/data/artifacts/.scratch/" + codec::Sha256::of(archive).hex() + ".part",
                        os::Open::kTruncate, 0600);
    CHECK(file.ok() && (*file)->write(bytes).ok());
  };
  ASSERT_TRUE(fs.make_directories("/data/artifacts/.scratch", 0755).ok());
  for (const bool ranges : {true, false}) {
    for (const std::string& bytes : {noise(3000), noise(archive.size(), 7),
                                     noise(archive.size() + 5000), archive.substr(0, 99)}) {
      leave_spool(bytes);
      origin.put(kUrl, Origin::File{.bytes = archive, .ranges = ranges});
      const auto store = open();
      const auto outcome = store->ensure(kForever, request(archive));
      ASSERT_TRUE(outcome.ok()) << outcome.error().error;
      EXPECT_TRUE(scratch().empty());
      ASSERT_TRUE(store->remove(codec::Sha256::of(archive)).ok());
    }
  }
}

TEST_F(StoreTest, CompleteSpoolNeedsNoFurtherByte) {
  ASSERT_TRUE(fs.make_directories("/data/artifacts/.scratch", 0755).ok());
  {
    auto file = fs.open("/data/artifacts/.scratch/" + codec::Sha256::of(archive).hex() + ".part",
                        os::Open::kCreate, 0600);
    ASSERT_TRUE((*file)->write(archive).ok());
  }
  origin.put(kUrl, archive);
  EXPECT_TRUE(open()->ensure(kForever, request(archive)).ok());
  EXPECT_EQ(origin.bytes_served(), 0u);
}

TEST_F(StoreTest, OpeningClearsHalfExtractedTreesAndKeepsPartialDownloads) {
  ASSERT_TRUE(fs.make_directories("/data/artifacts/.scratch/abc.tree/x", 0755).ok());
  ASSERT_TRUE(fs.open("/data/artifacts/.scratch/abc.part", os::Open::kCreate, 0600).ok());
  const auto store = open();
  EXPECT_EQ(scratch(), std::vector<std::string>{"abc.part"});
  store->keep({});
  EXPECT_TRUE(scratch().empty());
}

TEST_F(StoreTest, StopRequestEndsASilentDownload) {
  origin.put(kUrl, Origin::File{.bytes = archive, .no_answer = true});
  std::stop_source stop;
  std::latch requested(1);
  origin.on_request([&] { requested.count_down(); });
  std::jthread stopper([&] {
    requested.wait();
    stop.request_stop();
  });
  const auto outcome = open()->ensure(Context(stop.get_token()), request(archive));
  ASSERT_FALSE(outcome.ok());
  EXPECT_EQ(outcome.error().reason, Reason::kCancelled);
}

TEST_F(StoreTest, SilentServerIsAbandoned) {
  origin.put(kUrl, Origin::File{.bytes = archive, .no_answer = true});
  ASSERT_TRUE(fs.make_directories("/s", 0755).ok());
  auto source = open_source(
      kForever, fs, origin,
      {.request = request(archive), .spool = "/s/a.part", .stall = std::chrono::milliseconds(30)});
  ASSERT_TRUE(source.ok());
  const auto bytes = source.value()->next();
  ASSERT_FALSE(bytes.ok());
  EXPECT_EQ(bytes.error().reason, Reason::kDownloadFailed);
  EXPECT_NE(bytes.error().error.message().find("sent no bytes"), std::string::npos)
      << bytes.error().error;
}

TEST_F(StoreTest, ForbiddenSchemesAndPathsAreRefused) {
  ASSERT_TRUE(fs.make_directories("/srv/models/sub", 0755).ok());
  ASSERT_TRUE(fs.make_directories("/srv/private", 0755).ok());
  for (const char* path : {"/srv/models/m.tar", "/srv/private/m.tar", "/srv/models/sub/m.tar"})
    ASSERT_TRUE(os::write_file_atomically(fs, path, archive).ok());
  ASSERT_TRUE(fs.symlink("/srv/private", "/srv/models/link").ok());
  ASSERT_TRUE(fs.symlink("/srv/private/m.tar", "/srv/models/file-link").ok());
  const auto roots = open({.file_roots = {"/srv/models"}});
  const auto none = open();
  for (const char* url :
       {"ftp://h/m.tar", "s3://bucket", "s3://bucket/m.tar?version=1", "nonsense",
        "file:///srv/private/m.tar", "file:///srv/models/../private/m.tar",
        "file:///srv/models/%2e%2e/private/m.tar", "file:///srv/models/link/m.tar",
        "file:///srv/models/file-link", "file://host/srv/models/m.tar", "file:///srv/modelsX/m.tar",
        "file:///srv/models"}) {
    const auto outcome = roots->ensure(kForever, request(archive, "onnx", url));
    ASSERT_FALSE(outcome.ok()) << url;
    EXPECT_EQ(outcome.error().reason, Reason::kSourceForbidden)
        << url << ": " << outcome.error().error;
  }
  EXPECT_EQ(
      none->ensure(kForever, request(archive, "onnx", "file:///srv/models/m.tar")).error().reason,
      Reason::kSourceForbidden);
  EXPECT_EQ(
      roots->ensure(kForever, request(archive, "onnx", "file:///srv/models/none")).error().reason,
      Reason::kDownloadFailed);
  const auto read =
      roots->ensure(kForever, request(archive, "onnx", "file:///srv/models/sub/m.tar"));
  EXPECT_TRUE(read.ok()) << read.error().error;
}

TEST_F(StoreTest, OneLinkToAnEntryInTheSameDirectoryIsFollowed) {
  ASSERT_TRUE(fs.make_directories("/srv/models/v4", 0755).ok());
  ASSERT_TRUE(fs.make_directories("/srv/private", 0755).ok());
  for (const char* path : {"/srv/models/v4/m.tar", "/srv/private/m.tar", "/srv/m.tar"})
    ASSERT_TRUE(os::write_file_atomically(fs, path, archive).ok());
  ASSERT_TRUE(fs.symlink("v4", "/srv/models/current").ok());
  ASSERT_TRUE(fs.symlink("m.tar", "/srv/models/v4/newest").ok());
  ASSERT_TRUE(fs.symlink("current", "/srv/models/twice").ok());
  ASSERT_TRUE(fs.symlink("..", "/srv/models/up").ok());
  ASSERT_TRUE(fs.symlink(".", "/srv/models/here").ok());
  ASSERT_TRUE(fs.symlink("../private", "/srv/models/out").ok());
  ASSERT_TRUE(fs.symlink("none", "/srv/models/dangling").ok());
  const auto reason = [&](const std::string& below) {
    const auto store = open({.file_roots = {"/srv/models"}});
    const auto outcome =
        store->ensure(kForever, request(archive, "onnx", "file:///srv/models/" + below));
    const auto removed = store->remove(codec::Sha256::of(archive));
    CHECK(removed.ok());
    return outcome.ok() ? "" : std::string(to_string(outcome.error().reason));
  };
  EXPECT_EQ(reason("current/m.tar"), "");
  EXPECT_EQ(reason("current/newest"), "");
  EXPECT_EQ(reason("twice/m.tar"), "SourceForbidden");
  EXPECT_EQ(reason("up/m.tar"), "SourceForbidden");
  EXPECT_EQ(reason("here/v4/m.tar"), "SourceForbidden");
  EXPECT_EQ(reason("out/m.tar"), "SourceForbidden");
  EXPECT_EQ(reason("dangling/m.tar"), "DownloadFailed");
}

TEST_F(StoreTest, LayoutIsCheckedPerFrameworkAndTheArtifactIsKept) {
  struct Case {
    std::string archive;
    bool fits;
  };
  const Case cases[] = {
      {TarBuilder().file("model.onnx", "m").tar(), true},
      {TarBuilder().file("any.onnx", "m").tar(), true},
      {TarBuilder().file("model.onnx", "m").file("other.onnx", "m").tar(), true},
      {TarBuilder().file("a.onnx", "m").file("b.onnx", "m").tar(), false},
      {TarBuilder().file("model.pb", "m").tar(), false},
      {TarBuilder().file("model.onnx", "").tar(), false},
      {TarBuilder().file("x", "m").file("sub/model.onnx", "m").tar(), false},
      {TarBuilder().directory("model.onnx").file("x", "m").tar(), false},
      {TarBuilder().file("x", "m").symlink("model.onnx", "x").tar(), false},
  };
  for (const Case& c : cases) {
    origin.put(kUrl, c.archive);
    const auto store = open();
    const auto outcome = store->ensure(kForever, request(c.archive));
    ASSERT_EQ(outcome.ok(), c.fits);
    if (!c.fits) {
      EXPECT_EQ(outcome.error().reason, Reason::kBadLayout) << outcome.error().error;
    }
    EXPECT_TRUE(store->ensure(kForever, request(c.archive, "tensorflow")).ok());
  }
}

TEST_F(StoreTest, LayoutOfEachFrameworkIsChecked) {
  struct Case {
    std::string framework;
    std::string archive;
    std::string problem;  // "": fits
  };
  const Case cases[] = {
      {"pb", TarBuilder().file("frozen.pb", "m").tar(), ""},
      {"pb", TarBuilder().file("frozen.pb", "m").file("labels.txt", "a").tar(), ""},
      {"pb", TarBuilder().file("saved_model.pb", "m").tar(), "exactly one non-empty *.pb file"},
      {"pb", TarBuilder().file("a.pb", "m").file("b.pb", "m").tar(), "found: a.pb, b.pb"},
      {"caffe", TarBuilder().file("m.caffemodel", "m").file("m.prototxt", "t").tar(), ""},
      {"caffe", TarBuilder().file("m.caffemodel", "m").tar(), "needs m.prototxt beside"},
      {"darknet", TarBuilder().file("m.weights", "m").file("m.cfg", "t").tar(), ""},
      {"darknet", TarBuilder().file("m.weights", "m").file("n.cfg", "t").tar(), "needs m.cfg"},
  };
  for (const Case& c : cases) {
    origin.put(kUrl, c.archive);
    const auto store = open();
    const auto outcome = store->ensure(kForever, request(c.archive, c.framework));
    EXPECT_EQ(outcome.ok(), c.problem.empty()) << c.framework << ": " << c.problem;
    if (!outcome.ok()) {
      EXPECT_EQ(outcome.error().reason, Reason::kBadLayout);
      EXPECT_THAT(outcome.error().error.message(), ::testing::HasSubstr(c.problem));
    }
  }
}

TEST_F(StoreTest, FormatOfATensorflowTreeIsReadFromItsNames) {
  const std::pair<std::string, std::string_view> cases[] = {
      {TarBuilder().file("frozen.pb", "m").tar(), kFrozenGraph},
      {TarBuilder().file("saved_model.pb", "m").file("x.pb", "m").tar(), kSavedModel},
      {TarBuilder().file("model.h5", "m").tar(), kSavedModel},
  };
  for (const auto& [bytes, format] : cases) {
    origin.put(kUrl, bytes);
    const auto store = open();
    const auto installed = store->ensure(kForever, request(bytes, "tensorflow"));
    ASSERT_TRUE(installed.ok()) << installed.error().error;
    EXPECT_EQ(format_of(fs, installed->directory, "tensorflow"), format);
    EXPECT_EQ(format_of(fs, installed->directory, "onnx"), "");
  }
}

TEST_F(StoreTest, PlainFileBecomesTheOnlyFileOfTheTree) {
  const std::string bytes = noise(50'000);
  for (const auto& [url, framework, name] :
       {std::tuple("http://files/a/model.onnx?token=hush", "onnx", "model.onnx"),
        std::tuple("http://files/Frozen%20graph.PB", "tensorflow", "Frozen graph.PB"),
        std::tuple("http://files/a%2Fb.npz", "", "a%2Fb.npz")}) {
    origin.put(url, Origin::File{.bytes = bytes, .break_after = 20'000});
    const auto store = open();
    const auto installed = store->ensure(kForever, request(bytes, framework, url));
    ASSERT_TRUE(installed.ok()) << installed.error().error;
    EXPECT_EQ(installed->bytes, bytes.size());
    EXPECT_EQ(*fs.list(installed->directory), std::vector<std::string>{name});
    EXPECT_EQ(*os::read_file(fs, installed->directory / name), bytes);
    ASSERT_TRUE(store->remove(codec::Sha256::of(bytes)).ok());
  }
}

TEST_F(StoreTest, PlainFileWithAnotherDigestLeavesNoFiles) {
  const char* url = "http://files/frozen.pb";
  origin.put(url, "other bytes");
  const auto store = open();
  const auto refused = store->ensure(kForever, request("these bytes", "tensorflow", url));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().reason, Reason::kDigestMismatch);
  EXPECT_TRUE(store->list().empty());
  EXPECT_TRUE(scratch().empty());
}

// A .pt file is a zip archive. A version number is no suffix.
TEST(PlainFile, NameOfTheUrlDecidesBetweenFileAndArchive) {
  for (const char* file :
       {"https://h/frozen.pb", "s3://bucket/a/w.npz", "file:///srv/m.pt?x=1.tar"})
    EXPECT_NE(plain_file_name(file), "") << file;
  for (const char* archive : {"https://h/m.tar.gz", "https://h/m-1.2", "https://h/get?file=m.onnx",
                              "https://h/.onnx", "https://h/a.onnx/", "no url"})
    EXPECT_EQ(plain_file_name(archive), "") << archive;
}

TEST_F(StoreTest, ConcurrentCallsForOneDigestShareOneDownload) {
  origin.put(kUrl, archive);
  const auto store = open();
  std::latch started(4), go(1);
  origin.on_request([&] { go.wait(); });
  std::vector<std::jthread> callers;
  std::atomic<int> good = 0;
  for (int i = 0; i < 4; ++i)
    callers.emplace_back([&] {
      started.count_down();
      if (store->ensure(kForever, request(archive)).ok()) ++good;
    });
  started.wait();
  go.count_down();
  callers.clear();
  EXPECT_EQ(good, 4);
  EXPECT_EQ(origin.seen().size(), 1u);
}

TEST_F(StoreTest, FailureAtOneSourceDoesNotAffectAnotherCaller) {
  origin.put(kUrl, archive);
  const auto store = open();
  std::latch requested(1), waiting(1);
  std::atomic_flag once;
  origin.on_request([&] {
    if (once.test_and_set()) return;
    requested.count_down();
    waiting.wait();
  });
  std::jthread first([&] {
    EXPECT_EQ(
        store->ensure(kForever, request(archive, "onnx", "http://elsewhere/gone")).error().reason,
        Reason::kDownloadFailed);
  });
  requested.wait();
  std::jthread second([&] {
    waiting.count_down();
    const auto installed = store->ensure(kForever, request(archive));
    EXPECT_TRUE(installed.ok()) << installed.error().error;
  });
}

TEST_F(StoreTest, WaiterTakesOverWhenTheDownloaderStops) {
  origin.put(kUrl, Origin::File{.bytes = archive, .no_answer = true});
  const auto store = open();
  std::latch requested(1);
  std::stop_source stop;
  std::atomic_flag once;
  origin.on_request([&] {
    if (!once.test_and_set()) requested.count_down();
  });
  std::jthread first(
      [&] { EXPECT_FALSE(store->ensure(Context(stop.get_token()), request(archive)).ok()); });
  requested.wait();
  origin.put(kUrl, archive);
  std::jthread second([&] { EXPECT_TRUE(store->ensure(kForever, request(archive)).ok()); });
  stop.request_stop();
}

TEST_F(StoreTest, EvictionTakesTheLeastRecentlyUsedUnprotectedArtifact) {
  const auto store = open({.capacity_bytes = 250'000});
  auto models = ModelTree::open(fs, "/data/models");
  ASSERT_TRUE(models.ok());
  const auto install = [&](std::uint32_t seed) {
    const std::string bytes = testing::model_archive(noise(50'000, seed));
    origin.put(kUrl, bytes);
    auto installed = store->ensure(kForever, request(bytes));
    return std::pair(codec::Sha256::of(bytes), std::move(installed));
  };
  const auto [exposed, exposed_at] = install(1);
  const auto [protected_digest, protected_path] = install(2);
  const auto [idle, idle_at] = install(3);
  const auto [used, used_at] = install(4);
  ASSERT_TRUE(models->expose("default/m", "1", exposed_at->directory).ok());
  store->keep({protected_digest});
  const auto [fifth, fifth_at] = install(5);  // 250,020 bytes: one must go
  ASSERT_TRUE(fifth_at.ok()) << fifth_at.error().error;
  EXPECT_FALSE(store->find(idle));
  ASSERT_TRUE(store->find(used));
  const auto [sixth, sixth_at] = install(6);
  ASSERT_TRUE(sixth_at.ok());
  EXPECT_FALSE(store->find(fifth));
  EXPECT_TRUE(store->find(exposed) && store->find(protected_digest) && store->find(used));
  store->keep({protected_digest, used, sixth});
  const auto [seventh, seventh_at] = install(7);
  ASSERT_FALSE(seventh_at.ok());
  EXPECT_EQ(seventh_at.error().reason, Reason::kDiskFull);
  EXPECT_EQ(store->remove(exposed).error().code(), Code::kConflict);
  EXPECT_EQ(store->bytes(), 4 * 50'004u);
}

TEST_F(StoreTest, OversizedArtifactEvictsNothingAndIsNotDownloadedAgain) {
  const auto store = open({.capacity_bytes = 200'000});
  const auto install = [&](std::size_t size, std::uint32_t seed) {
    const std::string bytes = testing::model_archive(noise(size, seed));
    origin.put(kUrl, Origin::File{.bytes = bytes, .etag = "\"e\""});
    auto outcome = store->ensure(kForever, request(bytes));
    return std::pair(codec::Sha256::of(bytes), std::move(outcome));
  };
  const auto [protected_digest, protected_path] = install(50'000, 1);
  const auto [idle, idle_at] = install(50'000, 2);
  ASSERT_TRUE(protected_path.ok() && idle_at.ok());
  const std::string large = testing::model_archive(noise(170'000, 3));
  store->keep({protected_digest, codec::Sha256::of(large)});
  std::uint64_t served = 0;
  for (int i = 0; i < 3; ++i) {
    const auto [wanted, outcome] = install(170'000, 3);
    ASSERT_FALSE(outcome.ok());
    EXPECT_EQ(outcome.error().reason, Reason::kDiskFull);
    EXPECT_NE(outcome.error().error.message().find("149996 bytes that artifacts in use leave free"),
              std::string::npos)
        << outcome.error().error;
    EXPECT_TRUE(store->find(idle)) << "it would not have helped";
    if (i == 0) served = origin.bytes_served();
  }
  EXPECT_EQ(origin.bytes_served(), served) << "what came is on the disk";
  store->keep({codec::Sha256::of(large)});
  const auto [wanted, outcome] = install(170'000, 3);
  ASSERT_TRUE(outcome.ok()) << outcome.error().error;
  EXPECT_EQ(store->list(), std::vector<codec::Sha256>{wanted});
}

TEST_F(StoreTest, FullDiskEvictsUnusedArtifactsAndRetries) {
  const auto store = open();
  origin.put(kUrl, archive);
  ASSERT_TRUE(store->ensure(kForever, request(archive)).ok());
  fs.set_capacity(170'000);
  const std::string next = testing::model_archive(noise(60'000, 9));
  origin.put(kUrl, next);
  const auto outcome = store->ensure(kForever, request(next));
  ASSERT_TRUE(outcome.ok()) << outcome.error().error;
  EXPECT_EQ(store->list().size(), 1u);

  const std::string huge = testing::model_archive(noise(400'000, 9));
  origin.put(kUrl, Origin::File{.bytes = huge, .length = false});
  EXPECT_EQ(store->ensure(kForever, request(huge)).error().reason, Reason::kDiskFull);
  fs.set_capacity(4'000'000);
  EXPECT_TRUE(store->ensure(kForever, request(huge)).ok());
}

TEST_F(StoreTest, OversizedModelLeavesTheReservedSpaceFree) {
  const auto store = open();
  fs.set_capacity(4'000'000);
  std::uint64_t least = UINT64_MAX;
  const std::string huge = testing::model_archive(noise(3'900'000));
  origin.put(kUrl, Origin::File{.bytes = huge, .length = false});
  const auto watch = [&](const Progress&) {
    least = std::min(least, fs.space("/data")->available_bytes);
  };
  const auto outcome = store->ensure(kForever, request(huge), watch);
  ASSERT_FALSE(outcome.ok());
  EXPECT_EQ(outcome.error().reason, Reason::kDiskFull);
  EXPECT_NE(outcome.error().error.message().find("reserved for other writers"), std::string::npos)
      << outcome.error().error;
  EXPECT_GE(least, 150'000u);
  EXPECT_GE(fs.space("/data")->available_bytes, 200'000u);
}

// Every disk call fails once and is also a kill point: a path named by a digest is always whole.
TEST_F(StoreTest, FaultOrKillAtAnyCallLeavesAWholeOrAbsentArtifact) {
  origin.put(kUrl, archive);
  std::uint64_t calls = 0;
  {
    os::testing::MemoryFileSystem probe;
    ASSERT_TRUE(probe.make_directories("/data", 0755).ok());
    auto store = Store::open({.root = "/data/artifacts"}, probe, origin);
    ASSERT_TRUE((*store)->ensure(kForever, request(archive)).ok());
    calls = probe.calls();
  }
  for (const bool killed : {false, true}) {
    for (std::uint64_t nth = 1; nth <= calls; ++nth) {
      os::testing::MemoryFileSystem disk;
      ASSERT_TRUE(disk.make_directories("/data", 0755).ok());
      std::uint64_t seen = 0;
      disk.on_call([&, nth](std::string_view, const os::Path&) -> Status {
        ++seen;
        if (killed ? seen >= nth : seen == nth) return Error(Code::kInternal, "injected failure");
        return {};
      });
      {
        auto store = Store::open({.root = "/data/artifacts"}, disk, origin);
        if (store.ok()) (void)(*store)->ensure(kForever, request(archive)).ok();
      }
      disk.on_call({});
      auto store = Store::open({.root = "/data/artifacts"}, disk, origin);
      ASSERT_TRUE(store.ok()) << store.error();
      if (const auto found = (*store)->find(codec::Sha256::of(archive))) {
        EXPECT_EQ(found->bytes, 50'004u) << nth;
      }
      const auto installed = (*store)->ensure(kForever, request(archive));
      ASSERT_TRUE(installed.ok()) << nth << ": " << installed.error().error;
      EXPECT_EQ(*os::read_file(disk, installed->directory / "model.onnx"), noise(50'000));
      EXPECT_TRUE(disk.list("/data/artifacts/.scratch")->empty()) << nth;
    }
  }
}

TEST_F(StoreTest, ProgressReachesTheEndOfBothPhases) {
  origin.put(kUrl, archive);
  Progress download, extract;
  ASSERT_TRUE(open()
                  ->ensure(kForever, request(archive),
                           [&](const Progress& p) {
                             (p.phase == Phase::kDownload ? download : extract) = p;
                           })
                  .ok());
  EXPECT_EQ(download.done, archive.size());
  EXPECT_EQ(download.total, archive.size());
  EXPECT_EQ(extract.done, 50'004u);
}

}  // namespace store_test
}  // namespace varda::artifact
