#include "spool/spool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <set>

#include "os/testing/crash_campaign.h"
#include "os/testing/crashing_file_system.h"
#include "os/testing/memory_file_system.h"
#include "spool/id.h"

namespace varda::spool::spool_test {
namespace {

using os::testing::CrashCampaign;
using os::testing::CrashingFileSystem;
using os::testing::MemoryFileSystem;
using ::testing::ElementsAre;
using ::testing::SizeIs;

const os::Path kRoot = "/samples/default/digits";

Facts facts_of(const std::string& label, double score = 0.5) {
  Facts out;
  out.model = "digits";
  out.model_version = "4";
  out.reason = Facts::kHard;
  out.policy = "Margin";
  out.format = Facts::kPng;
  out.scores = {{"confidence", score}};
  out.answers = {{"", "4", {{label, score}}}};
  return out;
}

WallTime at(int second) { return WallTime(std::chrono::seconds(1'800'000'000 + second)); }

class SpoolTest : public ::testing::Test {
 protected:
  std::unique_ptr<Spool> open(Bounds bounds = {}) {
    return Spool::open({.root = kRoot, .bounds = bounds}, fs_, *rng_).value();
  }
  MemoryFileSystem fs_;
  std::unique_ptr<Rng> rng_ = seeded_rng(1);
};

TEST_F(SpoolTest, KeptSampleIsReadBackWithItsFacts) {
  const auto spool = open();
  ASSERT_TRUE(spool->offer(facts_of("7"), "pixels", "7", at(1)).value());
  const auto all = list(fs_, kRoot).value();
  ASSERT_THAT(all, SizeIs(1));
  EXPECT_EQ(all[0].answers, facts_of("7").answers);
  EXPECT_EQ(all[0].bytes, 6u);
  EXPECT_EQ(all[0].time, "2027-01-15T08:00:01.000Z");
  EXPECT_EQ(time_of(all[0].id), at(1));
  EXPECT_EQ(read_sample(fs_, kRoot, all[0]).value(), "pixels");
}

TEST_F(SpoolTest, IdsSortByTime) {
  std::vector<std::string> ids;
  for (int i = 0; i < 100; ++i) ids.push_back(new_id(at(i), *rng_));
  EXPECT_TRUE(std::is_sorted(ids.begin(), ids.end()));
  EXPECT_EQ(std::set<std::string>(ids.begin(), ids.end()).size(), 100u);
  for (const std::string& id : ids) EXPECT_TRUE(is_id(id)) << id;
  EXPECT_FALSE(is_id("01KB"));
  EXPECT_FALSE(is_id("81KB0000000000000000000000"));
  EXPECT_FALSE(is_id("01KB00000000000000000000/0"));
}

TEST_F(SpoolTest, BoundsHoldForCountAndBytes) {
  const auto spool = open({.bytes_max = 1000, .count_max = 10});
  for (int i = 0; i < 200; ++i) {
    const std::string bytes(1 + rng_->below(400), 'x');
    ASSERT_TRUE(
        spool->offer(facts_of(std::to_string(i % 3)), bytes, std::to_string(i % 3), at(i)).ok());
    std::uint64_t sum = 0;
    const auto all = list(fs_, kRoot).value();
    for (const Facts& one : all) sum += one.bytes;
    ASSERT_LE(all.size(), 10u);
    ASSERT_LE(sum, 1000u);
    ASSERT_EQ(sum, spool->bytes());
    ASSERT_EQ(all.size(), spool->count());
  }
  EXPECT_FALSE(spool->offer(facts_of("1"), std::string(1001, 'x'), "1", at(300)).value());
}

TEST_F(SpoolTest, RestartContinuesAndSmallerBoundsRemoveSamples) {
  {
    const auto spool = open({.count_max = 20});
    for (int i = 0; i < 20; ++i) ASSERT_TRUE(spool->offer(facts_of("1"), "x", "1", at(i)).value());
    ASSERT_TRUE(spool->save().ok());
  }
  const auto spool = open({.count_max = 5});
  EXPECT_EQ(spool->count(), 5u);
  EXPECT_THAT(list(fs_, kRoot).value(), SizeIs(5));
}

TEST_F(SpoolTest, SamplesThatOthersLabelMakeRoom) {
  const auto spool = open({.count_max = 2});
  ASSERT_TRUE(spool->offer(facts_of("1"), "a", "1", at(1)).value());
  ASSERT_TRUE(spool->offer(facts_of("1"), "b", "1", at(2)).value());
  const auto all = list(fs_, kRoot).value();
  for (const Facts& one : all) ASSERT_TRUE(label(fs_, kRoot, one.id, "good").ok());
  EXPECT_EQ(label(fs_, kRoot, all[0].id, "good").error().code(), Code::kNotFound);
  EXPECT_TRUE(spool->refresh().ok());
  EXPECT_EQ(spool->count(), 0u);
  const auto labels = labelled(fs_, kRoot).value();
  ASSERT_THAT(labels, SizeIs(2));
  EXPECT_EQ(labels[0].class_name, "good");
  EXPECT_EQ(labels[0].file, all[0].file());
}

TEST_F(SpoolTest, FactsWithoutTheirSampleGoWithoutARestart) {
  const auto spool = open();
  ASSERT_TRUE(spool->offer(facts_of("1"), "a", "1", at(1)).value());
  ASSERT_TRUE(spool->offer(facts_of("1"), "b", "1", at(2)).value());
  const auto all = list(fs_, kRoot).value();
  // A person removes a sample by hand, and a killed agent leaves a scratch file of the other facts.
  ASSERT_TRUE(fs_.remove(kRoot / kPending / all[0].file()).ok());
  ASSERT_TRUE(
      os::write_file_atomically(fs_, kRoot / kPending / (all[1].id + ".json.tmp1-2"), "x").ok());
  EXPECT_THAT(pending_files(fs_, kRoot)->orphans, ElementsAre(all[0].id));
  EXPECT_THAT(pending_ids(fs_, kRoot).value(), ElementsAre(all[1].id));
  ASSERT_TRUE(spool->refresh().ok());
  EXPECT_EQ(spool->count(), 1U);
  EXPECT_FALSE(fs_.stat(kRoot / kPending / (all[0].id + ".json")).value());
  EXPECT_THAT(list(fs_, kRoot).value(), SizeIs(1));
}

TEST_F(SpoolTest, LinksAreNeitherReadNorMoved) {
  const auto spool = open();
  ASSERT_TRUE(spool->offer(facts_of("1"), "a", "1", at(1)).value());
  ASSERT_TRUE(os::write_file_atomically(fs_, "/secret.npy", "secret").ok());
  const Facts facts = list(fs_, kRoot).value().front();
  const os::Path sample = kRoot / kPending / facts.file();
  ASSERT_TRUE(fs_.remove(sample).ok());
  ASSERT_TRUE(fs_.symlink("/secret.npy", sample).ok());
  EXPECT_THAT(list(fs_, kRoot).value(), SizeIs(0));
  EXPECT_FALSE(read_sample(fs_, kRoot, facts).ok());
  EXPECT_EQ(label(fs_, kRoot, facts.id, "good").error().code(), Code::kInvalid);
  ASSERT_TRUE(fs_.make_directories(kRoot / kLabel / "good", 0755).ok());
  ASSERT_TRUE(fs_.symlink("/secret.npy", kRoot / kLabel / "good" / "a.npy").ok());
  ASSERT_TRUE(fs_.symlink("/", kRoot / kLabel / "bad").ok());
  const Labels found = labels(fs_, kRoot).value();
  EXPECT_THAT(found.files, SizeIs(0));
  EXPECT_THAT(found.links, ElementsAre((kRoot / kLabel / "bad").string(),
                                       (kRoot / kLabel / "good" / "a.npy").string()));
}

TEST_F(SpoolTest, LabelIsAPlainNameOfAFolder) {
  const auto spool = open();
  ASSERT_TRUE(spool->offer(facts_of("1"), "a", "1", at(1)).value());
  const std::string id = list(fs_, kRoot).value()[0].id;
  for (const char* wrong : {"", ".", "..", ".hidden", "a/b", "a\nb", "\xff"})
    EXPECT_EQ(label(fs_, kRoot, id, wrong).error().code(), Code::kInvalid) << wrong;
  EXPECT_TRUE(label(fs_, kRoot, id, "Grüne Äpfel").ok());
}

TEST_F(SpoolTest, DroppedFilesCountAsLabelledAndOtherFilesDoNot) {
  ASSERT_TRUE(make_folder(fs_, kRoot).ok());
  ASSERT_TRUE(fs_.make_directories(kRoot / kLabel / "good", 0755).ok());
  for (const char* name : {"a.JPEG", "b.png", "c.npy", ".d.png", "notes.txt", "e.png.tmp1-2"})
    ASSERT_TRUE(os::write_file_atomically(fs_, kRoot / kLabel / "good" / name, "x").ok());
  ASSERT_TRUE(os::write_file_atomically(fs_, kRoot / kLabel / "stray.png", "x").ok());
  std::vector<std::string> names;
  for (const Labelled& one : labelled(fs_, kRoot).value()) names.push_back(one.file);
  EXPECT_THAT(names, ElementsAre("a.JPEG", "b.png", "c.npy"));
}

TEST_F(SpoolTest, FactsAreReadBack) {
  Facts facts = facts_of("\"7\"\n");
  facts.id = new_id(at(1), *rng_);
  facts.time = time_text(at(1));
  facts.rows = 4;
  facts.row = 3;
  facts.answers.push_back({"cloud", "2", {{"9", 0.75}, {"7", 0.25}}});
  facts.pseudo_label = PseudoLabel{"9", 0.75, "cloud"};
  EXPECT_EQ(parse_facts(codec::write_json(to_json(facts))).value(), facts);
}

TEST_F(SpoolTest, WrongFactsAreRefusedWithTheMember) {
  Facts facts = facts_of("7");
  facts.id = new_id(at(1), *rng_);
  const codec::Json good = to_json(facts);
  const auto refused = [&](const char* member, codec::Json value) {
    codec::Json wrong = good;
    wrong.set(member, std::move(value));
    const auto parsed = parse_facts(codec::write_json(wrong));
    return parsed.ok() ? "accepted" : parsed.error().message();
  };
  EXPECT_EQ(refused("version", 2), "version: must be 1");
  EXPECT_EQ(refused("id", "../../etc/passwd"), "id: must be 26 digits of base 32");
  EXPECT_EQ(refused("format", "exe"), "format: must be png, jpg or npy");
  EXPECT_EQ(refused("reason", "other"), "reason: must be hard or control");
  EXPECT_EQ(refused("row", -1), "row: must be a whole number from 0 on");
}

// Each class offers a share of 1 %, 9 % and 90 %; a full spool has equally many of each.
TEST(SelectionTest, ClassBalancedReplacementEvensOutClasses) {
  const auto rng = seeded_rng(7);
  Selection selection({.bytes_max = 1 << 30, .count_max = 90});
  std::map<std::string, int> count;
  std::map<std::string, std::string> group_of;
  for (int i = 0; i < 20'000; ++i) {
    const auto draw = rng->below(100);
    const std::string group = draw < 1 ? "rare" : draw < 10 ? "some" : "most";
    const auto leaving = selection.offer(group, 1, *rng);
    if (!leaving) continue;
    for (const std::string& id : *leaving) {
      selection.remove(id);
      --count[group_of[id]];
    }
    const std::string id = std::to_string(i);
    selection.add(id, group, 1);
    group_of[id] = group;
    ++count[group];
  }
  EXPECT_EQ(count["rare"], 30);
  EXPECT_EQ(count["some"], 30);
  EXPECT_EQ(count["most"], 30);
}

// With equal probability 100/1000, the first and the last quarter of the offers are represented
// alike: 25 of each run. The standard deviation of the sum of 40 runs is about 26.
TEST(SelectionTest, ReservoirKeepsEarlyAndLateSamplesAlike) {
  const auto rng = seeded_rng(11);
  int early = 0, late = 0;
  for (int run = 0; run < 40; ++run) {
    Selection selection(
        {.bytes_max = 1 << 30, .count_max = 100, .replacement = Replacement::kReservoir});
    for (int i = 0; i < 1000; ++i) {
      const auto leaving = selection.offer(i % 2 == 0 ? "a" : "b", 1, *rng);
      if (!leaving) continue;
      for (const std::string& id : *leaving) selection.remove(id);
      selection.add(std::to_string(i), i % 2 == 0 ? "a" : "b", 1);
    }
    for (const std::string& id : selection.ids()) {
      early += std::stoi(id) < 250 ? 1 : 0;
      late += std::stoi(id) >= 750 ? 1 : 0;
    }
    ASSERT_EQ(selection.count(), 100u);
  }
  EXPECT_NEAR(early, 1000, 130);
  EXPECT_NEAR(late, 1000, 130);
}

// Offers, labels and a restart, with a power cut before every call.
TEST(SpoolCrash, EverySampleIsWholeOrGoneAfterAPowerCut) {
  CrashCampaign campaign("spool_test --gtest_filter=SpoolCrash.*", 4000);
  while (campaign.next_seed()) {
    CrashingFileSystem fs;
    std::map<std::string, std::string> written;  // bytes by content's first 10 characters
    std::set<std::string> labelled_ids;          // acknowledged labels
    const auto check = [&](CrashingFileSystem& left, Rng& rng) -> std::string {
      const Bounds bounds{.bytes_max = 1 << 20, .count_max = 4};
      auto spool = Spool::open({.root = kRoot, .bounds = bounds}, left, rng);
      if (!spool.ok()) return "not opened: " + spool.error().message();
      const auto present = list(left, kRoot);
      if (!present.ok()) return "not listed: " + present.error().message();
      if (present->size() > 4) return "more samples than allowed";
      const auto names = left.list(kRoot / kPending).value();
      if (names.size() != 2 * present->size()) return "halves of samples are left";
      for (const Facts& facts : *present) {
        const auto bytes = read_sample(left, kRoot, facts);
        if (!bytes.ok()) return "not read: " + bytes.error().message();
        if (bytes->size() != facts.bytes) return "torn sample " + facts.id;
        if (*bytes != std::string(facts.bytes, bytes->front())) return "mixed sample " + facts.id;
      }
      std::set<std::string> labels;
      for (const Labelled& one : labelled(left, kRoot).value())
        labels.insert(one.file.substr(0, one.file.find('.')));
      for (const std::string& id : labelled_ids)
        if (!labels.contains(id)) return "lost the label of " + id;
      if (!(*spool)->offer(facts_of("1"), "after", "1", at(99)).ok()) return "cannot continue";
      return "";
    };
    fs.on_call([&](auto, auto&) {
      campaign.point(fs, labelled_ids.size(), check);
      return Status();
    });
    const auto rng = seeded_rng(campaign.seed());
    const auto spool =
        Spool::open({.root = kRoot, .bounds = {.bytes_max = 1 << 20, .count_max = 4}}, fs, *rng);
    if (!spool.ok()) {
      ADD_FAILURE() << spool.error();
      break;
    }
    for (int i = 0; i < 8 && !campaign.over(); ++i) {
      const std::string bytes(100 + rng->below(1500), static_cast<char>('a' + i));
      ASSERT_TRUE((*spool)
                      ->offer(facts_of(std::to_string(i % 2)), bytes, std::to_string(i % 2), at(i))
                      .ok());
      if (i % 3 == 2) {
        const auto all = list(fs, kRoot).value();
        ASSERT_FALSE(all.empty());
        ASSERT_TRUE(label(fs, kRoot, all.front().id, "good").ok());
        labelled_ids.insert(all.front().id);
      }
    }
  }
  EXPECT_EQ(campaign.failure(), "");
}

}  // namespace
}  // namespace varda::spool::spool_test
