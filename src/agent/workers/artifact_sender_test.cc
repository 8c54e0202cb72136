// Accepted files on their way to a registry that fails, forgets and refuses.
#include "agent/workers/artifact_sender.h"

#include <cstdio>
#include <gtest/gtest.h>
#include <map>

#include "artifact/testing/manual_clock.h"
#include "base/check.h"
#include "base/rng.h"
#include "codec/chunks.h"
#include "os/testing/memory_file_system.h"
#include "registry/request.h"

namespace varda::agent::workers {
namespace artifact_sender_test {

using artifact::testing::ManualClock;
using codec::Sha256;

const ArtifactOwner kOwner{"default/train", "u1", 8 << 20};

/// The registry behind a gateway, with one blob at a time.
class FakeRegistry {
 public:
  net::Handler handler() {
    return net::inline_handler([this](const net::Request& request) { return answer(request); });
  }
  std::string bytes;  // received so far
  bool stored = false;
  int pieces_left = 1000;  // then 503, as after a lost link
  int refusal = 0;         // 0: none
  std::vector<std::string> ranges;
  std::map<std::string, std::string> bases;  // bytes of blobs that can be copied from, by digest
  std::size_t body_bytes = 0;

 private:
  /// The piece of the list of chunks that the request asks for.
  net::Response list(const std::string& digest, std::string_view range) {
    const auto base = bases.find(digest);
    if (base == bases.end()) return {.status = 404};
    codec::ChunkList all{
        .bytes = base->second.size(), .digest = Sha256::of(base->second), .chunks = {}};
    codec::ChunkSplitter splitter([&](const codec::Chunk& chunk) { all.chunks.push_back(chunk); });
    splitter.update(base->second);
    splitter.finish();
    const std::string text = codec::write_chunk_list(all);
    std::size_t first = 0, last = 0;
    CHECK(std::sscanf(std::string(range).c_str(), "bytes=%zu-%zu", &first, &last) == 2);
    last = std::min(last, text.size() - 1);
    return {.status = 206,
            .headers = {{"Content-Range", "bytes " + std::to_string(first) + "-" +
                                              std::to_string(last) + "/" +
                                              std::to_string(text.size())}},
            .body = text.substr(first, last - first + 1)};
  }
  net::Response answer(const net::Request& request) {
    constexpr std::string_view kStart = "/v1/blobs/sha256:";
    constexpr std::size_t kDigits = 64;
    if (request.method == "GET")
      return list(std::string(request.path().substr(kStart.size(), kDigits)),
                  request.headers.find("Range").value_or(""));
    if (refusal != 0)
      return {.status = refusal,
              .headers = {},
              .body = request.method == "HEAD" ? "" : R"({"message": "the reason"})"};
    if (request.method == "HEAD") {
      if (stored) return {.status = 200};
      return {.status = 404, .headers = {{"Upload-Offset", std::to_string(bytes.size())}}};
    }
    if (pieces_left-- <= 0) return {.status = 503};
    const std::string range(request.headers.find("Content-Range").value_or(""));
    ranges.push_back(range);
    const auto parsed = registry::parse_content_range(range);
    const std::uint64_t first = parsed.ok() ? parsed->first : 0;
    const std::uint64_t total = parsed.ok() ? parsed->total : request.body.size();
    if (first > bytes.size()) return {.status = 409};
    bytes.resize(first);
    bytes += request.body;
    body_bytes += request.body.size();
    if (const auto copy =
            registry::parse_copy_source(request.headers.find("Upload-Copy").value_or(""));
        copy.ok()) {
      bytes += bases.at(copy->digest.hex()).substr(copy->first, copy->length);
    }
    if (bytes.size() < total)
      return {.status = 202, .headers = {{"Upload-Offset", std::to_string(bytes.size())}}};
    if ("/v1/blobs/sha256:" + Sha256::of(bytes).hex() != request.path()) {
      bytes.clear();
      return {.status = 422};
    }
    stored = true;
    return {.status = 201};
  }
};

class Sender : public ::testing::Test {
 protected:
  Sender() {
    CHECK(fs_.make_directories("/data", 0700).ok() && store_.load().ok());
    store_.set_owners({kOwner});
  }
  void accept(const std::string& name, const std::string& bytes) {
    const auto upload =
        store_.begin(kOwner, {.name = name, .length = bytes.size(), .total = bytes.size()});
    CHECK(upload.ok() && (*upload)->write(bytes).ok() && (*upload)->finish().ok());
  }
  void step() { sender_.tasks().front().step(Context::background()); }
  Artifact artifact(const std::string& name) { return *store_.find(kOwner, name); }

