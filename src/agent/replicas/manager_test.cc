#include "agent/replicas/manager.h"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>

#include "artifact/testing/manual_clock.h"
#include "net/url.h"

namespace varda::agent::replicas {
namespace manager_test {

using artifact::testing::ManualClock;

constexpr const char* kKey = "datasets.edgeai.io/default/faces";
const Context kForever = Context::background();

/// Blobs in memory, as a registry keeps them behind the node's API server.
class FakeRegistry {
 public:
  net::Handler handler() {
    return net::inline_handler([this](const net::Request& request) { return answer(request); });
  }
  std::map<std::string, std::string> blobs;  // by path
  std::size_t uploaded_bytes = 0;
  int uploads = 0, reads = 0, heads = 0;
  int refusal = 0;             // status of every answer; 0: none
  int uploads_left = 1 << 30;  // then 503

 private:
  net::Response answer(const net::Request& request) {
    if (refusal != 0) return {.status = refusal};
    const std::string path(request.path());
    const auto blob = blobs.find(path);
    if (request.method == "HEAD") ++heads;
    if (request.method == "PUT") {
      if (uploads_left-- <= 0) return {.status = 503};
      const bool right = path.ends_with(codec::Sha256::of(request.body).hex());
      if (!right || request.headers.find("Content-Range")) return {.status = 422};
      ++uploads;
      uploaded_bytes += request.body.size();
      blobs[path] = request.body;
      return {.status = 201};
    }
    if (blob == blobs.end()) return {.status = 404};
    if (request.method == "HEAD") return {.status = 200};
    ++reads;
    net::Response out{.status = 206, .headers = {}, .body = blob->second};
    out.headers.add("Content-Range", "bytes 0-" + std::to_string(out.body.size() - 1) + "/" +
                                         std::to_string(out.body.size()));
    return out;
  }
};

/// One node: its manager, its shares, and a link to each other node that can be cut.
class Node {
 public:
  Node(std::string name, os::Path root, ManualClock& clock)
      : name_(std::move(name)), root_(std::move(root)), clock_(clock) {
    std::filesystem::create_directories(root_ / "data");
    shares_ = std::make_unique<replica::Shares>([this] { return os::open_readable_tree({root_}); });
    restart();
  }

  void restart() {
    manager_.reset();
    Manager::Options options{.roots = {root_ / "data"},
                             .copies = root_ / "copies",
                             .records = root_ / "shares",
                             .registry = to_registry.get(),
                             .clock = &clock_};
    options.copy_bytes_max = copy_bytes_max;
    auto opened = Manager::open(
        std::move(options), os::real_file_system(),
        [this] { return os::open_readable_tree({root_ / "data"}); }, *shares_,
        [this](const std::string& node) { return client_of(node); }, *rng_);
    CHECK(opened.ok());
    manager_ = std::move(opened).value();
    manager_->on_publish([this] {
      api::EdgeNodeStatus status;
      list_reported = manager_->put_report(status, {});
      share_summary = std::move(status.shares);
      replica_summary = std::move(status.replicas);
      ++times_reported;
    });
    if (list_) manager_->apply(*list_);
    manager_->load();
  }

  void want(api::EdgeNodeSpec spec) {
    list_ = core::WorkList{{"u-" + name_, ++generation_}, std::move(spec)};
    manager_->apply(*list_);
  }
  void connect(Node& other) {
    links_[other.name_] = net::loopback(
        [this, &other](net::Request request, net::Responder respond) {
          ++requests;
          if (cut || (files_cut && request.path().ends_with("/file")))
            return respond({.status = 502});
          other.shares_->handler()(std::move(request), std::move(respond));
        },
        {.address = "10.0.0.1:1", .certificate_common_name = name_});
  }
  /// Runs due tasks until all are idle.
  void settle() {
    for (int i = 0; i < 100; ++i) {
      bool any = false;
      for (const runtime::Task& task : manager_->tasks()) {
        if (const auto due = task.due(); due && *due <= clock_.now()) {
          task.step(kForever);
          any = true;
        }
      }
      if (!any) return;
    }
    FAIL() << "it never comes to rest";
  }
  void write(const std::string& path, const std::string& bytes,
             std::ios::openmode how = std::ios::trunc) {
    std::filesystem::create_directories((root_ / "data" / path).parent_path());
    std::ofstream(root_ / "data" / path, std::ios::binary | how) << bytes;
  }
  std::string read(const std::string& path) const {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  os::Path data() const { return root_ / "data"; }

  std::vector<api::EdgeShareReport> share_summary;
  std::vector<api::EdgeReplicaReport> replica_summary;
  core::ListId list_reported;
  int times_reported = 0, requests = 0;
  bool cut = false, files_cut = false;
  std::unique_ptr<net::HttpClient> to_registry;  // effective from the next restart()
  std::uint64_t copy_bytes_max = UINT64_MAX;     // effective from the next restart()

 private:
  net::HttpClient* client_of(const std::string& node) {
    const auto at = links_.find(node);
    return at == links_.end() ? nullptr : at->second.get();
  }
  const std::string name_;
  const os::Path root_;
  ManualClock& clock_;
  std::unique_ptr<replica::Shares> shares_;
  std::unique_ptr<Rng> rng_ = seeded_rng(1);
  std::map<std::string, std::unique_ptr<net::HttpClient>> links_;
  std::unique_ptr<Manager> manager_;
  std::int64_t generation_ = 1;
  std::optional<core::WorkList> list_;
};

class ReplicaManagerTest : public ::testing::Test {
 protected:
  static os::Path make_root() {
    std::string name = ::testing::TempDir() + "varda-replica-keeper-XXXXXX";
    CHECK(mkdtemp(name.data()) != nullptr);
    return name;
  }
  ~ReplicaManagerTest() override { std::filesystem::remove_all(root_); }

