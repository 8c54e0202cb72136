// Archives from peer nodes: used before the file server, as far as they have them, and never
// trusted.
#include <deque>
#include <gtest/gtest.h>

#include "artifact/operator_requests.h"
#include "artifact/store.h"
#include "artifact/testing/archives.h"
#include "artifact/testing/manual_clock.h"
#include "artifact/testing/origin.h"
#include "os/testing/memory_file_system.h"

namespace varda::artifact {
namespace peers_test {

using testing::ManualClock;
using testing::Origin;

const Context kForever = Context::background();
constexpr const char* kOrigin = "http://origin/m.tar";

/// A peer node that answers ranges of its archive, under the control of a test.
class PeerServer final : public net::HttpClient {
 public:
  std::string archive;
  std::uint64_t available = 0;  // bytes it has
  std::uint64_t total = 0;      // total size that it claims
  int status = 0;               // not 0: the status of every answer
  bool reachable = true;
  std::size_t piece = 1000;  // bytes per read
  std::function<void()> on_request = [] {}, on_read = [] {};
  std::vector<std::string> ranges;

  Result<net::ClientResponse> send(const Context& ctx, net::ClientRequest request) override {
    TRY_VOID(ctx.check());
    ranges.emplace_back(request.headers.find("Range").value_or(""));
    EXPECT_FALSE(request.headers.find("Authorization"));
    on_request();
    if (!reachable) return Error(Code::kUnavailable, "no route to host");
    const std::uint64_t first = std::stoull(ranges.back().substr(6));
    net::ClientResponse out;
    out.status = status != 0 ? status : first < available ? 206 : 503;
    if (out.status == 206) {
      out.headers.add("Content-Range", "bytes " + std::to_string(first) + "-" +
                                           std::to_string(available - 1) + "/" +
                                           std::to_string(total));
      out.body = std::make_unique<Body>(*this, archive.substr(first, available - first));
    } else {
      out.headers.add("Retry-After", "0");
      out.headers.add(std::string(kBytesDoneHeader), std::to_string(available));
      out.body = std::make_unique<Body>(*this, "not yet\n");
    }
    return out;
  }

 private:
  class Body final : public net::BodyReader {
   public:
    Body(const PeerServer& from, std::string bytes) : from_(from), bytes_(std::move(bytes)) {}
    Result<std::optional<std::string>> read() override {
      from_.on_read();
      if (bytes_.empty()) return std::optional<std::string>();
      std::string piece = bytes_.substr(0, from_.piece);
      bytes_.erase(0, piece.size());
      return std::optional<std::string>(std::move(piece));
    }

   private:
    const PeerServer& from_;
    std::string bytes_;
  };
};

std::string noise(std::size_t size) {
  std::string bytes(size, '\0');
  std::uint32_t seed = 7;
  for (char& c : bytes) c = static_cast<char>((seed = seed * 1664525 + 1013904223) >> 24);
  return bytes;
}

class PeersTest : public ::testing::Test {
 protected:
  PeersTest() {
    CHECK(fs.make_directories("/data", 0755).ok());
    for (PeerServer* one : {&peer, &second}) {
      one->archive = archive;
      one->available = one->total = archive.size();
    }
    origin.put(kOrigin, archive);
    store = open();
  }
  std::unique_ptr<Store> open(std::uint64_t capacity = 0) {
    auto opened = Store::open(
        {.root = "/data/artifacts", .capacity_bytes = capacity, .transport = {.clock = &clock}}, fs,
        origin);
    CHECK(opened.ok());
    return std::move(*opened);
  }
  Outcome<Installed> ensure() {
    return store->ensure(
        kForever, {.url = kOrigin,
                   .peers = {{&peer, "https://peer/archive"}, {&second, "https://second/archive"}},
                   .digest = digest,
                   .framework = "onnx"});
  }

