#include "artifact/pack.h"

#include <gtest/gtest.h>

#include "artifact/fetch.h"
#include "artifact/testing/archives.h"
#include "artifact/testing/origin.h"
#include "os/testing/memory_file_system.h"

namespace varda::artifact {
namespace pack_test {

const Context kForever = Context::background();
constexpr const char* kUrl = "http://files/m";

void write(os::FileSystem& fs, const os::Path& path, std::string_view bytes) {
  CHECK(fs.make_directories(path.parent_path()).ok());
  CHECK(os::write_file_atomically(fs, path, bytes).ok());
}

struct Made {
  std::string bytes;
  Result<Packed> packed;
};

Made make(os::FileSystem& fs, const PackOptions& options = {.framework = "onnx"}) {
  std::string bytes;
  auto packed = pack(kForever, fs, "/m", options, [&bytes](std::string_view part) {
    bytes += part;
    return ok_status();
  });
  return {std::move(bytes), std::move(packed)};
}

TEST(Pack, SameDirectoryGivesTheSameBytes) {
  os::testing::MemoryFileSystem a, b;
  write(a, "/m/model.onnx", "model");
  write(a, "/m/sub/labels.txt", "0");
  write(b, "/m/sub/labels.txt", "0");
  write(b, "/m/old", "x");
  write(b, "/m/model.onnx", "model");
  ASSERT_TRUE(b.remove("/m/old").ok());
  ASSERT_TRUE(b.set_mode("/m/model.onnx", 0600).ok());
  const Made first = make(a), second = make(b);
  ASSERT_TRUE(first.packed.ok()) << first.packed.error();
  EXPECT_EQ(first.bytes, second.bytes);
  EXPECT_EQ(first.packed->digest, codec::Sha256::of(first.bytes));
  EXPECT_EQ(first.packed->bytes, first.bytes.size());
  EXPECT_EQ(first.packed->extracted_bytes, 6u);
  EXPECT_EQ(first.packed->files, 2u);
}

TEST(Pack, OnnxFileIsPackedWithoutOtherFiles) {
  os::testing::MemoryFileSystem fs;
  write(fs, "/models/net.onnx", "model");
  write(fs, "/models/other.onnx", "another");
  write(fs, "/models/notes.txt", "text");
  const auto pack_one = [&](const char* file, std::string& bytes) {
    return pack(kForever, fs, file, {.framework = "onnx"}, [&bytes](std::string_view part) {
      bytes += part;
      return ok_status();
    });
  };
  std::string bytes, same;
  const auto packed = pack_one("/models/net.onnx", bytes);
  ASSERT_TRUE(packed.ok()) << packed.error();
  EXPECT_EQ(packed->files, 1u);
  write(fs, "/m/net.onnx", "model");
  EXPECT_EQ(bytes, make(fs).bytes) << "as a directory with that file";
  EXPECT_NE(pack_one("/models/notes.txt", same)
                .error()
                .message()
                .find("neither a directory nor an .onnx file"),
            std::string::npos);
  write(fs, "/models/net.onnx.data", "weights");
  EXPECT_NE(pack_one("/models/net.onnx", same).error().message().find("net.onnx.data"),
            std::string::npos);
}

TEST(Pack, PackedFilesUnpackUnchanged) {
  struct Case {
    const char* name;
    std::vector<std::string> files;
    std::vector<std::string> root;
  };
  for (const Case& c : {Case{"Flat", {"model.onnx", "labels.txt"}, {"labels.txt", "model.onnx"}},
                        Case{"Nested", {"model.onnx", "a/b/c"}, {"a", "model.onnx"}},
                        Case{"OnlyOneDirectory", {"saved_model/x"}, {"saved_model"}}}) {
    for (const auto format : {codec::ArchiveFormat::kTarGzip, codec::ArchiveFormat::kTarZstd,
                              codec::ArchiveFormat::kTar}) {
      SCOPED_TRACE(c.name);
      os::testing::MemoryFileSystem fs;
      for (const std::string& file : c.files) write(fs, os::Path("/m") / file, file);
      const Made made = make(fs, {.format = format});
      ASSERT_TRUE(made.packed.ok()) << made.packed.error();
      testing::Origin origin;
      origin.put(kUrl, made.bytes);
      ASSERT_TRUE(fs.make_directories("/data", 0755).ok());
      auto store = Store::open({.root = "/data/a"}, fs, origin);
      const auto installed =
          (*store)->ensure(kForever, {.url = kUrl, .digest = made.packed->digest});
      ASSERT_TRUE(installed.ok()) << installed.error().error;
      EXPECT_EQ(*fs.list(installed->directory), c.root);
      for (const std::string& file : c.files)
        EXPECT_EQ(*os::read_file(fs, installed->directory / file), file);
    }
  }
}

TEST(Pack, PackRefusesTreesThatANodeWouldRefuse) {
  const auto refused = [](const std::function<void(os::FileSystem&)>& spoil,
                          std::string_view message, PackOptions options) {
    os::testing::MemoryFileSystem fs;
    write(fs, "/m/model.onnx", "model");
    spoil(fs);
    const Made made = make(fs, options);
    ASSERT_FALSE(made.packed.ok()) << message;
    EXPECT_EQ(made.packed.error().code(), Code::kInvalid) << made.packed.error();
    EXPECT_NE(made.packed.error().message().find(message), std::string::npos)
        << made.packed.error();
  };
  Limits small;
  small.extracted_bytes_max = 10;
  refused([](auto& fs) { CHECK(fs.symlink("/etc/passwd", "/m/l").ok()); }, "absolute", {});
  refused([](auto& fs) { CHECK(fs.symlink("../../x", "/m/l").ok()); }, "out of the tree", {});
  refused([](auto& fs) { write(fs, "/m/a\nb", "x"); }, "control character", {});
  refused(
      [](auto& fs) {
        write(fs, "/m/second.onnx", "x");
        CHECK(fs.rename("/m/model.onnx", "/m/first.onnx").ok());
      },
      "exactly one", {.framework = "onnx"});
  refused([](auto& fs) { CHECK(fs.remove("/m/model.onnx").ok()); }, "empty", {});
  refused([](auto& fs) { write(fs, "/m/large", "12345678901"); }, "more than 10 bytes",
          {.limits = small});
}

TEST(Pack, FailedPackLeavesTheOldFile) {
  os::testing::MemoryFileSystem fs;
  write(fs, "/m/model.onnx", "model");
  write(fs, "/out/m.tar.gz", "old");
  fs.set_capacity(10);
  EXPECT_FALSE(pack_to_file(kForever, fs, "/m", {}, "/out/m.tar.gz").ok());
  EXPECT_EQ(*fs.list("/out"), std::vector<std::string>{"m.tar.gz"});
  EXPECT_EQ(*os::read_file(fs, "/out/m.tar.gz"), "old");
  fs.set_capacity(1 << 20);
  const auto packed = pack_to_file(kForever, fs, "/m", {}, "/out/m.tar.gz");
  ASSERT_TRUE(packed.ok()) << packed.error();
  EXPECT_EQ(codec::Sha256::of(*os::read_file(fs, "/out/m.tar.gz")), packed->digest);
  EXPECT_EQ(pack_to_file(kForever, fs, "/m", {}, "/m/m.tar.gz").error().code(), Code::kInvalid);
}

TEST(Pack, FileExtensionSelectsTheFormat) {
  EXPECT_EQ(*archive_format_of("a/m.tar.gz"), codec::ArchiveFormat::kTarGzip);
  EXPECT_EQ(*archive_format_of("m.tar.zst"), codec::ArchiveFormat::kTarZstd);
  EXPECT_EQ(*archive_format_of("m.tar"), codec::ArchiveFormat::kTar);
  EXPECT_FALSE(archive_format_of("m.zip").ok());
}

class FetchTest : public ::testing::Test {
 protected:
  FetchTest() {
    CHECK(fs.make_directories("/models", 0755).ok());
    origin.put(kUrl, archive);
    options.request = {.url = kUrl, .digest = codec::Sha256::of(archive), .framework = "onnx"};
    options.to = "/models/digits/3";
    options.attempts_max = 1;
  }
  os::testing::MemoryFileSystem fs;
  testing::Origin origin;
  const std::string archive = testing::model_archive("three");
  FetchOptions options;
};

TEST_F(FetchTest, FetchLeavesOnlyTheCompleteVersion) {
  const auto installed = fetch(kForever, fs, origin, options);
  ASSERT_TRUE(installed.ok()) << installed.error().error;
  EXPECT_EQ(*os::read_file(fs, "/models/digits/3/model.onnx"), "three");
  EXPECT_EQ(*fs.list("/models/digits"), std::vector<std::string>{"3"});
}

TEST_F(FetchTest, ExtraFilesAreCopiedAndRestoredByTheNextFetch) {
  options.extra_files = {"model.onnx", "missing"};
  ASSERT_TRUE(fs.make_directories("/models/digits", 0755).ok());
  ASSERT_TRUE(
      os::write_file_atomically(fs, "/models/digits/missing", "of an earlier version").ok());
  ASSERT_TRUE(fetch(kForever, fs, origin, options).ok());
  EXPECT_EQ(*os::read_file(fs, "/models/digits/model.onnx"), "three");
  EXPECT_EQ(*fs.stat("/models/digits/missing"), std::nullopt);
  ASSERT_TRUE(fs.remove("/models/digits/model.onnx").ok());
  ASSERT_TRUE(fetch(kForever, fs, origin, options).ok());
  EXPECT_EQ((*fs.stat("/models/digits/model.onnx"))->inode,
            (*fs.stat("/models/digits/3/model.onnx"))->inode);
}

TEST_F(FetchTest, CompleteVersionNeedsNoNetwork) {
  ASSERT_TRUE(fetch(kForever, fs, origin, options).ok());
  origin.remove(kUrl);
  EXPECT_TRUE(fetch(kForever, fs, origin, options).ok());
  options.to = "/models/digits/3/";
  EXPECT_TRUE(fetch(kForever, fs, origin, options).ok());
  EXPECT_EQ(origin.seen().size(), 1u);
}

TEST_F(FetchTest, AnotherDigestReplacesTheVersion) {
  ASSERT_TRUE(fetch(kForever, fs, origin, options).ok());
  const std::string other = testing::model_archive("other");
  origin.put(kUrl, other);
  options.request.digest = codec::Sha256::of(other);
  ASSERT_TRUE(fetch(kForever, fs, origin, options).ok());
  EXPECT_EQ(*os::read_file(fs, "/models/digits/3/model.onnx"), "other");
  EXPECT_EQ(*fs.list("/models/digits"), std::vector<std::string>{"3"});
}

TEST_F(FetchTest, ForeignFilesAreNeverReplaced) {
  ASSERT_TRUE(fs.make_directories("/home/ada", 0755).ok());
  ASSERT_TRUE(os::write_file_atomically(fs, "/home/ada/thesis", "years").ok());
  for (const char* taken : {"/home/ada", "/home/ada/thesis"}) {
    options.to = taken;
    const auto refused = fetch(kForever, fs, origin, options);
    ASSERT_FALSE(refused.ok()) << taken;
    EXPECT_NE(refused.error().error.message().find(taken), std::string::npos)
        << refused.error().error;
  }
  EXPECT_EQ(*os::read_file(fs, "/home/ada/thesis"), "years");
  EXPECT_TRUE(origin.seen().empty());
  ASSERT_TRUE(fs.make_directories("/home/empty", 0755).ok());
  options.to = "/home/empty";
  EXPECT_TRUE(fetch(kForever, fs, origin, options).ok());
}

TEST_F(FetchTest, FailuresHaveDistinctReasons) {
  options.request.digest = codec::Sha256::of("something else");
  EXPECT_EQ(fetch(kForever, fs, origin, options).error().reason, Reason::kDigestMismatch);
  const std::string bad = testing::TarBuilder().file("readme", "x").tar();
  origin.put(kUrl, bad);
  options.request.digest = codec::Sha256::of(bad);
  EXPECT_EQ(fetch(kForever, fs, origin, options).error().reason, Reason::kBadLayout);
  EXPECT_TRUE(fs.list("/models/digits")->empty());
  origin.remove(kUrl);
  EXPECT_EQ(fetch(kForever, fs, origin, options).error().reason, Reason::kDownloadFailed);
  EXPECT_FALSE(*fs.stat("/models/digits/3"));
}

TEST_F(FetchTest, ClientErrorsFailAtOnceAndServerErrorsAreRetried) {
  for (const int status : {400, 401, 403, 404, 410, 451, 408, 425, 429, 500, 503}) {
    const bool heals = status >= 500 || status == 408 || status == 425 || status == 429;
    testing::Origin peer;
    std::stop_source stop;
    int requests = 0;
    peer.put(kUrl, testing::Origin::File{.bytes = "no", .status = status});
    peer.on_request([&] {
      // The second request is proof enough, so the test does not wait for more.
      if (++requests == 2) stop.request_stop();
    });
    options.attempts_max = 5;
    const auto failed = fetch(Context(stop.get_token()), fs, peer, options);
    ASSERT_FALSE(failed.ok()) << status;
    EXPECT_EQ(requests, heals ? 2 : 1) << status;
    if (!heals) {
      EXPECT_NE(failed.error().error.message().find("HTTP " + std::to_string(status)),
                std::string::npos);
    }
  }
}

TEST_F(FetchTest, FetchWithoutASpoolResumesABrokenConnection) {
  options.spooled = false;
  origin.put(
      kUrl,
      testing::Origin::File{
          .bytes = archive, .etag = "\"a\"", .break_after = archive.size() / 2, .piece = 100});
  std::size_t leftovers = 0;
  origin.on_request([&] {
    // Half of the archive has been read at the second request.
    for (const std::string& name : *fs.list("/models/digits/.3.fetch"))
      leftovers += name.find(".part") != std::string::npos ? 1 : 0;
  });
  const auto installed = fetch(kForever, fs, origin, options);
  ASSERT_TRUE(installed.ok()) << installed.error().error;
  EXPECT_EQ(*os::read_file(fs, "/models/digits/3/model.onnx"), "three");
  EXPECT_EQ(leftovers, 0u);
  ASSERT_EQ(origin.seen().size(), 2u);
  EXPECT_EQ(origin.seen()[1].range, "bytes=" + std::to_string(archive.size() / 2) + "-");
  EXPECT_EQ(origin.seen()[1].if_range, "\"a\"");
}

TEST_F(FetchTest, KilledFetchLeavesAWholeOrAbsentVersionAndTheNextSucceeds) {
  for (std::uint64_t nth = 1;; ++nth) {
    os::testing::MemoryFileSystem disk;
    ASSERT_TRUE(disk.make_directories("/models", 0755).ok());
    std::uint64_t seen = 0;
    disk.on_call([&seen, nth](std::string_view, const os::Path&) -> Status {
      return ++seen >= nth ? Status(Error(Code::kInternal, "killed")) : Status();
    });
    const bool done = fetch(kForever, disk, origin, options).ok();
    disk.on_call({});
    if (*disk.stat("/models/digits/3")) {
      EXPECT_EQ(*os::read_file(disk, "/models/digits/3/model.onnx"), "three") << nth;
    }
    ASSERT_TRUE(fetch(kForever, disk, origin, options).ok());
    EXPECT_EQ(*os::read_file(disk, "/models/digits/3/model.onnx"), "three");
    if (done) break;
  }
}

}  // namespace pack_test
}  // namespace varda::artifact
