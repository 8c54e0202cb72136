#include "registry/directory_store.h"

#include <gtest/gtest.h>

#include "os/testing/memory_file_system.h"

namespace varda::registry {
namespace directory_store_test {

using codec::Sha256;
using os::testing::MemoryFileSystem;
using State = BlobUpload::State;

class RegistryStore : public ::testing::Test {
 protected:
  void open(DirectoryOptions options = {}) {
    options.root = "/data";
    auto opened = open_directory_store(options, fs);
    ASSERT_TRUE(opened.ok()) << opened.error();
    store = std::move(*opened);
  }
  Result<std::unique_ptr<BlobUpload>> begin(std::uint64_t first, std::uint64_t length) {
    return store->begin(
        {.digest = digest, .first = first, .length = length, .total = bytes.size()});
  }
  /// One whole piece.
  Result<State> send(std::uint64_t first, std::uint64_t length) {
    TRY(const auto upload, begin(first, length));
    TRY_VOID(upload->write(std::string_view(bytes).substr(first, length)));
    return upload->finish();
  }
  Code code_of_begin(std::uint64_t first, std::uint64_t length) {
    const auto upload = begin(first, length);
    EXPECT_FALSE(upload.ok());
    return upload.ok() ? Code::kInternal : upload.error().code();
  }
  std::string body() {
    net::Response response = store->serve(digest, {.method = "GET", .target = "/"});
    std::string out;
    while (response.stream) {
      const auto piece = response.stream->read();
      if (!piece) break;
      out += *piece;
    }
    return out;
  }

  MemoryFileSystem fs;
  std::unique_ptr<BlobStore> store;
  std::string bytes = std::string(600, 'a') + std::string(400, 'b');
  Sha256 digest = Sha256::of(bytes);
};

TEST_F(RegistryStore, BlobAppearsAfterItsLastPiece) {
  open();
  EXPECT_EQ(send(0, 300).value(), State::kPartial);
  EXPECT_FALSE(store->find(digest).value());
  EXPECT_EQ(store->serve(digest, {.method = "GET"}).status, 404);
  EXPECT_EQ(store->offset(digest), 300u);
  EXPECT_EQ(send(300, 300).value(), State::kPartial);
  EXPECT_EQ(send(600, 400).value(), State::kStored);
  EXPECT_EQ(store->offset(digest), std::nullopt);
  EXPECT_EQ(store->find(digest).value()->size_bytes, 1000u);
  EXPECT_EQ(body(), bytes);
  EXPECT_EQ(code_of_begin(0, 1000), Code::kAlreadyExists);
}

TEST_F(RegistryStore, EmptyBlobIsStored) {
  open();
  bytes.clear();
  digest = Sha256::of(bytes);
  EXPECT_EQ(send(0, 0).value(), State::kStored);
  EXPECT_TRUE(store->find(digest).value());
}

TEST_F(RegistryStore, PieceBehindAGapConflictsAndOverlapIsFine) {
  open();
  ASSERT_TRUE(send(0, 300).ok());
  EXPECT_EQ(code_of_begin(301, 10), Code::kConflict);
  EXPECT_EQ(send(100, 500).value(), State::kPartial);
  EXPECT_EQ(store->offset(digest), 600u);
  EXPECT_EQ(send(0, 1000).value(), State::kStored);
}

TEST_F(RegistryStore, InterruptedPieceKeepsItsBytesOverARestart) {
  open();
  {
    const auto upload = begin(0, 1000);
    ASSERT_TRUE(upload.ok());
    ASSERT_TRUE((*upload)->write(std::string_view(bytes).substr(0, 700)).ok());
  }
  EXPECT_EQ(store->offset(digest), 700u);
  store.reset();
  open();
  EXPECT_EQ(store->offset(digest), 700u);
  EXPECT_EQ(send(700, 300).value(), State::kStored);
  EXPECT_EQ(body(), bytes);
}

TEST_F(RegistryStore, UploadKilledBeforeItsVerificationNeedsTheLastByteAgain) {
  open();
  {
    const auto upload = begin(0, 1000);
    ASSERT_TRUE((*upload)->write(bytes).ok());
  }
  store.reset();
  open();
  EXPECT_EQ(store->offset(digest), 999u);
  EXPECT_EQ(send(999, 1).value(), State::kStored);
}

TEST_F(RegistryStore, WrongDigestRemovesTheUpload) {
  open();
  const auto upload = begin(0, 1000);
  ASSERT_TRUE((*upload)->write(std::string(1000, 'x')).ok());
  const auto state = (*upload)->finish();
  ASSERT_FALSE(state.ok());
  EXPECT_EQ(state.error().code(), Code::kCorrupt);
  EXPECT_EQ(store->offset(digest), std::nullopt);
  EXPECT_EQ(store->usage().reserved_bytes, 0u);
  EXPECT_TRUE(fs.list("/data/uploads").value().empty());
  EXPECT_EQ(send(0, 1000).value(), State::kStored);
}

TEST_F(RegistryStore, BlobWithoutADurableNameStaysInvisible) {
  open();
  fs.on_call([](std::string_view call, const os::Path& path) -> Status {
    const bool name = (call == "sync_directory" && path == "/data/blobs") ||
                      (call == "remove" && path.parent_path() == "/data/blobs");
    return name ? Status(Error(Code::kInternal, "Input/output error")) : Status();
  });
  EXPECT_FALSE(send(0, 1000).ok());
  EXPECT_FALSE(store->find(digest).value());
  EXPECT_EQ(store->serve(digest, {.method = "GET"}).status, 404);
  fs.on_call({});
  EXPECT_EQ(send(0, 1000).value(), State::kStored);
  EXPECT_EQ(body(), bytes);
}

TEST_F(RegistryStore, NewPieceTakesOverFromABrokenConnection) {
  open();
  const auto old = begin(0, 1000);
  ASSERT_TRUE((*old)->write(std::string_view(bytes).substr(0, 500)).ok());
  const auto fresh = begin(500, 500);
  ASSERT_TRUE(fresh.ok()) << fresh.error();
  EXPECT_EQ((*old)->write("x").error().code(), Code::kConflict);
  ASSERT_TRUE((*fresh)->write(std::string_view(bytes).substr(500)).ok());
  EXPECT_EQ((*old)->finish().error().code(), Code::kConflict);
  EXPECT_EQ((*fresh)->finish().value(), State::kStored);
}

TEST_F(RegistryStore, BodyOfAnotherLengthThanAnnouncedIsInvalid) {
  open();
  {
    const auto upload = begin(0, 10);
    EXPECT_EQ((*upload)->write(std::string(11, 'a')).error().code(), Code::kInvalid);
    EXPECT_EQ((*upload)->finish().error().code(), Code::kInvalid);
  }
  EXPECT_EQ(store->offset(digest), 0u);
}

TEST_F(RegistryStore, QuotaCountsWholeUploadsFromTheirFirstByte) {
  open({.quota_bytes = 1500});
  ASSERT_TRUE(send(0, 300).ok());
  const std::string first = bytes;
  const Sha256 first_digest = digest;
  bytes = std::string(501, 'c');
  digest = Sha256::of(bytes);
  const auto refused = begin(0, 501);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), Code::kExhausted);
  EXPECT_NE(refused.error().message().find("quota of 1500"), std::string::npos) << refused.error();
  bytes = std::string(500, 'c');
  digest = Sha256::of(bytes);
  EXPECT_EQ(send(0, 500).value(), State::kStored);
  store.reset();
  open({.quota_bytes = 1500});
  EXPECT_EQ(store->usage().stored_bytes, 500u);
  EXPECT_EQ(store->usage().reserved_bytes, 1000u);
  EXPECT_TRUE(store->remove(first_digest).ok());
  EXPECT_EQ(store->usage().reserved_bytes, 0u);
}

