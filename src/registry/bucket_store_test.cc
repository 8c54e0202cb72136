#include "registry/bucket_store.h"

#include <atomic>
#include <gtest/gtest.h>
#include <optional>

#include "base/testing/eventually.h"
#include "meta/object.h"
#include "os/testing/crashing_file_system.h"
#include "os/testing/memory_file_system.h"
#include "registry/bucket_versions.h"
#include "registry/testing/memory_s3.h"

namespace varda::registry {
namespace bucket_store_test {

using codec::Sha256;
using os::testing::MemoryFileSystem;
using State = BlobUpload::State;
using testing::MemoryS3;

const Context kForever = Context::background();
const VersionKey kKey{"default", "digits", "1"};
constexpr std::uint64_t kPart = 1000;

std::string noise(std::size_t size, std::uint32_t seed) {
  std::string bytes(size, '\0');
  for (char& c : bytes) c = static_cast<char>((seed = seed * 1664525 + 1013904223) >> 24);
  return bytes;
}

/// One process of a registry over a server that outlives it.
struct Process {
  explicit Process(MemoryS3& s3, BucketStoreOptions options = {}, int attempts = 1,
                   os::FileSystem* disk = nullptr)
      : http(net::loopback(s3.handler())) {
    options.spool = "/spool";
    options.part_bytes = kPart;
    BucketOptions to{.url = "s3://models/edge/a%20b"};
    to.credentials.access_key_id = "id";
    to.credentials.secret_access_key = "secret";
    to.credentials.endpoint = "http://s3.example";
    to.attempts_max = attempts;
    to.first_pause = Duration(0);
    bucket = Bucket::create(to, *http).value();
    auto opened = open_bucket_store(kForever, options, *bucket, disk != nullptr ? *disk : fs);
    error = opened.ok() ? Status() : Status(opened.error());
    if (opened.ok()) store = std::move(*opened);
    versions = std::make_unique<BucketVersions>(kForever, *bucket);
    if (error.ok()) error = versions->open();
  }

  Result<State> send(const std::string& bytes, std::uint64_t first, std::uint64_t length) {
    return send_as(Sha256::of(bytes), bytes, first, length);
  }
  Result<State> send_as(const Sha256& digest, const std::string& bytes, std::uint64_t first,
                        std::uint64_t length) {
    TRY(const auto upload,
        store->begin({.digest = digest, .first = first, .length = length, .total = bytes.size()}));
    TRY_VOID(write(*upload, std::string_view(bytes).substr(first, length)));
    return upload->finish();
  }
  static Status write(BlobUpload& upload, std::string_view bytes) {
    while (!bytes.empty()) {
      CHECK(eventually([&] { return upload.ready(); }));
      TRY_VOID(upload.write(bytes.substr(0, 300)));
      bytes.remove_prefix(std::min<std::size_t>(300, bytes.size()));
    }
    return {};
  }
  /// Sends the rest of a blob from the registry's own offset.
  Status send_rest(const std::string& bytes) {
    const Sha256 digest = Sha256::of(bytes);
    TRY(const auto blob, store->find(digest));
    if (blob) return {};
    const std::uint64_t first = store->offset(digest).value_or(0);
    TRY(const State state, send(bytes, first, bytes.size() - first));
    CHECK(state == State::kStored);
    return {};
  }
  net::HttpClient::Answer get(const Sha256& digest, net::Headers headers = {}) {
    const auto client = net::loopback(net::inline_handler(
        [&](const net::Request& request) { return store->serve(digest, request); }));
    return client
        ->call(kForever, {.method = "GET", .url = "/", .headers = std::move(headers), .body = ""})
        .value();
  }
  std::string body(const std::string& bytes) { return get(Sha256::of(bytes)).body; }
  Code code_of_begin(const Piece& piece) {
    const auto upload = store->begin(piece);
    EXPECT_FALSE(upload.ok());
    return upload.ok() ? Code::kInternal : upload.error().code();
  }

