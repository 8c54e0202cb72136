// Accepted files on their way to a registry that fails, forgets and refuses.
#include "agent/workers/artifact_sender.h"

#include <gtest/gtest.h>

#include "artifact/testing/manual_clock.h"
#include "base/check.h"
#include "os/testing/memory_file_system.h"
#include "registry/request.h"

namespace varda::agent::workers {
namespace artifact_sender_test {

using artifact::testing::ManualClock;
using codec::Sha256;

const ArtifactOwner kOwner{"default/train", "u1", 1 << 20};

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

 private:
  net::Response answer(const net::Request& request) {
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
