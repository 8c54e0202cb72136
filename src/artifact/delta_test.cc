// Downloads of the parts of an archive that no held tree has.
#include "artifact/internal/delta.h"

#include <atomic>
#include <cstring>
#include <gtest/gtest.h>
#include <map>

#include "artifact/fetch.h"
#include "artifact/file_server.h"
#include "artifact/pack.h"
#include "artifact/store.h"
#include "artifact/testing/origin.h"
#include "net/client.h"
#include "net/server.h"
#include "os/testing/memory_file_system.h"

namespace varda::artifact {
namespace delta_test {

using os::testing::MemoryFileSystem;
using testing::Origin;

const Context kForever = Context::background();
constexpr std::size_t kMiB = 1 << 20;

std::string noise(std::size_t size, std::uint64_t seed) {
  std::string bytes(size, '\0');
  for (std::size_t at = 0; at < size; at += 8) {
    seed = seed * 6364136223846793005U + 1442695040888963407U;
    const std::uint64_t word = seed ^ (seed >> 33);
    std::memcpy(bytes.data() + at, &word, std::min<std::size_t>(8, size - at));
  }
  return bytes;
}

/// Replaces `share` of the bytes in each of three places.
std::string changed(std::string bytes, double share) {
  const auto part = static_cast<std::size_t>(static_cast<double>(bytes.size()) * share);
  for (std::size_t i = 0; i < 3; ++i)
    bytes.replace(bytes.size() / 7 * (2 * i + 1), part, noise(part, 100 + i));
  return bytes;
}

using Files = std::map<std::string, std::string>;

struct Version {
  std::string bytes, list;
  codec::Sha256 digest;
};

Version pack_version(const Files& files) {
  MemoryFileSystem fs;
  CHECK(fs.make_directories("/out", 0755).ok());
  for (const auto& [name, bytes] : files) {
    const os::Path path = os::Path("/m") / name;
    CHECK(fs.make_directories(path.parent_path(), 0755).ok());
    CHECK(os::write_file_atomically(fs, path, bytes).ok());
  }
  const auto packed =
      pack_to_file(kForever, fs, "/m", {.format = codec::ArchiveFormat::kTar}, "/out/m.tar");
  CHECK(packed.ok());
  const auto list = os::read_file(fs, "/out/m.tar.chunks");
  return {*os::read_file(fs, "/out/m.tar", 128 * kMiB), list.ok() ? *list : "", packed->digest};
}

class DeltaTest : public ::testing::Test {
 protected:
  DeltaTest() {
    CHECK(fs.make_directories("/data", 0755).ok());
    reopen();
  }
  void reopen() {
    store.reset();
    store = Store::open({.root = "/data/artifacts"}, fs, origin).value();
  }
  static std::string url_of(const std::string& name) { return "http://files/" + name + ".tar"; }
  static Origin::File file(const Version& version) {
    return {.bytes = version.bytes, .etag = "\"" + version.digest.hex() + "\"", .piece = 64 << 10};
  }
  void serve(const std::string& name, const Version& version) {
    origin.put(url_of(name), file(version));
    if (!version.list.empty()) origin.put(url_of(name) + ".chunks", version.list);
  }
  Outcome<Installed> ensure(const std::string& name, const Version& version,
                            std::vector<codec::Sha256> bases = {}) {
    return store->ensure(
        kForever, {.url = url_of(name), .digest = version.digest, .bases = std::move(bases)});
  }
  /// Installs `before`, serves `after`, and returns the bytes that its install receives.
  std::uint64_t install_after(const Version& before, const Version& after) {
    serve("3", before);
    CHECK(ensure("3", before).ok());
    serve("4", after);
    return install_next(before, after);
  }
  std::uint64_t install_next(const Version& before, const Version& after) {
    const std::uint64_t served = origin.bytes_served();
    const auto installed = ensure("4", after, {before.digest});
    EXPECT_TRUE(installed.ok()) << installed.error().error;
    const std::uint64_t received = origin.bytes_served() - served;
    check_tree(after);
    return received;
  }
  void check_tree(const Version& version) {
    const auto installed = store->find(version.digest);
    ASSERT_TRUE(installed);
    std::string packed;
    ASSERT_TRUE(pack(kForever, fs, installed->directory, {.format = codec::ArchiveFormat::kTar},
                     [&packed](std::string_view bytes) {
                       packed += bytes;
                       return ok_status();
                     })
                    .ok());
    EXPECT_TRUE(packed == version.bytes);
  }
  std::size_t requests_to(const std::string& url) const {
    std::size_t count = 0;
    for (const Origin::Seen& one : origin.seen()) count += one.url == url ? 1 : 0;
    return count;
  }

