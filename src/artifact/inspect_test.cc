// `varda artifacts` beside a store: listing, verifying, marks.
#include "artifact/inspect.h"

#include <gtest/gtest.h>

#include "artifact/model_tree.h"
#include "artifact/store.h"
#include "artifact/testing/archives.h"
#include "artifact/testing/origin.h"
#include "os/testing/memory_file_system.h"

namespace varda::artifact {
namespace inspect_test {

using testing::Origin;
using testing::TarBuilder;

const Context kForever = Context::background();
const os::Path kRoot = "/data/artifacts", kModels = "/data/models";

class InspectTest : public ::testing::Test {
 protected:
  InspectTest() { CHECK(fs.make_directories("/data", 0755).ok()); }

  std::unique_ptr<Store> open(std::uint64_t capacity = 0) {
    auto store = Store::open({.root = kRoot, .capacity_bytes = capacity}, fs, origin);
    CHECK(store.ok());
    return std::move(*store);
  }
  static std::string archive_of(const std::string& text) {
    return TarBuilder()
        .directory("m/")
        .file("m/model.onnx", "weights of " + text)
        .file("m/tool 1%", text, 0755)
        .directory("m/sub/")
        .file("m/sub/empty", "")
        .symlink("m/link", "sub/empty")
        .tar();
  }
  codec::Sha256 install(Store& store, const std::string& text) {
    const std::string archive = archive_of(text);
    const codec::Sha256 digest = codec::Sha256::of(archive);
    origin.put("http://files/" + text, archive);
    EXPECT_TRUE(store
                    .ensure(kForever,
                            {.url = "http://files/" + text, .digest = digest, .framework = "onnx"})
                    .ok());
    return digest;
  }
  Verdict look(const codec::Sha256& digest) {
    auto verdict = verify(kForever, fs, kRoot, digest);
    EXPECT_TRUE(verdict.ok()) << verdict.error();
    return verdict.value_or(Verdict{Verdict::Kind::kMissing, {}});
  }
  void overwrite(const os::Path& path, const std::string& bytes) {
    auto file = fs.open(path, os::Open::kCreate, 0644);
    ASSERT_TRUE(file.ok() && (*file)->seek(0).ok() && (*file)->write(bytes).ok());
  }
  os::testing::MemoryFileSystem fs;
  Origin origin;
};

TEST_F(InspectTest, ListShowsEachArtifactWithItsUse) {
  const auto store = open();
  const auto shown = install(*store, "shown"), wanted = install(*store, "wanted"),
             idle = install(*store, "idle");
  auto models = ModelTree::open(fs, kModels).value();
  ASSERT_TRUE(models.expose("default/digits", "3", kRoot / shown.hex()).ok());
  ASSERT_TRUE(models.expose("team/eyes", "1", kRoot / shown.hex()).ok());
  store->keep({wanted});
  ASSERT_TRUE(set_mark(fs, kRoot, idle, Mark::kPinned).ok());
  const codec::Sha256 coming = codec::Sha256::of("coming");
  ASSERT_TRUE(
      os::write_file_atomically(fs, kRoot / ".scratch" / (coming.hex() + ".part"), "12345").ok());

  const auto found = inspect(fs, kRoot, kModels).value();
  ASSERT_EQ(found.size(), 4u);
  for (const Found& one : found) {
    EXPECT_EQ(one.exposed, one.digest == shown);
    EXPECT_EQ(one.wanted, one.digest == wanted);
    EXPECT_EQ(one.pinned, one.digest == idle);
    EXPECT_EQ(one.complete, one.digest != coming);
    EXPECT_FALSE(one.unused());
    EXPECT_EQ(one.models, one.digest == shown
                              ? (std::vector<std::string>{"default/digits 3", "team/eyes 1"})
                              : std::vector<std::string>());
    if (one.digest == coming) {
      EXPECT_EQ(one.bytes, 5u);
    }
  }
  ASSERT_TRUE(clear_mark(fs, kRoot, idle, Mark::kPinned).ok());
  for (const Found& one : inspect(fs, kRoot, kModels).value())
    EXPECT_EQ(one.unused(), one.digest == idle);
}

TEST_F(InspectTest, EveryKindOfDamageIsFoundAndNamed) {
  struct Case {
    const char* difference;
    std::function<void(const os::Path&)> harm;
  };
  const Case cases[] = {
      {"model.onnx has other bytes",
       [&](const os::Path& tree) { overwrite(tree / "model.onnx", "W"); }},
      {"model.onnx has 3 bytes instead of 13",
       [&](const os::Path& tree) {
         ASSERT_TRUE((*fs.open(tree / "model.onnx", os::Open::kCreate, 0644))->truncate(3).ok());
       }},
      {"sub/empty is missing",
       [&](const os::Path& tree) { ASSERT_TRUE(fs.remove(tree / "sub/empty").ok()); }},
      {"link points elsewhere",
       [&](const os::Path& tree) {
         ASSERT_TRUE(fs.remove(tree / "link").ok() && fs.symlink("model.onnx", tree / "link").ok());
       }},
      {"link is no link",
       [&](const os::Path& tree) {
         ASSERT_TRUE(fs.remove(tree / "link").ok());
         overwrite(tree / "link", "x");
       }},
      {"more was not in the archive", [&](const os::Path& tree) { overwrite(tree / "more", "x"); }},
      {"tool 1% has other bytes", [&](const os::Path& tree) { overwrite(tree / "tool 1%", "XX"); }},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.difference);
    const auto store = open();
    const auto digest = install(*store, "aa");
    EXPECT_EQ(look(digest).kind, Verdict::Kind::kWhole);
    EXPECT_TRUE(marked(fs, kRoot, Mark::kDamaged)->empty());
    c.harm(kRoot / digest.hex());
    const Verdict verdict = look(digest);
    EXPECT_EQ(verdict.kind, Verdict::Kind::kDamaged);
    EXPECT_EQ(verdict.differences, std::vector<std::string>{c.difference});
    EXPECT_EQ(*marked(fs, kRoot, Mark::kDamaged), std::set<codec::Sha256>{digest});
    ASSERT_TRUE(store->remove(digest).ok());
    (void)store->read_requests();
    EXPECT_TRUE(marked(fs, kRoot, Mark::kDamaged)->empty()) << "of what is not there";
  }
}

TEST_F(InspectTest, ArtifactWithoutARecordIsUnknownAndStays) {
  const auto store = open();
  const auto digest = install(*store, "a");
  const os::Path record = kRoot / ".trees" / digest.hex();
  ASSERT_TRUE(fs.stat(record)->has_value());
  const std::string text = *os::read_file(fs, record);
  for (const std::string& spoiled :
       {text.substr(0, text.size() / 2), std::string("nonsense\n"), text + "more", std::string()}) {
    ASSERT_TRUE(os::write_file_atomically(fs, record, spoiled).ok());
    const Verdict verdict = look(digest);
    if (spoiled == text + "more") {
      EXPECT_EQ(verdict.kind, Verdict::Kind::kWhole) << "nothing is read behind the end";
    } else {
      EXPECT_EQ(verdict.kind, Verdict::Kind::kUnknown);
    }
  }
  ASSERT_TRUE(fs.remove(record).ok());
  EXPECT_EQ(look(digest).kind, Verdict::Kind::kUnknown);
  EXPECT_EQ(look(codec::Sha256::of("never")).kind, Verdict::Kind::kMissing);
  EXPECT_TRUE(marked(fs, kRoot, Mark::kDamaged)->empty());
  EXPECT_TRUE(open()->find(digest)) << "it is served all the same";
}

TEST_F(InspectTest, TreeIsWholeWhateverItsTopDirectoryName) {
  const auto store = open();
  for (const std::string top : {"-", "end", "a b%2D", "model.onnx", "."}) {
    SCOPED_TRACE(top);
    const std::string archive = TarBuilder()
                                    .directory(top + "/")
                                    .file(top + "/model.onnx", "weights")
                                    .file(top + "/-", top)
                                    .tar();
    const codec::Sha256 digest = codec::Sha256::of(archive);
    origin.put("http://files/m", archive);
    ASSERT_TRUE(
        store->ensure(kForever, {.url = "http://files/m", .digest = digest, .framework = "onnx"})
            .ok());
    EXPECT_EQ(look(digest).kind, Verdict::Kind::kWhole);
    overwrite(kRoot / digest.hex() / "-", "+++++++++++++");
    EXPECT_EQ(look(digest).differences.size(), 1u);
  }
}

TEST_F(InspectTest, MissingPermissionIsReportedAsForbidden) {
  const auto store = open();
  const auto digest = install(*store, "a");
  for (const std::string_view call : {"stat", "open", "read"}) {
    fs.on_call([&](std::string_view now, const os::Path& path) -> Status {
      if (now == call && path.parent_path().filename() == ".trees")
        return Error(Code::kForbidden, "Permission denied");
      return {};
    });
    const auto verdict = verify(kForever, fs, kRoot, digest);
    ASSERT_FALSE(verdict.ok()) << call;
    EXPECT_EQ(verdict.error().code(), Code::kForbidden);
  }
  fs.on_call([&](std::string_view now, const os::Path& path) -> Status {
    if (now == "open" && path.parent_path().filename() == ".marks")
      return Error(Code::kForbidden, "Permission denied");
    return {};
  });
  EXPECT_EQ(look(digest).kind, Verdict::Kind::kWhole);
  overwrite(kRoot / digest.hex() / "model.onnx", "W");
  const auto verdict = verify(kForever, fs, kRoot, digest);
  ASSERT_FALSE(verdict.ok());
  EXPECT_NE(
      verdict.error().message().find(digest.hex() + " is damaged, and the mark cannot be written"),
      std::string::npos)
      << verdict.error();
}

TEST_F(InspectTest, StoreCreatesTheMarksDirectory) {
  const auto store = open();
  ASSERT_TRUE(fs.stat(kRoot / ".marks")->has_value());
}

TEST_F(InspectTest, PinDuringAnEvictionProtectsTheArtifact) {
  const auto store = open();
  const auto first = install(*store, "1"), second = install(*store, "2");
  fs.on_call([&](std::string_view call, const os::Path& path) -> Status {
    if (call == "rename" && path.filename() == first.hex()) {
      fs.on_call({});
      EXPECT_TRUE(set_mark(fs, kRoot, second, Mark::kPinned).ok());
    }
    return {};
  });
  ASSERT_TRUE(store->evict(UINT64_MAX).ok());
  EXPECT_FALSE(store->find(first));
  EXPECT_TRUE(store->find(second));
}

TEST_F(InspectTest, ReinstalledArtifactLosesTheDamageMark) {
  auto store = open();
  const auto digest = install(*store, "a");
  store->keep({digest});
  ASSERT_TRUE(set_mark(fs, kRoot, digest, Mark::kDamaged).ok());
  ASSERT_EQ(store->read_requests().size(), 1u);
  // The process ends right after the new tree is renamed into place.
  bool killed = false;
  fs.on_call([&](std::string_view call, const os::Path& path) -> Status {
    if (killed) return Error(Code::kInternal, "killed");
    killed = call == "rename" && path.parent_path().parent_path().filename() == ".scratch";
    return {};
  });
  const std::string archive = archive_of("a");
  origin.put("http://files/a", archive);
  (void)store->ensure(kForever, {.url = "http://files/a", .digest = digest, .framework = "onnx"})
      .ok();
  fs.on_call({});
  ASSERT_TRUE(killed);
  store = open();
  EXPECT_TRUE(store->find(digest));
}

TEST_F(InspectTest, DamagedArtifactIsReinstalledWhileAModelShowsTheOldFiles) {
  auto store = open();
  const auto digest = install(*store, "a");
  auto models = ModelTree::open(fs, kModels).value();
  ASSERT_TRUE(models.expose("default/m", "1", kRoot / digest.hex()).ok());
  store->keep({digest});
  overwrite(kRoot / digest.hex() / "model.onnx", "W");
  ASSERT_EQ(look(digest).kind, Verdict::Kind::kDamaged);
  for (const bool restarted : {false, true}) {
    if (restarted) {
      store.reset();
      store = open();
      store->keep({digest});
    } else {
      EXPECT_EQ(store->read_requests(), std::vector<codec::Sha256>{digest});
    }
    EXPECT_TRUE(store->read_requests().empty()) << "reported once";
    EXPECT_FALSE(store->find(digest));
  }
  install(*store, "a");
  EXPECT_TRUE(store->find(digest));
  EXPECT_EQ(look(digest).kind, Verdict::Kind::kWhole);
  EXPECT_TRUE(marked(fs, kRoot, Mark::kDamaged)->empty());
  EXPECT_EQ(os::read_file(fs, kModels / "default/m/1/model.onnx")->substr(0, 1), "W")
      << "until it is shown anew";
  ASSERT_TRUE(models.expose("default/m", "1", kRoot / digest.hex()).ok());
  EXPECT_EQ(*os::read_file(fs, kModels / "default/m/1/model.onnx"), "weights of a");
}

TEST_F(InspectTest, UnwantedDamagedArtifactIsRemoved) {
  const auto store = open();
  const auto digest = install(*store, "a");
  overwrite(kRoot / digest.hex() / "model.onnx", "W");
  ASSERT_EQ(look(digest).kind, Verdict::Kind::kDamaged);
  EXPECT_TRUE(store->read_requests().empty());
  EXPECT_TRUE(store->list().empty());
  EXPECT_FALSE(fs.stat(kRoot / digest.hex())->has_value());
  EXPECT_FALSE(fs.stat(kRoot / ".trees" / digest.hex())->has_value());
  EXPECT_TRUE(marked(fs, kRoot, Mark::kDamaged)->empty());
}

TEST_F(InspectTest, PinnedArtifactsSurviveCollection) {
  const auto store = open();
  const auto pinned = install(*store, "pinned"), wanted = install(*store, "wanted"),
             idle = install(*store, "idle");
  store->keep({wanted});
  ASSERT_TRUE(set_mark(fs, kRoot, pinned, Mark::kPinned).ok());
  ASSERT_TRUE(request_collection(fs, kRoot).ok());
  EXPECT_TRUE(store->read_requests().empty());
  EXPECT_TRUE(store->find(pinned));
  EXPECT_TRUE(store->find(wanted));
  EXPECT_FALSE(store->find(idle));
  EXPECT_FALSE(*take_request_to_collect(fs, kRoot)) << "done once";
  ASSERT_TRUE(clear_mark(fs, kRoot, pinned, Mark::kPinned).ok());
  ASSERT_TRUE(store->evict(UINT64_MAX).ok());
  EXPECT_FALSE(store->find(pinned));
}

TEST_F(InspectTest, PreviouslyServedVersionIsEvictedLast) {
  const auto store = open(/*capacity=*/3 * 13);
  const auto v1 = install(*store, "1"), v2 = install(*store, "2");
  (void)store->find(v2);
  store->keep({v1});  // serving
  const auto v3 = install(*store, "3");
  store->keep({v3});  // v1 left the work list
  (void)store->find(v2);
  store->keep({v1, v3});
  store->keep({v3});
  const auto v4 = install(*store, "4");
  EXPECT_TRUE(store->find(v1)) << "the way back";
  EXPECT_FALSE(store->find(v2));
  EXPECT_TRUE(store->find(v4));
}

}  // namespace inspect_test
}  // namespace varda::artifact