  api::EdgeNodeSpec sharing(std::vector<std::string> nodes = {"edge1", "edge2"},
                            std::string path = "") {
    api::EdgeNodeSpec spec;
    spec.shares.push_back({.key = kKey,
                           .path = path.empty() ? a_.data().string() : path,
                           .nodes = std::move(nodes),
                           .unknown = {}});
    return spec;
  }
  static api::EdgeNodeSpec wanting(const std::string& snapshot, std::vector<std::string> from) {
    api::EdgeNodeSpec spec;
    api::EdgeReplica replica{.key = kKey,
                             .uid = "u",
                             .snapshot = snapshot,
                             .sources = {},
                             .metadata = {},
                             .unknown = {}};
    for (std::string& node : from)
      replica.sources.push_back({.node = node, .url = "", .unknown = {}});
    spec.replicas.push_back(std::move(replica));
    return spec;
  }
  /// A shares files, and B copies them.
  void copy_to_b() {
    a_.want(sharing());
    a_.settle();
    b_.want(wanting(a_.share_summary.at(0).snapshot, {"edge0"}));
    b_.settle();
  }

  const os::Path root_ = make_root();
  ManualClock clock_;
  Node a_{"edge0", root_ / "a", clock_}, b_{"edge1", root_ / "b", clock_},
      c_{"edge2", root_ / "c", clock_};

