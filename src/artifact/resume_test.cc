// The cost of a break: a kill loses no written bytes, a power cut loses unsynced ones.
#include <gtest/gtest.h>

#include "artifact/internal/source.h"
#include "artifact/store.h"
#include "artifact/testing/archives.h"
#include "artifact/testing/manual_clock.h"
#include "artifact/testing/origin.h"
#include "base/rng.h"
#include "os/testing/crashing_file_system.h"

namespace varda::artifact {
namespace resume_test {

using os::testing::CrashingFileSystem;
using testing::ManualClock;
using testing::Origin;

const Context kForever = Context::background();
constexpr const char* kUrl = "http://files/m.tar";
constexpr std::uint64_t kLossMax = 256 << 10;
constexpr std::size_t kPiece = 64 << 10;

class ResumeTest : public ::testing::Test {
 protected:
  struct Break {
    std::unique_ptr<CrashingFileSystem> disk;
    std::uint64_t received = 0;  // bytes of the archive until then
  };

  ResumeTest() {
    CHECK(fs.make_directories("/data", 0755).ok() && fs.sync_directory("/").ok());
    std::string model(5 << 20, '\0');
    const auto rng = seeded_rng(3);
    for (char& c : model) c = static_cast<char>(rng->below(256));
    archive = testing::model_archive(model);
  }
  Request request() const {
    return {.url = kUrl, .digest = codec::Sha256::of(archive), .framework = "onnx"};
  }
  os::Path spool() const { return "/data/artifacts/.scratch/" + request().digest.hex() + ".part"; }
  Origin::File file() const { return {.bytes = archive, .etag = "\"e\"", .piece = kPiece}; }

  /// Downloads with `pause` per piece, and takes `broken` disks at these writes of the spool.
  std::vector<Break> download(Duration pause, const std::set<int>& at,
                              const std::function<std::unique_ptr<CrashingFileSystem>()>& broken) {
    std::vector<Break> breaks;
    int writes = 0;
    fs.on_call([&](std::string_view call, const os::Path& path) {
      const MutexLock one(mutex);  // a separate thread writes the spool
      if (call != "write" || path != spool()) return Status();
      clock.advance(pause);
      if (at.contains(++writes)) breaks.push_back({broken(), origin.bytes_served()});
      return Status();
    });
    origin.put(kUrl, file());
    const std::uint64_t before = origin.bytes_served();
    auto store =
        Store::open({.root = "/data/artifacts", .transport = {.clock = &clock}}, fs, origin)
            .value();
    EXPECT_TRUE(store->ensure(kForever, request()).ok());
    fs.on_call({});
    for (Break& one : breaks) one.received -= before;
    return breaks;
  }

  Mutex mutex;
  CrashingFileSystem fs;
  Origin origin;
  ManualClock clock;
  std::string archive;
};

TEST_F(ResumeTest, KillAtAnyByteLosesAtMost256KiB) {
  const auto rng = seeded_rng(5);
  std::set<int> at;
  for (int i = 0; i < 4; ++i) at.insert(1 + static_cast<int>(rng->below(archive.size() / kPiece)));
  const auto breaks = download(Duration(0), at, [&] { return fs.killed(); });
  ASSERT_EQ(breaks.size(), at.size());
  for (const Break& one : breaks) {
    Origin again;
    again.put(kUrl, file());
    auto store = Store::open({.root = "/data/artifacts"}, *one.disk, again).value();
    ASSERT_TRUE(store->ensure(kForever, request()).ok());
    EXPECT_LE(one.received + again.bytes_served(), archive.size() + kLossMax)
        << "killed at byte " << one.received;
  }
}

// A power cut loses at most 256 KiB on a thin link, and the bytes of five seconds on a fast one.
TEST_F(ResumeTest, PowerCutLosesAtMost256KiBOrFiveSecondsOfBytes) {
  for (const auto pause : {std::chrono::milliseconds(1000), std::chrono::milliseconds(100)}) {
    SCOPED_TRACE(pause.count());
    const std::uint64_t in_five_seconds =
        kPiece * static_cast<std::uint64_t>(kSpoolSyncPeriod / pause);
    std::set<int> at;
    for (int i = 3; i < static_cast<int>(archive.size() / kPiece); i += 13) at.insert(i);
    std::uint64_t seed = 1;
    const auto breaks = download(pause, at, [&] { return fs.crashed(seed++); });
    ASSERT_EQ(breaks.size(), at.size());
    for (const Break& one : breaks) {
      const auto left = one.disk->stat(spool());
      const std::uint64_t bytes = left.ok() && *left ? (*left)->size_bytes : 0;
      const std::uint64_t loss_max = std::max(kLossMax, in_five_seconds) + 2 * kPiece;
      const std::uint64_t sure = one.received > loss_max ? one.received - loss_max : 0;
      ASSERT_GE(bytes, sure) << "of " << one.received;
      const std::string spooled = sure > 0 ? *os::read_file(*one.disk, spool()) : "";
      EXPECT_EQ(spooled.substr(0, sure), archive.substr(0, sure));
      // Whatever else the disk lost, the installed tree is correct.
      Origin again;
      again.put(kUrl, file());
      auto store = Store::open({.root = "/data/artifacts"}, *one.disk, again).value();
      ASSERT_TRUE(store->ensure(kForever, request()).ok());
    }
    auto store = Store::open({.root = "/data/artifacts"}, fs, origin).value();
    ASSERT_TRUE(store->remove(request().digest).ok());
  }
}

}  // namespace resume_test
}  // namespace varda::artifact
