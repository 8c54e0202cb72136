// Every format, case by case: samples, malformed records, places and reasons.
#include <gtest/gtest.h>

#include "dataset/count.h"
#include "dataset/testing/memory_tree.h"

namespace varda::dataset {
namespace {

struct Case {
  std::string name;
  std::string format;
  std::string text;
  std::uint64_t samples = 0;
  std::uint64_t malformed = 0;
  std::uint64_t line = 0, byte = 0;  // of the first malformed record
  std::string why;                   // a part of it
  std::string header = {};           // requested header option; "": auto
  std::string inexact = {};          // a part of the reason
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

std::string name_of_case(const ::testing::TestParamInfo<Case>& c) { return c.param.name; }

class FormatCase : public ::testing::TestWithParam<Case> {};

TEST_P(FormatCase, CountMatchesTheExpectedTally) {
  const Case& c = GetParam();
  testing::MemoryTree tree;
  tree.put("/data", c.text);
  Request request{.path = "/data", .format = find_format(c.format).value()};
  if (!c.header.empty()) request.options.header = parse_header(c.header).value();
  const auto counted = count(Context::background(), tree, request);
  ASSERT_TRUE(counted.ok()) << counted.error();
  const Tally& tally = counted->tally;
  EXPECT_EQ(tally.samples, c.samples);
  EXPECT_EQ(tally.malformed, c.malformed);
  ASSERT_EQ(tally.first_malformed.has_value(), c.malformed > 0);
  if (tally.first_malformed) {
    EXPECT_EQ(tally.first_malformed->line, c.line);
    EXPECT_EQ(tally.first_malformed->byte, c.byte);
    EXPECT_NE(tally.first_malformed->why.find(c.why), std::string::npos)
        << tally.first_malformed->why;
  }
  EXPECT_EQ(tally.inexact.empty(), c.inexact.empty()) << tally.inexact;
  EXPECT_NE(tally.inexact.find(c.inexact), std::string::npos) << tally.inexact;
  EXPECT_EQ(counted->bytes, c.text.size());
}

const std::string kNul(1, '\0');

/// An idx file: type, dimensions, and this many bytes of items.
std::string idx(char type, const std::vector<unsigned char>& dimensions, std::size_t bytes) {
  std::string out = kNul + kNul + type + static_cast<char>(dimensions.size());
  for (const unsigned char one : dimensions) out += kNul + kNul + kNul + static_cast<char>(one);
  return out + std::string(bytes, 'x');
}
const std::string kNoSize = idx(8, {2, 0}, 0);

INSTANTIATE_TEST_SUITE_P(
    Idx, FormatCase,
    ::testing::Values(
        Case{"Empty", "idx", ""}, Case{"Labels", "idx", idx(8, {3}, 3), 3},
        Case{"Images", "idx", idx(8, {3, 2, 2}, 12), 3},
        Case{"Doubles", "idx", idx(0x0E, {2, 2}, 32), 2}, Case{"NoItems", "idx", idx(8, {0}, 0)},
        Case{"FewerItems", "idx", idx(8, {3, 2, 2}, 9), 2, 0, 0, 0, "", "",
             "the file ends after 2 of 3 items"},
        Case{"MoreBytes", "idx", idx(8, {3}, 4), 3, 1, 0, 11, "bytes after the 3 items"},
        Case{"AnotherType", "idx", idx(7, {3}, 3), 0, 1, 0, 0, "does not begin like an idx file"},
        Case{"NoDimensions", "idx", idx(8, {}, 3), 0, 1, 0, 0, "does not begin like an idx file"},
        Case{"CutHeader", "idx", idx(8, {3, 2}, 0).substr(0, 9), 0, 1, 0, 0, "ends in its header"},
        Case{"ItemsWithoutSize", "idx", kNoSize, 0, 1, 0, 0, "no possible size"},
        Case{"Text", "idx", "1,2\n", 0, 1, 0, 0, "does not begin like an idx file"}),
    name_of_case);

INSTANTIATE_TEST_SUITE_P(
    Csv, FormatCase,
    ::testing::Values(
        Case{"Empty", "csv", ""}, Case{"OnlyAByteOrderMark", "csv", "\xEF\xBB\xBF"},
        Case{"HalfAByteOrderMarkIsText", "csv", "\xEF\xBB", 1, 0, 0, 0, "", "no"},
        Case{"OneRecordWithoutALineEnd", "csv", "1,2", 1},
        Case{"LineFeeds", "csv", "1,2\n3,4\n", 2},
        Case{"CarriageReturns", "csv", "1,2\r\n3,4\r\n", 2},
        Case{"EmptyLinesAreNone", "csv", "\n1,2\n\r\n\n3,4\n\n\r\n", 2},
        Case{"ALineOfBlanksIsAField", "csv", "1\n  \n", 2},
        Case{"QuotedLineBreaks", "csv", "1,\"a\nb\r\n\nc\"\n2,\"d\"\n", 2},
        Case{"DoubledQuotes", "csv", "1,\"a\"\"b\"\n2,\"\"\"\"\n3,\"\"\n", 3},
        Case{"QuotedDelimiters", "csv", "1,\"a,b,c\"\n2,\"\"\",\"\n", 2},
        Case{"QuotedAtTheEnd", "csv", "1,\"a\"", 1},
        Case{"QuotedThenCarriageReturnAtTheEnd", "csv", "1,\"a\"\r", 1},
        Case{"ByteOrderMarkBeforeAQuote", "csv", "\xEF\xBB\xBF\"1\",2\n", 1},
        Case{"LatinOneIsTaken", "csv", "1,\xE4\n2,\xF6\n", 2},
        Case{"AQuotedEmptyFieldAloneIsARecord", "csv", "\"\"\n\"\"\n", 2},
        Case{"FewerFields", "csv", "1,2\n3\n4,5\n", 2, 1, 2, 4,
             "1 field where the first record has 2"},
        Case{"MoreFields", "csv", "1\n2,3,4\n", 1, 1, 2, 2,
             "3 fields where the first record has 1"},
        Case{"AStrayQuote", "csv", "1,2\n3,a\"b\n4,5\n", 2, 1, 2, 4, "inside an unquoted field"},
        Case{"TextBehindAQuote", "csv", "1,2\n\"a\"b,3\n4,5\n", 2, 1, 2, 4,
             "between a closing quote"},
        Case{"ACarriageReturnBehindAQuote", "csv", "1,2\n\"a\"\rb,3\n4,5\n", 2, 1, 2, 4,
             "between a closing quote"},
        Case{"AnOpenQuoteTakesTheRest", "csv", "1,2\n3,\"4\n5,6\n", 1, 1, 2, 4, "not closed"},
        Case{"ANulByte", "csv", "1,2\n3," + kNul + "\n4,5\n", 2, 1, 2, 4, "NUL"},
        Case{"LinesAreCountedInQuotesToo", "csv", "1,\"a\n\n\"\n2\n", 1, 1, 4, 8, "1 field"},
        Case{"AHeaderIsSeen", "csv", "name,age\nann,3\nbob,4\n", 2},
        Case{"NumbersAreNoHeader", "csv", "ann,3\nbob,4\n", 2},
        Case{"AHeaderOfQuotedNames", "csv", "\"the name\",\"a \"\"b\"\"\"\n1,2\n", 1},
        Case{"TwiceTheSameNameIsNoHeader", "csv", "a,a\n1,2\n", 2},
        Case{"AnEmptyNameIsNoHeader", "csv", "a,\n1,2\n", 2},
        Case{"PathsAreNoHeader", "csv", "img/1.jpg,cat\nimg/2.jpg,dog\n", 2},
        Case{"TrueIsNoHeader", "csv", "a,True\nb,False\n", 2},
        Case{"AHeaderAsked", "csv", "1,2\n3,4\n", 1, 0, 0, 0, "", "yes"},
        Case{"NoHeaderAsked", "csv", "a,b\nc,d\n", 2, 0, 0, 0, "", "no"},
        Case{"OnlyAHeader", "csv", "name,age", 0},
        Case{"ALongFirstRecordIsNoHeader", "csv", std::string(70'000, 'x') + "\ny\n", 2},
        Case{"TabsDoNotSeparate", "csv", "1\t2\n3\n", 2}),
    name_of_case);

INSTANTIATE_TEST_SUITE_P(Tsv, FormatCase,
                         ::testing::Values(Case{"QuotesAreText", "tsv", "1\t\"a\n2\tb\"c\n", 2},
                                           Case{"CommasDoNotSeparate", "tsv", "1\t2,3\n4\t5\n", 2},
                                           Case{"FewerFields", "tsv", "1\t2\n3\n", 1, 1, 2, 4,
                                                "1 field"},
                                           Case{"AHeader", "tsv", "name\tage\nann\t3\n", 1}),
                         name_of_case);

INSTANTIATE_TEST_SUITE_P(
    Txt, FormatCase,
    ::testing::Values(Case{"Empty", "txt", ""}, Case{"Lines", "txt", "a\nb\r\nc", 3},
                      Case{"BlankLinesAreNone", "txt", "\n \t\r\na\n\v\f\n", 1},
                      Case{"AByteOrderMark", "txt", "\xEF\xBB\xBF\na\n", 1},
                      Case{"NoUtf8IsTaken", "txt", "\xFF\xFE\x41\n", 1},
                      Case{"ANulByte", "txt", "a\n" + kNul + "\nb\n", 2, 1, 2, 2, "NUL"}),
    name_of_case);

INSTANTIATE_TEST_SUITE_P(
    Jsonl, FormatCase,
    ::testing::Values(
        Case{"Empty", "jsonl", ""},
        Case{"AnyValue", "jsonl", "{}\n[1]\n\"a\"\n-1.5e3\ntrue\nnull\n0", 7},
        Case{"BlankLinesAreNone", "jsonl", "\n \t\r\n{}\r\n", 1},
        Case{"ByteOrderMark", "jsonl", "\xEF\xBB\xBF{}\n", 1},
        Case{"NoJson", "jsonl", "{}\n{a:1}\n{}\n", 2, 1, 2, 3, "(at byte 1 of the line)"},
        Case{"TwoOnALine", "jsonl", "{} {}\n", 0, 1, 1, 0, "after the end"},
        Case{"CutOff", "jsonl", "{}\n{\"a\":", 1, 1, 2, 3, "incomplete"},
        Case{"ANumberCutOff", "jsonl", "1.\n", 0, 1, 1, 0, "incomplete"},
        Case{"ALeadingZero", "jsonl", "01\n", 0, 1, 1, 0, "after the end"},
        Case{"NoUtf8", "jsonl", "\"\xC0\x80\"\n{}\n", 1, 1, 1, 0, "UTF-8"},
        Case{"ALoneSurrogate", "jsonl", "\"\\ud800\"\n", 0, 1, 1, 0, "surrogate"},
        Case{"ASurrogatePair", "jsonl", "\"\\ud83d\\ude00\"\n", 1},
        Case{"ANulByte", "jsonl", kNul + "\n", 0, 1, 1, 0, "0x00"},
        Case{"TooDeep", "jsonl", std::string(100'000, '[') + "\n{}\n", 1, 1, 1, 0, "deeper"},
        Case{"AsDeepAsAllowed", "jsonl",
             std::string(kJsonDepthMax, '[') + std::string(kJsonDepthMax, ']') + "\n", 1}),
    name_of_case);

INSTANTIATE_TEST_SUITE_P(
    JsonArray, FormatCase,
    ::testing::Values(
        Case{"Elements", "json", "\xEF\xBB\xBF [1, {\"a\": [2, 3]}, [4], \"]\", null]\n", 5},
        Case{"None", "json", "[]", 0}, Case{"AnEmptyFile", "json", "", 0, 0, 0, 0, "", "", "empty"},
        Case{"StillWritten", "json", "[1, 2,\n", 2, 0, 0, 0, "", "", "incomplete"},
        Case{"AnElementStillWritten", "json", "[1, {\"a\"", 1, 0, 0, 0, "", "", "incomplete"},
        Case{"NoArray", "json", "\n{\"a\": [1]}", 0, 1, 2, 1, "not an array", "", "not an array"},
        Case{"BrokenHalfway", "json", "[1,\n2,\n,3]", 2, 1, 3, 7, "where a value is expected", "",
             "byte 7"},
        Case{"SomethingBehind", "json", "[1] [2]", 1, 1, 1, 4, "after the end", "", "byte 4"},
        Case{"TooDeep", "json", std::string(100'000, '['), 0, 1, 1, kJsonDepthMax, "deeper", "",
             "deeper"}),
    name_of_case);

INSTANTIATE_TEST_SUITE_P(
    Coco, FormatCase,
    ::testing::Values(
        Case{"Images", "coco",
             R"({"images": [{"id": 1}, {"id": 2}], "annotations": [], "categories": []})", 2},
        Case{"NoImages", "coco", "{\"annotations\": []}", 0, 0, 0, 0, "", "", "no images"},
        Case{"NoObject", "coco", "[]", 0, 1, 1, 0, "not an object", "", "not an object"},
        Case{"ImagesAreNoArray", "coco", "{\"images\": 3}", 0, 1, 1, 11, "not an array"},
        Case{"AnImageIsNoObject", "coco", "{\"images\": [\n{}, 7]}", 1, 1, 2, 17, "not an object"},
        Case{"ACaptionHasNoCategory", "coco",
             R"({"images": [{}], "annotations": [{"caption": "a"}]})", 1},
        Case{"ACategoryIsNoInteger", "coco",
             R"({"images": [{}], "annotations": [{"category_id": "1"}]})", 1, 1, 1, 33,
             "category_id"},
        Case{"ACategoryHasNoName", "coco", R"({"images": [], "categories": [{"id": 1}]})", 0, 1, 1,
             30, "name"},
        Case{"ANameIsWhatItsEscapesStandFor", "coco",
             "{\"im\\u0061ges\":[{},{}],\"other\":[{\"\\u0069d\":1}]}", 2},
        Case{"DeeperNamesMeanNothing", "coco",
             R"({"info": {"images": [1, 2]}, "images": [{"images": [1, 2]}]})", 1},
        Case{"StillWritten", "coco", "{\"images\": [{}, {", 1, 0, 0, 0, "", "", "incomplete"}),
    name_of_case);

TEST(Coco, AnnotationsAreCountedByCategoryNameInAnyMemberOrder) {
  testing::MemoryTree tree;
  const std::string annotations =
      R"("annotations": [{"category_id": 7, "id": 1}, {"id": 2, "category_id": 3}, {"category_id": 7}, {"category_id": 9}])";
  const std::string categories =
      R"("categories": [{"id": 7, "name": "c\u00e4t"}, {"name": "dog", "id": 3}, {"id": 4, "name": "cow"}])";
  for (const std::string& text : {"{\"images\": [], " + annotations + ", " + categories + "}",
                                  "{" + categories + ", " + annotations + ", \"images\": []}"}) {
    tree.put("/data", text);
    const auto counted = count(Context::background(), tree,
                               {.path = "/data", .format = find_format("coco").value()});
    ASSERT_TRUE(counted.ok());
    EXPECT_EQ(counted->tally.classes,
              (std::map<std::string, std::uint64_t>{
                  {"c\u00e4t", 2}, {"dog", 1}, {"cow", 0}, {"category 9", 1}}));
  }
}

TEST(Coco, RememberedClassesAreBoundedForManyCategories) {
  testing::MemoryTree tree;
  std::string text = "{\"images\": [{}], \"annotations\": [";
  for (int i = 0; i < 100'000; ++i) text += "{\"category_id\":" + std::to_string(99'999 - i) + "},";
  text.back() = ']';
  tree.put("/data", text + "}");
  const auto counted =
      count(Context::background(), tree, {.path = "/data", .format = find_format("coco").value()});
  ASSERT_TRUE(counted.ok());
  EXPECT_EQ(counted->tally.classes.size(), kClassesMax);
  EXPECT_EQ(counted->tally.further_classes, 100'000 - kClassesMax);
  EXPECT_TRUE(counted->tally.classes.contains("category 0"));
}

TEST(Formats, OversizedLineIsOneMalformedRecordWithASmallState) {
  // Fed in pieces, like a file.
  for (const std::string format : {"csv", "txt", "jsonl"}) {
    testing::MemoryTree tree;
    tree.put("/data",
             "1\n" + std::string(kRecordBytesMax + 1, format == "jsonl" ? ' ' : 'x') + "1\n2\n");
    const auto counted = count(Context::background(), tree,
                               {.path = "/data", .format = find_format(format).value()});
    ASSERT_TRUE(counted.ok());
    EXPECT_EQ(counted->tally.samples, 2u) << format;
    ASSERT_EQ(counted->tally.malformed, 1u) << format;
    EXPECT_EQ(*counted->tally.first_malformed, (Malformed{"", 2, 2, "longer than 64 MiB"}))
        << format;
    EXPECT_LT(counted->state.size(), 4096u) << format;
  }
}

TEST(Formats, UnknownFormatIsRefusedWithTheListOfFormats) {
  const auto format = find_format("parquet");
  ASSERT_FALSE(format.ok());
  EXPECT_EQ(format.error().code(), Code::kInvalid);
  EXPECT_EQ(format.error().message(),
            "there is no format \"parquet\"; there are csv, tsv, txt, jsonl, json, coco, voc, xml, "
            "imagefolder, idx");
  EXPECT_EQ(find_format("CSV").value()->name, "csv");
}

}  // namespace
}  // namespace varda::dataset
