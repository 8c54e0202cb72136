#include "cli/samples.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "os/testing/memory_file_system.h"
#include "spool/id.h"
#include "spool/spool.h"
#include "tensor/npy.h"

namespace varda::cli {
namespace samples_test {

using spool::Facts;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

WallTime at(int second) { return WallTime(std::chrono::seconds(1'800'000'000 + second)); }

class SamplesOfANode : public ::testing::Test {
 protected:
  Facts add(const os::Path& root, const std::string& label, double confidence, int second) {
    Facts facts;
    facts.model = "digits";
    facts.model_version = "4";
    facts.reason = Facts::kHard;
    facts.format = Facts::kNpy;
    facts.scores = {{"confidence", confidence}};
    facts.answers = {{"", "4", {{label, confidence}}}};
    const auto spool = spool::Spool::open({.root = root, .bounds = {}}, fs_, *rng_).value();
    std::string bytes = tensor::npy_header(tensor::DType::kUint8, {2, 2});
    bytes += std::string("\x00\x40\x80\xff", 4);
    CHECK(spool->offer(facts, bytes, label, at(second)).value());
    return spool::list(fs_, root)->back();
  }
  os::testing::MemoryFileSystem fs_;
  const std::unique_ptr<Rng> rng_ = seeded_rng(1);
};

TEST_F(SamplesOfANode, SpoolsAreFoundBelowBothKindsOfDataDirectories) {
  add("/up/nodes/edge0/data/samples/default/digits", "1", 0.5, 1);
  add("/up/nodes/edge1/data/samples/default/faces.edge", "1", 0.5, 1);
  add("/agent/samples/default/digits", "1", 0.5, 1);
  const auto up = find_spools(fs_, "/up").value();
  ASSERT_THAT(up, SizeIs(2));
  EXPECT_EQ(up[0].node + " " + up[0].key, "edge0 default/digits");
  EXPECT_EQ(find_spools(fs_, "/agent")->at(0).root, "/agent/samples/default/digits");
  EXPECT_THAT(find_spools(fs_, "/nothing").value(), SizeIs(0));
  EXPECT_EQ(spools_of(up, "faces", "default").at(0).key, "default/faces.edge");
  EXPECT_EQ(spools_of(up, "default/digits", "other").size(), 1u);
  EXPECT_EQ(spools_of(up, "dig", "default").size(), 0u);
}

TEST_F(SamplesOfANode, TableHasTheNewestFirst) {
  add("/s", "7", 0.25, 1);
  add("/s", "\x1b[31mred", 0.75, 60);
  const std::string table = samples_table(spool::list(fs_, "/s").value(), at(100));
  EXPECT_THAT(table, HasSubstr("40s   hard     ?[31mred   0.750"));
  EXPECT_LT(table.find("40s"), table.find("99s"));
}

TEST_F(SamplesOfANode, SamplesAreChosenByTheBeginningOfTheirIds) {
  const Facts one = add("/s", "7", 0.25, 1), other = add("/s", "7", 0.25, 1000);
  const auto all = spool::list(fs_, "/s").value();
  const auto why = [&](const std::string& text) {
    const auto chosen = choose_samples(all, {text});
    return chosen.ok() ? chosen->at(0).id : chosen.error().message();
  };
  EXPECT_EQ(why(one.id), one.id);
  EXPECT_EQ(why(other.id.substr(0, 10)), other.id);
  EXPECT_THAT(why("01"), HasSubstr("several samples begin with 01"));
  EXPECT_THAT(why("ZZ"), HasSubstr("there is no sample ZZ"));
  EXPECT_THAT(why(""), HasSubstr("there is no sample"));
}

TEST_F(SamplesOfANode, ArrayBecomesAPicture) {
  const Facts facts = add("/s", "7", 0.25, 1);
  const auto picture = picture_of(facts, *spool::read_sample(fs_, "/s", facts)).value();
  EXPECT_EQ(picture.width, 2u);
  EXPECT_THAT(picture.pixels, ElementsAre(0, 0x40, 0x80, 0xff));
  EXPECT_EQ(terminal_picture(picture, Terminal::kBlocks, 80),
            "\x1b[38;2;0;0;0m\x1b[48;2;128;128;128m▀\x1b[38;2;64;64;64m\x1b[48;2;255;255;255m▀"
            "\x1b[0m\n");
  EXPECT_THAT(terminal_picture(picture, Terminal::kKitty, 80), HasSubstr("\x1b_Gf=100,a=T,m=0;"));
  EXPECT_THAT(terminal_picture(picture, Terminal::kIterm, 80),
              HasSubstr("\x1b]1337;File=inline=1"));
  EXPECT_FALSE(picture_of(facts, tensor::npy_header(tensor::DType::kFp32, {5, 7, 9, 2})).ok());
  EXPECT_FALSE(picture_of(facts, "no array").ok());
}

TEST_F(SamplesOfANode, WidePictureShrinksToTheColumns) {
  const codec::Image wide{100, 10, 1, std::vector<std::uint8_t>(1000, 255)};
  const std::string text = terminal_picture(wide, Terminal::kBlocks, 10);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
  EXPECT_THAT(text, HasSubstr("255;255;255"));
}

TEST(SampleTerminal, KindFollowsTheEnvironment) {
  EXPECT_EQ(terminal_of("xterm-kitty", "", ""), Terminal::kKitty);
  EXPECT_EQ(terminal_of("xterm-256color", "iTerm.app", ""), Terminal::kIterm);
  EXPECT_EQ(terminal_of("xterm-256color", "", "3"), Terminal::kKitty);
  EXPECT_EQ(terminal_of("xterm", "", ""), Terminal::kBlocks);
}

TEST_F(SamplesOfANode, ContactSheetIsOneFileWithTheLeastConfidentFirst) {
  std::vector<SheetItem> items;
  for (const auto& [label, score] : {std::pair{"<b>", 0.75}, std::pair{"seven", 0.25}}) {
    const Facts facts = add("/s", label, score, static_cast<int>(items.size()));
    items.push_back({facts, *spool::read_sample(fs_, "/s", facts)});
  }
  const std::string sheet = contact_sheet("Samples of \"digits\"", items);
  EXPECT_LT(sheet.find("seven"), sheet.find("&lt;b&gt;"));
  EXPECT_THAT(sheet, HasSubstr("data:image/png;base64,"));
  EXPECT_THAT(sheet, Not(HasSubstr("http")));
  EXPECT_THAT(sheet, Not(HasSubstr("<b>\"")));
}

TEST_F(SamplesOfANode, ExportHasSamplesFactsAndLabels) {
  const Facts one = add("/s", "7", 0.25, 1), other = add("/s", "7", 0.25, 2);
  ASSERT_TRUE(spool::label(fs_, "/s", other.id, "good").ok());
  ASSERT_TRUE(export_folder(fs_, "/s", "/out").ok());
  EXPECT_THAT(fs_.list("/out/pending").value(), ElementsAre(one.id + ".json", one.id + ".npy"));
  EXPECT_THAT(fs_.list("/out/label/good").value(), ElementsAre(other.id + ".npy"));
  EXPECT_EQ(export_folder(fs_, "/s", "/out").error().code(), Code::kAlreadyExists);
  std::string archive;
  ASSERT_TRUE(export_archive(fs_, "/s", codec::ArchiveFormat::kTar, [&](std::string_view bytes) {
                archive += bytes;
                return Status();
              }).ok());
  const auto reader =
      codec::ArchiveReader::open([&, done = false]() mutable -> Result<std::string> {
        return std::exchange(done, true) ? std::string() : archive;
      }).value();
  std::vector<std::string> names;
  for (;;) {
    const auto entry = reader->next().value();
    if (!entry) break;
    names.push_back(entry->path);
  }
  EXPECT_THAT(names, ElementsAre("pending/" + one.id + ".npy", "pending/" + one.id + ".json",
                                 "label/good/" + other.id + ".npy"));
}

TEST(SamplesExport, NameOfTheFileDecidesTheFormat) {
  EXPECT_EQ(export_format("/a/x.ZIP").value(), codec::ArchiveFormat::kZip);
  EXPECT_EQ(export_format("x.tar.gz").value(), codec::ArchiveFormat::kTarGzip);
  EXPECT_EQ(export_format("/a.zip/x").value(), std::nullopt) << "a folder";
  for (const char* name : {"x.7z", "x.tar.xz", "x.rar", "x.gz"}) {
    const auto refused = export_format(name);
    ASSERT_FALSE(refused.ok()) << name;
    EXPECT_THAT(refused.error().message(), HasSubstr(".zip, .tar, .tar.gz, .tar.zst"));
  }
}

}  // namespace samples_test
}  // namespace varda::cli