  MemoryFileSystem fs;
  Origin origin;
  std::unique_ptr<Store> store;
};

TEST_F(DeltaTest, FivePercentInThreePlacesCostAtMost11TenthsOfTheChangedBytes) {
  const std::string weights = noise(64 * kMiB, 1);
  const Version before = pack_version({{"model.onnx", weights}, {"labels.txt", "0\n1\n"}});
  const Version after =
      pack_version({{"model.onnx", changed(weights, 0.05 / 3)}, {"labels.txt", "0\n1\n2\n"}});
  EXPECT_LE(static_cast<double>(after.list.size()),
            0.001 * static_cast<double>(after.bytes.size()));
  const std::uint64_t received = install_after(before, after);
  EXPECT_LE(static_cast<double>(received), 1.1 * 0.05 * static_cast<double>(weights.size()));
  EXPECT_LE(requests_to(url_of("4")), 6u);
}

TEST_F(DeltaTest, InsertedBytesShiftNothing) {
  const std::string weights = noise(4 * kMiB, 2);
  const Version before = pack_version({{"model.onnx", weights}});
  const Version after =
      pack_version({{"model.onnx", std::string(weights).insert(kMiB, noise(5000, 3))}});
  EXPECT_LT(install_after(before, after), 400u << 10);
}

TEST_F(DeltaTest, SmallFilesAreSharedWithTheirHeaders) {
  Files files;
  for (int i = 0; i < 1000; ++i)
    files["images/" + std::to_string(i) + ".jpg"] = noise(3000, static_cast<std::uint64_t>(i));
  const Version before = pack_version(files);
  for (int i = 400; i < 420; ++i) files["images/" + std::to_string(i) + ".jpg"] = noise(2000, 5000);
  const Version after = pack_version(files);
  EXPECT_LT(install_after(before, after), after.bytes.size() / 10);
}

TEST_F(DeltaTest, EqualContentNeedsOnlyTheList) {
  const std::string weights = noise(2 * kMiB, 4);
  const Version before = pack_version({{"model.onnx", weights}});
  const Version after = pack_version({{"model.onnx", weights}, {"z", ""}});
  EXPECT_LT(install_after(before, after), 200u << 10);
  origin.remove(url_of("5"));
  serve("5", after);
  ASSERT_TRUE(store->remove(after.digest).ok());
  Version again = after;
  const auto installed = ensure("5", again, {before.digest});
  ASSERT_TRUE(installed.ok());
  EXPECT_LT(installed->received, 200u << 10);
}

TEST_F(DeltaTest, ReceivedBytesIncludeTheList) {
  const std::string weights = noise(2 * kMiB, 5);
  const Version before = pack_version({{"model.onnx", weights}});
  const Version after = pack_version({{"model.onnx", changed(weights, 0.02)}});
  serve("3", before);
  const auto first = ensure("3", before);
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(first->received, before.bytes.size());
  serve("4", after);
  const std::uint64_t served = origin.bytes_served();
  const auto second = ensure("4", after, {before.digest});
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(second->received, origin.bytes_served() - served);
  EXPECT_EQ(ensure("4", after)->received, 0u) << "it is present";
}

TEST_F(DeltaTest, ListIsRequestedOnlyIfAnotherVersionIsHeld) {
  const Version before = pack_version({{"model.onnx", noise(2 * kMiB, 6)}});
  const Version small = pack_version({{"model.onnx", noise(1000, 7)}});
  serve("3", before);
  serve("small", small);
  EXPECT_TRUE(small.list.empty()) << "too small for a list";
  ASSERT_TRUE(ensure("3", before, {small.digest}).ok());
  ASSERT_TRUE(ensure("small", small).ok());
  const Version after = pack_version({{"model.onnx", noise(2 * kMiB, 8)}});
  serve("4", after);
  ASSERT_TRUE(ensure("4", after, {small.digest}).ok());
  EXPECT_EQ(requests_to(url_of("3") + ".chunks"), 0u);
  EXPECT_EQ(requests_to(url_of("4") + ".chunks"), 0u);
}

TEST_F(DeltaTest, WithoutListOrRangesTheWholeArchiveIsDownloaded) {
  const std::string weights = noise(2 * kMiB, 9);
  const Version before = pack_version({{"model.onnx", weights}});
  const Version after = pack_version({{"model.onnx", changed(weights, 0.01)}});
  serve("3", before);
  ASSERT_TRUE(ensure("3", before).ok());
  // Held parts at the start are useless if the server then sends everything.
  Origin::File whole = file(after);
  whole.ranges = false;
  origin.put(url_of("4"), whole);
  origin.put(url_of("4") + ".chunks", after.list);
  const std::uint64_t received = install_next(before, after);
  EXPECT_GE(received, after.list.size() + after.bytes.size());
  EXPECT_LE(received, after.list.size() + after.bytes.size() + whole.piece) << "one look at a page";
  ASSERT_TRUE(store->remove(after.digest).ok());
  serve("4", after);
  for (const std::string& list :
       {std::string("<html>"), std::string(), after.list.substr(0, 1000), before.list}) {
    origin.put(url_of("4") + ".chunks", list);
    EXPECT_EQ(install_next(before, after), list.size() + after.bytes.size());
    ASSERT_TRUE(store->remove(after.digest).ok());
  }
  origin.put(url_of("4") + ".chunks", Origin::File{.bytes = "none", .status = 404});
  EXPECT_EQ(install_next(before, after), after.bytes.size());
}

TEST_F(DeltaTest, LyingListsNeverChangeTheResult) {
  const std::string weights = noise(2 * kMiB, 10);
  const Version before = pack_version({{"model.onnx", weights}});
  const Version after = pack_version({{"model.onnx", changed(weights, 0.01)}});
  serve("3", before);
  ASSERT_TRUE(ensure("3", before).ok());
  serve("4", after);
  std::vector<codec::ChunkList> lies;
  // The chunks of the held version, under the digest of the new one.
  lies.push_back(codec::parse_chunk_list(before.list).value());
  lies.back().digest = after.digest;
  // Twice the size, which the server contradicts at the first range.
  lies.push_back(codec::parse_chunk_list(after.list).value());
  const codec::Chunk first = lies.back().chunks.front();
  lies.back().chunks.insert(lies.back().chunks.begin(), first);
  lies.back().bytes += first.bytes;
  // One held chunk, again and again: more than the disk has.
  lies.push_back({.bytes = 0, .digest = after.digest, .chunks = {}});
  lies.back().chunks.assign(20'000, codec::parse_chunk_list(before.list)->chunks.at(5));
  for (const codec::Chunk& chunk : lies.back().chunks) lies.back().bytes += chunk.bytes;
  fs.set_capacity(200 * kMiB);
  for (const codec::ChunkList& lie : lies) {
    origin.put(url_of("4") + ".chunks", codec::write_chunk_list(lie));
    EXPECT_GE(install_next(before, after), after.bytes.size());
    ASSERT_TRUE(store->remove(after.digest).ok());
  }
}

TEST_F(DeltaTest, HeldFileThatChangesMeanwhileIsDownloaded) {
  const std::string weights = noise(4 * kMiB, 11);
  const Version before = pack_version({{"model.onnx", weights}});
  const Version after = pack_version({{"model.onnx", changed(weights, 0.01)}});
  serve("3", before);
  const auto held = ensure("3", before);
  ASSERT_TRUE(held.ok());
  serve("4", after);
  int requests = 0;
  origin.on_request([&] {
    // The tree was searched before the first range.
    if (++requests != 2) return;
    const auto weights_file = fs.open(held->directory / "model.onnx", os::Open::kCreate, 0644);
    CHECK(weights_file.ok() && (*weights_file)->write(noise(4 * kMiB, 12)).ok());
  });
  const std::uint64_t received = install_next(before, after);
  EXPECT_GT(received, 3 * kMiB);
  EXPECT_LT(received, after.bytes.size() + after.list.size());
}

TEST_F(DeltaTest, ServerMaySendLessOrMoreThanTheRange) {
  const std::string weights = noise(4 * kMiB, 13);
  const Version before = pack_version({{"model.onnx", weights}});
  const Version after = pack_version({{"model.onnx", changed(weights, 0.03)}});
  serve("3", before);
  ASSERT_TRUE(ensure("3", before).ok());
  serve("4", after);
  Origin::File less = file(after);
  less.range_max = 50'000;
  origin.put(url_of("4"), less);
  EXPECT_LT(install_next(before, after), kMiB);
  ASSERT_TRUE(store->remove(after.digest).ok());
  Origin::File more = file(after);
  more.range_ends = false;
  origin.put(url_of("4"), more);
  EXPECT_LT(install_next(before, after), 2 * kMiB);
  ASSERT_TRUE(store->remove(after.digest).ok());
  Origin::File shifted = file(after);
  shifted.range_shift = 10;
  origin.put(url_of("4"), shifted);
  EXPECT_GE(install_next(before, after), after.bytes.size()) << "useless ranges";
}

TEST_F(DeltaTest, BrokenDownloadResumesWithoutTheBytesThatItHas) {
  const std::string weights = noise(8 * kMiB, 14);
  const Version before = pack_version({{"model.onnx", weights}});
  const Version after = pack_version({{"model.onnx", changed(weights, 0.04)}});
  serve("3", before);
  ASSERT_TRUE(ensure("3", before).ok());
  serve("4", after);
  const std::uint64_t served = origin.bytes_served();
  int requests = 0;
  origin.on_request([&] {
    if (++requests == 3) origin.remove(url_of("4"));
  });
  ASSERT_FALSE(ensure("4", after, {before.digest}).ok());
  const std::uint64_t first = origin.bytes_served() - served;
  EXPECT_GT(first, 300'000u);
  origin.on_request({});
  serve("4", after);
  reopen();
  const std::uint64_t second = install_next(before, after);
  EXPECT_EQ(origin.seen().back().if_range, file(after).etag);
  ASSERT_TRUE(store->remove(after.digest).ok());
  const std::uint64_t unbroken = install_next(before, after);
  EXPECT_LE(first + second, unbroken + after.list.size() + file(after).piece);
}

TEST_F(DeltaTest, ArchiveThatChangesOnTheServerIsDownloadedWhole) {
  const std::string weights = noise(2 * kMiB, 15);
  const Version before = pack_version({{"model.onnx", weights}});
  const Version after = pack_version({{"model.onnx", changed(weights, 0.04)}});
  serve("3", before);
  ASSERT_TRUE(ensure("3", before).ok());
  serve("4", after);
  int requests = 0;
  origin.on_request([&] {
    Origin::File moved = file(after);
    moved.etag = "\"new\"";
    if (++requests == 3) origin.put(url_of("4"), moved);
  });
  EXPECT_GE(install_next(before, after), after.bytes.size());
}

TEST_F(DeltaTest, KilledInstallLeavesNothingWrongAndTheNextSucceeds) {
  const std::string weights = noise(kMiB + kMiB / 4, 16);
  const Version before = pack_version({{"model.onnx", weights}});
  const Version after = pack_version({{"model.onnx", changed(weights, 0.04)}});
  std::uint64_t calls = 0;
  for (std::uint64_t nth = 1;; nth += 7) {
    MemoryFileSystem disk;
    Origin server;
    server.put(url_of("3"), file(before));
    server.put(url_of("4"), file(after));
    server.put(url_of("4") + ".chunks", after.list);
    ASSERT_TRUE(disk.make_directories("/data", 0755).ok());
    auto first = Store::open({.root = "/data/artifacts"}, disk, server).value();
    ASSERT_TRUE(first->ensure(kForever, {.url = url_of("3"), .digest = before.digest}).ok());
    const Request next{.url = url_of("4"), .digest = after.digest, .bases = {before.digest}};
    std::atomic<std::uint64_t> seen = 0;
    disk.on_call([&seen, nth](std::string_view, const os::Path&) -> Status {
      return ++seen >= nth ? Status(Error(Code::kInternal, "killed")) : Status();
    });
    const bool done = first->ensure(kForever, next).ok();
    disk.on_call({});
    calls = seen;
    first.reset();
    auto second = Store::open({.root = "/data/artifacts"}, disk, server).value();
    const auto installed = second->ensure(kForever, next);
    ASSERT_TRUE(installed.ok()) << nth << ": " << installed.error().error;
    ASSERT_TRUE(*os::read_file(disk, installed->directory / "model.onnx") == changed(weights, 0.04))
        << nth;
    if (done) break;
  }
  EXPECT_GT(calls, 50u);
}

TEST_F(DeltaTest, FetchUsesItsBaseAndTheVersionThatItReplaces) {
  const std::string weights = noise(2 * kMiB, 17);
  const Version before = pack_version({{"model.onnx", weights}});
  const Version after = pack_version({{"model.onnx", changed(weights, 0.01)}});
  serve("3", before);
  serve("4", after);
  ASSERT_TRUE(fs.make_directories("/models", 0755).ok());
  FetchOptions options;
  options.request = {.url = url_of("3"), .digest = before.digest};
  options.to = "/models/3";
  ASSERT_TRUE(fetch(kForever, fs, origin, options).ok());
  options.request = {.url = url_of("4"), .digest = after.digest};
  options.to = "/models/4";
  options.bases = {"/models/3", "/models/none"};
  const auto beside = fetch(kForever, fs, origin, options);
  ASSERT_TRUE(beside.ok()) << beside.error().error;
  EXPECT_LT(beside->received, 500'000u);
  options.to = "/models/3";
  options.bases.clear();
  const auto replaced = fetch(kForever, fs, origin, options);
  ASSERT_TRUE(replaced.ok()) << replaced.error().error;
  EXPECT_LT(replaced->received, 500'000u);
  EXPECT_TRUE(*os::read_file(fs, "/models/3/model.onnx") == changed(weights, 0.01));
}

TEST_F(DeltaTest, FileServerGivesTheGapsOverRealConnections) {
  std::string weights = noise(4 * kMiB, 21);
  const Version before = pack_version({{"model.onnx", weights}});
  for (std::size_t at = 0; at < weights.size(); at += kMiB / 2)
    weights.replace(at, 1000, noise(1000, at));
  const Version after = pack_version({{"model.onnx", weights}});
  MemoryFileSystem files;
  ASSERT_TRUE(files.make_directories("/srv", 0755).ok());
  ASSERT_TRUE(os::write_file_atomically(files, "/srv/3.tar", before.bytes).ok());
  ASSERT_TRUE(os::write_file_atomically(files, "/srv/4.tar", after.bytes).ok());
  ASSERT_TRUE(os::write_file_atomically(files, "/srv/4.tar.chunks", after.list).ok());
  std::atomic<int> requests = 0;
  const auto server = net::Server::create({}, net::inline_handler([&](const net::Request& request) {
                                            ++requests;
                                            return serve_file(files, "/srv", request);
                                          }));
  ASSERT_TRUE(server.ok()) << server.error();
  const auto client = net::make_client({});
  const auto real = Store::open({.root = "/data/real"}, fs, *client).value();
  const std::string url = "http://" + (*server)->address();
  ASSERT_TRUE(real->ensure(kForever, {.url = url + "/3.tar", .digest = before.digest}).ok());
  requests = 0;
  const auto installed = real->ensure(
      kForever, {.url = url + "/4.tar", .digest = after.digest, .bases = {before.digest}});
  ASSERT_TRUE(installed.ok()) << installed.error().error;
  EXPECT_LT(installed->received, kMiB);
  EXPECT_LE(requests, 1 + 9) << "the list, and one request for each gap";
  EXPECT_TRUE(*os::read_file(fs, installed->directory / "model.onnx") == weights);
}

TEST_F(DeltaTest, OnlyPlainTarArchivesGetAList) {
  ASSERT_TRUE(fs.make_directories("/m", 0755).ok());
  ASSERT_TRUE(os::write_file_atomically(fs, "/m/model.onnx", noise(2 * kMiB, 18)).ok());
  const auto packed = [&](codec::ArchiveFormat format) {
    return pack_to_file(kForever, fs, "/m", {.format = format}, "/data/archive")->chunk_list_bytes;
  };
  EXPECT_EQ(packed(codec::ArchiveFormat::kTarZstd), 0u);
  EXPECT_FALSE(*fs.stat("/data/archive.chunks"));
  EXPECT_GT(packed(codec::ArchiveFormat::kTar), 0u);
  const auto list = codec::parse_chunk_list(*os::read_file(fs, "/data/archive.chunks"));
  ASSERT_TRUE(list.ok()) << list.error();
  EXPECT_EQ(list->digest, codec::Sha256::of(*os::read_file(fs, "/data/archive")));
}

TEST(ChunkListUrl, SuffixGoesBeforeTheQuery) {
  EXPECT_EQ(chunk_list_url("http://files/m.tar"), "http://files/m.tar.chunks");
  EXPECT_EQ(chunk_list_url("https://files/m.tar?a=b?c#d"), "https://files/m.tar.chunks?a=b?c#d");
  EXPECT_EQ(chunk_list_url("s3://bucket/m.tar"), "s3://bucket/m.tar.chunks");
}

TEST(TreeImage, ImageEqualsThePackedArchiveAtEveryPlace) {
  for (const bool only_one_directory : {false, true}) {
    MemoryFileSystem fs;
    ASSERT_TRUE(fs.make_directories("/m/sub/empty", 0755).ok());
    ASSERT_TRUE(os::write_file_atomically(fs, "/m/sub/model.onnx", noise(3000, 19)).ok());
    ASSERT_TRUE(os::write_file_atomically(fs, "/m/sub/none", "").ok());
    ASSERT_TRUE(os::write_file_atomically(fs, "/m/sub/block", noise(1024, 20)).ok());
    ASSERT_TRUE(fs.symlink("block", "/m/sub/link").ok());
    ASSERT_TRUE(os::write_file_atomically(fs, "/m/sub/" + std::string(150, 'n'), "x", 0755).ok());
    if (!only_one_directory) {
      ASSERT_TRUE(os::write_file_atomically(fs, "/m/labels", "0").ok());
    }
    std::string packed;
    ASSERT_TRUE(pack(kForever, fs, "/m", {.format = codec::ArchiveFormat::kTar},
                     [&packed](std::string_view bytes) {
                       packed += bytes;
                       return ok_status();
                     })
                    .ok());
    const auto image = TreeImage::open(fs, "/m", {});
    ASSERT_TRUE(image.ok()) << image.error();
    ASSERT_EQ((*image)->size(), packed.size());
    for (std::size_t at = 0; at < packed.size();) {
      const auto piece = (*image)->read(at, 700);
      ASSERT_TRUE(piece.ok()) << piece.error();
      ASSERT_FALSE(piece->empty());
      ASSERT_EQ(*piece, packed.substr(at, piece->size())) << at;
      at += std::max<std::size_t>(1, piece->size() / 2);
    }
    EXPECT_EQ(*(*image)->read(packed.size(), 10), "");
  }
}

}  // namespace delta_test
}  // namespace varda::artifact
