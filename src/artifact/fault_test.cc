// Artifacts and models on a disk that fails, fills up or is slow, at every call.
#include <gtest/gtest.h>
#include <latch>
#include <thread>

#include "artifact/model_tree.h"
#include "artifact/operator_requests.h"
#include "artifact/store.h"
#include "artifact/testing/archives.h"
#include "artifact/testing/origin.h"
#include "os/testing/faults.h"

namespace varda::artifact {
namespace fault_test {

using os::testing::CrashingFileSystem;
using testing::Origin;

const Context kForever = Context::background();
constexpr const char* kUrl = "http://files/model.tar";
constexpr const char* kKey = "default/m";

class ArtifactFaults : public ::testing::Test {
 protected:
  ArtifactFaults() {
    for (int i = 0; i < 2; ++i) {
      content[i] = std::string(3000, static_cast<char>('a' + i));
      archive[i] = testing::TarBuilder()
                       .directory("m/")
                       .file("m/model.onnx", content[i])
                       .directory("m/sub/")
                       .file("m/sub/words", "w")
                       .tar();
    }
  }
  static std::unique_ptr<CrashingFileSystem> new_disk() {
    auto fs = std::make_unique<CrashingFileSystem>();
    CHECK(fs->make_directories("/data", 0755).ok() && fs->sync_directory("/").ok());
    return fs;
  }
  Request request(int i) const {
    return {.url = kUrl + std::to_string(i),
            .digest = codec::Sha256::of(archive[i]),
            .framework = "onnx"};
  }
  void serve(Origin& origin) const {
    for (int i = 0; i < 2; ++i)
      origin.put(kUrl + std::to_string(i),
                 Origin::File{.bytes = archive[i], .etag = "\"e\"", .piece = 2000});
  }

  struct Acknowledged {
    bool installed[2] = {false, false};
    bool removed_first = false;
    std::set<std::string> targets{""};      // allowed content of the file
    std::set<std::string> joint_files{""};  // allowed content of joint.json
  };
  // Installs two versions, moves the target from the first to the second, removes the first. Stops
  // at a failure.
  Status work(CrashingFileSystem& fs, Origin& origin, Acknowledged& done) const {
    TRY(auto store, Store::open({.root = "/data/artifacts"}, fs, origin));
    TRY(auto tree, ModelTree::open(fs, "/data/models"));
    for (int i = 0; i < 2; ++i) {
      const std::string version = std::to_string(i + 1);
      const auto installed = store->ensure(kForever, request(i));
      if (!installed.ok()) {
        EXPECT_NE(installed.error().reason, Reason::kDigestMismatch)
            << "a fault of the disk is no fault of the archive";
        EXPECT_NE(installed.error().reason, Reason::kUnsafeArchive) << installed.error().error;
        return installed.error().error;
      }
      done.installed[i] = true;
      done.joint_files.insert(version);
      TRY_VOID(tree.set_joint_file(kKey, codec::Json(version)));
      done.joint_files = {version};
      TRY_VOID(tree.expose(kKey, version, installed->directory));
      done.targets.insert(version);
      TRY_VOID(tree.set_target(kKey, version));
      done.targets = {version};
    }
    // The second is marked damaged and installed again beside the exposed files.
    store->keep({request(1).digest});
    done.installed[1] = false;
    TRY_VOID(set_mark(fs, "/data/artifacts", request(1).digest, Mark::kDamaged));
    const bool known = !store->read_requests().empty();
    if (const auto again = store->ensure(kForever, request(1)); !again.ok())
      return again.error().error;
    done.installed[1] = known;  // otherwise the next store sees the mark
    TRY_VOID(tree.unexpose(kKey, "1"));
    done.installed[0] = false;
    TRY_VOID(store->remove(request(0).digest));
    done.removed_first = true;
    return {};
  }

  std::string content[2], archive[2];

