#include "replica/store.h"

#include <gtest/gtest.h>

#include "base/rng.h"
#include "os/testing/crash_campaign.h"
#include "os/testing/crashing_file_system.h"
#include "os/testing/faults.h"
#include "os/testing/memory_file_system.h"
#include "replica/testing/files.h"

namespace varda::replica {
namespace store_test {

using os::testing::CrashCampaign;
using os::testing::CrashingFileSystem;
using os::testing::MemoryFileSystem;
using testing::Files;
using testing::FileSource;
using testing::snapshot_of;

constexpr std::uint32_t kBlock = 1024;
constexpr const char* kKey = "datasets/default/faces";
const Context kForever = Context::background();

std::string noise(std::size_t size, std::uint64_t seed) {
  const auto rng = seeded_rng(seed);
  std::string bytes(size, '\0');
  for (char& c : bytes) c = static_cast<char>(rng->below(256));
  return bytes;
}

std::unique_ptr<Store> open_store(os::FileSystem& fs) {
  return Store::open({.root = "/data/replicas", .limits = {}}, fs).value();
}

/// The files that readers see.
Files read_copy(os::FileSystem& fs, Store& store) {
  Files out;
  const auto copy = store.find(kKey);
  if (!copy.ok() || !*copy) return out;
  for (const SnapshotFile& file : (*copy)->snapshot.files) {
    const auto bytes =
        os::read_file(fs, file.path.empty() ? (*copy)->path : (*copy)->path / file.path);
    out[file.path] = bytes.ok() ? *bytes : "?" + bytes.error().message();
  }
  return out;
}

Status bring(Store& store, const Files& files, FileSource& source) {
  return store.bring(kForever, kKey, snapshot_of(files, kBlock), source);
}

class ReplicaStore : public ::testing::Test {
 protected:
  MemoryFileSystem fs_;
  std::unique_ptr<Store> store_ = open_store(fs_);
  Files files_{{"train/a.csv", noise(5000, 1)},
               {"train/b.csv", noise(3 * kBlock, 2)},
               {"classes.txt", "a\nb\n"},
               {"empty", ""}};
  FileSource source_{files_};
};

TEST_F(ReplicaStore, ReadersSeeTheCopiedSnapshot) {
  std::vector<Progress> reported;
  ASSERT_TRUE(store_
                  ->bring(kForever, kKey, snapshot_of(files_, kBlock), source_,
                          [&](const Progress& p) { reported.push_back(p); })
                  .ok());
  EXPECT_EQ(read_copy(fs_, *store_), files_);
  EXPECT_EQ(source_.served_bytes, 5000u + 3 * kBlock + 4);
  ASSERT_FALSE(reported.empty());
  EXPECT_EQ(reported.back().done_bytes, source_.served_bytes);
  EXPECT_EQ(reported.back().total_bytes, source_.served_bytes);
  EXPECT_EQ(store_->list(), std::vector<std::string>{kKey});
}

TEST_F(ReplicaStore, UnchangedSnapshotFetchesNothing) {
  ASSERT_TRUE(bring(*store_, files_, source_).ok());
  FileSource again(files_);
  ASSERT_TRUE(bring(*store_, files_, again).ok());
  EXPECT_EQ(again.served_bytes, 0u);
}

TEST_F(ReplicaStore, GrownFileFetchesOnlyItsEnd) {
  ASSERT_TRUE(bring(*store_, files_, source_).ok());
  files_["train/a.csv"] += "more";
  FileSource again(files_);
  ASSERT_TRUE(bring(*store_, files_, again).ok());
  EXPECT_EQ(again.served_bytes, 5004u - 4 * kBlock);
  EXPECT_EQ(read_copy(fs_, *store_), files_);
}

TEST_F(ReplicaStore, UnchangedFilesAreHardLinks) {
  ASSERT_TRUE(bring(*store_, files_, source_).ok());
  const auto before = fs_.stat("/data/replicas/datasets/default/faces/current/../" +
                               snapshot_of(files_, kBlock).id().hex() + "/classes.txt");
  files_["new"] = "x";
  ASSERT_TRUE(bring(*store_, files_, source_).ok());
  const auto after = fs_.stat("/data/replicas/datasets/default/faces/" +
                              snapshot_of(files_, kBlock).id().hex() + "/classes.txt");
  ASSERT_TRUE(before.ok() && *before && after.ok() && *after);
  EXPECT_EQ((*before)->inode, (*after)->inode);
}

TEST_F(ReplicaStore, SingleFileIsCopied) {
  const Files one{{"", noise(2500, 3)}};
  FileSource source(one);
  ASSERT_TRUE(bring(*store_, one, source).ok());
  EXPECT_EQ(read_copy(fs_, *store_), one);
  EXPECT_EQ(store_->find(kKey).value()->path, "/data/replicas/datasets/default/faces/current/data");
}

TEST_F(ReplicaStore, MetadataLiesBesideTheCopyUntilRemoval) {
  const os::Path file = "/data/replicas/datasets/default/faces/metadata.json";
  EXPECT_EQ(store_->put_metadata(kKey, "{}").error().code(), Code::kNotFound);
  ASSERT_TRUE(bring(*store_, files_, source_).ok());
  ASSERT_TRUE(store_->put_metadata(kKey, "{\"a\":1}").ok());
  const auto inode = fs_.stat(file).value()->inode;
  ASSERT_TRUE(store_->put_metadata(kKey, "{\"a\":1}").ok());
  EXPECT_EQ(fs_.stat(file).value()->inode, inode) << "written again without a change";
  files_["new"] = "x";
  FileSource grown(files_);
  ASSERT_TRUE(bring(*store_, files_, grown).ok());
  store_ = open_store(fs_);
  EXPECT_EQ(os::read_file(fs_, file).value(), "{\"a\":1}");
  EXPECT_EQ(read_copy(fs_, *store_), files_);
  ASSERT_TRUE(store_->remove(kKey).ok());
  EXPECT_FALSE(fs_.stat(file).value());
  EXPECT_TRUE(store_->list().empty());
}

TEST_F(ReplicaStore, PreviousVersionStaysAndTheOneBeforeIsRemoved) {
  std::vector<codec::Sha256> ids;
  for (int i = 0; i < 3; ++i) {
    files_["n"] = std::to_string(i);
    ids.push_back(snapshot_of(files_, kBlock).id());
    ASSERT_TRUE(bring(*store_, files_, source_).ok());
  }
  const os::Path folder = "/data/replicas/datasets/default/faces";
  EXPECT_FALSE(fs_.stat(folder / ids[0].hex()).value().has_value());
  EXPECT_TRUE(fs_.stat(folder / ids[1].hex()).value().has_value());
  EXPECT_TRUE(fs_.stat(folder / ids[2].hex()).value().has_value());
}

TEST_F(ReplicaStore, RollbackFetchesNothing) {
  const Files first = files_;
  ASSERT_TRUE(bring(*store_, first, source_).ok());
  files_["n"] = "1";
  ASSERT_TRUE(bring(*store_, files_, source_).ok());
  FileSource unused_source(first);
  ASSERT_TRUE(bring(*store_, first, unused_source).ok());
  EXPECT_EQ(unused_source.served_bytes, 0u);
  EXPECT_EQ(read_copy(fs_, *store_), first);
}

TEST_F(ReplicaStore, BrokenFetchResumesAfterARestart) {
  std::uint64_t fetched = 0;
  int breaks = 0;
  for (; breaks < 100; ++breaks) {
    FileSource source(files_);
    int pieces = 4;
    source.before_piece = [&]() -> Status {
      if (--pieces < 0) return Error(Code::kUnavailable, "the link broke");
      return {};
    };
    store_ = open_store(fs_);  // as after a kill
    const Status status = bring(*store_, files_, source);
    fetched += source.served_bytes;
    if (status.ok()) break;
    EXPECT_EQ(status.error().code(), Code::kUnavailable);
  }
  EXPECT_EQ(read_copy(fs_, *store_), files_);
  EXPECT_LE(fetched, 5000u + 3 * kBlock + 4 + static_cast<std::uint64_t>(breaks) * kBlock);
}

TEST_F(ReplicaStore, ChangedSnapshotKeepsBytesAlreadyFetched) {
  FileSource broken(files_);
  int pieces = 9;
  broken.before_piece = [&]() -> Status {
    return --pieces < 0 ? Status(Error(Code::kUnavailable, "broke")) : Status();
  };
  ASSERT_FALSE(bring(*store_, files_, broken).ok());
  files_["train/b.csv"] += "grown";
  FileSource source(files_);
  ASSERT_TRUE(bring(*store_, files_, source).ok());
  EXPECT_EQ(read_copy(fs_, *store_), files_);
  EXPECT_LE(broken.served_bytes + source.served_bytes, 5000u + 3 * kBlock + 4 + 5 + kBlock);
}

TEST_F(ReplicaStore, WrongBytesAreNeverPublished) {
  const Snapshot wanted = snapshot_of(files_, kBlock);
  Files other = files_;
  other["train/b.csv"][2000] ^= 1;
  FileSource source(other);
  const Status status = store_->bring(kForever, kKey, wanted, source);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code(), Code::kConflict) << status.error();
  EXPECT_NE(status.error().message().find("train/b.csv"), std::string::npos);
  EXPECT_FALSE(store_->find(kKey).value().has_value());
}

TEST_F(ReplicaStore, CorruptBlockIsFetchedAgain) {
  bool once = true;
  class Flips final : public BlockSource {
   public:
    Flips(FileSource& inner, bool& once) : inner_(inner), once_(once) {}
    Status read(const Context& ctx, const SnapshotFile& file, std::uint64_t offset,
                std::uint64_t length,
                const std::function<Status(std::string_view)>& sink) override {
      return inner_.read(ctx, file, offset, length, [&](std::string_view piece) {
        std::string bytes(piece);
        if (std::exchange(once_, false)) bytes[0] = static_cast<char>(bytes[0] ^ 1);
        return sink(bytes);
      });
    }

   private:
    FileSource& inner_;
    bool& once_;
  } flips(source_, once);
  ASSERT_TRUE(store_->bring(kForever, kKey, snapshot_of(files_, kBlock), flips).ok());
  EXPECT_EQ(read_copy(fs_, *store_), files_);
}

TEST_F(ReplicaStore, SourceWithTooManyOrTooFewBytesIsRefused) {
  class Liar final : public BlockSource {
   public:
    std::string bytes;
    Status read(const Context&, const SnapshotFile&, std::uint64_t, std::uint64_t,
                const std::function<Status(std::string_view)>& sink) override {
      return sink(bytes);
    }
  } liar;
  const Files one{{"a", noise(kBlock, 9)}};
  liar.bytes = one.at("a") + "x";
  EXPECT_EQ(store_->bring(kForever, kKey, snapshot_of(one, kBlock), liar).error().code(),
            Code::kConflict);
  liar.bytes = one.at("a").substr(1);
  EXPECT_EQ(store_->bring(kForever, "other", snapshot_of(one, kBlock), liar).error().code(),
            Code::kUnavailable);
}

TEST_F(ReplicaStore, ModifiedCopyIsNotReused) {
  ASSERT_TRUE(bring(*store_, files_, source_).ok());
  const os::Path file = store_->find(kKey).value()->path / "train/a.csv";
  {
    const auto open = fs_.open(file, os::Open::kCreate, 0644).value();
    ASSERT_TRUE(open->write("spoiled").ok());
  }
  files_["train/a.csv"] += "more";
  FileSource again(files_);
  ASSERT_TRUE(bring(*store_, files_, again).ok());
  EXPECT_EQ(read_copy(fs_, *store_), files_);
}

TEST_F(ReplicaStore, KeysOutsideTheRootAreRefused) {
  for (const char* key : {"", "..", "a/../b", "/a", ".new-x", "a/.hidden", "a/b/c/d/e"})
    EXPECT_EQ(store_->find(key).error().code(), Code::kInvalid) << key;
}

TEST_F(ReplicaStore, RemoveDeletesTheCopyAndItsFolders) {
  ASSERT_TRUE(bring(*store_, files_, source_).ok());
  ASSERT_TRUE(store_->remove(kKey).ok());
  EXPECT_TRUE(store_->list().empty());
  EXPECT_TRUE(fs_.list("/data/replicas").value().empty());
  EXPECT_TRUE(store_->remove(kKey).ok());
}

TEST_F(ReplicaStore, FullDiskKeepsTheCurrentCopy) {
  ASSERT_TRUE(bring(*store_, files_, source_).ok());
  const Files before = files_;
  files_["big"] = noise(100'000, 4);
  fs_.set_capacity(60'000);
  EXPECT_EQ(bring(*store_, files_, source_).error().code(), Code::kExhausted);
  EXPECT_EQ(read_copy(fs_, *store_), before);
  fs_.set_capacity(std::uint64_t{1} << 30);
  EXPECT_TRUE(bring(*store_, files_, source_).ok());
  EXPECT_EQ(read_copy(fs_, *store_), files_);
}

TEST_F(ReplicaStore, CopyLeavesTheReservedSpaceFree) {
  constexpr std::uint64_t kDisk = 1'000'000, kReserve = kDisk / 20;
  fs_.set_capacity(kDisk);
  files_["big"] = noise(kDisk - kReserve / 2, 5);
  EXPECT_EQ(bring(*store_, files_, source_).error().code(), Code::kExhausted);
  EXPECT_GE(fs_.space("/data").value().available_bytes, kReserve);
}

/// "" if the store lists every tree below its key; unlisted trees would never be removed.
std::string forgotten(os::FileSystem& fs, Store& store) {
  const os::Path folder = os::Path("/data/replicas") / kKey;
  const auto names = fs.list(folder);
  if (!names.ok() || !store.list().empty()) return "";
  for (const std::string& name : *names) {
    const auto info = fs.stat(folder / name);
    if (info.ok() && *info && (*info)->kind == os::FileKind::kDirectory)
      return name + " is left of a key that is not listed";
  }
  return "";
}

/// Makes a next state of the files: grown, changed, renamed, removed, added.
void change(Files& files, Rng& rng) {
  const std::string name =
      std::string(rng.below(3) == 0 ? "d/" : "") + static_cast<char>('a' + rng.below(4));
  switch (rng.below(5)) {
    case 0:
      files[name] += noise(rng.below(1500), rng.next());
      break;
    case 1:
      files[name] = noise(rng.below(3000), rng.next());
      break;
    case 2:
      files.erase(name);
      break;
    case 3:
      if (!files.empty()) {
        const std::string bytes = files.begin()->second;
        files.erase(files.begin());
        files[name] = bytes;
      }
      break;
    default:
      if (std::string& bytes = files[name]; !bytes.empty()) bytes[rng.below(bytes.size())] ^= 1;
  }
  // A name is either a file or a folder.
  if (files.contains("d")) files.erase("d");
}

// After a power cut at any moment, readers see the whole previous or new version, and the next
// bring() succeeds.
TEST(ReplicaStoreCrash, EveryCrashLeavesAWholeVersionAndAWorkingStore) {
  CrashCampaign campaign("replica_test --gtest_filter=ReplicaStoreCrash.*", 1500);
  while (campaign.next_seed()) {
    CrashingFileSystem fs(campaign.seed());
    ASSERT_TRUE(fs.make_directories("/data", 0755).ok() && fs.sync_directory("/").ok());
    const auto rng = seeded_rng(campaign.seed());
    Files files{{"a", noise(2500, 1)}, {"d/b", noise(900, 2)}}, seen, next;
    std::vector<Files> wanted_once;
    bool removing = false;
    const auto check = [&](CrashingFileSystem& left, Rng& more) -> std::string {
      const auto store = Store::open({.root = "/data/replicas", .limits = {}}, left);
      if (!store.ok()) return "open: " + store.error().message();
      const auto found = (*store)->find(kKey);
      if (!found.ok()) return "find: " + found.error().message();
      const Files current = read_copy(left, **store);
      if (current != seen && current != next) return "readers see what never was";
      if (!*found && !seen.empty() && !removing) return "the copy is gone";
      if (std::string wrong = forgotten(left, **store); !wrong.empty()) return wrong;
      Files last = next;
      if (const auto what = more.below(3); what == 0) {
        change(last, more);
      } else if (what == 1 && !wanted_once.empty()) {  // an earlier state, which may be in removal
        last = wanted_once[more.below(wanted_once.size())];
      }
      FileSource source(last);
      if (const Status status = bring(**store, last, source); !status.ok())
        return "bring: " + status.error().message();
      return read_copy(left, **store) == last ? "" : "the next copy is wrong";
    };
    fs.on_call([&](auto, const auto&) {
      campaign.point(fs, 0, check);
      return Status();
    });
    const auto store = open_store(fs);
    for (int i = 0; i < 4 && !campaign.over(); ++i) {
      next = files;
      FileSource source(files);
      ASSERT_TRUE(bring(*store, files, source).ok());
      seen = files;
      wanted_once.push_back(files);
      change(files, *rng);
    }
    // An unwanted version also vanishes as a whole, even if it becomes wanted again.
    removing = true;
    next = {};
    ASSERT_TRUE(store->remove(kKey).ok());
    removing = false;
    seen = {};
    next = wanted_once.back();
    FileSource source(next);
    ASSERT_TRUE(bring(*store, next, source).ok());
    ASSERT_EQ(read_copy(fs, *store), next);
  }
  EXPECT_EQ(campaign.failure(), "");
}

// After any disk error, transient or permanent, readers see a whole version. Once the disk works
// again, so does the store.
TEST(ReplicaStoreFaults, EveryFaultLeavesAWholeVersionAndAWorkingStore) {
  const Files first{{"a", noise(2500, 1)}, {"d/b", noise(900, 2)}},
      second{{"a", noise(2500, 1) + "x"}, {"c", noise(1100, 3)}};
  const auto work = [&](CrashingFileSystem& fs) {
    const auto store = Store::open({.root = "/data/replicas", .limits = {}}, fs);
    if (!store.ok()) return;
    FileSource one(first), two(second);
    if (bring(**store, first, one).ok()) (void)bring(**store, second, two);
  };
  CrashingFileSystem whole;
  work(whole);
  const std::uint64_t every = os::testing::fault_every(3);
  for (std::uint64_t call = 0; call < whole.calls(); call += every) {
    for (const auto& fault : os::testing::faults_at(call)) {
      SCOPED_TRACE(fault.name);
      CrashingFileSystem fs;
      fs.set_fault(fault.fault);
      work(fs);
      fs.set_fault(std::nullopt);
      const auto store = open_store(fs);
      const Files seen = read_copy(fs, *store);
      EXPECT_TRUE(seen.empty() || seen == first || seen == second);
      FileSource source(second);
      const Status status = bring(*store, second, source);
      ASSERT_TRUE(status.ok()) << status.error();
      ASSERT_EQ(read_copy(fs, *store), second);
    }
  }
}

}  // namespace store_test
}  // namespace varda::replica