  void SetUp() override {
    b_.connect(a_);
    c_.connect(a_);
    c_.connect(b_);
    a_.write("train/1.csv", "1,2\n");
    a_.write("classes.txt", "a\n");
  }
};

TEST_F(ReplicaManagerTest, SharedFilesReachTheReplica) {
  copy_to_b();
  ASSERT_EQ(b_.replica_summary.size(), 1u);
  const api::EdgeReplicaReport& report = b_.replica_summary[0];
  EXPECT_EQ(report.state, "Current") << report.message;
  EXPECT_EQ(report.snapshot, a_.share_summary[0].snapshot);
  EXPECT_EQ(report.uid, "u");
  EXPECT_EQ(report.bytes, 6);
  EXPECT_EQ(a_.share_summary[0].files, 2);
  EXPECT_EQ(b_.read(report.path + "/train/1.csv"), "1,2\n");
  EXPECT_EQ(b_.list_reported.uid, "u-edge1");
  EXPECT_EQ(b_.list_reported.generation, 2);
}

TEST_F(ReplicaManagerTest, MetadataLiesBesideTheReplica) {
  a_.want(sharing());
  a_.settle();
  const std::string snapshot = a_.share_summary.at(0).snapshot;
  api::EdgeNodeSpec spec = wanting(snapshot, {"edge0"});
  const auto file = [&] {
    return b_.read(os::Path(b_.replica_summary.at(0).path).parent_path() / "metadata.json");
  };
  spec.replicas[0].metadata = codec::Json::object({{"kind", "Dataset"}});
  b_.want(spec);
  b_.settle();
  EXPECT_EQ(file(), R"({"kind":"Dataset","snapshot":")" + snapshot + "\"}\n");
  const int requests = b_.requests;
  spec.replicas[0].metadata = codec::Json::object({{"kind", "Model"}});
  b_.want(spec);
  b_.settle();
  EXPECT_EQ(file(), R"({"kind":"Model","snapshot":")" + snapshot + "\"}\n");
  EXPECT_EQ(b_.requests, requests);
  EXPECT_EQ(b_.replica_summary.at(0).state, "Current");
}

TEST_F(ReplicaManagerTest, NodeWithoutCertificateReportsIt) {
  a_.want(sharing());
  a_.settle();
  c_.want(wanting(a_.share_summary.at(0).snapshot, {"edge7"}));  // no client for that node
  c_.settle();
  EXPECT_EQ(c_.replica_summary.at(0).reason, "NoIdentity");
}

TEST_F(ReplicaManagerTest, GrownFileIsReplicatedAgain) {
  a_.write("train/1.csv", std::string(3 << 20, 'x'));
  copy_to_b();
  const std::string before = a_.share_summary[0].snapshot;
  a_.write("train/1.csv", "more", std::ios::app);
  clock_.advance(std::chrono::hours(1));
  a_.settle();
  EXPECT_NE(a_.share_summary[0].snapshot, before);
  b_.want(wanting(a_.share_summary[0].snapshot, {"edge0"}));
  b_.settle();
  EXPECT_EQ(b_.replica_summary[0].state, "Current");
  EXPECT_EQ(b_.read(b_.replica_summary[0].path + "/train/1.csv"),
            std::string(3 << 20, 'x') + "more");
}

TEST_F(ReplicaManagerTest, ReplicaIsSharedWithNextNode) {
  copy_to_b();
  api::EdgeNodeSpec spec = wanting(a_.share_summary[0].snapshot, {"edge0"});
  spec.shares.push_back({.key = kKey, .path = "", .nodes = {"edge2"}, .unknown = {}});
  b_.want(spec);
  b_.settle();
  ASSERT_EQ(b_.share_summary.size(), 1u);
  EXPECT_EQ(b_.share_summary[0].state, "Ready");
  c_.want(wanting(a_.share_summary[0].snapshot, {"edge1"}));
  c_.settle();
  EXPECT_EQ(c_.replica_summary[0].state, "Current") << c_.replica_summary[0].message;
}

TEST_F(ReplicaManagerTest, UnreachableSourceIsRetriedWithBackoff) {
  a_.want(sharing());
  a_.settle();
  b_.cut = true;
  b_.want(wanting(a_.share_summary[0].snapshot, {"edge0"}));
  b_.settle();
  EXPECT_EQ(b_.replica_summary[0].state, "Copying");
  EXPECT_EQ(b_.replica_summary[0].reason, "SourceUnreachable");
  const int first = b_.requests;
  for (int i = 0; i < 3600; ++i) {
    clock_.advance(std::chrono::seconds(1));
    b_.settle();
  }
  EXPECT_GT(b_.requests, first + 8);
  EXPECT_LT(b_.requests, first + 40);
  b_.cut = false;
  clock_.advance(std::chrono::minutes(8));
  b_.settle();
  EXPECT_EQ(b_.replica_summary[0].state, "Current");
  EXPECT_EQ(b_.replica_summary[0].reason, "");
}

TEST_F(ReplicaManagerTest, NodeOutsideTheShareListGetsNothing) {
  a_.want(sharing({"edge2"}));
  a_.settle();
  b_.want(wanting(a_.share_summary[0].snapshot, {"edge0"}));
  b_.settle();
  EXPECT_EQ(b_.replica_summary[0].reason, "SourceChanged");
  EXPECT_EQ(b_.replica_summary[0].path, "");
}

TEST_F(ReplicaManagerTest, RestartedNodeReusesReplicaWithoutRequests) {
  copy_to_b();
  const int before = b_.requests;
  b_.replica_summary.clear();
  b_.restart();
  b_.settle();
  ASSERT_EQ(b_.replica_summary.size(), 1u);
  EXPECT_EQ(b_.replica_summary[0].state, "Current");
  EXPECT_EQ(b_.requests, before);
}

TEST_F(ReplicaManagerTest, AShareBeyondTheLimitIsRefusedBeforeAByteIsCopied) {
  b_.copy_bytes_max = 5;
  b_.restart();
  copy_to_b();
  ASSERT_EQ(b_.replica_summary.size(), 1u);
  EXPECT_EQ(b_.replica_summary[0].reason, "Refused");
  EXPECT_NE(b_.replica_summary[0].message.find("--replica-bytes-max"), std::string::npos)
      << b_.replica_summary[0].message;
  EXPECT_EQ(b_.requests, 1);  // for the snapshot
}

TEST_F(ReplicaManagerTest, UnwantedReplicaIsDeleted) {
  copy_to_b();
  const std::string path = b_.replica_summary[0].path;
  EXPECT_TRUE(std::filesystem::exists(path));
  b_.want({});
  b_.settle();
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_TRUE(b_.replica_summary.empty());
}

TEST_F(ReplicaManagerTest, UnshareablePathFailsWithReason) {
  a_.want(sharing({"edge1"}, "/etc"));
  a_.settle();
  EXPECT_EQ(a_.share_summary[0].state, "Failed");
  EXPECT_EQ(a_.share_summary[0].reason, "PathForbidden");
  a_.want(sharing({"edge1"}, (a_.data() / "missing").string()));
  a_.settle();
  EXPECT_EQ(a_.share_summary[0].reason, "PathNotFound");
}

TEST_F(ReplicaManagerTest, IdleManagerReportsNothing) {
  copy_to_b();
  const int a = a_.times_reported, b = b_.times_reported;
  for (int i = 0; i < 100; ++i) {
    clock_.advance(std::chrono::seconds(10));
    a_.settle();
    b_.settle();
  }
  EXPECT_EQ(a_.times_reported, a);
  EXPECT_EQ(b_.times_reported, b);
}

// A node is reported only after each of its managers has reported.
TEST_F(ReplicaManagerTest, NodeWithoutSharesOrReplicasStillReports) {
  a_.settle();
  EXPECT_EQ(a_.times_reported, 1);
  EXPECT_EQ(a_.list_reported.uid, "");
  a_.want({});
  a_.settle();
  EXPECT_EQ(a_.times_reported, 2);
  EXPECT_EQ(a_.list_reported.uid, "u-edge0");
  EXPECT_TRUE(a_.share_summary.empty() && a_.replica_summary.empty());
}

TEST_F(ReplicaManagerTest, ShareReportContainsPath) {
  a_.want(sharing());
  a_.settle();
  EXPECT_EQ(a_.share_summary.at(0).path, a_.data().string());
  a_.want(sharing({"edge1"}, (a_.data() / "nothing").string()));
  a_.settle();
  EXPECT_EQ(a_.share_summary.at(0).path, (a_.data() / "nothing").string());
  EXPECT_EQ(a_.share_summary.at(0).reason, "PathNotFound");
}

TEST_F(ReplicaManagerTest, ReplicaWithoutSnapshotStaysPending) {
  b_.want(wanting("", {"edge0"}));
  b_.settle();
  EXPECT_EQ(b_.replica_summary[0].state, "Pending");
  EXPECT_EQ(b_.requests, 0);
}

// ---- Relay

/// A and B reach the registry, and not each other.
class RelayTest : public ReplicaManagerTest {
 protected:
  void SetUp() override {
    ReplicaManagerTest::SetUp();
    for (Node* node : {&a_, &b_}) {
      node->to_registry = net::loopback(registry_.handler());
      node->restart();
    }
    b_.cut = true;
    a_.write("train/1.csv", big_);
  }
  void share(bool relay) {
    api::EdgeNodeSpec spec = sharing();
    spec.shares[0].relay = relay;
    a_.want(spec);
    a_.settle();
  }
  void want(bool relay) {
    api::EdgeNodeSpec spec = wanting(a_.share_summary.at(0).snapshot, {"edge0"});
    spec.replicas[0].relay = relay;
    b_.want(spec);
    b_.settle();
  }
  void let_minutes_pass(Node& node, int minutes) {
    for (int i = 0; i < 6 * minutes; ++i) {
      clock_.advance(std::chrono::seconds(10));
      node.settle();
    }
  }
  const api::EdgeShareReport& offered() { return a_.share_summary.at(0); }
  const api::EdgeReplicaReport& copied() { return b_.replica_summary.at(0); }
  std::string copy() { return b_.read(copied().path + "/train/1.csv"); }
  static std::string random_bytes(std::size_t size) {
    std::string out(size, '\0');
    const auto rng = seeded_rng(7);
    for (char& c : out) c = static_cast<char>(rng->below(256));
    return out;
  }

