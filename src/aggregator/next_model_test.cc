#include "aggregator/next_model.h"

#include <gtest/gtest.h>

#include "aggregator/testing/sample_job.h"
#include "base/log.h"
#include "os/testing/crashing_file_system.h"

namespace varda::aggregator {
namespace {
namespace next_model_test {

using federated::UpdateReader;

/// An update on a disk that fails in the middle of the fold.
class UnreadableUpdate final : public UpdateReader {
 public:
  explicit UnreadableUpdate(const UpdateReader& update) : update_(update) {}
  const federated::Layout& layout() const override { return update_.layout(); }
  const federated::UpdateInfo& info() const override { return update_.info(); }
  federated::Encoding encoding() const override { return update_.encoding(); }
  std::uint64_t bytes() const override { return update_.bytes(); }
  double norm() const override { return update_.norm(); }
  bool has_control() const override { return update_.has_control(); }
  double control_norm() const override { return update_.control_norm(); }
  void read(std::size_t, std::span<float> out) const override {
    std::fill(out.begin(), out.end(), 0.F);
  }
  std::span<const float> view(std::size_t first, std::span<float> scratch) const override {
    read(first, scratch);
    return scratch;
  }
  void read_control(std::size_t first, std::span<float> out) const override { read(first, out); }
  Status status() const override { return Error(Code::kUnavailable, "input/output error"); }

 private:
  const UpdateReader& update_;
};

class NextModels : public ::testing::Test {
 protected:
  NextModels() {
    log::configure(log::Format::kText, log::Level::kError);
    store_ = Store::open("/job", fs_).value();
    next_ = NextModel::open(sample_.settings, layout(), *store_).value();
    first_ = store_->put(sample_.model().weights().to_safetensors().value()).value().hex();
    for (std::int64_t round = 1; round <= 2; ++round) {
      for (const std::string& client : sample_.clients()) {
        updates_.push_back(
            UpdateReader::of(sample_.update({.samples = 10}, client, round), layout()).value());
      }
    }
  }
  ~NextModels() override { log::configure(log::Format::kText, log::Level::kInfo); }

  federated::LayoutPointer layout() const { return sample_.model().weights().layout_pointer(); }
  /// `last`: replaces the update of the last client.
  Result<std::optional<NextModel::Made>> make(std::int64_t round, const std::string& model,
                                              const NextModel::State& state,
                                              const UpdateReader* last = nullptr) {
    std::vector<federated::Contribution> contributions;
    const std::size_t clients = sample_.clients().size();
    for (std::size_t i = 0; i < clients; ++i) {
      const UpdateReader* update =
          updates_[static_cast<std::size_t>(round - 1) * clients + i].get();
      if (last != nullptr && i + 1 == clients) update = last;
      contributions.push_back({.client = sample_.clients()[i], .samples = 10, .update = update});
    }
    return next_->make(Context::background(), {.number = round, .wanted = 3, .model = model},
                       std::move(contributions), state);
  }

  const SampleJob sample_{"FedAvgM"};
  os::testing::CrashingFileSystem fs_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<NextModel> next_;
  std::string first_;
  std::vector<std::unique_ptr<UpdateReader>> updates_;
};

TEST_F(NextModels, ReadErrorIsRetriedFromTheSavedMomentum) {
  const auto one = make(1, first_, {});
  ASSERT_TRUE(one.ok() && *one);
  const auto calm = make(2, (*one)->model.hex(), (*one)->state);
  ASSERT_TRUE(calm.ok() && *calm);

  next_ = NextModel::open(sample_.settings, layout(), *store_).value();
  ASSERT_TRUE(next_->reset((*one)->state).ok());
  const UnreadableUpdate unreadable(*updates_.back());
  const auto failed = make(2, (*one)->model.hex(), (*one)->state, &unreadable);
  ASSERT_FALSE(failed.ok()) << "a read error is not a round with too few updates";
  EXPECT_EQ(failed.error().code(), Code::kUnavailable);
  EXPECT_FALSE(failed.error().terminal());
  const auto retried = make(2, (*one)->model.hex(), (*one)->state);
  ASSERT_TRUE(retried.ok() && *retried);
  EXPECT_EQ((*retried)->model, (*calm)->model);
  EXPECT_EQ((*retried)->state.rule, (*calm)->state.rule);
}

}  // namespace next_model_test
}  // namespace
}  // namespace varda::aggregator
