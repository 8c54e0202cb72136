#include "artifact/internal/ahead_source.h"

#include <atomic>
#include <gtest/gtest.h>

namespace varda::artifact {
namespace {

// Gives pieces of 1000 bytes that start with their number, then ends, fails, or waits for the stop.
class Numbered final : public Source {
 public:
  enum class End { kEnds, kFails, kHangs };
  Numbered(int count, End end, std::stop_token stop, std::atomic<int>& read)
      : count_(count), end_(end), stop_(std::move(stop)), read_(read) {}

  Outcome<std::string> next() override {
    if (at_ < count_) {
      std::string piece(1000, '.');
      piece[0] = static_cast<char>(at_++ % 128);
      read_ = at_;
      return piece;
    }
    if (end_ == End::kEnds) return std::string();
    while (end_ == End::kHangs && !stop_.stop_requested()) std::this_thread::yield();
    return Failure{Reason::kDownloadFailed, Error(Code::kUnavailable, "the peer went away")};
  }
  bool looks_like_page() const override { return false; }
  std::uint64_t bytes() const override { return static_cast<std::uint64_t>(at_) * 1000; }
  codec::Sha256 digest() override { return codec::Sha256::of("all"); }

 private:
  const int count_;
  const End end_;
  const std::stop_token stop_;
  std::atomic<int>& read_;
  int at_ = 0;
};

class AheadSourceTest : public ::testing::Test {
 protected:
  std::unique_ptr<AheadSource> over(int count, Numbered::End end) {
    auto source = std::make_unique<Numbered>(count, end, stop_.get_token(), read_);
    return std::make_unique<AheadSource>(
        std::move(source), stop_,
        AheadSource::Options{.begin_after_bytes = 5000, .queue_bytes_max = 3000});
  }
  void expect_pieces(AheadSource& source, int from, int to) {
    for (int i = from; i < to; ++i) {
      const auto piece = source.next();
      ASSERT_TRUE(piece.ok()) << i;
      ASSERT_EQ(piece->size(), 1000u) << i;
      ASSERT_EQ((*piece)[0], static_cast<char>(i % 128)) << i;
      ASSERT_EQ(source.bytes(), static_cast<std::uint64_t>(i + 1) * 1000);
    }
  }
  std::stop_source stop_;
  std::atomic<int> read_{0};
};

TEST_F(AheadSourceTest, PiecesArriveInOrderAndTheEndRepeats) {
  for (const int count : {0, 4, 5, 6, 500}) {
    const auto source = over(count, Numbered::End::kEnds);
    expect_pieces(*source, 0, count);
    for (int i = 0; i < 2; ++i) {
      const auto end = source->next();
      ASSERT_TRUE(end.ok());
      EXPECT_EQ(*end, "");
    }
    source->end();
    EXPECT_EQ(source->digest(), codec::Sha256::of("all"));
    EXPECT_FALSE(stop_.stop_requested()) << "what came to its end by itself is not stopped";
  }
}

TEST_F(AheadSourceTest, FailureFollowsEarlierPiecesAndRepeats) {
  const auto source = over(20, Numbered::End::kFails);
  expect_pieces(*source, 0, 20);
  for (int i = 0; i < 2; ++i)
    EXPECT_EQ(source->next().error().error.message(), "the peer went away");
}

TEST_F(AheadSourceTest, ReadAheadIsLimitedByTheQueue) {
  const auto source = over(500, Numbered::End::kEnds);
  expect_pieces(*source, 0, 100);
  // Three pieces in the queue, one held by the other thread.
  EXPECT_LE(read_, 104);
}

TEST_F(AheadSourceTest, EndStopsABlockedSource) {
  auto source = over(10, Numbered::End::kHangs);
  expect_pieces(*source, 0, 8);
  source->end();
  EXPECT_TRUE(stop_.stop_requested());
  EXPECT_FALSE(source->next().ok());
}

TEST_F(AheadSourceTest, DestructionEndsTheReadingThread) {
  auto source = over(500, Numbered::End::kEnds);
  expect_pieces(*source, 0, 10);
  source.reset();
  EXPECT_LE(read_, 16);
}

}  // namespace
}  // namespace varda::artifact
