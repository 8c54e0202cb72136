#include "replica/peer.h"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>

#include "net/url.h"
#include "os/testing/memory_file_system.h"
#include "replica/scan.h"
#include "replica/testing/files.h"

namespace varda::replica {
namespace peer_test {

using testing::Files;
using testing::snapshot_of;

constexpr std::uint32_t kBlock = 1024;
constexpr const char* kKey = "datasets.edgeai.io/default/faces";
const Context kForever = Context::background();

/// Sends each request to the handler of its host.
class Hosts final : public net::HttpClient {
 public:
  std::map<std::string, std::unique_ptr<net::HttpClient>> hosts;
  std::map<std::string, int> requests;
  Result<net::ClientResponse> send(const Context& ctx, net::ClientRequest request) override {
    TRY(const net::Url url, net::Url::parse(request.url));
    ++requests[url.host];
    const auto at = hosts.find(url.host);
    if (at == hosts.end()) return Error(Code::kUnavailable, "no route to " + url.host);
    request.url = url.target;
    return at->second->send(ctx, std::move(request));
  }
};

class ReplicaPeer : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "varda-peer-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    root_ = name;
    for (const auto& [path, bytes] : files_) write(path, bytes);
    std::ofstream(root_ / "secret") << "not shared";
    auto tree = os::open_readable_tree({root_});
    ASSERT_TRUE(tree.ok()) << tree.error();
    tree_ = std::move(tree).value();
    shares_ = std::make_unique<Shares>([this] { return os::open_readable_tree({root_}); });
    share();
    hosts_.hosts["a"] = net::loopback(shares_->handler(),
                                      {.address = "1.2.3.4:5", .certificate_common_name = "edge1"});
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void write(const std::string& path, const std::string& bytes) {
    std::filesystem::create_directories((root_ / "data" / path).parent_path());
    std::ofstream(root_ / "data" / path, std::ios::binary) << bytes;
  }
  void share() {
    const auto taken = take_snapshot(kForever, *tree_, root_ / "data", nullptr, {}, kBlock);
    ASSERT_TRUE(taken.ok()) << taken.error();
    Shares::Share share{.path = root_ / "data", .nodes = {"edge1"}, .snapshots = {}};
    share.snapshots.emplace_back(taken->snapshot.id().hex(),
                                 std::make_shared<const std::string>(taken->snapshot.encode()));
    shares_->set({{kKey, std::move(share)}});
  }
  net::HttpClient::Answer get(const std::string& target, const std::string& range = "",
                              const std::string& node = "edge1") {
    net::ClientRequest request;
    request.url = target;
    if (!range.empty()) request.headers.add("Range", range);
    auto answer =
        net::loopback(shares_->handler(), {.address = "1.2.3.4:5", .certificate_common_name = node})
            ->call(kForever, std::move(request));
    CHECK(answer.ok());
    return std::move(answer).value();
  }
  Files copied() {
    Files out;
    const auto copy = store_->find(kKey);
    if (!copy.ok() || !*copy) return out;
    for (const SnapshotFile& file : (*copy)->snapshot.files)
      out[file.path] = os::read_file(fs_, (*copy)->path / file.path).value_or("?");
    return out;
  }

