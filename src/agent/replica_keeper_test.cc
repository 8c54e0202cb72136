#include "agent/replica_keeper.h"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>

#include "artifact/testing/manual_clock.h"
#include "net/url.h"

namespace varda::agent {
namespace replica_keeper_test {

using artifact::testing::ManualClock;

constexpr const char* kKey = "datasets.edgeai.io/default/faces";
const Context kForever = Context::background();

/// One node: its keeper, its shares, and a link to each other node that can be cut.
class Node {
 public:
  Node(std::string name, os::Path root, ManualClock& clock)
      : name_(std::move(name)), root_(std::move(root)), clock_(clock) {
    std::filesystem::create_directories(root_ / "data");
    shares_ = std::make_unique<replica::Shares>([this] { return os::open_readable_tree({root_}); });
    restart();
  }

  void restart() {
    keeper_.reset();
    ReplicaKeeper::Options options{.roots = {root_ / "data"},
                                   .copies = root_ / "copies",
                                   .records = root_ / "shares",
                                   .clock = &clock_};
    options.copy_bytes_max = copy_bytes_max;
    auto opened = ReplicaKeeper::open(
        std::move(options), os::real_file_system(),
        [this] { return os::open_readable_tree({root_ / "data"}); }, *shares_,
        [this](const std::string& node) { return client_of(node); }, *journal_, *rng_);
    CHECK(opened.ok());
    keeper_ = std::move(opened).value();
    keeper_->on_news(
        [this](auto shares, auto replicas, const std::string& uid, std::int64_t generation) {
          shares_said = std::move(shares);
          replicas_said = std::move(replicas);
          uid_said = uid;
          generation_said = generation;
          ++times_said;
        });
    keeper_->load();
  }