  std::string big_ = random_bytes((6 << 20) + 100);
  FakeRegistry registry_;
};

TEST_F(RelayTest, SnapshotReachesTheReplicaThroughTheRegistry) {
  share(true);
  EXPECT_EQ(offered().relayed, offered().snapshot);
  EXPECT_EQ(offered().relay_reason, "");
  want(true);
  EXPECT_EQ(copied().state, "Current") << copied().message;
  EXPECT_TRUE(copied().relay);
  EXPECT_TRUE(copy() == big_);
}

TEST_F(RelayTest, OnlyChangedBlocksTravelAgain) {
  share(true);
  want(true);
  const std::size_t before = registry_.uploaded_bytes;
  const int reads = registry_.reads, heads = registry_.heads;
  big_.replace(3 << 20, 5, "other");
  a_.write("train/1.csv", big_);
  clock_.advance(std::chrono::hours(1));
  a_.settle();
  EXPECT_EQ(offered().relayed, offered().snapshot);
  EXPECT_LT(registry_.uploaded_bytes - before, (1u << 20) + 2000);
  EXPECT_EQ(registry_.heads, heads + 2) << "known blocks are not asked for again";
  want(true);
  EXPECT_EQ(registry_.reads, reads + 2);  // the snapshot and one block
  EXPECT_TRUE(copy() == big_);
}

TEST_F(RelayTest, NodeAsksForARelayAfterSeveralAttempts) {
  share(false);
  EXPECT_EQ(registry_.uploads, 0);
  want(false);
  EXPECT_FALSE(copied().relay) << "one failure may be short";
  let_minutes_pass(b_, 1);
  EXPECT_TRUE(copied().relay);
  EXPECT_EQ(copied().reason, "SourceUnreachable");
  EXPECT_EQ(registry_.reads, 0);
}

TEST_F(RelayTest, DirectCopyEndsTheWishForARelay) {
  share(true);
  want(true);
  b_.cut = false;
  a_.write("train/2.csv", "5,6\n");
  clock_.advance(std::chrono::hours(1));
  a_.settle();
  const int reads = registry_.reads;
  want(true);
  EXPECT_EQ(copied().state, "Current") << copied().message;
  EXPECT_FALSE(copied().relay);
  EXPECT_EQ(registry_.reads, reads);
}

TEST_F(RelayTest, RestartedNodesContinueTheRelay) {
  registry_.uploads_left = 5;  // the snapshot and four blocks
  share(true);
  EXPECT_EQ(offered().relayed, "");
  EXPECT_EQ(offered().relay_reason, "RelayFailed");
  registry_.uploads_left = 1 << 30;
  a_.restart();
  a_.settle();
  EXPECT_EQ(offered().relayed, offered().snapshot);
  EXPECT_LT(registry_.uploaded_bytes, big_.size() + 4000);
  want(true);
  b_.restart();
  b_.settle();
  EXPECT_TRUE(copied().relay);
  EXPECT_EQ(copied().state, "Current");
}

TEST_F(RelayTest, MissingRegistryHasAReason) {
  registry_.refusal = 404;
  share(true);
  EXPECT_EQ(offered().relay_reason, "RelayMissing");
  EXPECT_NE(offered().relay_message, "");
  registry_.refusal = 507;
  let_minutes_pass(a_, 10);
  EXPECT_EQ(offered().relay_reason, "RelayFull");
  registry_.refusal = 0;
  let_minutes_pass(a_, 10);
  EXPECT_EQ(offered().relay_reason, "");
  EXPECT_EQ(offered().relayed, offered().snapshot);
}

TEST_F(RelayTest, WithdrawnRelayUploadsNothing) {
  share(true);
  share(false);
  EXPECT_EQ(offered().relayed, "");
  const int uploads = registry_.uploads;
  a_.write("train/2.csv", "5,6\n");
  let_minutes_pass(a_, 60);
  EXPECT_EQ(registry_.uploads, uploads);
}

TEST_F(RelayTest, LostBlobsAreUploadedAgain) {
  share(true);
  registry_.blobs.clear();
  want(true);
  EXPECT_EQ(copied().state, "Copying");
  EXPECT_EQ(copied().reason, "SourceChanged");
  clock_.advance(std::chrono::hours(7));
  a_.settle();
  b_.settle();
  EXPECT_EQ(copied().state, "Current") << copied().message;
}

TEST_F(RelayTest, WrongBytesOfTheRegistryAreRefused) {
  share(true);
  for (auto& [path, bytes] : registry_.blobs) bytes[0] ^= 1;
  want(true);
  EXPECT_EQ(copied().state, "Copying");
  EXPECT_EQ(copied().path, "");
}

TEST_F(RelayTest, RegistryTakesOverFromABrokenPeer) {
  share(true);
  b_.files_cut = true;  // the peer sends the snapshot, and no files
  b_.cut = false;
  want(true);
  EXPECT_EQ(copied().state, "Current") << copied().message;
  EXPECT_TRUE(copied().relay);
  EXPECT_TRUE(copy() == big_);
}

}  // namespace manager_test
}  // namespace varda::agent::replicas
