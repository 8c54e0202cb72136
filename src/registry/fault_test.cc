// Blobs and versions on a disk that fails or loses unsynced writes, at every call:
// docs/design/010-crash-testing.md.
#include <gtest/gtest.h>

#include "os/testing/crash_campaign.h"
#include "os/testing/faults.h"
#include "registry/blob_reader.h"
#include "registry/directory_store.h"
#include "registry/versions.h"

namespace varda::registry {
namespace fault_test {

using codec::Sha256;
using os::testing::CrashCampaign;
using os::testing::CrashingFileSystem;

const VersionKey kKey{"default", "digits", "1"};

std::string noise(std::size_t size, std::uint32_t seed) {
  std::string bytes(size, '\0');
  for (char& c : bytes) c = static_cast<char>((seed = seed * 1664525 + 1013904223) >> 24);
  return bytes;
}

// The second blob ends with bytes of the first one.
const std::string kBytes[2] = {noise(9000, 1), noise(1000, 2) + noise(9000, 1).substr(2000, 4000)};

std::unique_ptr<CrashingFileSystem> new_disk() {
  auto fs = std::make_unique<CrashingFileSystem>();
  CHECK(fs->make_directories("/data", 0755).ok() && fs->sync_directory("/").ok());
  return fs;
}

struct Acknowledged {
  bool stored[2] = {false, false}, version = false;
  std::uint64_t offset = 0;  // of the first blob
  std::uint64_t count = 0;   // grows with each promise
  bool faulty = false;       // a failed sync may have dropped the unfinished upload
};

Status send(BlobStore& store, const std::string& bytes, std::uint64_t first, std::uint64_t length,
            BlobUpload::State& state) {
  TRY(const auto upload,
      store.begin(
          {.digest = Sha256::of(bytes), .first = first, .length = length, .total = bytes.size()}));
  for (std::uint64_t at = 0; at < length; at += 2000)
    TRY_VOID(upload->write(
        std::string_view(bytes).substr(first + at, std::min<std::uint64_t>(2000, length - at))));
  TRY(state, upload->finish());
  return {};
}

/// Sends a blob from the registry's own offset. A blob that is there needs nothing.
Status store_blob(BlobStore& store, const std::string& bytes) {
  const Sha256 digest = Sha256::of(bytes);
  TRY(const auto blob, store.find(digest));
  if (blob) return {};
  const std::uint64_t first = store.offset(digest).value_or(0);
  BlobUpload::State state{};
  return send(store, bytes, first, bytes.size() - first, state);
}

/// Sends the begin of the second blob, and lets the registry copy the rest from the first one.
Status store_changed_blob(BlobStore& store) {
  TRY(const auto upload, store.begin({.digest = Sha256::of(kBytes[1]),
                                      .first = 0,
                                      .length = kBytes[1].size(),
                                      .total = kBytes[1].size()}));
  TRY_VOID(upload->write(std::string_view(kBytes[1]).substr(0, 1000)));
  TRY_VOID(copy_into(*upload, store, Sha256::of(kBytes[0]), 2000, 4000));
  TRY_VOID(upload->finish());
  return {};
}

/// Sends a blob in three pieces and another in one, then names the first by a version. Stops at a
/// failure.
Status work(CrashingFileSystem& fs, Acknowledged& done) {
  TRY(const auto store, open_directory_store({.root = "/data/registry"}, fs));
  Versions versions(fs, "/data/registry");
  TRY_VOID(versions.open());
  BlobUpload::State state{};
  for (const std::uint64_t first : {0, 3000, 6000}) {
    TRY_VOID(send(*store, kBytes[0], first, 3000, state));
    done.offset = first + 3000;
    done.stored[0] = state == BlobUpload::State::kStored;
    ++done.count;
  }
  TRY_VOID(store_changed_blob(*store));
  done.stored[1] = true;
  ++done.count;
  TRY_VOID(versions.put(kKey, {.digest = Sha256::of(kBytes[0])}));
  done.version = true;
  ++done.count;
  return {};
}

std::string bytes_of(BlobStore& store, const Sha256& digest) {
  net::Response response = store.serve(digest, {});
  std::string out;
  while (response.stream) {
    const auto piece = response.stream->read();
    if (!piece) break;
    out += *piece;
  }
  return out;
}

/// Every visible blob is whole, and every acknowledged blob is visible. The rest can be sent again.
std::string check(CrashingFileSystem& fs, const Acknowledged& done) {
  auto store = open_directory_store({.root = "/data/registry"}, fs);
  if (!store.ok()) return "open: " + store.error().message();
  Versions versions(fs, "/data/registry");
  if (const Status opened = versions.open(); !opened.ok()) return opened.error().message();
  for (int i = 0; i < 2; ++i) {
    const Sha256 digest = Sha256::of(kBytes[i]);
    const auto blob = (*store)->find(digest);
    if (!blob.ok()) return blob.error().message();
    if (done.stored[i] && !*blob) return "lost the acknowledged blob " + std::to_string(i);
    if (*blob && bytes_of(**store, digest) != kBytes[i])
      return "the visible blob " + std::to_string(i) + " is not whole";
    // A client that finds the blob does not send it again, so that no crash may lose the blob.
    for (std::uint64_t seed = 1; *blob && seed < 6; ++seed) {
      const auto dark = fs.crashed(seed);
      const auto later = open_directory_store({.root = "/data/registry"}, *dark);
      if (!later.ok() || !(*later)->find(digest).value_or(std::nullopt))
        return "the visible blob " + std::to_string(i) + " is not durable";
    }
  }
  const auto version = versions.get(kKey);
  if (done.version && !version.ok()) return "lost the acknowledged version";
  if (version.ok() && version->digest != Sha256::of(kBytes[0])) return "another version";
  if (!version.ok() && version.error().code() != Code::kNotFound) return version.error().message();
  const Sha256 first = Sha256::of(kBytes[0]);
  if (!done.faulty && !(*store)->find(first).value_or(std::nullopt) &&
      (*store)->offset(first).value_or(0) < done.offset)
    return "lost acknowledged bytes of an upload";
  for (const std::string& bytes : kBytes) {
    Status sent = store_blob(**store, bytes);
    // A crash may leave a part of the unsynced bytes; then the digest is wrong, once.
    if (!sent.ok() && sent.error().code() == Code::kCorrupt) sent = store_blob(**store, bytes);
    if (!sent.ok()) return "sending again: " + sent.error().message();
    if (bytes_of(**store, Sha256::of(bytes)) != bytes) return "not whole after sending again";
  }
  return "";
}

TEST(RegistryFaults, EveryFaultLeavesWholeBlobsAndAcknowledgedOnes) {
  std::uint64_t calls = 0;
  {
    const auto fs = new_disk();
    Acknowledged done;
    const Status worked = work(*fs, done);
    ASSERT_TRUE(worked.ok()) << worked.error();
    ASSERT_TRUE(done.stored[0] && done.stored[1]);
    calls = fs->calls();
  }
  std::uint64_t hits = 0;
  const std::uint64_t every = os::testing::fault_every(1);
  for (std::uint64_t call = 2; call < calls; call += every) {
    for (const os::testing::NamedFault& fault : os::testing::faults_at(call)) {
      SCOPED_TRACE(fault.name);
      const auto fs = new_disk();
      Acknowledged done{.faulty = true};
      fs->set_fault(fault.fault);
      (void)work(*fs, done);
      SCOPED_TRACE(fs->hit());
      hits += fs->hit().empty() ? 0 : 1;
      fs->set_fault(std::nullopt);
      const auto dark = fs->crashed(call), killed = fs->killed();
      for (CrashingFileSystem* left : {dark.get(), killed.get(), fs.get()})
        ASSERT_EQ(check(*left, done), "");
    }
  }
  EXPECT_GE(hits, (calls - 2) / every);
}

TEST(RegistryFaults, KillAtEveryCallKeepsAcknowledgedBlobs) {
  const auto fs = new_disk();
  Acknowledged done;
  std::string wrong;
  fs->on_call([&](std::string_view call, const os::Path&) {
    const auto left = fs->killed();
    if (wrong.empty()) wrong = check(*left, done);
    if (!wrong.empty() && wrong.find(" at ") == std::string::npos)
      wrong += " at " + std::string(call);
    return Status();
  });
  ASSERT_TRUE(work(*fs, done).ok());
  EXPECT_EQ(wrong, "");
}

TEST(RegistryFaults, RetryInTheSameProcessSucceedsAfterAnyFault) {
  std::uint64_t calls = 0;
  {
    const auto fs = new_disk();
    Acknowledged done;
    ASSERT_TRUE(work(*fs, done).ok());
    calls = fs->calls();
  }
  for (std::uint64_t call = 2; call < calls; call += os::testing::fault_every(1)) {
    for (const os::testing::NamedFault& fault : os::testing::faults_at(call)) {
      SCOPED_TRACE(fault.name);
      const auto fs = new_disk();
      auto store = open_directory_store({.root = "/data/registry"}, *fs);
      ASSERT_TRUE(store.ok());
      fs->set_fault(fault.fault);
      BlobUpload::State state{};
      bool acknowledged = send(**store, kBytes[0], 0, 4000, state).ok();
      acknowledged = acknowledged && store_blob(**store, kBytes[0]).ok();
      fs->set_fault(std::nullopt);
      Status again = store_blob(**store, kBytes[0]);
      if (!again.ok()) again = store_blob(**store, kBytes[0]);
      ASSERT_TRUE(again.ok()) << again.error() << " after " << fs->hit();
      // The blob is acknowledged, so a power cut loses nothing.
      const auto dark = fs->crashed(call);
      ASSERT_EQ(check(*dark, {.stored = {true, false}, .faulty = true}), "");
    }
  }
}

TEST(RegistryCrash, EveryCallKeepsAcknowledgedBlobs) {
  CrashCampaign campaign("registry_test --gtest_filter=RegistryCrash.*", 600);
  while (campaign.next_seed()) {
    const auto fs = new_disk();
    Acknowledged done;
    fs->on_call([&](std::string_view, const os::Path&) {
      campaign.point(*fs, done.count,
                     [&](CrashingFileSystem& left, Rng&) { return check(left, done); });
      return Status();
    });
    const Status worked = work(*fs, done);
    ASSERT_TRUE(worked.ok()) << worked.error();
  }
  EXPECT_EQ(campaign.failure(), "");
}

}  // namespace fault_test
}  // namespace varda::registry