  void want(api::EdgeNodeSpec spec) {
    api::EdgeNode node;
    node.metadata.name = name_;
    node.metadata.uid = "u-" + name_;
    node.metadata.generation = ++generation_;
    node.spec = std::move(spec);
    CHECK(keep_desired(*journal_,
                       {.uid = node.metadata.uid, .generation = generation_, .spec = node.spec})
              .ok());
    keeper_->set_desired(node);
  }
  void connect(Node& other) {
    links_[other.name_] = net::loopback(
        [this, &other](net::Request request, net::Responder respond) {
          ++requests;
          if (cut) return respond({.status = 502});
          other.shares_->handler()(std::move(request), std::move(respond));
        },
        {.address = "10.0.0.1:1", .certificate_common_name = name_});
  }
  /// Runs due strands until all are idle.
  void settle() {
    for (int i = 0; i < 100; ++i) {
      bool any = false;
      for (const runtime::Strand& strand : keeper_->strands()) {
        if (const auto due = strand.due(); due && *due <= clock_.now()) {
          strand.step(kForever);
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

  std::vector<api::EdgeShareReport> shares_said;
  std::vector<api::EdgeReplicaReport> replicas_said;
  std::string uid_said;
  std::int64_t generation_said = 0;
  int times_said = 0, requests = 0;
  bool cut = false;
  std::uint64_t copy_bytes_max = UINT64_MAX;  // effective from the next restart()

 private:
  net::HttpClient* client_of(const std::string& node) {
    const auto at = links_.find(node);
    return at == links_.end() ? nullptr : at->second.get();
  }
  const std::string name_;
  const os::Path root_;
  ManualClock& clock_;
  std::unique_ptr<replica::Shares> shares_;
  std::unique_ptr<Journal> journal_ = Journal::in_memory();
  std::unique_ptr<Rng> rng_ = seeded_rng(1);
  std::map<std::string, std::unique_ptr<net::HttpClient>> links_;
  std::unique_ptr<ReplicaKeeper> keeper_;
  std::int64_t generation_ = 1;
};

class ReplicaKeeperTest : public ::testing::Test {
 protected:
  static os::Path make_root() {
    std::string name = ::testing::TempDir() + "varda-replica-keeper-XXXXXX";
    CHECK(mkdtemp(name.data()) != nullptr);
    return name;
  }
  ~ReplicaKeeperTest() override { std::filesystem::remove_all(root_); }

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
    api::EdgeReplica replica{
        .key = kKey, .uid = "u", .snapshot = snapshot, .sources = {}, .unknown = {}};
    for (std::string& node : from)
      replica.sources.push_back({.node = node, .url = "", .unknown = {}});
    spec.replicas.push_back(std::move(replica));
    return spec;
  }
  /// A shares files, and B copies them.
  void copy_to_b() {
    a_.want(sharing());
    a_.settle();
    b_.want(wanting(a_.shares_said.at(0).snapshot, {"edge0"}));
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

TEST_F(ReplicaKeeperTest, WhatOneSharesTheOtherGets) {
  copy_to_b();
  ASSERT_EQ(b_.replicas_said.size(), 1u);
  const api::EdgeReplicaReport& report = b_.replicas_said[0];
  EXPECT_EQ(report.state, "Current") << report.message;
  EXPECT_EQ(report.snapshot, a_.shares_said[0].snapshot);
  EXPECT_EQ(report.uid, "u");
  EXPECT_EQ(report.bytes, 6);
  EXPECT_EQ(a_.shares_said[0].files, 2);
  EXPECT_EQ(b_.read(report.path + "/train/1.csv"), "1,2\n");
  EXPECT_EQ(b_.uid_said, "u-edge1");
  EXPECT_EQ(b_.generation_said, 2);
}

TEST_F(ReplicaKeeperTest, WhatGrowsIsNoticedAndFetchedWithoutTheRest) {
  a_.write("train/1.csv", std::string(3 << 20, 'x'));
  copy_to_b();
  const std::string before = a_.shares_said[0].snapshot;
  a_.write("train/1.csv", "more", std::ios::app);
  clock_.advance(std::chrono::hours(1));
  a_.settle();
  EXPECT_NE(a_.shares_said[0].snapshot, before);
  b_.want(wanting(a_.shares_said[0].snapshot, {"edge0"}));
  b_.settle();
  EXPECT_EQ(b_.replicas_said[0].state, "Current");
  EXPECT_EQ(b_.read(b_.replicas_said[0].path + "/train/1.csv"), std::string(3 << 20, 'x') + "more");
}

TEST_F(ReplicaKeeperTest, ACopyIsSharedOn) {
  copy_to_b();
  api::EdgeNodeSpec spec = wanting(a_.shares_said[0].snapshot, {"edge0"});
  spec.shares.push_back({.key = kKey, .path = "", .nodes = {"edge2"}, .unknown = {}});
  b_.want(spec);
  b_.settle();
  ASSERT_EQ(b_.shares_said.size(), 1u);
  EXPECT_EQ(b_.shares_said[0].state, "Ready");
  c_.want(wanting(a_.shares_said[0].snapshot, {"edge1"}));
  c_.settle();
  EXPECT_EQ(c_.replicas_said[0].state, "Current") << c_.replicas_said[0].message;
}

TEST_F(ReplicaKeeperTest, ACutLinkIsTriedAgainEverMoreRarely) {
  a_.want(sharing());
  a_.settle();
  b_.cut = true;
  b_.want(wanting(a_.shares_said[0].snapshot, {"edge0"}));
  b_.settle();
  EXPECT_EQ(b_.replicas_said[0].state, "Copying");
  EXPECT_EQ(b_.replicas_said[0].reason, "SourceUnreachable");
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
  EXPECT_EQ(b_.replicas_said[0].state, "Current");
  EXPECT_EQ(b_.replicas_said[0].reason, "");
}

TEST_F(ReplicaKeeperTest, WhoIsNotOnTheListGetsNothing) {
  a_.want(sharing({"edge2"}));
  a_.settle();
  b_.want(wanting(a_.shares_said[0].snapshot, {"edge0"}));
  b_.settle();
  EXPECT_EQ(b_.replicas_said[0].reason, "SourceChanged");
  EXPECT_EQ(b_.replicas_said[0].path, "");
}

TEST_F(ReplicaKeeperTest, ARestartKnowsItsCopyAndAsksNobody) {
  copy_to_b();
  const int before = b_.requests;
  b_.replicas_said.clear();
  b_.restart();
  b_.settle();
  ASSERT_EQ(b_.replicas_said.size(), 1u);
  EXPECT_EQ(b_.replicas_said[0].state, "Current");
  EXPECT_EQ(b_.requests, before);
}

TEST_F(ReplicaKeeperTest, AShareBeyondTheLimitIsRefusedBeforeAByteIsCopied) {
  b_.copy_bytes_max = 5;
  b_.restart();
  copy_to_b();
  ASSERT_EQ(b_.replicas_said.size(), 1u);
  EXPECT_EQ(b_.replicas_said[0].reason, "Refused");
  EXPECT_NE(b_.replicas_said[0].message.find("--replica-bytes-max"), std::string::npos)
      << b_.replicas_said[0].message;
  EXPECT_EQ(b_.requests, 1);  // for the snapshot
}

TEST_F(ReplicaKeeperTest, ACopyThatIsWantedNoMoreGoes) {
  copy_to_b();
  const std::string path = b_.replicas_said[0].path;
  EXPECT_TRUE(std::filesystem::exists(path));
  b_.want({});
  b_.settle();
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_TRUE(b_.replicas_said.empty());
}

TEST_F(ReplicaKeeperTest, WhatMayNotBeSharedSaysWhy) {
  a_.want(sharing({"edge1"}, "/etc"));
  a_.settle();
  EXPECT_EQ(a_.shares_said[0].state, "Failed");
  EXPECT_EQ(a_.shares_said[0].reason, "PathForbidden");
  a_.want(sharing({"edge1"}, (a_.data() / "missing").string()));
  a_.settle();
  EXPECT_EQ(a_.shares_said[0].reason, "PathNotFound");
}

TEST_F(ReplicaKeeperTest, AtRestItSaysNothing) {
  copy_to_b();
  const int a = a_.times_said, b = b_.times_said;
  for (int i = 0; i < 100; ++i) {
    clock_.advance(std::chrono::seconds(10));
    a_.settle();
    b_.settle();
  }
  EXPECT_EQ(a_.times_said, a);
  EXPECT_EQ(b_.times_said, b);
}

// A node is reported only after each of its keepers has reported.
TEST_F(ReplicaKeeperTest, ANodeWithNothingToShareAndNothingToCopySaysSo) {
  a_.settle();
  EXPECT_EQ(a_.times_said, 1);
  EXPECT_EQ(a_.uid_said, "");
  a_.want({});
  a_.settle();
  EXPECT_EQ(a_.times_said, 2);
  EXPECT_EQ(a_.uid_said, "u-edge0");
  EXPECT_TRUE(a_.shares_said.empty() && a_.replicas_said.empty());
}

TEST_F(ReplicaKeeperTest, WhatIsSaidOfAShareNamesThePathItIsOf) {
  a_.want(sharing());
  a_.settle();
  EXPECT_EQ(a_.shares_said.at(0).path, a_.data().string());
  a_.want(sharing({"edge1"}, (a_.data() / "nothing").string()));
  a_.settle();
  EXPECT_EQ(a_.shares_said.at(0).path, (a_.data() / "nothing").string());
  EXPECT_EQ(a_.shares_said.at(0).reason, "PathNotFound");
}

TEST_F(ReplicaKeeperTest, ANodeThatIsNotToldWhatToHaveWaits) {
  b_.want(wanting("", {"edge0"}));
  b_.settle();
  EXPECT_EQ(b_.replicas_said[0].state, "Pending");
  EXPECT_EQ(b_.requests, 0);
}

}  // namespace replica_keeper_test
}  // namespace varda::agent
