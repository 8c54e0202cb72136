#include "agent/core/work_list.h"

#include <gtest/gtest.h>

namespace varda::agent::core {
namespace work_list_test {

/// A store that can refuse writes.
class Disk final : public store::Store {
 public:
  explicit Disk(const bool& full, int& writes) : full_(full), writes_(writes) {}
  Result<std::optional<store::Entry>> get(std::string_view key) override {
    return inner_->get(key);
  }
  Result<store::Page> list(const store::ListOptions& options) override {
    return inner_->list(options);
  }
  Result<store::Revision> commit(std::vector<store::Op> ops) override {
    if (full_) return Error(Code::kExhausted, "disk full");
    ++writes_;
    return inner_->commit(std::move(ops));
  }
  Result<std::unique_ptr<store::Watch>> watch(std::string, store::Revision) override {
    return Error(Code::kUnsupported, "no");
  }
  store::Revision revision() const override { return inner_->revision(); }
  store::Revision oldest() const override { return inner_->oldest(); }
  Status compact(store::Revision) override { return {}; }

 private:
  const bool& full_;
  int& writes_;
  const std::unique_ptr<store::Store> inner_ = store::open_memory();
};

class WorkLists : public ::testing::Test {
 protected:
  static api::EdgeNode node(std::int64_t generation, const std::string& dataset = "") {
    api::EdgeNode out;
    out.metadata.uid = "u1";
    out.metadata.generation = generation;
    if (!dataset.empty()) out.spec.datasets.emplace_back().key = dataset;
    return out;
  }
  /// The list that a new process loads, as "GENERATION DATASETS"; "": none.
  std::string loaded() {
    const auto list = WorkListStore(*state_store_).load();
    if (!list) return "";
    std::string out = std::to_string(list->id.generation);
    for (const api::EdgeDataset& dataset : list->spec.datasets) out += " " + dataset.key;
    return out;
  }

  bool full_ = false;
  int writes_ = 0;
  std::unique_ptr<StateStore> state_store_ =
      StateStore::over(std::make_unique<Disk>(full_, writes_));
  WorkListStore store_{*state_store_};
};

TEST_F(WorkLists, EachListIsPersistedAndReturnedOnce) {
  EXPECT_EQ(loaded(), "");
  ASSERT_TRUE(store_.accept(node(2, "a")));
  EXPECT_EQ(loaded(), "2 a");
  EXPECT_FALSE(store_.accept(node(2, "a")));
  const auto next = store_.accept(node(3, "b"));
  ASSERT_TRUE(next);
  EXPECT_EQ(next->id, (ListId{"u1", 3}));
  EXPECT_EQ(next->spec.datasets.at(0).key, "b");
  EXPECT_EQ(writes_, 2);
}

TEST_F(WorkLists, ALoadedListIsNotReturnedAgain) {
  ASSERT_TRUE(store_.accept(node(2, "a")));
  WorkListStore restarted(*state_store_);
  ASSERT_TRUE(restarted.load());
  EXPECT_FALSE(restarted.accept(node(2, "a")));
  EXPECT_TRUE(restarted.accept(node(2, "b"))) << "a restored server may reuse a generation";
  EXPECT_EQ(loaded(), "2 b");
}

TEST_F(WorkLists, AnObjectThatTheNodeJustCreatedKeepsTheEarlierList) {
  const auto first = store_.accept(node(1));
  ASSERT_TRUE(first) << "without an earlier list, the node reports that it has no work";
  EXPECT_EQ(first->id.generation, 1);
  ASSERT_TRUE(store_.accept(node(2, "a")));
  EXPECT_FALSE(store_.accept(node(1)));
  EXPECT_EQ(loaded(), "2 a");
  WorkListStore restarted(*state_store_);
  ASSERT_TRUE(restarted.load());
  EXPECT_FALSE(restarted.accept(node(1)));
  ASSERT_TRUE(restarted.accept(node(3))) << "an assignment without work";
  EXPECT_EQ(loaded(), "3");
}

TEST_F(WorkLists, FullDiskDelaysNoWorkAndWriteIsRetried) {
  ASSERT_TRUE(store_.accept(node(2, "a")));
  full_ = true;
  EXPECT_TRUE(store_.accept(node(3, "b")));
  EXPECT_EQ(loaded(), "2 a");
  full_ = false;
  EXPECT_FALSE(store_.accept(node(3, "b"))) << "the components have it";
  EXPECT_EQ(loaded(), "3 b");
}

TEST_F(WorkLists, UnreadableListIsIgnored) {
  ASSERT_TRUE(state_store_->put("desired", codec::Json::object({{"spec", 7}})).ok());
  WorkListStore restarted(*state_store_);
  EXPECT_FALSE(restarted.load());
  EXPECT_TRUE(restarted.accept(node(1)));
}

}  // namespace work_list_test
}  // namespace varda::agent::core
