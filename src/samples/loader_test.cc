#include <algorithm>
#include <atomic>
#include <cstddef>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include "codec/image.h"
#include "samples/samples.h"
#include "samples/testing/folder.h"

namespace varda::samples {
namespace {

using ::testing::ElementsAre;

/// Each sample has its number as the value. May wait in read(), or fail at one sample.
class Numbers final : public Dataset {
 public:
  explicit Numbers(std::size_t size) : size_(size) {}
  std::size_t size() const override { return size_; }
  const std::vector<std::string>& classes() const override { return none_; }
  std::size_t outputs() const override { return 1; }
  std::vector<std::uint64_t> class_counts() const override { return {}; }
  std::string fingerprint() const override { return ""; }
  Result<Batch> read(std::span<const std::size_t> indices, const Augment&,
                     std::uint64_t seed) const override {
    ++reads;
    Batch out;
    for (const std::size_t index : indices) {
      if (index == fails_at) return Error(Code::kInvalid, place(index) + ": broken");
      out.targets.push_back(static_cast<float>(index + seed));
      out.indices.push_back(index);
    }
    return out;
  }
  Result<Batch> read_until(const Context& ctx, std::span<const std::size_t> indices,
                           const Augment& augment, std::uint64_t seed,
                           tensor::Pool&) const override {
    if (hangs) TRY_VOID(ctx.sleep_for(std::chrono::hours(1)));
    return read(indices, augment, seed);
  }
  std::string place(std::size_t index) const override { return std::to_string(index); }
  Result<std::string> picture(std::size_t) const override { return std::string(); }

  mutable std::atomic<int> reads = 0;
  std::size_t fails_at = ~std::size_t{0};
  bool hangs = false;

 private:
  const std::size_t size_;
  const std::vector<std::string> none_;
};

std::vector<std::size_t> all_of(const Numbers& data) {
  std::vector<std::size_t> out(data.size());
  std::iota(out.rbegin(), out.rend(), std::size_t{0});
  return out;
}

TEST(Loaders, GiveBatchesInTheOrderOfTheSamples) {
  const Numbers data(5);
  Loader loader(data, all_of(data), 2, {}, 10);
  const Context ctx = Context::background();
  EXPECT_THAT(loader.next(ctx).value()->indices, ElementsAre(4, 3));
  EXPECT_THAT(loader.next(ctx).value()->targets, ElementsAre(12, 11));
  EXPECT_THAT(loader.next(ctx).value()->indices, ElementsAre(0));
  EXPECT_FALSE(loader.next(ctx).value().has_value());
  EXPECT_FALSE(loader.next(ctx).value().has_value());
}

TEST(Loaders, SkipTheFirstBatchesWithoutReading) {
  const Numbers data(5);
  Loader loader(data, all_of(data), 2, {}, 0, 2);
  EXPECT_THAT(loader.next(Context::background()).value()->indices, ElementsAre(0));
  EXPECT_FALSE(loader.next(Context::background()).value().has_value());
  EXPECT_EQ(data.reads, 1);
  Loader beyond(data, all_of(data), 2, {}, 0, 3);
  EXPECT_FALSE(beyond.next(Context::background()).value().has_value());
}

TEST(Loaders, NoSamplesGiveNoBatch) {
  const Numbers data(0);
  Loader loader(data, {}, 2, {}, 0);
  EXPECT_FALSE(loader.next(Context::background()).value().has_value());
}

TEST(Loaders, ReadAtMostTwoBatchesAhead) {
  const Numbers data(100);
  Loader loader(data, all_of(data), 1, {}, 0);
  for (int taken = 1; taken <= 100; ++taken) {
    ASSERT_TRUE(loader.next(Context::background()).value().has_value());
    EXPECT_LE(data.reads, taken + 2);  // ready, or under way
  }
}

TEST(Loaders, AnErrorComesAfterTheBatchesBefore) {
  Numbers data(6);
  data.fails_at = 2;
  Loader loader(data, all_of(data), 2, {}, 0);
  EXPECT_TRUE(loader.next(Context::background()).ok());
  for (int i = 0; i < 2; ++i) {
    const auto failed = loader.next(Context::background());
    ASSERT_FALSE(failed.ok());
    EXPECT_EQ(failed.error().message(), "2: broken");
  }
  EXPECT_EQ(data.reads, 2);
}

/// Images of different sizes: some are resized, some are not.
void put_images(testing::Folder& folder) {
  for (std::size_t i = 0; i < 23; ++i) {
    const std::size_t size = 6 + i % 3;
    codec::Image image{size, size, 3, {}};
    for (std::size_t at = 0; at < size * size * 3; ++at)
      image.pixels.push_back(static_cast<std::uint8_t>(at * (i + 3)));
    folder.put((i % 2 == 0 ? "a/" : "b/") + std::to_string(i) + ".png",
               codec::encode_png(image).value());
  }
}

TEST(Loaders, BatchesInUsedMemoryEqualThoseInFreshMemory) {
  testing::Folder folder;
  put_images(folder);
  const auto data = folder.open("", testing::options({-1, 3, 7, 7})).value();
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < 40; ++i) order.push_back(i * 5 % data->size());
  for (const Augment& augment : {Augment{}, Augment{.flip = true, .crop = 2, .jitter = 0.4}}) {
    Loader loader(*data, order, 3, augment, 9);
    std::set<const std::byte*> memory;
    std::size_t batches = 0;
    for (;; ++batches) {
      const auto batch = loader.next(Context::background()).value();
      if (!batch) break;
      memory.insert(batch->input.bytes().data());
      const Batch fresh = data->read(batch->indices, augment, 9).value();
      EXPECT_TRUE(std::ranges::equal(batch->input.bytes(), fresh.input.bytes())) << batches;
      EXPECT_EQ(batch->labels, fresh.labels);
    }
    EXPECT_EQ(batches, 14u);
    EXPECT_LE(memory.size(), 3u);  // one with the caller, two ready or under way
  }
}

TEST(Loaders, BatchThatTheCallerKeepsNeverChanges) {
  testing::Folder folder;
  put_images(folder);
  const auto data = folder.open("", testing::options({-1, 3, 7, 7})).value();
  std::vector<Batch> kept;
  {
    std::vector<std::size_t> order(data->size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    Loader loader(*data, order, 4, {}, 0);
    for (;;) {
      auto batch = loader.next(Context::background()).value();
      if (!batch) break;
      if (kept.size() < 2) kept.push_back(std::move(*batch));
    }
  }
  for (const Batch& batch : kept) {
    const Batch fresh = data->read(batch.indices, {}, 0).value();
    EXPECT_TRUE(std::ranges::equal(batch.input.bytes(), fresh.input.bytes()));
  }
}

TEST(Loaders, StopWhileASampleIsRead) {
  Numbers data(6);
  data.hangs = true;
  Loader loader(data, all_of(data), 2, {}, 0);
  std::stop_source stop;
  std::jthread stopper([&] { stop.request_stop(); });
  const auto cancelled = loader.next(Context(stop.get_token()));
  ASSERT_FALSE(cancelled.ok());
  EXPECT_EQ(cancelled.error().code(), Code::kCancelled);
  const auto late = loader.next(Context::background().with_timeout(std::chrono::milliseconds(1)));
  ASSERT_FALSE(late.ok());
  EXPECT_EQ(late.error().code(), Code::kTimeout);
}

}  // namespace
}  // namespace varda::samples