  // The disk holds whole trees and everything acknowledged. A repeated run then succeeds.
  void check(CrashingFileSystem& fs, const Acknowledged& done) const {
    Origin origin;
    serve(origin);
    auto store = Store::open({.root = "/data/artifacts"}, fs, origin);
    ASSERT_TRUE(store.ok()) << store.error();
    auto tree = ModelTree::open(fs, "/data/models");
    ASSERT_TRUE(tree.ok()) << tree.error();
    const auto whole = [&](const os::Path& root, int i) {
      return os::read_file(fs, root / "model.onnx").value_or("") == content[i] &&
             os::read_file(fs, root / "sub/words").value_or("") == "w";
    };
    for (int i = 0; i < 2; ++i) {
      const auto found = (*store)->find(request(i).digest);
      if (found) {
        ASSERT_TRUE(whole(found->directory, i)) << i;
      }
      if (done.installed[i]) {
        ASSERT_TRUE(found) << i;
      }
      const os::Path place = tree->directory(kKey) / std::to_string(i + 1);
      if (fs.stat(place).value()) {
        ASSERT_TRUE(whole(place, i)) << place;
      }
    }
    if (done.removed_first) {
      ASSERT_FALSE((*store)->find(request(0).digest));
    }
    const std::string target = tree->target(kKey).value().value_or("");
    ASSERT_TRUE(done.targets.contains(target)) << target;
    const auto joint = os::read_file(fs, tree->directory(kKey) / "joint.json");
    ASSERT_TRUE(
        done.joint_files.contains(joint.ok() ? codec::parse_json(*joint).value().as_string() : ""))
        << joint.value_or("");
    if (!target.empty()) {
      ASSERT_FALSE(done.joint_files.contains("")) << "it was there before the first target";
      ASSERT_TRUE(fs.stat(tree->directory(kKey) / target).value()) << target;
    }
    Acknowledged again;
    const Status went = work(fs, origin, again);
    ASSERT_TRUE(went.ok()) << went.error();
    ASSERT_EQ(tree->target(kKey).value(), "2");
    (*store)->keep({});
    ASSERT_TRUE(fs.list("/data/artifacts/.scratch").value().empty());
  }
};

TEST_F(ArtifactFaults, EveryFaultLeavesWholeTreesAndAcknowledgedArtifacts) {
  std::uint64_t calls = 0;
  {
    const auto fs = new_disk();
    Origin origin;
    serve(origin);
    Acknowledged done;
    ASSERT_TRUE(work(*fs, origin, done).ok());
    calls = fs->calls();
  }
  std::uint64_t hits = 0;
  const std::uint64_t every = os::testing::fault_every(3);
  for (std::uint64_t call = 2; call < calls; call += every) {
    for (const os::testing::NamedFault& fault : os::testing::faults_at(call)) {
      SCOPED_TRACE(fault.name);
      const auto fs = new_disk();
      Origin origin;
      serve(origin);
      Acknowledged done;
      fs->set_fault(fault.fault);
      (void)work(*fs, origin, done);
      SCOPED_TRACE(fs->hit());
      hits += fs->hit().empty() ? 0 : 1;
      fs->set_fault(std::nullopt);
      const auto dark = fs->crashed(call), killed = fs->killed();
      for (CrashingFileSystem* left : {dark.get(), killed.get(), fs.get()}) {
        check(*left, done);
        if (HasFatalFailure()) return;
      }
    }
  }
  EXPECT_GE(hits, (calls - 2) / every);
}

TEST_F(ArtifactFaults, FullDiskIsReportedAndRemovingAnArtifactFreesRoom) {
  const auto fs = new_disk();
  fs->set_capacity(24'000);
  Origin origin;
  serve(origin);
  const auto store = Store::open({.root = "/data/artifacts"}, *fs, origin).value();
  ASSERT_TRUE(store->ensure(kForever, request(0)).ok());
  store->keep({request(0).digest});
  fs->set_capacity(fs->used_bytes() + 3000);
  const auto refused = store->ensure(kForever, request(1));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().reason, Reason::kDiskFull);
  EXPECT_NE(refused.error().error.message().find("free"), std::string::npos)
      << refused.error().error;
  ASSERT_TRUE(store->find(request(0).digest));
  fs->set_capacity(fs->used_bytes() + 12'000);
  store->keep({});
  ASSERT_TRUE(store->remove(request(0).digest).ok());
  EXPECT_TRUE(store->ensure(kForever, request(1)).ok());
}

TEST_F(ArtifactFaults, SlowDiskDelaysOnlyTheDownloadInProgress) {
  // Each call of an installation in turn hangs until other downloads were served.
  for (std::uint64_t slow = 0;; ++slow) {
    const auto fs = new_disk();
    Origin origin;
    serve(origin);
    const auto store = Store::open({.root = "/data/artifacts"}, *fs, origin).value();
    ASSERT_TRUE(store->ensure(kForever, request(0)).ok());
    std::latch reached(1), released(1);
    std::atomic<std::uint64_t> seen = 0;
    bool held = false;
    fs->on_call([&](std::string_view, const os::Path&) {
      if (seen++ == slow) {
        held = true;
        reached.count_down();
        released.wait();
      }
      return Status();
    });
    std::jthread installer([&] {
      EXPECT_TRUE(store->ensure(kForever, request(1)).ok());
      if (!held) reached.count_down();
    });
    reached.wait();
    const bool in_the_middle = held;
    if (in_the_middle) {
      EXPECT_TRUE(store->ensure(kForever, request(0)).ok());
      EXPECT_TRUE(store->find(request(0).digest));
      if (const auto other = store->find(request(1).digest)) {
        EXPECT_EQ(*os::read_file(*fs, other->directory / "model.onnx"), content[1]);
      }
    }
    released.count_down();
    installer.join();
    fs->on_call({});
    EXPECT_EQ(*os::read_file(*fs, store->find(request(1).digest)->directory / "model.onnx"),
              content[1]);
    if (!in_the_middle) {
      EXPECT_GE(slow, 10u);
      return;
    }
  }
}

}  // namespace fault_test
}  // namespace varda::artifact
