// Uploads of changed files: what goes up, what the registry copies, and what happens if it cannot.
#include <algorithm>
#include <functional>
#include <gtest/gtest.h>
#include <optional>

#include "base/check.h"
#include "base/rng.h"
#include "codec/chunks.h"
#include "net/client.h"
#include "net/server.h"
#include "os/testing/memory_file_system.h"
#include "registry/bucket_store.h"
#include "registry/chunk_lists.h"
#include "registry/client.h"
#include "registry/directory_store.h"
#include "registry/service.h"
#include "registry/testing/memory_s3.h"
#include "registry/upload_plan.h"

namespace varda::registry {
namespace delta_test {

using codec::Sha256;
using net::HttpClient;
using os::testing::MemoryFileSystem;
using testing::MemoryS3;

const Context kForever = Context::background();
constexpr std::size_t kChangeCost = 100 << 10;  // of each changed place, in chunks around it

std::string noise(std::size_t size, std::uint64_t seed) {
  std::string bytes(size, '\0');
  const auto rng = seeded_rng(seed);
  for (char& c : bytes) c = static_cast<char>(rng->below(256));
  return bytes;
}

const std::string& base_bytes() {
  static const std::string bytes = noise(3 << 20, 1);
  return bytes;
}
/// The base with 60 KB changed, 10 KB inserted and 10 KB removed.
const std::string& changed_bytes() {
  static const std::string bytes = [] {
    std::string out = base_bytes();
    out.replace(500'000, 60'000, noise(60'000, 2));
    out.insert(1'300'000, noise(10'000, 3));
    out.erase(2'500'000, 10'000);
    return out;
  }();
  return bytes;
}
constexpr std::size_t kChangedBytes = 70'000, kPlaces = 3;

/// Changes or refuses requests, and counts the bytes of bodies.
class Wire final : public HttpClient {
 public:
  Result<net::ClientResponse> send(const Context& ctx, net::ClientRequest request) override {
    if (request.method == "PUT") ++puts;
    if (before) TRY_VOID(before(request));
    sent += request.body.size();
    return http_->send(ctx, std::move(request));
  }
  std::function<Status(net::ClientRequest&)> before;
  std::size_t sent = 0, puts = 0;

 private:
  const std::unique_ptr<HttpClient> http_ = net::make_client({});
};

class RegistryDelta : public ::testing::Test {
 protected:
  RegistryDelta() {
    CHECK(desk.make_directories("/desk", 0755).ok());
    start();
  }
  /// A new process of the registry.
  void start() {
    server.reset();
    service.reset();
    store.reset();
    store = open_directory_store({.root = "/data"}, fs).value();
    serve(*store);
  }
  void serve(BlobStore& blobs) {
    server.reset();
    service.reset();
    versions = std::make_unique<Versions>(fs, "/data");
    CHECK(versions->open().ok());
    lists = std::make_unique<ChunkLists>(ChunkLists::Options{.root = "/data/chunks"}, blobs, fs);
    service =
        std::make_unique<Service>(blobs, *versions, Service::Options{.chunk_lists = lists.get()});
    server = net::Server::create(service->server_options(), service->handler()).value();
    target = {.url = "http://" + server->address(), .token = ""};
  }
  Status push(const std::string& bytes, std::optional<Sha256> from) {
    TRY_VOID(os::write_file_atomically(desk, "/desk/file", bytes));
    wire.sent = wire.puts = 0;
    return upload(kForever, wire, target, desk, "/desk/file", Sha256::of(bytes),
                  {.piece_bytes = 1 << 20,
                   .attempts_max = 1,
                   .progress = [&](const UploadProgress& now) { progress = now; },
                   .base = from});
  }
  std::string stored(const std::string& bytes) {
    return wire
        .call(kForever, {.method = "GET",
                         .url = blob_url(target, Sha256::of(bytes)),
                         .headers = {},
                         .body = ""})
        .value()
        .body;
  }
  HttpClient::Answer call(std::string method, const std::string& url, net::Headers headers = {},
                          std::string body = "") {
    return wire
        .call(kForever, {.method = std::move(method),
                         .url = url,
                         .headers = std::move(headers),
                         .body = std::move(body)})
        .value();
  }

  MemoryFileSystem fs, desk;
  std::unique_ptr<BlobStore> store;
  std::unique_ptr<Versions> versions;
  std::unique_ptr<ChunkLists> lists;
  std::unique_ptr<Service> service;
  std::unique_ptr<net::Server> server;
  Target target;
  Wire wire;
  UploadProgress progress;
  const Sha256 base = Sha256::of(base_bytes());
};

TEST_F(RegistryDelta, UploadOfAChangedFileSendsTheChanges) {
  ASSERT_TRUE(push(base_bytes(), {}).ok());
  EXPECT_EQ(wire.sent, base_bytes().size());
  const Status sent = push(changed_bytes(), base);
  ASSERT_TRUE(sent.ok()) << sent.error();
  EXPECT_LE(wire.sent, kChangedBytes + kPlaces * kChangeCost);
  EXPECT_LE(wire.puts, kPlaces + 2);
  EXPECT_EQ(progress.sent, wire.sent);
  EXPECT_EQ(progress.done, changed_bytes().size());
  EXPECT_EQ(stored(changed_bytes()), changed_bytes());
}

TEST_F(RegistryDelta, BucketCopiesToo) {
  MemoryS3 s3;
  const auto http = net::loopback(s3.handler());
  BucketOptions to{.url = "s3://models/edge"};
  to.credentials.access_key_id = "id";
  to.credentials.secret_access_key = "secret";
  to.credentials.endpoint = "http://s3.example";
  const auto bucket = Bucket::create(to, *http).value();
  BucketStoreOptions options;
  options.spool = "/spool";
  options.part_bytes = 100'000;
  const auto blobs = open_bucket_store(kForever, options, *bucket, fs).value();
  serve(*blobs);
  ASSERT_TRUE(push(base_bytes(), {}).ok());
  const Status sent = push(changed_bytes(), base);
  ASSERT_TRUE(sent.ok()) << sent.error();
  EXPECT_LE(wire.sent, kChangedBytes + kPlaces * kChangeCost);
  EXPECT_EQ(stored(changed_bytes()), changed_bytes());
  server.reset();
  service.reset();
}

TEST_F(RegistryDelta, FileWithoutAKnownBaseGoesUpAsAWhole) {
  ASSERT_TRUE(push(changed_bytes(), base).ok());
  EXPECT_EQ(wire.sent, changed_bytes().size());
  EXPECT_EQ(stored(changed_bytes()), changed_bytes());
}

TEST_F(RegistryDelta, BaseThatDisappearsCostsOnlyTheRest) {
  ASSERT_TRUE(push(base_bytes(), {}).ok());
  wire.before = [&](net::ClientRequest& request) -> Status {
    if (request.headers.find("Upload-Copy") && wire.puts == 2) return store->remove(base);
    return {};
  };
  const Status sent = push(changed_bytes(), base);
  ASSERT_TRUE(sent.ok()) << sent.error();
  EXPECT_LT(wire.sent, changed_bytes().size() - 300'000);
  EXPECT_EQ(stored(changed_bytes()), changed_bytes());
}

TEST_F(RegistryDelta, WrongListCostsAWholeUpload) {
  ASSERT_TRUE(push(base_bytes(), {}).ok());
  // The hashes of the changed file, as if the base had them.
  codec::ChunkList lie{.bytes = 0, .digest = base, .chunks = {}};
  codec::ChunkSplitter splitter([&](const codec::Chunk& chunk) {
    if (lie.bytes + chunk.bytes > base_bytes().size()) return;
    lie.chunks.push_back(chunk);
    lie.bytes += chunk.bytes;
  });
  splitter.update(changed_bytes());
  splitter.finish();
  ASSERT_TRUE(fs.make_directories("/data/chunks", 0755).ok());
  ASSERT_TRUE(
      os::write_file_atomically(fs, "/data/chunks/" + base.hex(), codec::write_chunk_list(lie))
          .ok());
  const Status sent = push(changed_bytes(), base);
  ASSERT_TRUE(sent.ok()) << sent.error();
  EXPECT_GE(wire.sent, changed_bytes().size());
  EXPECT_EQ(stored(changed_bytes()), changed_bytes());
}

TEST_F(RegistryDelta, UnusableListsAreIgnored) {
  ASSERT_TRUE(push(base_bytes(), {}).ok());
  ASSERT_TRUE(fs.make_directories("/data/chunks", 0755).ok());
  const codec::Chunk chunk{.bytes = codec::kChunkBytesMax, .hash = {}};
  for (const std::string& text :
       {std::string("VARDACH1"), std::string(17 << 20, 'x'),
        codec::write_chunk_list({.bytes = 1, .digest = base, .chunks = {chunk}}),
        codec::write_chunk_list(
            {.bytes = chunk.bytes, .digest = Sha256::of("other"), .chunks = {chunk}})}) {
    ASSERT_TRUE(os::write_file_atomically(fs, "/data/chunks/" + base.hex(), text).ok());
    ASSERT_TRUE(push(changed_bytes(), base).ok());
    EXPECT_EQ(wire.sent, changed_bytes().size());
    ASSERT_TRUE(store->remove(Sha256::of(changed_bytes())).ok());
  }
}

TEST_F(RegistryDelta, RegistryThatDoesNotCopyGetsTheRest) {
  ASSERT_TRUE(push(base_bytes(), {}).ok());
  wire.before = [](net::ClientRequest& request) -> Status {
    request.headers.remove("Upload-Copy");
    return {};
  };
  const Status sent = push(changed_bytes(), base);
  ASSERT_TRUE(sent.ok()) << sent.error();
  EXPECT_EQ(wire.sent, changed_bytes().size());
  EXPECT_EQ(stored(changed_bytes()), changed_bytes());
}

TEST_F(RegistryDelta, KillOfEitherSideContinuesWithTheChanges) {
  ASSERT_TRUE(push(base_bytes(), {}).ok());
  std::size_t sent = 0;
  for (std::size_t killed_at = 1;; ++killed_at) {
    ASSERT_LT(killed_at, 100u);
    wire.before = [&](net::ClientRequest& request) -> Status {
      if (request.method == "PUT" && wire.puts == 2)
        return Error(Code::kUnavailable, "the client was killed");
      return {};
    };
    const Status done = push(changed_bytes(), base);
    sent += wire.sent;
    wire.before = {};
    start();
    if (done.ok()) break;
  }
  EXPECT_LE(sent, kChangedBytes + kPlaces * kChangeCost);
  EXPECT_EQ(stored(changed_bytes()), changed_bytes());
}

TEST_F(RegistryDelta, DamagedBeginOfAnotherClientCostsAWholeUpload) {
  ASSERT_TRUE(push(base_bytes(), {}).ok());
  {
    const auto begun = store->begin({.digest = Sha256::of(changed_bytes()),
                                     .first = 0,
                                     .length = 1000,
                                     .total = changed_bytes().size()});
    ASSERT_TRUE((*begun)->write(std::string(1000, 'x')).ok());
  }
  const Status sent = push(changed_bytes(), {});
  ASSERT_TRUE(sent.ok()) << sent.error();
  EXPECT_EQ(stored(changed_bytes()), changed_bytes());
}

TEST_F(RegistryDelta, HostileCopiesAreRefusedBeforeAnyByte) {
  ASSERT_TRUE(push(base_bytes(), {}).ok());
  const std::string url = blob_url(target, Sha256::of("new"));
  const auto status = [&](const std::string& range, const std::string& copy) {
    return call("PUT", url, {{"Content-Range", range}, {"Upload-Copy", copy}}, "x").status;
  };
  const std::string from = write_digest(base), huge = std::to_string(UINT64_MAX - 2);
  EXPECT_EQ(status("bytes 0-0/100", from + " bytes 0-99"), 400) << "one byte too many";
  EXPECT_EQ(status("bytes 0-0/" + huge, from + " bytes 0-" + huge), 400);
  EXPECT_EQ(status("bytes 0-0/" + huge, from + " bytes 9-" + std::to_string(3 << 20)), 400)
      << "behind the end of the base";
  EXPECT_EQ(status("bytes 0-0/" + huge, from + " bytes 5000000-5000001"), 400);
  EXPECT_EQ(status("bytes 0-0/100", from + " bytes 9-8"), 400);
  EXPECT_EQ(status("bytes 0-0/100", from), 400);
  EXPECT_EQ(status("bytes 0-0/100", write_digest(Sha256::of("none")) + " bytes 0-9"), 404);
  EXPECT_EQ(call("PUT", url, {{"Upload-Copy", from + " bytes 0-9"}}, "x").status, 400)
      << "no room behind a whole file";
  EXPECT_FALSE(store->offset(Sha256::of("new")));
  EXPECT_EQ(status("bytes 0-0/100", from + " bytes 0-97"), 202);
  EXPECT_EQ(store->offset(Sha256::of("new")), 99u);
  EXPECT_EQ(status("bytes 99-99/100", from + " bytes 0-0"), 400);
}

TEST_F(RegistryDelta, ListIsComputedOnceForPlainBlobsOfSomeSize) {
  const std::string small = noise(codec::kDeltaBytesMin - 1, 4),
                    compressed = "\x1f\x8b" + noise(codec::kDeltaBytesMin, 5);
  for (const std::string& bytes : {base_bytes(), small, compressed})
    ASSERT_TRUE(push(bytes, {}).ok());
  const auto url = [&](const std::string& bytes) { return chunks_url(target, Sha256::of(bytes)); };
  EXPECT_EQ(call("GET", url("none")).status, 404);
  EXPECT_EQ(call("GET", url(small)).status, 404);
  EXPECT_EQ(call("GET", url(compressed)).status, 404);
  const auto list = codec::parse_chunk_list(call("GET", url(base_bytes())).body);
  ASSERT_TRUE(list.ok()) << list.error();
  EXPECT_EQ(list->digest, base);
  EXPECT_EQ(list->bytes, base_bytes().size());
  codec::ChunkList expected{.bytes = base_bytes().size(), .digest = base, .chunks = {}};
  codec::ChunkSplitter splitter(
      [&](const codec::Chunk& chunk) { expected.chunks.push_back(chunk); });
  splitter.update(base_bytes());
  splitter.finish();
  EXPECT_EQ(*list, expected);
  std::size_t computed = 0;
  fs.on_call([&](std::string_view, const os::Path& path) -> Status {
    computed += path == "/data/chunks/unfinished" ? 1 : 0;
    return {};
  });
  EXPECT_EQ(call("GET", blob_url(target, base) + "/m.tar.chunks").status, 200);
  EXPECT_EQ(call("HEAD", url(base_bytes())).status, 200);
  EXPECT_EQ(call("GET", url(compressed)).status, 404);
  EXPECT_EQ(computed, 0u) << "nothing is computed again";
  EXPECT_EQ(call("PUT", url(base_bytes()), {}, "x").status, 405);
}

TEST_F(RegistryDelta, ListsTakeABoundedPartOfTheDisk) {
  std::vector<Sha256> blobs;
  for (std::uint64_t i = 0; i < 4; ++i) {
    const std::string bytes = noise(2 << 20, 10 + i);
    ASSERT_TRUE(push(bytes, {}).ok());
    blobs.push_back(Sha256::of(bytes));
  }
  ChunkLists bounded({.root = "/data/chunks", .bytes_max = 9000}, *store, fs);
  for (const Sha256& blob : blobs) EXPECT_EQ(bounded.serve(blob, {}).status, 200);
  const auto names = fs.list("/data/chunks").value();
  EXPECT_LE(names.size(), 2u);
  EXPECT_TRUE(std::find(names.begin(), names.end(), blobs.back().hex()) != names.end());
  ChunkLists busy({.root = "/data/chunks", .waiting_max = 0}, *store, fs);
  EXPECT_EQ(busy.serve(blobs.front(), {}).status, 503);
  EXPECT_EQ(busy.serve(blobs.back(), {}).status, 200);
}

TEST_F(RegistryDelta, FaultWhileAListIsComputedLeavesNoWrongList) {
  ASSERT_TRUE(push(base_bytes(), {}).ok());
  for (int call = 1;; ++call) {
    ASSERT_LT(call, 1000);
    bool hit = false;
    int calls = 0;
    fs.on_call([&](std::string_view, const os::Path&) -> Status {
      if (++calls != call) return {};
      hit = true;
      return Error(Code::kInternal, "Input/output error");
    });
    (void)lists->serve(base, {});
    fs.on_call({});
    const auto answer = this->call("GET", chunks_url(target, base));
    ASSERT_EQ(answer.status, 200) << call;
    ASSERT_EQ(codec::parse_chunk_list(answer.body)->digest, base);
    if (!hit) break;
    (void)fs.remove("/data/chunks/" + base.hex());
  }
}

TEST(UploadPlan, StepsSendEveryByteOnce) {
  const auto rng = seeded_rng(7);
  for (int round = 0; round < 300; ++round) {
    const std::uint64_t total = 1 + rng->below(3000);
    std::vector<SharedPart> parts;
    for (std::uint64_t at = rng->below(200); at < total; at += rng->below(200)) {
      const std::uint64_t length = std::min<std::uint64_t>(1 + rng->below(400), total - at);
      parts.push_back({.first = at, .base_first = at + 7, .length = length});
      at += length;
    }
    std::uint64_t offset = 0;
    while (offset < total) {
      const UploadStep step = next_step(parts, offset, total, 100);
      ASSERT_GE(step.length, 1u);
      ASSERT_LE(step.length, 100u);
      offset += step.length;
      if (step.copied > 0) {
        ASSERT_EQ(step.copy_first, offset + 7);
      }
      offset += step.copied;
      ASSERT_LE(offset, total);
    }
  }
  EXPECT_EQ(next_step({}, 0, 0, 100).length, 0u);
}

TEST(UploadPlan, EqualBytesAreOnePart) {
  const std::string bytes = noise(200'000, 8) + std::string(2 << 20, '\0') + noise(200'000, 9);
  codec::ChunkList list{.bytes = bytes.size(), .digest = Sha256::of(bytes), .chunks = {}};
  codec::ChunkSplitter splitter([&](const codec::Chunk& chunk) { list.chunks.push_back(chunk); });
  splitter.update(bytes);
  splitter.finish();
  const auto read = [&](std::uint64_t offset, std::uint64_t length) -> Result<std::string> {
    return bytes.substr(offset, length);
  };
  EXPECT_EQ(find_shared_parts(kForever, read, bytes.size(), list).value(),
            (std::vector<SharedPart>{{.first = 0, .base_first = 0, .length = bytes.size()}}));
}

}  // namespace delta_test
}  // namespace varda::registry
