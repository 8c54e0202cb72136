// Counting again after growth, and files that change while they are read.
#include "dataset/count.h"

#include <gtest/gtest.h>

#include "base/rng.h"
#include "dataset/testing/memory_tree.h"

namespace varda::dataset {
namespace count_test {

constexpr std::uint64_t kMiB = 1 << 20;

struct OneFile {
  testing::MemoryTree tree;
  const Format* format = find_format("csv").value();

  Result<Counted> run_count(const std::string& state = "") {
    return count(
        Context::background(), tree,
        {.path = "/data", .format = format, .options = {.header = Header::kNo}, .state = state});
  }
};

std::string rows(std::size_t bytes, std::uint64_t seed = 1) {
  const auto rng = seeded_rng(seed);
  std::string out;
  while (out.size() < bytes) out += std::to_string(rng->below(1000)) + ",\"a\nb\"\r\n";
  return out;
}

void expect_same(const Counted& a, const Counted& b) {
  EXPECT_EQ(a.tally, b.tally);
  EXPECT_EQ(a.bytes, b.bytes);
  EXPECT_EQ(a.fingerprint, b.fingerprint);
  EXPECT_EQ(a.state, b.state);
}

TEST(Count, ResumedCountReadsOnlyAppendedBytesAndEqualsAFullCount) {
  const std::string text = rows(4 * kMiB);
  OneFile setup;
  setup.tree.put("/data", "");
  Counted last = setup.run_count().value();
  std::size_t before = 0;
  // Cuts inside records, and at the edges of the checked and hashed parts.
  for (const std::size_t size :
       {std::size_t{10}, std::size_t{65'526}, std::size_t{1}, kMiB - 65'538, std::size_t{2},
        2 * kMiB, std::size_t{0}, std::size_t{300'000}}) {
    const std::string more = text.substr(before, size);
    setup.tree.append("/data", more);
    setup.tree.bytes_read = 0;
    const Counted next = setup.run_count(last.state).value();
    EXPECT_EQ(next.whole_because, "");
    EXPECT_EQ(next.from_byte, before);
    EXPECT_TRUE(next.tally.inexact.empty());
    // Both ends are checked twice, and one block of the fingerprint is read.
    EXPECT_LE(setup.tree.bytes_read, size + 4 * 65'536 + kMiB);
    const Counted whole = setup.run_count().value();
    expect_same(next, whole);
    last = next;
    before += size;
  }
  EXPECT_GT(last.tally.samples, 100'000u);
}

TEST(Count, CountInPortionsEqualsACountAtOnce) {
  OneFile setup;
  setup.tree.put("/data", rows(3 * kMiB));
  const Counted whole = setup.run_count().value();
  EXPECT_TRUE(whole.complete);
  EXPECT_EQ(whole.facts, setup.tree.facts("/data").value());
  for (const std::uint64_t most : {std::uint64_t{700'001}, kMiB, 3 * kMiB, 4 * kMiB}) {
    Counted last;
    std::uint64_t portions = 0;
    for (last.complete = false; !last.complete; ++portions) {
      const std::uint64_t before = last.bytes;
      last = count(Context::background(), setup.tree,
                   {.path = "/data",
                    .format = setup.format,
                    .options = {.header = Header::kNo},
                    .state = last.state,
                    .bytes_max = most})
                 .value();
      EXPECT_EQ(last.from_byte, before);
      EXPECT_EQ(last.bytes, std::min(before + most, whole.bytes));
      EXPECT_EQ(last.complete, last.bytes == whole.bytes);
    }
    EXPECT_EQ(portions, (whole.bytes + most - 1) / most);
    expect_same(last, whole);
  }
}

TEST(Count, UnusableStateIsIgnoredAndTheReasonIsReported) {
  OneFile setup;
  const std::string text = rows(300'000);
  setup.tree.put("/data", text, 7);
  const std::string state = setup.run_count().value().state;
  const auto expect_whole = [&](const std::string& why, const std::string& with) {
    const Counted counted = setup.run_count(with).value();
    EXPECT_NE(counted.whole_because.find(why), std::string::npos) << counted.whole_because;
    EXPECT_EQ(counted.from_byte, 0u);
    expect_same(counted, setup.run_count().value());
  };
  setup.tree.put("/data", text + "1,2\r\n", 8);
  expect_whole("another file", state);
  setup.tree.put("/data", text.substr(0, 299'990), 7);
  expect_whole("shorter", state);
  std::string other = text;
  other[10] ^= 1;
  setup.tree.put("/data", other, 7);
  expect_whole("beginning", state);
  other = text;
  other[text.size() - 5] ^= 1;
  setup.tree.put("/data", other + "1,2\n", 7);
  expect_whole("end", state);

  setup.tree.put("/data", text, 7);
  EXPECT_EQ(setup.run_count(state)->from_byte, text.size());
  expect_whole("no JSON", "{\"count\": ");
  expect_whole("no JSON", std::string(1000, '\0'));
  expect_whole("sum", "{}");
  const auto counted =
      count(Context::background(), setup.tree,
            {.path = "/data", .format = find_format("txt").value(), .state = state})
          .value();
  EXPECT_NE(counted.whole_because.find("another format"), std::string::npos);
  EXPECT_EQ(counted.from_byte, 0u);
}

TEST(Count, ADamagedStateNeverChangesTheCount) {
  OneFile setup;
  setup.tree.put("/data", rows(1000));
  const Counted whole = setup.run_count().value();
  setup.tree.append("/data", rows(500, 2));
  const Counted wanted = setup.run_count().value();
  const auto rng = seeded_rng(11);
  for (int round = 0; round < 300; ++round) {
    std::string state = whole.state;
    state[rng->below(state.size())] = static_cast<char>(rng->below(256));
    const Counted counted = setup.run_count(state).value();
    EXPECT_EQ(counted.tally, wanted.tally);
    EXPECT_EQ(counted.fingerprint, wanted.fingerprint);
  }
}

TEST(Count, UnfinishedRecordIsCountedAgainWhenItGrows) {
  OneFile setup;
  setup.tree.put("/data", "1,2\n3,\"4");
  const Counted first = setup.run_count().value();
  EXPECT_EQ(first.tally.samples, 1u);
  EXPECT_EQ(first.tally.malformed, 1u);
  setup.tree.append("/data", "\n5\"");
  const Counted second = setup.run_count(first.state).value();
  EXPECT_EQ(second.from_byte, 8u);
  EXPECT_EQ(second.tally.samples, 2u);
  EXPECT_EQ(second.tally.malformed, 0u);
  setup.tree.append("/data", ",6\n");
  EXPECT_EQ(setup.run_count(second.state)->tally.malformed, 1u);
}

TEST(Count, FailedReadIsAnErrorWithoutACount) {
  OneFile setup;
  setup.tree.put("/data", rows(2 * kMiB));
  setup.tree.on_read = [](std::uint64_t offset) -> Status {
    if (offset < kMiB) return {};
    return Error(Code::kInternal, "read /data: Input/output error");
  };
  const auto counted = setup.run_count();
  ASSERT_FALSE(counted.ok());
  EXPECT_EQ(counted.error().message(), "read /data: Input/output error");
}

TEST(Count, FileChangedDuringTheReadIsCountedAsInexact) {
  struct Change {
    std::string why;
    std::function<void(testing::MemoryTree&, const std::string&)> make;
    bool preserves_state;
  };
  const std::string text = rows(2 * kMiB);
  for (const Change& change : std::vector<Change>{
           {"shrank",
            [](auto&tree, const auto&bytes) { tree.put("/data", bytes.substr(0, 900'000)); },
            false},
           {"grew", [](auto&tree, const auto&) { tree.append("/data", "1,2\n"); }, true},
           {"written to", [](auto&tree, const auto&bytes) { tree.put("/data", bytes); }, false},
       }) {
    OneFile setup;
    setup.tree.put("/data", text);
    bool done = false;
    setup.tree.on_read = [&](std::uint64_t offset) -> Status {
      if (offset >= kMiB && !std::exchange(done, true)) change.make(setup.tree, text);
      return {};
    };
    const Counted counted = setup.run_count().value();
    EXPECT_NE(counted.tally.inexact.find(change.why), std::string::npos) << counted.tally.inexact;
    EXPECT_EQ(!counted.state.empty(), change.preserves_state) << change.why;
    setup.tree.on_read = nullptr;
    const Counted next = setup.run_count(counted.state).value();
    EXPECT_EQ(next.tally.inexact, "");
    EXPECT_EQ(next.tally, setup.run_count()->tally);
    EXPECT_EQ(next.from_byte, change.preserves_state ? text.size() : 0u) << change.why;
  }
}

/// A file with a wrong size in its facts, like many below /proc and /sys.
class OddTree final : public os::ReadableTree {
 public:
  OddTree(std::string bytes, std::uint64_t size) : bytes_(std::move(bytes)), size_(size) {}
  Result<os::FileFacts> facts(const os::Path&) override {
    return os::FileFacts{.size_bytes = size_};
  }
  Result<std::unique_ptr<os::ReadableFile>> open(const os::Path&) override {
    return std::make_unique<File>(*this);
  }
  Result<std::unique_ptr<os::ReadableDirectory>> list(const os::Path&) override {
    return Error(Code::kInvalid, "no directory");
  }

 private:
  class File final : public os::ReadableFile {
   public:
    explicit File(OddTree& tree) : tree_(tree) {}
    Result<std::size_t> read(std::uint64_t offset, std::span<char> into) override {
      const std::size_t from = std::min<std::size_t>(offset, tree_.bytes_.size());
      return tree_.bytes_.copy(into.data(), into.size(), from);
    }
    Result<os::FileFacts> facts() override { return tree_.facts(""); }

   private:
    OddTree& tree_;
  };
  const std::string bytes_;
  const std::uint64_t size_;
};

TEST(Count, FileWithAWrongReportedSizeIsInexact) {
  for (const auto& [size, samples, why] :
       {std::tuple(0, 0U, "continues after the 0 bytes"),
        std::tuple(2, 1U, "continues after the 2 bytes"), std::tuple(4, 2U, ""),
        std::tuple(4096, 2U, "ended at byte 4 of 4096")}) {
    OddTree tree("1\n2\n", static_cast<std::uint64_t>(size));
    const Counted counted =
        count(Context::background(), tree, {.path = "/data", .format = find_format("txt").value()})
            .value();
    EXPECT_EQ(counted.tally.samples, samples);
    EXPECT_EQ(counted.tally.inexact.empty(), std::string_view(why).empty())
        << counted.tally.inexact;
    EXPECT_NE(counted.tally.inexact.find(why), std::string::npos) << counted.tally.inexact;
    EXPECT_EQ(counted.state.empty(), !counted.tally.inexact.empty());
  }
}

TEST(Count, StopRequestCancelsTheCount) {
  OneFile setup;
  setup.tree.put("/data", rows(2 * kMiB));
  std::stop_source stop;
  setup.tree.on_read = [&](std::uint64_t offset) -> Status {
    if (offset >= kMiB) stop.request_stop();
    return {};
  };
  const auto counted =
      count(Context(stop.get_token()), setup.tree, {.path = "/data", .format = setup.format});
  ASSERT_FALSE(counted.ok());
  EXPECT_EQ(counted.error().code(), Code::kCancelled);
}

TEST(Count, ProgressIsReportedEvery8MiB) {
  OneFile setup;
  const std::string text = rows(20 * kMiB);
  setup.tree.put("/data", text);
  std::vector<std::uint64_t> reported;
  const auto progress = [&](const Progress& far) {
    EXPECT_EQ(far.bytes_total, text.size());
    reported.push_back(far.bytes);
  };
  ASSERT_TRUE(count(Context::background(), setup.tree,
                    {.path = "/data", .format = setup.format, .progress = progress})
                  .ok());
  EXPECT_EQ(reported, (std::vector<std::uint64_t>{8 * kMiB, 16 * kMiB, text.size()}));
}

TEST(Count, FingerprintDependsOnBytesAndNotOnFormat) {
  testing::MemoryTree tree;
  tree.put("/a", rows(3 * kMiB));
  tree.put("/b", rows(3 * kMiB), 9);
  std::string other = rows(3 * kMiB);
  other[kMiB + 5] ^= 1;
  tree.put("/c", other);
  const auto of = [&](const char* path, const char* format) {
    return count(Context::background(), tree, {.path = path, .format = find_format(format).value()})
        ->fingerprint;
  };
  EXPECT_EQ(of("/a", "csv"), of("/b", "txt"));
  EXPECT_NE(of("/a", "csv"), of("/c", "csv"));
  EXPECT_EQ(of("/a", "csv").size(), 5u + 32u);
}

TEST(Count, JsonContainsTheCountWithoutEmptyFields) {
  OneFile setup;
  setup.tree.put("/data", "1,2\n3\n");
  const codec::Json json = to_json(setup.run_count().value());
  EXPECT_EQ(json["samples"].as_integer(), 1);
  EXPECT_TRUE(json["exact"].as_bool());
  EXPECT_EQ(json.at("firstMalformed/line").as_integer(), 2);
  EXPECT_EQ(json["header"].as_string(), "no");
  EXPECT_FALSE(json.contains("inexactBecause"));
  EXPECT_FALSE(json.contains("classes"));
}

}  // namespace count_test
}  // namespace varda::dataset