  MemoryFileSystem fs;
  std::unique_ptr<net::HttpClient> http;
  std::unique_ptr<Bucket> bucket;
  Status error;
  std::unique_ptr<BlobStore> store;
  std::unique_ptr<BucketVersions> versions;
};

TEST(BucketStore, SmallBlobIsOneObject) {
  MemoryS3 s3;
  Process process(s3);
  ASSERT_TRUE(process.error.ok()) << process.error.error();
  const std::uint64_t before = s3.requests();
  const std::string bytes = noise(kPart, 1);
  EXPECT_EQ(process.send(bytes, 0, bytes.size()).value(), State::kStored);
  EXPECT_EQ(s3.requests(), before + 1);
  EXPECT_EQ(s3.objects().at("edge/a b/blobs/" + Sha256::of(bytes).hex()), bytes);
  EXPECT_EQ(process.body(bytes), bytes);
  EXPECT_EQ(process.send("", 0, 0).value(), State::kStored);
  EXPECT_EQ(process.code_of_begin({.digest = Sha256::of("")}), Code::kAlreadyExists);
}

TEST(BucketStore, LargeBlobIsVisibleAfterItsLastPiece) {
  MemoryS3 s3;
  s3.set_part_bytes_min(kPart);
  Process process(s3);
  const std::string bytes = noise(5500, 1);
  const Sha256 digest = Sha256::of(bytes);
  EXPECT_EQ(process.send(bytes, 0, 3300).value(), State::kPartial);
  EXPECT_EQ(process.store->offset(digest), 3300u);
  EXPECT_FALSE(process.store->find(digest).value());
  EXPECT_EQ(process.get(digest).status, 404);
  // An overlap is fine, and a gap is not.
  EXPECT_EQ(process.code_of_begin({digest, 3301, 1000, 5500}), Code::kConflict);
  EXPECT_EQ(process.send(bytes, 2500, 2000).value(), State::kPartial);
  EXPECT_EQ(process.store->offset(digest), 4500u);
  EXPECT_EQ(process.send(bytes, 0, 5500).value(), State::kStored);
  EXPECT_EQ(process.store->offset(digest), std::nullopt);
  EXPECT_EQ(process.body(bytes), bytes);
  EXPECT_EQ(s3.uploads(), 0u);
  EXPECT_EQ(s3.objects().size(), 1u) << "no record is left";
}

TEST(BucketStore, SmallPiecesBecomeWholeParts) {
  MemoryS3 s3;
  s3.set_part_bytes_min(kPart);
  MemoryFileSystem disk;
  const std::string bytes = noise(2777, 1);
  const Sha256 digest = Sha256::of(bytes);
  for (std::uint64_t at = 0; at < bytes.size(); at += 100) {
    // Each piece comes to another process, on the same disk.
    Process process(s3, {}, 1, &disk);
    ASSERT_TRUE(process.error.ok()) << process.error.error();
    ASSERT_EQ(process.store->offset(digest).value_or(0), at);
    const std::uint64_t length = std::min<std::uint64_t>(100, bytes.size() - at);
    const auto state = process.send(bytes, at, length);
    ASSERT_TRUE(state.ok()) << state.error();
    ASSERT_EQ(*state == State::kStored, at + length == bytes.size());
  }
  Process process(s3, {}, 1, &disk);
  EXPECT_EQ(process.body(bytes), bytes);
  EXPECT_TRUE(disk.list("/spool")->empty());
}

TEST(BucketStore, NewerBytesOfTheSpoolReplaceOlderOnes) {
  MemoryS3 s3;
  Process process(s3);
  const std::string bytes = noise(1900, 1), other = noise(1900, 2);
  const Sha256 digest = Sha256::of(bytes);
  ASSERT_EQ(process.send_as(digest, other, 0, 700).value(), State::kPartial);
  EXPECT_EQ(process.send_as(digest, bytes, 0, 900).value(), State::kPartial);
  EXPECT_EQ(process.store->offset(digest), 900u);
  EXPECT_EQ(process.send(bytes, 900, 1000).value(), State::kStored);
  EXPECT_EQ(process.body(bytes), bytes);
}

TEST(BucketStore, AcknowledgedPieceSurvivesAPowerCut) {
  const std::string bytes = noise(2500, 1);
  const Sha256 digest = Sha256::of(bytes);
  for (std::uint64_t seed = 1; seed < 20; ++seed) {
    MemoryS3 s3;
    os::testing::CrashingFileSystem disk;
    {
      Process process(s3, {}, 1, &disk);
      ASSERT_EQ(process.send(bytes, 0, 300).value(), State::kPartial);
      ASSERT_EQ(process.send(bytes, 300, 900).value(), State::kPartial);
    }
    const auto dark = disk.crashed(seed);
    Process process(s3, {}, 1, dark.get());
    ASSERT_TRUE(process.error.ok()) << process.error.error();
    ASSERT_EQ(process.store->offset(digest), 1200u);
    EXPECT_EQ(process.send(bytes, 1200, 1300).value(), State::kStored);
    EXPECT_EQ(process.body(bytes), bytes);
  }
}

TEST(BucketStore, FaultsOfTheDiskKeepWholeParts) {
  const std::string bytes = noise(2500, 1);
  const Sha256 digest = Sha256::of(bytes);
  for (const char* call : {"open", "write", "sync", "sync_directory", "read"}) {
    for (int nth = 1; nth < 6; ++nth) {
      SCOPED_TRACE(std::string(call) + std::to_string(nth));
      MemoryS3 s3;
      MemoryFileSystem disk;
      Process process(s3, {}, 1, &disk);
      disk.fail_nth(nth, call);
      std::uint64_t acknowledged = 0;
      for (const std::uint64_t end : {400, 1300, 2500}) {
        const auto state = process.send(bytes, acknowledged, end - acknowledged);
        if (!state.ok()) break;
        acknowledged = end;
      }
      disk.on_call({});
      if (acknowledged < 2500) {
        EXPECT_LE(acknowledged / kPart * kPart, process.store->offset(digest).value_or(0));
      }
      const Status sent = process.send_rest(bytes);
      ASSERT_TRUE(sent.ok()) << sent.error();
      EXPECT_EQ(process.body(bytes), bytes);
      EXPECT_TRUE(disk.list("/spool")->empty());
    }
  }
}

TEST(BucketStore, ForeignFilesOfTheSpoolAreRemoved) {
  MemoryS3 s3;
  MemoryFileSystem disk;
  const std::string bytes = noise(500, 1), hex = Sha256::of(bytes).hex();
  {
    Process process(s3, {}, 1, &disk);
    ASSERT_EQ(process.send(bytes, 0, 500).value(), State::kStored);
  }
  for (const std::string& name : {std::string("notes"), hex + "-500-0", Sha256().hex() + "-500-1",
                                  Sha256().hex() + "-2-0", Sha256().hex() + "-500-x"})
    ASSERT_TRUE(os::write_file_atomically(disk, "/spool/" + name, "123").ok());
  Process process(s3, {}, 1, &disk);
  ASSERT_TRUE(process.error.ok()) << process.error.error();
  EXPECT_TRUE(disk.list("/spool")->empty());
  EXPECT_EQ(process.store->usage().uploads, 0u);
}

TEST(BucketStore, UploadContinuesInTheNextProcess) {
  MemoryS3 s3;
  const std::string bytes = noise(5500, 1);
  const Sha256 digest = Sha256::of(bytes);
  {
    Process process(s3);
    ASSERT_EQ(process.send(bytes, 0, 4000).value(), State::kPartial);
  }
  Process process(s3);
  ASSERT_TRUE(process.error.ok()) << process.error.error();
  EXPECT_EQ(process.store->offset(digest), 4000u);
  EXPECT_EQ(process.store->usage().reserved_bytes, 5500u);
  EXPECT_EQ(process.send(bytes, 4000, 1500).value(), State::kStored);
  EXPECT_EQ(process.body(bytes), bytes);
  Process later(s3);
  EXPECT_EQ(later.store->find(digest).value()->size_bytes, 5500u);
  EXPECT_EQ(later.store->usage().stored_bytes, 5500u);
}

TEST(BucketStore, WrongDigestLeavesNothing) {
  for (const bool restart : {false, true}) {
    SCOPED_TRACE(restart);
    MemoryS3 s3;
    const std::string bytes = noise(5500, 1);
    const Sha256 wrong = Sha256::of("other");
    std::optional<Process> process;
    process.emplace(s3);
    ASSERT_EQ(process->send_as(wrong, bytes, 0, 4000).value(), State::kPartial);
    if (restart) process.emplace(s3);
    const auto state = process->send_as(wrong, bytes, 4000, 1500);
    ASSERT_FALSE(state.ok());
    EXPECT_EQ(state.error().code(), Code::kCorrupt);
    EXPECT_NE(state.error().message().find(Sha256::of(bytes).hex()), std::string::npos);
    EXPECT_EQ(process->store->offset(wrong), std::nullopt);
    EXPECT_EQ(process->store->usage().reserved_bytes, 0u);
    EXPECT_TRUE(s3.objects().empty());
    EXPECT_EQ(s3.uploads(), 0u);
    EXPECT_EQ(process->send_as(wrong, "small", 0, 5).error().code(), Code::kCorrupt);
    EXPECT_TRUE(s3.objects().empty());
  }
}

TEST(BucketStore, ObjectStaysInvisibleUntilItIsReadAgain) {
  MemoryS3 s3;
  const std::string bytes = noise(3500, 1);
  const Sha256 wrong = Sha256::of("other");
  {
    Process process(s3);
    ASSERT_EQ(process.send_as(wrong, bytes, 0, 2000).value(), State::kPartial);
  }
  {
    // After two parts and the completion, the bucket is away, and then the process is killed.
    Process process(s3);
    s3.fail_at(s3.requests() + 4, MemoryS3::Fault::kBefore, true);
    EXPECT_EQ(process.send_as(wrong, bytes, 2000, 1500).error().code(), Code::kUnavailable);
    s3.heal();
  }
  ASSERT_EQ(s3.uploads(), 0u) << "it is completed";
  Process process(s3);
  EXPECT_FALSE(process.store->find(wrong).value());
  EXPECT_EQ(process.get(wrong).status, 404);
  EXPECT_EQ(process.store->offset(wrong), 3499u);
  EXPECT_EQ(process.send_as(wrong, bytes, 3499, 1).error().code(), Code::kCorrupt);
  EXPECT_TRUE(s3.objects().empty());
}

TEST(BucketStore, FailedPartCountsOnceInTheDigest) {
  MemoryS3 s3;
  Process process(s3);
  const std::string bytes = noise(2500, 1);
  s3.fail_at(s3.requests() + 3, MemoryS3::Fault::kAfter, false);  // the first part
  EXPECT_EQ(process.send(bytes, 0, 2500).error().code(), Code::kUnavailable);
  EXPECT_EQ(process.send(bytes, 0, 2500).value(), State::kStored);
  EXPECT_EQ(process.body(bytes), bytes);
}

TEST(BucketStore, PartOnItsWayStaysIfAnotherPieceTakesOver) {
  MemoryS3 s3;
  std::atomic<bool> waits{false}, go{false};
  s3.on_request([&](const net::Request& request) {
    if (request.query().find("partNumber=1") == std::string_view::npos) return;
    waits = true;
    CHECK(eventually([&] { return go.load(); }));
  });
  Process process(s3);
  const std::string bytes = noise(2500, 1);
  const Sha256 digest = Sha256::of(bytes);
  const auto old = process.store->begin({digest, 0, 2500, 2500});
  ASSERT_TRUE((*old)->write(std::string_view(bytes).substr(0, 1300)).ok());
  ASSERT_TRUE(eventually([&] { return waits.load(); }));
  // These bytes are wrong, and come too late.
  const auto fresh = process.store->begin({digest, 0, 500, 2500});
  ASSERT_TRUE((*fresh)->write(std::string(500, 'x')).ok());
  go = true;
  EXPECT_EQ((*fresh)->finish().value(), State::kPartial);
  EXPECT_EQ(process.store->offset(digest), kPart);
  EXPECT_TRUE(process.send_rest(bytes).ok());
  EXPECT_EQ(process.body(bytes), bytes);
}

TEST(BucketStore, NewPieceTakesOverFromABrokenConnection) {
  MemoryS3 s3;
  Process process(s3);
  const std::string bytes = noise(5500, 1);
  const Sha256 digest = Sha256::of(bytes);
  const auto old = process.store->begin({digest, 0, 5500, 5500});
  ASSERT_TRUE(Process::write(**old, std::string_view(bytes).substr(0, 2400)).ok());
  ASSERT_EQ(process.store->offset(digest), 2400u);
  bool woken = false;
  (*old)->on_ready([&] { woken = true; });
  const auto fresh = process.store->begin({digest, 2000, 3500, 5500});
  ASSERT_TRUE(fresh.ok()) << fresh.error();
  EXPECT_TRUE(woken);
  EXPECT_EQ((*old)->write("x").error().code(), Code::kConflict);
  EXPECT_EQ((*old)->finish().error().code(), Code::kConflict);
  ASSERT_TRUE(Process::write(**fresh, std::string_view(bytes).substr(2000)).ok());
  EXPECT_EQ((*fresh)->finish().value(), State::kStored);
  EXPECT_EQ(process.body(bytes), bytes);
}

TEST(BucketStore, FullSpoolPausesThePieceUntilAPartIsSent) {
  MemoryS3 s3;
  Process process(s3);
  const std::string bytes = noise(50'000, 1);
  const Sha256 digest = Sha256::of(bytes);
  std::atomic<int> woken{0};
  const auto upload = process.store->begin({digest, 0, bytes.size(), bytes.size()});
  (*upload)->on_ready([&] { ++woken; });
  ASSERT_TRUE((*upload)->write(std::string_view(bytes).substr(0, 30'000)).ok());
  ASSERT_TRUE(eventually([&] { return (*upload)->ready() && woken > 0; }));
  ASSERT_TRUE((*upload)->write(std::string_view(bytes).substr(30'000)).ok());
  EXPECT_EQ((*upload)->finish().value(), State::kStored);
  EXPECT_EQ(process.body(bytes), bytes);
}

TEST(BucketStore, RangesAndConditionsAreServed) {
  MemoryS3 s3;
  Process process(s3);
  const std::string bytes = noise(3 << 20, 1);  // several requests to the bucket
  s3.set_object("edge/a b/blobs/" + Sha256::of(bytes).hex(), bytes);
  Process later(s3);
  EXPECT_EQ(later.body(bytes), bytes);
  const Sha256 digest = Sha256::of(bytes);
  const auto part = later.get(digest, {{"Range", "bytes=1000-2097200"}});
  EXPECT_EQ(part.status, 206);
  EXPECT_EQ(part.headers.find("Content-Range"), "bytes 1000-2097200/3145728");
  EXPECT_EQ(part.body, bytes.substr(1000, 2096201));
  EXPECT_EQ(later.get(digest, {{"Range", "bytes=3145728-"}}).status, 416);
  EXPECT_EQ(later.get(digest, {{"If-None-Match", "\"sha256:" + digest.hex() + "\""}}).status, 304);
  s3.fail_at(1, MemoryS3::Fault::kBefore, true);
  EXPECT_EQ(later.get(digest).status, 503);
  s3.heal();
  // Clients may send an object again that another program removed from the bucket.
  s3.remove_object("edge/a b/blobs/" + digest.hex());
  EXPECT_EQ(later.get(digest).status, 404);
  EXPECT_FALSE(later.store->find(digest).value());
  EXPECT_EQ(later.store->usage().stored_bytes, 0u);
}

TEST(BucketStore, QuotaListAndRemovalCoverBlobsAndUploads) {
  MemoryS3 s3;
  Process process(s3, {.quota_bytes = 6000});
  const std::string small = noise(500, 1), large = noise(5000, 2), more = noise(501, 3);
  ASSERT_EQ(process.send(small, 0, 500).value(), State::kStored);
  ASSERT_EQ(process.send(large, 0, 2000).value(), State::kPartial);
  EXPECT_EQ(process.code_of_begin({Sha256::of(more), 0, 501, 501}), Code::kExhausted);
  EXPECT_EQ(process.store->list(std::nullopt, 10)->size(), 1u);
  EXPECT_EQ(process.store->list(Sha256::of(small), 10)->size(), 0u);
  EXPECT_TRUE(process.store->remove(Sha256::of(small)).ok());
  EXPECT_EQ(process.store->remove(Sha256::of(small)).error().code(), Code::kNotFound);
  EXPECT_TRUE(process.store->remove(Sha256::of(large)).ok());
  EXPECT_TRUE(s3.objects().empty());
  EXPECT_EQ(s3.uploads(), 0u);
  EXPECT_EQ(process.store->usage().stored_bytes + process.store->usage().reserved_bytes, 0u);
}

TEST(BucketStore, UploadsExpireByTheirLastPart) {
  MemoryS3 s3;
  const std::string bytes = noise(5000, 1);
  {
    Process process(s3);
    ASSERT_EQ(process.send(bytes, 0, 2000).value(), State::kPartial);
  }
  Process process(s3);
  const WallTime stamp = meta::parse_time("2026-03-01T10:00:00Z").value();  // of the server's parts
  EXPECT_EQ(process.store->expire_uploads(stamp).value(), 0u);
  EXPECT_EQ(process.store->expire_uploads(stamp + std::chrono::seconds(1)).value(), 1u);
  EXPECT_TRUE(s3.objects().empty());
  EXPECT_EQ(s3.uploads(), 0u);
}

TEST(BucketStore, UploadThatTheBucketLostStartsOver) {
  MemoryS3 s3;
  Process process(s3);
  const std::string bytes = noise(5500, 1);
  ASSERT_EQ(process.send(bytes, 0, 2000).value(), State::kPartial);
  s3.abort_uploads();  // as a lifecycle rule does
  EXPECT_EQ(process.send(bytes, 2000, 3500).error().code(), Code::kUnavailable);
  EXPECT_EQ(process.store->offset(Sha256::of(bytes)), 0u);
  EXPECT_EQ(process.send(bytes, 0, 5500).value(), State::kStored);
  EXPECT_EQ(process.body(bytes), bytes);
}

TEST(BucketStore, NewTotalReplacesTheUpload) {
  MemoryS3 s3;
  Process process(s3);
  const std::string bytes = noise(2500, 1);
  const Sha256 digest = Sha256::of(bytes);
  ASSERT_EQ(process.send_as(digest, noise(5000, 2), 0, 2000).value(), State::kPartial);
  EXPECT_EQ(process.code_of_begin({digest, 0, 2500, 2500}), Code::kUnavailable);
  ASSERT_TRUE(eventually([&] { return !process.store->offset(digest); }));
  EXPECT_EQ(process.send(bytes, 0, 2500).value(), State::kStored);
  EXPECT_EQ(s3.objects().size(), 1u);
}

TEST(BucketVersions, DocumentsSurviveTheProcessInOrder) {
  MemoryS3 s3;
  const Sha256 digest = Sha256::of("a"), chunks = Sha256::of("b");
  {
    Process process(s3);
    for (const char* name : {"1", "1-a", "2"}) {
      VersionKey key = kKey;
      key.version = name;
      ASSERT_TRUE(process.versions->put(key, {.digest = digest, .chunks = chunks}).ok());
    }
    ASSERT_TRUE(process.versions->put({"other", "digits", "1"}, {.digest = digest}).ok());
  }
  s3.set_object("edge/a b/models/notes.txt", "not ours");
  Process process(s3);
  ASSERT_TRUE(process.error.ok()) << process.error.error();
  VersionStore& versions = *process.versions;
  EXPECT_EQ(versions.get(kKey)->digest, digest);
  EXPECT_EQ(versions.references().value(), (std::set<Sha256>{digest, chunks}));
  const auto listed = versions.list({"default", "digits", ""}, "1", 1).value();
  ASSERT_EQ(listed.size(), 1u);
  EXPECT_EQ(listed[0].first, "1-a");
  EXPECT_EQ(versions.models({}, 10)->size(), 2u);
  EXPECT_EQ(versions.models({"default", "digits", ""}, 10)->at(0).ns, "other");
  EXPECT_TRUE(versions.remove(kKey).ok());
  EXPECT_EQ(versions.remove(kKey).error().code(), Code::kNotFound);
  EXPECT_EQ(Process(s3).versions->get(kKey).error().code(), Code::kNotFound);
}

TEST(BucketVersions, ListsOfNamesAreInTheBucket) {
  MemoryS3 s3;
  const Sha256 one = Sha256::of("one"), two = Sha256::of("two");
  {
    Process process(s3);
    ASSERT_TRUE(process.versions->put_names("cluster-a", {one}).ok());
    ASSERT_TRUE(process.versions->put_names("cluster-b", {one, two}).ok());
    ASSERT_TRUE(process.versions->put_names("cluster-b", {two}).ok());
  }
  EXPECT_EQ(Process(s3).versions->references().value(), (std::set<Sha256>{one, two}));
  {
    Process process(s3);
    ASSERT_TRUE(process.versions->put_names("cluster-a", {}).ok());
    EXPECT_EQ(process.versions->references().value(), std::set<Sha256>{two});
  }
  EXPECT_EQ(Process(s3).versions->references().value(), std::set<Sha256>{two});
  s3.set_object("edge/a b/names/cluster-b.json", "{}");
  EXPECT_EQ(Process(s3).error.error().code(), Code::kCorrupt);
}

TEST(BucketVersions, DamagedDocumentStopsTheRegistry) {
  MemoryS3 s3;
  s3.set_object("edge/a b/models/default/digits/4.json", "{\"digest\":7}");
  const Process process(s3);
  ASSERT_FALSE(process.error.ok());
  EXPECT_EQ(process.error.error().code(), Code::kCorrupt);
}

// ---- faults at every request

const std::string kLarge = noise(3500, 1), kSmall = noise(700, 2);

struct Acknowledged {
  bool large = false, small = false, version = false;
  std::uint64_t offset = 0;  // of the large blob
};

/// Sends a blob in two pieces, another in one, and a version. Stops at a failure.
Status work(Process& process, Acknowledged& done) {
  TRY_VOID(process.error);
  TRY(const State first, process.send(kLarge, 0, 2000));
  CHECK(first == State::kPartial);
  done.offset = 2000;
  TRY(const State second, process.send(kLarge, 2000, 1500));
  CHECK(second == State::kStored);
  done.large = true;
  TRY_VOID(process.send_rest(kSmall));
  done.small = true;
  TRY_VOID(process.versions->put(kKey, {.digest = Sha256::of(kLarge)}));
  done.version = true;
  return {};
}

/// Every visible blob is whole, every acknowledged one is visible, and the rest can be sent again.
std::string check(Process& process, const Acknowledged& done) {
  if (!process.error.ok()) return process.error.error().message();
  for (const auto& [bytes, acknowledged] :
       {std::pair(&kLarge, done.large), std::pair(&kSmall, done.small)}) {
    const bool visible = process.store->find(Sha256::of(*bytes))->has_value();
    if (acknowledged && !visible) return "lost an acknowledged blob";
    if (visible && process.body(*bytes) != *bytes) return "a visible blob is not whole";
  }
  const Sha256 large = Sha256::of(kLarge);
  if (!process.store->find(large)->has_value() &&
      process.store->offset(large).value_or(0) < done.offset)
    return "lost acknowledged bytes of an upload";
  const auto version = process.versions->get(kKey);
  if (done.version && !version.ok()) return "lost the acknowledged version";
  for (const std::string* bytes : {&kLarge, &kSmall}) {
    const Status sent = process.send_rest(*bytes);
    if (!sent.ok()) return "sending again: " + sent.error().message();
    if (process.body(*bytes) != *bytes) return "not whole after sending again";
  }
  return "";
}

TEST(BucketFaults, EveryFaultLeavesWholeBlobsAndAcknowledgedOnes) {
  std::uint64_t calls = 0;
  {
    MemoryS3 s3;
    Process process(s3);
    Acknowledged done;
    const Status worked = work(process, done);
    ASSERT_TRUE(worked.ok()) << worked.error();
    calls = s3.requests();
  }
  ASSERT_GT(calls, 10u);
  for (std::uint64_t call = 1; call <= calls; ++call) {
    for (const auto fault : {MemoryS3::Fault::kBefore, MemoryS3::Fault::kAfter}) {
      for (const int attempts : {1, 2}) {
        for (const bool lasting : {false, true}) {
          SCOPED_TRACE("request " + std::to_string(call) + " fault " +
                       std::to_string(static_cast<int>(fault)) + " attempts " +
                       std::to_string(attempts) + " lasting " + std::to_string(lasting));
          MemoryS3 s3, copy;
          s3.fail_at(call, fault, lasting);
          Acknowledged done;
          {
            Process process(s3, {}, attempts);
            const Status worked = work(process, done);
            EXPECT_TRUE(worked.ok() || attempts == 1 || lasting) << worked.error();
            s3.heal();
            s3.copy_to(copy);
            // A process that found no bucket has no store.
            if (process.store && process.error.ok()) {
              Status again = process.send_rest(kLarge);
              if (!again.ok()) again = process.send_rest(kLarge);
              ASSERT_TRUE(again.ok()) << again.error();
              ASSERT_EQ(check(process, done), "");
            }
          }
          Process next(copy), last(s3);
          ASSERT_EQ(check(next, done), "");
          ASSERT_EQ(check(last, done), "");
        }
      }
    }
  }
}

TEST(BucketFaults, InterruptedRemovalStaysInvisible) {
  MemoryS3 s3;
  Process process(s3);
  ASSERT_TRUE(process.send_rest(kSmall).ok());
  const Sha256 digest = Sha256::of(kSmall);
  for (const auto fault : {MemoryS3::Fault::kBefore, MemoryS3::Fault::kAfter}) {
    s3.fail_at(s3.requests() + 1, fault, false);
    EXPECT_FALSE(process.store->remove(digest).ok());
    EXPECT_FALSE(process.store->find(digest).value());
    ASSERT_TRUE(process.send_rest(kSmall).ok());
    EXPECT_EQ(process.body(kSmall), kSmall);
  }
}

}  // namespace bucket_store_test
}  // namespace varda::registry