  os::testing::MemoryFileSystem fs;
  Origin origin;
  ManualClock clock;
  const std::string archive = testing::model_archive(noise(50'000));
  const codec::Sha256 digest = codec::Sha256::of(archive);
  PeerServer peer, second;
  std::unique_ptr<Store> store;
};

TEST_F(PeersTest, PeersAreTriedBeforeTheOrigin) {
  ASSERT_TRUE(ensure().ok());
  EXPECT_EQ(peer.ranges, std::vector<std::string>{"bytes=0-"});
  EXPECT_TRUE(second.ranges.empty());
  EXPECT_TRUE(origin.seen().empty());
}

TEST_F(PeersTest, PeerThatIsStillDownloadingServesItsPartialArchive) {
  peer.available = 0;
  peer.on_request = [this] {
    peer.available = std::min<std::uint64_t>(
        peer.available + (peer.ranges.size() % 2 == 0 ? 7'000 : 0), archive.size());
  };
  ASSERT_TRUE(ensure().ok());
  EXPECT_GT(peer.ranges.size(), 7u);
  EXPECT_TRUE(origin.seen().empty());
}

TEST_F(PeersTest, StalledPeerIsAbandonedAndTheOriginResumes) {
  peer.available = 20'000;
  peer.on_request = [this] { clock.advance(std::chrono::seconds(25)); };
  second.reachable = false;
  ASSERT_TRUE(ensure().ok());
  EXPECT_LE(peer.ranges.size(), 6u);
  ASSERT_EQ(origin.seen().size(), 1u);
  EXPECT_EQ(origin.seen()[0].range, "bytes=20000-");
}

TEST_F(PeersTest, PeerWithoutRealProgressIsAbandonedAfterAnHour) {
  peer.available = 0;
  peer.total = 0;
  peer.on_request = [this] {
    clock.advance(std::chrono::minutes(1) - std::chrono::seconds(1));
    peer.status = 503;
    ++peer.available;
  };
  second.reachable = false;
  ASSERT_TRUE(ensure().ok());
  EXPECT_GE(peer.ranges.size(), 50u);
  EXPECT_LE(peer.ranges.size(), 70u);
  EXPECT_EQ(origin.seen().size(), 1u);
}

TEST_F(PeersTest, DrippingPeerIsAbandonedAfterAMinuteAndTheNextResumes) {
  peer.piece = 10;
  peer.on_read = [this] { clock.advance(std::chrono::seconds(1)); };
  ASSERT_TRUE(ensure().ok());
  EXPECT_EQ(second.ranges, std::vector<std::string>{"bytes=600-"});
  EXPECT_TRUE(origin.seen().empty());
}

TEST_F(PeersTest, PeerWithLateSingleByteAnswersIsAbandoned) {
  peer.available = 0;
  peer.on_request = [this] {
    clock.advance(std::chrono::seconds(59));
    if (++peer.available > 500) peer.reachable = false;
  };
  ASSERT_TRUE(ensure().ok());
  EXPECT_EQ(peer.ranges.size(), 2u);
  EXPECT_EQ(second.ranges, std::vector<std::string>{"bytes=2-"});
}

TEST_F(PeersTest, PeerWithOccasionalBytesIsAbandonedAfterAnHour) {
  peer.available = 0;
  peer.on_request = [this] {
    if (peer.ranges.size() % 2 == 0) ++peer.available;
    if (peer.ranges.size() % 2 != 0) clock.advance(std::chrono::seconds(50));
    if (peer.ranges.size() > 500) peer.reachable = false;
  };
  ASSERT_TRUE(ensure().ok());
  EXPECT_GE(peer.ranges.size(), 140u);
  EXPECT_LE(peer.ranges.size(), 150u);
  EXPECT_EQ(second.ranges.size(), 1u);
}

TEST_F(PeersTest, SlowPeerWithSteadyProgressIsAwaitedBeyondAnHour) {
  // A link of 6 KiB/s; every 50 s more bytes become available.
  const std::string large = testing::model_archive(noise(24 << 20));
  const codec::Sha256 name = codec::Sha256::of(large);
  peer.archive = large;
  peer.total = large.size();
  peer.available = 0;
  peer.piece = 64 << 10;
  peer.on_request = [this] {
    if (peer.ranges.size() % 2 == 0) {
      peer.available = std::min<std::uint64_t>(peer.available + (300 << 10), peer.archive.size());
    } else if (peer.available < peer.archive.size()) {
      clock.advance(std::chrono::seconds(50));
    }
  };
  const SteadyTime began = clock.now();
  ASSERT_TRUE(
      store
          ->ensure(kForever,
                   {.url = kOrigin, .peers = {{&peer, "https://peer/archive"}}, .digest = name})
          .ok());
  EXPECT_GT(clock.now() - began, std::chrono::hours(1));
  EXPECT_TRUE(origin.seen().empty());
}

TEST_F(PeersTest, PeerThatDoesNotKnowTheArchiveIsAwaitedBriefly) {
  peer.status = 404;
  peer.on_request = [this] { clock.advance(std::chrono::seconds(4)); };
  second.status = 404;
  second.on_request = [this] { second.status = second.ranges.size() < 3 ? 404 : 0; };
  ASSERT_TRUE(ensure().ok());
  EXPECT_LE(peer.ranges.size(), 9u);
  EXPECT_EQ(second.ranges.size(), 3u);
  EXPECT_TRUE(origin.seen().empty());
}

TEST_F(PeersTest, PeerWithoutTheArchiveIsSkippedAtOnce) {
  peer.status = second.status = 410;
  ASSERT_TRUE(ensure().ok());
  EXPECT_EQ(peer.ranges.size(), 1u);
  EXPECT_EQ(second.ranges.size(), 1u);
  EXPECT_EQ(origin.seen().size(), 1u);
}

TEST_F(PeersTest, UnreachablePeerIsTriedLastForFiveMinutes) {
  peer.reachable = false;
  ASSERT_TRUE(ensure().ok());
  ASSERT_EQ(peer.ranges.size(), 1u);
  ASSERT_TRUE(store->remove(digest).ok());
  ASSERT_TRUE(ensure().ok());
  EXPECT_EQ(peer.ranges.size(), 1u);
  // A troubled peer node is still tried before giving up.
  ASSERT_TRUE(store->remove(digest).ok());
  second.reachable = false;
  origin.remove(kOrigin);
  peer.reachable = true;
  ASSERT_TRUE(ensure().ok());
  EXPECT_EQ(peer.ranges.size(), 2u);
}

TEST_F(PeersTest, PeerWithWrongBytesIsDetectedAndNotTriedAgain) {
  peer.archive[30'000] ^= 1;
  ASSERT_TRUE(ensure().ok());
  EXPECT_FALSE(second.ranges.empty());
  const auto requests = peer.ranges.size();
  ASSERT_TRUE(store->remove(digest).ok());
  ASSERT_TRUE(ensure().ok());
  EXPECT_EQ(peer.ranges.size(), requests);
  EXPECT_TRUE(origin.seen().empty());
}

TEST_F(PeersTest, WrongBytesOfABrokenPeerAreDiscarded) {
  peer.archive[10'000] ^= 1;
  peer.available = 20'000;
  peer.on_request = [this] { peer.reachable = peer.ranges.size() < 2; };
  second.reachable = false;
  ASSERT_TRUE(ensure().ok());
  EXPECT_EQ(origin.seen().size(), 2u) << "once with what was there, once from the beginning";
}

TEST_F(PeersTest, PeerThatAnnouncesMoreThanTheDiskHoldsEvictsNothing) {
  const std::string unused = testing::model_archive(noise(1'000));
  origin.put("http://origin/unused.tar", unused);
  ASSERT_TRUE(store
                  ->ensure(kForever,
                           {.url = "http://origin/unused.tar", .digest = codec::Sha256::of(unused)})
                  .ok());
  fs.set_capacity(4'000'000);
  peer.total = std::uint64_t{1} << 33;
  const auto outcome = ensure();
  ASSERT_TRUE(outcome.ok()) << outcome.error().error;
  EXPECT_EQ(second.ranges.size(), 1u);
  EXPECT_TRUE(store->find(codec::Sha256::of(unused)).has_value());
  // That peer node is not tried first again.
  ASSERT_TRUE(store->remove(digest).ok());
  ASSERT_TRUE(ensure().ok());
  EXPECT_EQ(peer.ranges.size(), 1u);
}

TEST_F(PeersTest, OriginIsUsedIfAllPeersAnnounceMoreThanTheDiskHolds) {
  fs.set_capacity(4'000'000);
  peer.total = second.total = std::uint64_t{1} << 33;
  const auto outcome = ensure();
  ASSERT_TRUE(outcome.ok()) << outcome.error().error;
  EXPECT_EQ(origin.seen().size(), 1u);
}

TEST_F(PeersTest, PeerIsUsedAfterTheOriginConfirmsTheSizeAndEvictionMakesRoom) {
  const std::string unused = testing::model_archive(noise(1'000'000));
  origin.put("http://origin/unused.tar", unused);
  ASSERT_TRUE(store
                  ->ensure(kForever,
                           {.url = "http://origin/unused.tar", .digest = codec::Sha256::of(unused)})
                  .ok());
  const auto space = fs.space("/data").value();
  fs.set_capacity(space.capacity_bytes - space.available_bytes + 30'000);
  const auto outcome = ensure();
  ASSERT_TRUE(outcome.ok()) << outcome.error().error;
  EXPECT_EQ(peer.ranges.size(), 2u);
  EXPECT_EQ(origin.seen().size(), 2u) << "the one that went, and what this one measures";
}

TEST_F(PeersTest, BombFromAPeerIsDiscardedAndTheOriginIsUsed) {
  store.reset();
  store = open(400'000);
  peer.archive = testing::tar_gzip_of("model.onnx", 900'000);
  peer.available = peer.total = peer.archive.size();
  second.reachable = false;
  const auto outcome = ensure();
  ASSERT_TRUE(outcome.ok()) << outcome.error().error;
  ASSERT_EQ(origin.seen().size(), 1u);
  EXPECT_EQ(origin.seen()[0].range, "");
  EXPECT_TRUE(fs.list("/data/artifacts/.scratch")->empty());
}

TEST_F(PeersTest, BombLeftInTheSpoolIsDiscardedByTheNextAttempt) {
  peer.archive = testing::tar_gzip_of("model.onnx", 9'000'000);
  peer.total = peer.archive.size();
  peer.available = peer.archive.size() - 100;
  peer.on_request = [this] { peer.reachable = peer.ranges.size() < 2; };
  second.reachable = false;
  origin.remove(kOrigin);
  ASSERT_EQ(ensure().error().reason, Reason::kDownloadFailed);
  ASSERT_FALSE(fs.list("/data/artifacts/.scratch")->empty());
  store.reset();
  store = open(400'000);
  origin.put(kOrigin, archive);
  const auto outcome = ensure();
  ASSERT_TRUE(outcome.ok()) << outcome.error().error;
  EXPECT_EQ(origin.seen().back().range, "");
}

TEST_F(PeersTest, OriginBytesStayInTheSpoolIfTheDiskIsFull) {
  store.reset();
  store = open(20'000);
  peer.status = second.status = 410;
  ASSERT_EQ(ensure().error().reason, Reason::kDiskFull);
  const auto requests = origin.seen().size();
  store.reset();
  store = open();
  peer.status = second.status = 410;
  ASSERT_TRUE(ensure().ok());
  ASSERT_EQ(origin.seen().size(), requests + 1);
  EXPECT_NE(origin.seen().back().range, "");
}

TEST_F(PeersTest, ErrorNamesTheOriginAndThePeers) {
  peer.status = second.status = 410;
  origin.put(kOrigin, Origin::File{.bytes = "gone", .status = 404});
  const auto outcome = ensure();
  ASSERT_FALSE(outcome.ok());
  EXPECT_EQ(outcome.error().reason, Reason::kDownloadFailed);
  EXPECT_EQ(outcome.error().error.message(),
            "http://origin/m.tar: HTTP 404; peers failed too: https://second/archive: HTTP 410");
}

TEST_F(PeersTest, ArchiveIsKeptOnlyIfListed) {
  ASSERT_TRUE(ensure().ok());
  EXPECT_FALSE(store->has_archive(digest));
  EXPECT_FALSE(store->archive(digest).has_value());
  ASSERT_TRUE(store->remove(digest).ok());
  const std::uint64_t before = store->bytes();
  store->keep_archives({digest});
  const auto installed = ensure();
  ASSERT_TRUE(installed.ok());
  EXPECT_EQ(store->bytes(), before + installed->bytes + archive.size());
  // Also after the store was reopened.
  for (int i = 0; i < 2; ++i) {
    auto stored = store->archive(digest);
    ASSERT_TRUE(stored && stored->file);
    EXPECT_EQ(stored->bytes, archive.size());
    EXPECT_EQ(stored->total, archive.size());
    EXPECT_EQ(stored->file->read(1 << 20).value(), archive);
    stored.reset();
    store.reset();
    store = open();
  }
  store->keep_archives({});
  EXPECT_FALSE(store->has_archive(digest));
  EXPECT_EQ(store->bytes(), installed->bytes);
  EXPECT_TRUE(fs.list("/data/artifacts/.archives")->empty());
}

TEST_F(PeersTest, KeptArchiveRebuildsItsTreeWithoutANetwork) {
  store->keep_archives({digest});
  ASSERT_TRUE(ensure().ok());
  peer.reachable = second.reachable = false;
  origin.remove(kOrigin);
  // The tree is damaged, then missing, as after a power cut. A partial file of another download
  // exists.
  ASSERT_TRUE(set_mark(fs, "/data/artifacts", digest, Mark::kDamaged).ok());
  (void)store->read_requests();
  ASSERT_FALSE(store->find(digest).has_value());
  auto outcome = ensure();
  ASSERT_TRUE(outcome.ok()) << outcome.error().error;
  ASSERT_TRUE(store->remove(digest).ok());
  store.reset();
  ASSERT_TRUE(os::write_file_atomically(fs, "/data/artifacts/.scratch/" + digest.hex() + ".part",
                                        archive.substr(0, 9'000), 0600)
                  .ok());
  store = open();
  store->keep_archives({digest});
  outcome = ensure();
  ASSERT_TRUE(outcome.ok()) << outcome.error().error;
  EXPECT_EQ(peer.ranges.size(), 1u);
  EXPECT_EQ(store->archive(digest)->bytes, archive.size());
  EXPECT_TRUE(fs.list("/data/artifacts/.scratch")->empty());
}

TEST_F(PeersTest, CorruptKeptArchiveIsDownloadedAgain) {
  const os::Path stored = "/data/artifacts/.archives/" + digest.hex();
  store->keep_archives({digest});
  ASSERT_TRUE(ensure().ok());
  ASSERT_TRUE(store->remove(digest).ok());
  std::string spoilt = archive;
  spoilt[30'000] ^= 1;
  ASSERT_TRUE(os::write_file_atomically(fs, stored, spoilt, 0600).ok());
  const auto outcome = ensure();
  ASSERT_TRUE(outcome.ok()) << outcome.error().error;
  EXPECT_EQ(peer.ranges.size(), 2u);
  EXPECT_TRUE(os::read_file(fs, stored).value() == archive);
}

TEST_F(PeersTest, PartialArchiveCanBeReadDuringItsDownload) {
  // Large enough to report its size on the way, every 256 KiB.
  constexpr std::uint64_t kPart = 400'000;
  const std::string large = testing::model_archive(noise(700'000));
  const codec::Sha256 name = codec::Sha256::of(large);
  store->keep_archives({name});
  std::optional<Archive> seen;
  peer.archive = large;
  peer.total = large.size();
  peer.available = kPart;
  peer.on_request = [&] {
    if (peer.ranges.size() < 2) return;
    seen = store->archive(name);
    peer.available = large.size();
  };
  ASSERT_TRUE(
      store
          ->ensure(kForever,
                   {.url = kOrigin, .peers = {{&peer, "https://peer/archive"}}, .digest = name})
          .ok());
  ASSERT_TRUE(seen && seen->file);
  EXPECT_EQ(seen->bytes, kPart);
  EXPECT_EQ(seen->total, large.size());
  std::string read;
  while (read.size() < kPart) {
    const std::string piece = seen->file->read(kPart - read.size()).value();
    ASSERT_FALSE(piece.empty());
    read += piece;
  }
  EXPECT_TRUE(read == large.substr(0, kPart));
}

TEST_F(PeersTest, EvictionRemovesTheKeptArchiveBeforeTheTree) {
  store->keep_archives({digest});
  ASSERT_TRUE(ensure().ok());
  ASSERT_TRUE(store->has_archive(digest));
  EXPECT_EQ(store->evict(1).value(), archive.size());
  EXPECT_FALSE(store->has_archive(digest));
  EXPECT_TRUE(store->find(digest).has_value());
}

}  // namespace peers_test
}  // namespace varda::artifact