TEST_F(RegistryStore, LimitOfRunningUploadsIsReported) {
  open({.running_max = 1});
  const auto running = begin(0, 1000);
  const Sha256 first = digest;
  bytes = "other";
  digest = Sha256::of(bytes);
  EXPECT_EQ(code_of_begin(0, 5), Code::kUnavailable);
  digest = first;
  bytes = std::string(600, 'a') + std::string(400, 'b');
  EXPECT_TRUE(begin(0, 1000).ok()) << "the same blob";
}

TEST_F(RegistryStore, AnotherTotalStartsOver) {
  open();
  ASSERT_TRUE(send(0, 300).ok());
  const Piece longer{.digest = digest, .first = 300, .length = 10, .total = 2000};
  EXPECT_EQ(store->begin(longer).error().code(), Code::kConflict);
  EXPECT_EQ(store->offset(digest), std::nullopt);
  EXPECT_TRUE(store->begin({.digest = digest, .first = 0, .length = 10, .total = 2000}).ok());
  EXPECT_EQ(store->usage().reserved_bytes, 2000u);
  EXPECT_EQ(fs.list("/data/uploads").value().size(), 1u);
}

TEST_F(RegistryStore, RunningUploadsDoNotExpire) {
  open();
  ASSERT_TRUE(send(0, 300).ok());
  const WallTime later = system_clock().wall() + std::chrono::hours(1);
  {
    const auto running = begin(300, 10);
    EXPECT_EQ(store->expire_uploads(later).value(), 0u);
  }
  EXPECT_EQ(store->expire_uploads(later - std::chrono::hours(2)).value(), 0u);
  EXPECT_EQ(store->expire_uploads(later).value(), 1u);
  EXPECT_EQ(store->offset(digest), std::nullopt);
}

TEST_F(RegistryStore, ListsArePagedInOrder) {
  open();
  std::vector<Sha256> digests;
  for (int i = 0; i < 5; ++i) {
    bytes = std::to_string(i);
    digest = Sha256::of(bytes);
    ASSERT_TRUE(send(0, 1).ok());
    digests.push_back(digest);
  }
  std::sort(digests.begin(), digests.end());
  const auto first = store->list(std::nullopt, 3).value();
  ASSERT_EQ(first.size(), 3u);
  EXPECT_EQ(first[2].digest, digests[2]);
  const auto rest = store->list(digests[2], 3).value();
  ASSERT_EQ(rest.size(), 2u);
  EXPECT_EQ(rest[1].digest, digests[4]);
}

}  // namespace directory_store_test
}  // namespace varda::registry