  Files files_{{"a", std::string(5000, 'x')}, {"sub/b c.txt", "1,2\n"}, {"sub/e", ""}};
  os::Path root_;
  std::unique_ptr<os::ReadableTree> tree_;
  std::unique_ptr<Shares> shares_;
  Hosts hosts_;
  os::testing::MemoryFileSystem fs_;
  std::unique_ptr<Store> store_ = Store::open({.root = "/replicas", .limits = {}}, fs_).value();
};

TEST_F(ReplicaPeer, SharedFilesAreCopiedToAPeer) {
  const auto wanted = fetch_snapshot(kForever, {&hosts_, "http://a"}, kKey, "");
  ASSERT_TRUE(wanted.ok()) << wanted.error();
  EXPECT_EQ(*wanted, snapshot_of(files_, kBlock));
  PeerSource source({{&hosts_, "http://a"}}, kKey);
  ASSERT_TRUE(store_->bring(kForever, kKey, *wanted, source).ok());
  EXPECT_EQ(copied(), files_);
  EXPECT_EQ(fetch_snapshot(kForever, {&hosts_, "http://a"}, kKey, wanted->id().hex()).value(),
            *wanted);
  EXPECT_EQ(
      fetch_snapshot(kForever, {&hosts_, "http://a"}, kKey, std::string(64, 'a')).error().code(),
      Code::kNotFound);
}

TEST_F(ReplicaPeer, UnreachablePeerIsSkipped) {
  const Snapshot wanted = snapshot_of(files_, kBlock);
  PeerSource source({{&hosts_, "http://gone"}, {&hosts_, "http://a"}}, kKey);
  ASSERT_TRUE(store_->bring(kForever, kKey, wanted, source).ok());
  EXPECT_EQ(copied(), files_);
  EXPECT_EQ(hosts_.requests["gone"], 1);  // the peer that answered last is tried first
}

TEST_F(ReplicaPeer, NextPeerResumesAfterABrokenRange) {
  // "b" sends the beginning of a range, announces the full length, and ends.
  std::uint64_t from_b = 0;
  hosts_.hosts["b"] = net::loopback(net::inline_handler([&](const net::Request& request) {
    net::Response out;
    out.status = 206;
    const std::string range(*request.headers.find("Range"));
    out.headers.add("Content-Range", "bytes " + range.substr(6) + "/5000");
    out.body = std::string(100, 'x');
    from_b += out.body.size();
    return out;
  }));
  std::vector<std::string> ranges;
  hosts_.hosts["a"] = net::loopback(
      [&, handler = shares_->handler()](net::Request request, net::Responder respond) {
        if (const auto range = request.headers.find("Range")) ranges.emplace_back(*range);
        request.peer.certificate_common_name = "edge1";
        handler(std::move(request), std::move(respond));
      });
  const SnapshotFile file = snapshot_of(files_, kBlock).files[0];
  PeerSource source({{&hosts_, "http://b"}, {&hosts_, "http://a"}}, kKey);
  std::string got;
  ASSERT_TRUE(source
                  .read(kForever, file, 0, 5000,
                        [&](std::string_view piece) {
                          got += piece;
                          return Status();
                        })
                  .ok());
  EXPECT_EQ(got, files_["a"]);
  EXPECT_EQ(ranges, std::vector<std::string>{"bytes=100-4999"});
}

TEST_F(ReplicaPeer, InvalidPeerAnswersAreRefused) {
  const SnapshotFile file = snapshot_of(files_, kBlock).files[0];
  struct Case {
    int status;
    const char* range;
    std::size_t bytes;
  };
  for (const Case& one :
       {Case{200, nullptr, 5000}, Case{206, nullptr, 5000}, Case{206, "bytes 1-4999/5000", 4999},
        Case{206, "bytes 0-4999/5000", 6000}, Case{206, "bytes 0-4999/5000", 10},
        Case{302, nullptr, 0}}) {
    hosts_.hosts["portal"] = net::loopback(net::inline_handler([one](const net::Request&) {
      net::Response out;
      out.status = one.status;
      if (one.range != nullptr) out.headers.add("Content-Range", one.range);
      out.body = std::string(one.bytes, '<');
      return out;
    }));
    PeerSource source({{&hosts_, "http://portal"}}, kKey);
    std::uint64_t got = 0;
    const Status status = source.read(kForever, file, 0, 5000, [&](std::string_view piece) {
      got += piece.size();
      return Status();
    });
    EXPECT_EQ(status.error().code(), Code::kUnavailable) << one.status << " " << one.bytes;
    EXPECT_LE(got, 5000u);
    const auto answer = fetch_snapshot(kForever, {&hosts_, "http://portal"}, kKey, "");
    EXPECT_FALSE(answer.ok());
  }
}

TEST_F(ReplicaPeer, SnapshotWithAnotherIdIsRefused) {
  hosts_.hosts["liar"] = net::loopback(net::inline_handler([](const net::Request&) {
    net::Response out;
    out.body = snapshot_of({{"a", "other"}}, kBlock).encode();
    return out;
  }));
  EXPECT_EQ(fetch_snapshot(kForever, {&hosts_, "http://liar"}, kKey,
                           snapshot_of(files_, kBlock).id().hex())
                .error()
                .code(),
            Code::kUnavailable);
}

TEST_F(ReplicaPeer, OnlyListedNodesCanReadAShare) {
  const std::string snapshot = std::string("/replica/v1/snapshot?key=") + net::percent_encode(kKey);
  const std::string file =
      std::string("/replica/v1/file?key=") + net::percent_encode(kKey) + "&path=a";
  EXPECT_EQ(get(snapshot).status, 200);
  EXPECT_EQ(get(file, "bytes=0-9").status, 206);
  for (const std::string& target : {snapshot, file}) {
    EXPECT_EQ(get(target, "bytes=0-9", "edge2").status, 404);
    EXPECT_EQ(get(target, "bytes=0-9", "").status, 401);
  }
  EXPECT_EQ(get("/replica/v1/snapshot?key=other").status, 404);
  EXPECT_EQ(get("/replica/v1/other?key=x").status, 404);
  EXPECT_EQ(get("/").status, 404);
}

TEST_F(ReplicaPeer, PathsOutsideTheShareAreRefused) {
  const std::string file =
      std::string("/replica/v1/file?key=") + net::percent_encode(kKey) + "&path=";
  std::filesystem::create_symlink(root_ / "secret", root_ / "data/link");
  struct Case {
    const char* path;
    int status;
  };
  for (const Case& one :
       {Case{"..%2Fsecret", 400}, Case{"sub%2F..%2F..%2Fsecret", 400}, Case{"%2Fetc%2Fpasswd", 400},
        Case{"../secret", 400}, Case{"sub", 404}, Case{"missing", 404}, Case{"a%00", 400}})
    EXPECT_EQ(get(file + one.path, "bytes=0-1").status, one.status) << one.path;
  std::filesystem::create_directory_symlink(root_, root_ / "data/up");
  EXPECT_EQ(get(file + "link", "bytes=0-1").status, 404);
  EXPECT_EQ(get(file + "up%2Fsecret", "bytes=0-1").status, 404);
}

TEST_F(ReplicaPeer, UnsupportedRangesAreRefused) {
  const std::string file =
      std::string("/replica/v1/file?key=") + net::percent_encode(kKey) + "&path=a";
  for (const char* range :
       {"", "bytes=0-", "bytes=-5", "bytes=5-2", "bytes=0-1,3-4", "lines=0-1", "bytes=0-5000",
        "bytes=9-99999999999999999999", "bytes=0-1x", "bytes=+0-1"})
    EXPECT_EQ(get(file, range).status, 416) << range;
  EXPECT_EQ(get(file, "bytes=4999-4999").body, "x");
}

TEST_F(ReplicaPeer, MissingSnapshotIsUnavailableUntilTaken) {
  shares_->set({{kKey, {.path = root_ / "data", .nodes = {"edge1"}, .snapshots = {}}}});
  EXPECT_EQ(fetch_snapshot(kForever, {&hosts_, "http://a"}, kKey, "").error().code(),
            Code::kUnavailable);
  shares_->set({});
  EXPECT_EQ(fetch_snapshot(kForever, {&hosts_, "http://a"}, kKey, "").error().code(),
            Code::kNotFound);
}

TEST_F(ReplicaPeer, ChangedFilesAreAConflictAndTheNextSnapshotWorks) {
  const Snapshot old = snapshot_of(files_, kBlock);
  write("a", files_["a"] = std::string(4000, 'y'));
  PeerSource source({{&hosts_, "http://a"}}, kKey);
  EXPECT_EQ(store_->bring(kForever, kKey, old, source).error().code(), Code::kConflict);
  share();
  const auto wanted = fetch_snapshot(kForever, {&hosts_, "http://a"}, kKey, "");
  ASSERT_TRUE(wanted.ok()) << wanted.error();
  ASSERT_TRUE(store_->bring(kForever, kKey, *wanted, source).ok());
  EXPECT_EQ(copied(), files_);
}

}  // namespace peer_test
}  // namespace varda::replica