  ManualClock clock_;
  os::testing::MemoryFileSystem fs_;
  std::unique_ptr<core::StateStore> state_store_ = core::StateStore::in_memory();
  ArtifactStore store_{
      {.root = "/data/uploads", .boot = "1", .clock = &clock_}, fs_, *state_store_};
  FakeRegistry registry_;
  kube::Client api_{net::loopback(registry_.handler()), {}};
  ArtifactSender sender_{{.piece_bytes = 1000, .clock = &clock_}, store_, fs_, api_};
  const std::string bytes_ = std::string(2500, 'x');
};

TEST(SenderOfAStoreThatFailed, LoadIsRepeatedUntilItSucceeds) {
  ManualClock clock;
  os::testing::MemoryFileSystem fs;
  CHECK(fs.make_directories("/data", 0700).ok());
  const auto records = core::StateStore::in_memory();
  ArtifactStore store({.root = "/data/uploads", .boot = "1", .clock = &clock}, fs, *records);
  FakeRegistry registry;
  kube::Client api{net::loopback(registry.handler()), {}};
  ArtifactSender sender({.clock = &clock}, store, fs, api);
  const runtime::Task task = sender.tasks().front();
  fs.fail_nth(1, "mkdir");
  ASSERT_FALSE(store.load().ok());
  store.set_owners({kOwner});
  fs.fail_nth(1, "mkdir");
  EXPECT_LE(*task.due(), clock.now());
  task.step(Context::background());
  EXPECT_GT(*task.due(), clock.now());
  task.step(Context::background());
  EXPECT_TRUE(store.loaded());
  EXPECT_EQ(task.due(), std::nullopt);
  EXPECT_TRUE(store.begin(kOwner, {.name = "a", .length = 1, .total = 1}).ok());
}

TEST_F(Sender, FileGoesUpInPiecesAndLeavesTheDisk) {
  accept("weights", bytes_);
  step();
  EXPECT_TRUE(registry_.stored);
  EXPECT_EQ(registry_.ranges, (std::vector<std::string>{"bytes 0-999/2500", "bytes 1000-1999/2500",
                                                        "bytes 2000-2499/2500"}));
  EXPECT_EQ(artifact("weights").state, Artifact::kUploaded);
  EXPECT_EQ(fs_.list("/data/uploads").value(), std::vector<std::string>());
}

TEST_F(Sender, LostLinkCostsOnePieceAndARetry) {
  accept("weights", bytes_);
  registry_.pieces_left = 1;
  step();
  EXPECT_EQ(artifact("weights").state, Artifact::kWaiting);
  EXPECT_EQ(artifact("weights").sent, 1000u);
  EXPECT_NE(artifact("weights").reason.find("503"), std::string::npos);
  step();
  EXPECT_EQ(registry_.ranges.size(), 1u) << "the retry has its time";
  registry_.pieces_left = 1000;
  clock_.advance(std::chrono::seconds(1));
  step();
  EXPECT_EQ(registry_.ranges.at(1), "bytes 1000-1999/2500");
  EXPECT_EQ(artifact("weights").state, Artifact::kUploaded);
}

TEST_F(Sender, RetriesComeLessOften) {
  accept("weights", bytes_);
  registry_.refusal = 503;
  std::vector<std::int64_t> pauses;
  for (int i = 0; i < 8; ++i) {
    step();
    const auto pause =
        std::chrono::duration_cast<std::chrono::seconds>(*store_.due() - clock_.now());
    pauses.push_back(pause.count());
    clock_.advance(pause);
  }
  EXPECT_EQ(pauses, (std::vector<std::int64_t>{1, 2, 4, 8, 16, 32, 60, 60}));
}

TEST_F(Sender, RefusalOfOneFileHoldsUpNoOther) {
  accept("a", bytes_);
  registry_.refusal = 403;
  step();
  EXPECT_EQ(artifact("a").state, Artifact::kWaiting);
  EXPECT_NE(artifact("a").reason.find("403: the reason"), std::string::npos)
      << artifact("a").reason;
  registry_.refusal = 0;
  accept("b", bytes_ + "y");
  step();
  EXPECT_EQ(artifact("b").state, Artifact::kUploaded);
  EXPECT_EQ(artifact("a").state, Artifact::kWaiting);
}

TEST_F(Sender, FileThatTheRegistryHasIsNotSentAgain) {
  accept("weights", bytes_);
  registry_.stored = true;
  step();
  EXPECT_TRUE(registry_.ranges.empty());
  EXPECT_EQ(artifact("weights").state, Artifact::kUploaded);
}

TEST_F(Sender, ChangesOfAnEarlierArtifactGoUp) {
  std::string before(3 << 20, '\0');
  const auto rng = seeded_rng(1);
  for (char& c : before) c = static_cast<char>(rng->below(256));
  std::string after = before;
  after.replace(1 << 20, 30'000, std::string(30'000, 'x'));
  registry_.pieces_left = 10'000;
  for (const std::string& bytes : {before, std::string("a log")}) {
    accept(bytes == before ? "weights-1" : "log-1", bytes);
    step();
    registry_.bases[Sha256::of(bytes).hex()] = bytes;
    registry_.stored = false;
    registry_.bytes.clear();
  }
  registry_.body_bytes = 0;
  accept("weights-2", after);
  step();
  EXPECT_EQ(artifact("weights-2").state, Artifact::kUploaded);
  EXPECT_EQ(artifact("weights-2").sent, after.size());
  EXPECT_TRUE(registry_.stored);
  EXPECT_LE(registry_.body_bytes, 130'000u);
}

TEST_F(Sender, FileThatTheDiskDamagedFails) {
  accept("weights", bytes_);
  {
    const auto file =
        fs_.open("/data/uploads/" + artifact("weights").file, os::Open::kCreate, 0600).value();
    ASSERT_TRUE(file->write("y").ok());
  }
  step();
  EXPECT_EQ(artifact("weights").state, Artifact::kFailed);
  EXPECT_EQ(artifact("weights").reason, "the node's disk damaged the file");
  EXPECT_EQ(store_.due(), std::nullopt);
}

}  // namespace artifact_sender_test
}  // namespace varda::agent::workers
