// Artifacts on a disk that fails, is killed or loses unsynced bytes, at every call.
#include "agent/workers/artifact_store.h"

#include <gtest/gtest.h>

#include "artifact/testing/manual_clock.h"
#include "base/check.h"
#include "os/testing/crash_campaign.h"
#include "os/testing/faults.h"
#include "os/testing/memory_file_system.h"

namespace varda::agent::workers {
namespace artifact_store_test {

using artifact::testing::ManualClock;
using codec::Json;
using codec::Sha256;
using os::testing::CrashCampaign;
using os::testing::CrashingFileSystem;

const ArtifactOwner kOwner{"default/train", "u1", 1 << 20};

std::string noise(std::size_t size, std::uint32_t seed) {
  std::string bytes(size, '\0');
  for (char& c : bytes) c = static_cast<char>((seed = seed * 1664525 + 1013904223) >> 24);
  return bytes;
}
const std::string kWeights = noise(9000, 1), kLog = noise(300, 2);

std::unique_ptr<CrashingFileSystem> new_disk() {
  auto fs = std::make_unique<CrashingFileSystem>();
  CHECK(fs->make_directories("/data", 0755).ok() && fs->sync_directory("/").ok());
  return fs;
}

std::unique_ptr<core::StateStore> copy_of(core::StateStore& from) {
  auto out = core::StateStore::in_memory();
  CHECK(out->put_all(from.entries("").value()).ok());
  return out;
}

struct Node {
  Node(os::FileSystem& fs, core::StateStore& state_store, std::string boot = "1")
      : store({.root = "/data/uploads", .boot = std::move(boot), .clock = &clock}, fs,
              state_store) {}
  Status start(const std::vector<ArtifactOwner>& owners = {kOwner}) {
    TRY_VOID(store.load());
    store.set_owners(owners);
    return {};
  }
  ManualClock clock;
  ArtifactStore store;
};

Result<std::optional<Artifact>> send(ArtifactStore& store, const std::string& name,
                                     std::string_view bytes, std::uint64_t first,
                                     std::uint64_t length, const ArtifactOwner& owner = kOwner) {
  TRY(const auto upload,
      store.begin(owner, {.name = name, .first = first, .length = length, .total = bytes.size()}));
  for (std::uint64_t at = 0; at < length; at += 2000)
    TRY_VOID(upload->write(bytes.substr(first + at, std::min<std::uint64_t>(2000, length - at))));
  return upload->finish();
}

/// Sends what the store lacks, as a worker does.
Status hand_over(ArtifactStore& store, const std::string& name, const std::string& bytes) {
  if (store.find(kOwner, name)) return {};
  const std::uint64_t first = store.offset(kOwner, name).value_or(0);
  TRY(const auto artifact, send(store, name, bytes, first, bytes.size() - first));
  return artifact ? Status() : Status(Error(Code::kInternal, "not accepted"));
}

struct Acknowledged {
  bool weights = false, log = false;
};

Status work(os::FileSystem& fs, core::StateStore& state_store, Acknowledged& done) {
  Node node(fs, state_store);
  TRY_VOID(node.start());
  TRY_VOID(send(node.store, "weights", kWeights, 0, 4000));
  TRY_VOID(hand_over(node.store, "weights", kWeights));
  done.weights = true;
  TRY_VOID(hand_over(node.store, "log", kLog));
  done.log = true;
  return {};
}

/// Every accepted file is whole, and every acknowledged file is accepted. The rest can be sent.
std::string check(CrashingFileSystem& fs, core::StateStore& records, const Acknowledged& done,
                  const std::string& boot) {
  const auto state_store = copy_of(records);
  Node node(fs, *state_store, boot);
  if (const Status started = node.start(); !started.ok()) return started.error().message();
  if (done.weights && !node.store.find(kOwner, "weights")) return "lost the weights";
  if (done.log && !node.store.find(kOwner, "log")) return "lost the log";
  for (const auto& [name, bytes] : {std::pair("weights", &kWeights), {"log", &kLog}}) {
    if (const Status sent = hand_over(node.store, name, *bytes); !sent.ok())
      return "sending again: " + sent.error().message();
    const auto found = node.store.find(kOwner, name);
    if (!found || found->sha256 != Sha256::of(*bytes) || found->state != Artifact::kWaiting)
      return std::string(name) + " has other bytes";
    if (os::read_file(fs, "/data/uploads/" + found->file).value_or("") != *bytes)
      return std::string(name) + " is not whole";
  }
  return "";
}

TEST(ArtifactStore, UploadedFileOfAFormerDiskIsAdopted) {
  const auto fs = new_disk();
  const auto records = core::StateStore::in_memory();
  const std::string sha256 = Sha256::of(kWeights).hex();
  Json reported = Json::object();
  reported.set(
      "weights",
      Json::object({{"sha256", sha256}, {"bytes", 9000}, {"sent", 9000}, {"state", "Uploaded"}}));
  reported.set("broken", Json::object({{"sha256", "?"}, {"state", "Uploaded"}}));
  {
    Node node(*fs, *records);
    ASSERT_TRUE(node.start().ok());
    node.store.adopt(kOwner.key, "another", reported);
    EXPECT_EQ(node.store.report(kOwner.key, "another"), Json::object());
    ASSERT_TRUE(hand_over(node.store, "log", kLog).ok());
    reported.set("log", Json::object({{"sha256", sha256}, {"state", "Uploaded"}}));
    node.store.adopt(kOwner.key, kOwner.uid, reported);
    EXPECT_EQ(node.store.find(kOwner, "log")->sha256, Sha256::of(kLog)) << "present files stay";
    EXPECT_EQ(node.store.take()->artifact.name, "log") << "nothing else is sent";
  }
  Node node(*fs, *records);
  ASSERT_TRUE(node.start().ok());
  const Json report = node.store.report(kOwner.key, kOwner.uid);
  EXPECT_EQ(report["weights"], reported["weights"]);
  EXPECT_EQ(report.size(), 2u);
}

TEST(ArtifactStore, FileIsAcceptedWithItsDigest) {
  const auto fs = new_disk();
  const auto records = core::StateStore::in_memory();
  Node node(*fs, *records);
  ASSERT_TRUE(node.start().ok());
  const auto artifact = send(node.store, "weights", kWeights, 0, kWeights.size());
  ASSERT_TRUE(artifact.ok() && *artifact);
  EXPECT_EQ((*artifact)->sha256, Sha256::of(kWeights));
  EXPECT_EQ(node.store.report("default/train", "u1")["weights"],
            codec::parse_json("{\"sha256\": \"" + Sha256::of(kWeights).hex() +
                              "\", \"bytes\": 9000, \"sent\": 0, \"state\": \"Waiting\"}")
                .value());
  EXPECT_EQ(send(node.store, "weights", kWeights, 0, kWeights.size()).error().code(),
            Code::kAlreadyExists);
}

TEST(ArtifactStore, UploadContinuesAfterKill) {
  const auto fs = new_disk();
  const auto records = core::StateStore::in_memory();
  {
    Node node(*fs, *records);
    ASSERT_TRUE(node.start().ok());
    const auto part = send(node.store, "weights", kWeights, 0, 4000);
    ASSERT_TRUE(part.ok() && !*part);
  }
  Node node(*fs, *records);
  ASSERT_TRUE(node.start().ok());
  EXPECT_EQ(node.store.offset(kOwner, "weights"), 4000u);
  EXPECT_EQ(send(node.store, "weights", kWeights, 5000, 4000).error().code(), Code::kConflict);
  ASSERT_TRUE(hand_over(node.store, "weights", kWeights).ok());
  EXPECT_EQ(node.store.find(kOwner, "weights")->sha256, Sha256::of(kWeights));
}

TEST(ArtifactStore, RebootForgetsUnfinishedUploads) {
  const auto fs = new_disk();
  const auto records = core::StateStore::in_memory();
  {
    Node node(*fs, *records, "1");
    ASSERT_TRUE(node.start().ok());
    ASSERT_TRUE(send(node.store, "weights", kWeights, 0, 4000).ok());
    ASSERT_TRUE(hand_over(node.store, "log", kLog).ok());
  }
  Node node(*fs, *records, "2");
  ASSERT_TRUE(node.start().ok());
  EXPECT_EQ(node.store.offset(kOwner, "weights"), std::nullopt);
  EXPECT_TRUE(node.store.find(kOwner, "log"));
}

TEST(ArtifactStore, LimitsAreThoseOfTheJob) {
  const auto fs = new_disk();
  const auto records = core::StateStore::in_memory();
  Node node(*fs, *records);
  const ArtifactOwner small{"default/train", "u1", 10'000}, none{"default/eval", "u2", 0};
  ASSERT_TRUE(node.start({small, none}).ok());
  EXPECT_EQ(send(node.store, "a", kLog, 0, kLog.size(), none).error().code(), Code::kForbidden);
  const std::string large = noise(10'001, 3);
  EXPECT_EQ(send(node.store, "a", large, 0, large.size(), small).error().code(), Code::kExhausted);
  ASSERT_TRUE(send(node.store, "a", kWeights, 0, kWeights.size(), small).ok());
  // Together the two exceed the limit until the first one is uploaded.
  EXPECT_EQ(send(node.store, "b", kWeights, 0, kWeights.size(), small).error().code(),
            Code::kUnavailable);
  const auto pending = node.store.take();
  ASSERT_TRUE(pending);
  node.store.set_uploaded(*pending);
  EXPECT_TRUE(send(node.store, "b", kWeights, 0, kWeights.size(), small).ok());
}

TEST(ArtifactStore, ManyFilesOfOneWorkerAreRefusedUntilSomeAreUploaded) {
  const auto fs = new_disk();
  const auto records = core::StateStore::in_memory();
  Node node(*fs, *records);
  ASSERT_TRUE(node.start().ok());
  for (std::size_t i = 0; i < ArtifactStore::kArtifactsMax; ++i)
    ASSERT_TRUE(send(node.store, "a" + std::to_string(i), kLog, 0, kLog.size()).ok());
  EXPECT_EQ(send(node.store, "b", kLog, 0, kLog.size()).error().code(), Code::kUnavailable);
  node.store.set_uploaded(*node.store.take());
  EXPECT_TRUE(send(node.store, "b", kLog, 0, kLog.size()).ok());
  EXPECT_EQ(node.store.report("default/train", "u1").size(), ArtifactStore::kArtifactsMax);
}

TEST(ArtifactStore, UploadedFileIsRemovedButStaysInTheReport) {
  const auto fs = new_disk();
  const auto records = core::StateStore::in_memory();
  {
    Node node(*fs, *records);
    ASSERT_TRUE(node.start().ok());
    ASSERT_TRUE(hand_over(node.store, "log", kLog).ok());
    const auto pending = node.store.take();
    ASSERT_TRUE(pending);
    EXPECT_EQ(node.store.due(), std::nullopt);
    node.store.set_waiting(*pending, "no link", node.clock.now() + std::chrono::seconds(1));
    EXPECT_FALSE(node.store.take());
    node.clock.advance(std::chrono::seconds(1));
    node.store.set_uploaded(*node.store.take());
    EXPECT_EQ(fs->list("/data/uploads").value(), std::vector<std::string>());
  }
  Node node(*fs, *records);
  ASSERT_TRUE(node.start().ok());
  EXPECT_EQ(node.store.report("default/train", "u1")["log"]["state"].as_string(), "Uploaded");
  EXPECT_EQ(node.store.due(), std::nullopt);
}

TEST(ArtifactStore, RemovedWorkerLeavesNothing) {
  const auto fs = new_disk();
  const auto records = core::StateStore::in_memory();
  Node node(*fs, *records);
  ASSERT_TRUE(node.start().ok());
  ASSERT_TRUE(hand_over(node.store, "log", kLog).ok());
  ASSERT_TRUE(send(node.store, "weights", kWeights, 0, 4000).ok());
  node.store.set_owners({{"default/train", "u2", 1 << 20}});  // the same name, another job
  EXPECT_EQ(fs->list("/data/uploads").value(), std::vector<std::string>());
  EXPECT_EQ(records->entries("artifacts/").value().size(), 0u);
  EXPECT_EQ(send(node.store, "log", kLog, 0, kLog.size()).error().code(), Code::kUnavailable);
}

TEST(ArtifactStore, NewerPieceTakesOver) {
  const auto fs = new_disk();
  const auto records = core::StateStore::in_memory();
  Node node(*fs, *records);
  ASSERT_TRUE(node.start().ok());
  const ArtifactPiece piece{.name = "log", .first = 0, .length = 300, .total = 300};
  auto old = node.store.begin(kOwner, piece);
  ASSERT_TRUE(old.ok() && (*old)->write(kLog.substr(0, 100)).ok());
  ASSERT_TRUE(hand_over(node.store, "log", kLog).ok());
  EXPECT_EQ((*old)->write(kLog.substr(100, 100)).error().code(), Code::kConflict);
  EXPECT_FALSE((*old)->finish().ok());
  EXPECT_EQ(node.store.find(kOwner, "log")->sha256, Sha256::of(kLog));
}

TEST(ArtifactStore, FullDiskIsARetryAndTheFileIsAcceptedLater) {
  for (const char* call : {"open", "size", "truncate", "seek", "write"}) {
    SCOPED_TRACE(call);
    os::testing::MemoryFileSystem fs;
    ASSERT_TRUE(fs.make_directories("/data", 0755).ok());
    const auto records = core::StateStore::in_memory();
    Node node(fs, *records);
    ASSERT_TRUE(node.start().ok());
    fs.fail_nth(1, call, Error(Code::kExhausted, "No space left on device"));
    const auto full = send(node.store, "weights", kWeights, 0, kWeights.size());
    ASSERT_FALSE(full.ok());
    EXPECT_EQ(full.error().code(), Code::kUnavailable);
    EXPECT_EQ(full.error().message(), "the node's disk failed: No space left on device");
    EXPECT_TRUE(hand_over(node.store, "weights", kWeights).ok());
  }
}

TEST(ArtifactStore, FailedLoadIsRepeatedWithTheOwnersThatCameMeanwhile) {
  const auto records = core::StateStore::in_memory();
  os::testing::MemoryFileSystem fs;
  ASSERT_TRUE(fs.make_directories("/data", 0755).ok());
  {
    Node node(fs, *records);
    ASSERT_TRUE(node.start().ok());
    ASSERT_TRUE(send(node.store, "weights", kWeights, 0, 4000).ok());
    ASSERT_TRUE(hand_over(node.store, "log", kLog).ok());
  }
  Node node(fs, *records);
  fs.fail_nth(1, "list");
  EXPECT_FALSE(node.start().ok());
  node.store.set_owners({kOwner});
  EXPECT_FALSE(node.store.loaded());
  EXPECT_EQ(send(node.store, "a", kLog, 0, kLog.size()).error().code(), Code::kUnavailable);
  fs.fail_nth(2, "stat");
  EXPECT_FALSE(node.store.load_again().ok());
  ASSERT_TRUE(node.store.load_again().ok());
  EXPECT_TRUE(node.store.loaded());
  EXPECT_EQ(node.store.offset(kOwner, "weights"), 4000u);
  EXPECT_TRUE(node.store.find(kOwner, "log"));
  EXPECT_TRUE(hand_over(node.store, "weights", kWeights).ok());
}

TEST(ArtifactStore, EmptyFileIsAccepted) {
  const auto fs = new_disk();
  const auto records = core::StateStore::in_memory();
  Node node(*fs, *records);
  ASSERT_TRUE(node.start().ok());
  ASSERT_TRUE(hand_over(node.store, "log", "").ok());
  EXPECT_EQ(node.store.find(kOwner, "log")->sha256, Sha256::of(""));
}

TEST(ArtifactStoreFaults, EveryFaultKeepsAcknowledgedFiles) {
  std::uint64_t calls = 0;
  {
    const auto fs = new_disk();
    const auto records = core::StateStore::in_memory();
    Acknowledged done;
    const Status worked = work(*fs, *records, done);
    ASSERT_TRUE(worked.ok()) << worked.error();
    calls = fs->calls();
  }
  for (std::uint64_t call = 2; call < calls; call += os::testing::fault_every(1)) {
    for (const os::testing::NamedFault& fault : os::testing::faults_at(call)) {
      SCOPED_TRACE(fault.name);
      const auto fs = new_disk();
      const auto records = core::StateStore::in_memory();
      Acknowledged done;
      fs->set_fault(fault.fault);
      (void)work(*fs, *records, done);
      SCOPED_TRACE(fs->hit());
      fs->set_fault(std::nullopt);
      const auto dark = fs->crashed(call), killed = fs->killed();
      ASSERT_EQ(check(*dark, *records, done, "2"), "");
      ASSERT_EQ(check(*killed, *records, done, "1"), "");
      ASSERT_EQ(check(*fs, *records, done, "1"), "");
    }
  }
}

TEST(ArtifactStoreFaults, KillAtEveryCallKeepsAcknowledgedFiles) {
  const auto fs = new_disk();
  const auto records = core::StateStore::in_memory();
  Acknowledged done;
  std::string wrong;
  fs->on_call([&](std::string_view call, const os::Path&) {
    const auto left = fs->killed();
    if (wrong.empty()) wrong = check(*left, *records, done, "1");
    if (!wrong.empty() && wrong.find(" at ") == std::string::npos)
      wrong += " at " + std::string(call);
    return Status();
  });
  ASSERT_TRUE(work(*fs, *records, done).ok());
  EXPECT_EQ(wrong, "");
}

TEST(ArtifactStoreCrash, EveryCallKeepsAcknowledgedFiles) {
  CrashCampaign campaign("agent_test --gtest_filter=ArtifactStoreCrash.*", 200);
  while (campaign.next_seed()) {
    const auto fs = new_disk();
    const auto records = core::StateStore::in_memory();
    Acknowledged done;
    fs->on_call([&](std::string_view, const os::Path&) {
      campaign.point(
          *fs, (done.weights ? 1 : 0) + (done.log ? 1 : 0),
          [&](CrashingFileSystem& left, Rng&) { return check(left, *records, done, "2"); });
      return Status();
    });
    const Status worked = work(*fs, *records, done);
    ASSERT_TRUE(worked.ok()) << worked.error();
  }
  EXPECT_EQ(campaign.failure(), "");
}

}  // namespace artifact_store_test
}  // namespace varda::agent::workers
