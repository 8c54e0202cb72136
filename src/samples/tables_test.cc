// csv and tsv.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "samples/testing/folder.h"

namespace varda::samples {
namespace {

using ::testing::ElementsAre;
using testing::Folder;
using ::testing::HasSubstr;
using testing::options;
using testing::values;

Batch read_all(const Dataset& data) {
  std::vector<std::size_t> indices(data.size());
  for (std::size_t i = 0; i < indices.size(); ++i) indices[i] = i;
  return data.read(indices, {}, 1).value();
}

TEST(Tables, LastColumnIsTheLabelAndOthersFillTheInput) {
  Folder folder;
  folder.put("t.csv", "a,b,kind\n1,2,cat\n3,4,dog\n5,6.5,cat\n");
  const auto data = folder.open("t.csv", options({-1, 2})).value();
  EXPECT_EQ(data->size(), 3u);
  EXPECT_EQ(data->outputs(), 2u);
  EXPECT_THAT(data->classes(), ElementsAre("cat", "dog"));
  EXPECT_THAT(data->class_counts(), ElementsAre(2, 1));
  EXPECT_THAT(data->features(), ElementsAre("a", "b"));
  const Batch batch = data->read(std::vector<std::size_t>{2, 0}, {}, 1).value();
  EXPECT_EQ(batch.input.shape(), (tensor::Shape{2, 2}));
  EXPECT_THAT(values(batch), ElementsAre(5, 6.5f, 1, 2));
  EXPECT_THAT(batch.labels, ElementsAre(0, 0));
  EXPECT_THAT(batch.indices, ElementsAre(2, 0));
  EXPECT_EQ(data->picture(0).value(), "");
}

TEST(Tables, RecordsMayHaveQuotesLineBreaksAndAByteOrderMark) {
  Folder folder;
  folder.put("t.csv",
             "\xef\xbb\xbf\"x, m\",\"the \"\"kind\"\"\"\r\n\r\n\"1\",\"a\nb\"\r\n 2 ,c\r\n\n+3,c");
  const auto data = folder.open("t.csv", options({-1, 1})).value();
  EXPECT_THAT(data->features(), ElementsAre("x, m"));
  EXPECT_THAT(data->classes(), ElementsAre("a\nb", "c"));
  EXPECT_THAT(values(read_all(*data)), ElementsAre(1, 2, 3));
  EXPECT_EQ(data->place(0), "t.csv, line 3");
  EXPECT_EQ(data->place(1), "t.csv, line 5");
  EXPECT_EQ(data->place(2), "t.csv, line 7");
}

TEST(Tables, TabsSeparateFieldsAndQuotesAreCharactersInTsv) {
  Folder folder;
  folder.put("t.tsv", "1\t\"a\n2\tb, c\n");
  const auto data = folder.open("t.tsv", options({-1, 1})).value();
  EXPECT_THAT(data->classes(), ElementsAre("\"a", "b, c"));
}

TEST(Tables, HeaderIsGuessedUnlessDeclared) {
  Folder folder;
  folder.put("numbers.csv", "1,2\n3,4\n");
  folder.put("words.csv", "1,a\n2,b\n");
  EXPECT_EQ(folder.open("numbers.csv", options({-1, 1})).value()->size(), 2u);
  EXPECT_EQ(folder.open("words.csv", options({-1, 1})).value()->size(), 2u);
  Options with = options({-1, 1});
  with.header = dataset::Header::kYes;
  EXPECT_EQ(folder.open("numbers.csv", with).value()->size(), 1u);
  folder.put("names.csv", "a,b\nc,d\n");
  Options without = options({-1, 1});
  without.header = dataset::Header::kNo;
  EXPECT_THAT(folder.error("names.csv", without), HasSubstr("line 1: column \"1\": \"a\" is not"));
}

TEST(Tables, ColumnsAreChosenByNameOrNumber) {
  Folder folder;
  folder.put("t.csv", "kind,a,b,c\nx,1,2,3\ny,4,5,6\n");
  Options by_name = options({-1, 2});
  by_name.label = "kind";
  by_name.features = {"c", "a"};
  EXPECT_THAT(values(read_all(*folder.open("t.csv", by_name).value())), ElementsAre(3, 1, 6, 4));
  Options by_number = options({-1, 3});
  by_number.label = "1";
  EXPECT_THAT(values(read_all(*folder.open("t.csv", by_number).value())),
              ElementsAre(1, 2, 3, 4, 5, 6));
  by_name.features = {"d"};
  EXPECT_EQ(folder.error("t.csv", by_name),
            "t.csv, line 1: featureColumns: there is no column \"d\"; the table has the columns "
            "\"kind\", \"a\", \"b\", \"c\"");
  by_name.features = {"kind"};
  EXPECT_THAT(folder.error("t.csv", by_name), HasSubstr("is both a label and a feature"));
}

TEST(Tables, ClassesThatAreNumbersAreSortedByValue) {
  Folder folder;
  folder.put("t.csv", "1,10\n1,9.0\n1,-1\n1,9\n1,other\n");
  const auto data = folder.open("t.csv", options({-1, 1})).value();
  EXPECT_THAT(data->classes(), ElementsAre("-1", "9", "10", "other"));
  EXPECT_THAT(data->class_counts(), ElementsAre(1, 2, 1, 1));
}

TEST(Tables, GivenClassesKeepTheirOrderAndMayBeNumbered) {
  Folder folder;
  folder.put("names.csv", "1,dog\n2,cat\n");
  folder.put("numbers.csv", "1,1\n2,0\n");
  folder.put("beyond.csv", "1,1\n2,2\n");
  Options given = options({-1, 1});
  given.classes = {"dog", "cat"};
  EXPECT_THAT(read_all(*folder.open("names.csv", given).value()).labels, ElementsAre(0, 1));
  EXPECT_THAT(read_all(*folder.open("numbers.csv", given).value()).labels, ElementsAre(1, 0));
  EXPECT_EQ(folder.error("beyond.csv", given),
            "beyond.csv, line 2: the label 2 is not between 0 and 1, the numbers of the 2 classes");
  given.classes = {"1", "2"};
  EXPECT_THAT(read_all(*folder.open("beyond.csv", given).value()).labels, ElementsAre(0, 1));
  EXPECT_THAT(folder.error("numbers.csv", given),
              HasSubstr("line 2: the label \"0\" is none of the 2 classes (\"1\", \"2\")"));
}

TEST(Tables, MissingFeaturesGetTheColumnsMean) {
  Folder folder;
  folder.put("t.csv", "1,5,a\n,NA,a\n3,nan,b\n");
  const auto data = folder.open("t.csv", options({-1, 2})).value();
  EXPECT_THAT(data->fill(), ElementsAre(2, 5));
  EXPECT_THAT(values(read_all(*data)), ElementsAre(1, 5, 2, 5, 3, 5));
  Options other = options({-1, 2});
  other.fill = {7, 8};
  EXPECT_THAT(values(read_all(*folder.open("t.csv", other).value())),
              ElementsAre(1, 5, 7, 8, 3, 8));
  folder.put("none.csv", "1,,a\n2,NaN,b\n");
  EXPECT_THAT(folder.error("none.csv", options({-1, 2})), HasSubstr("column \"2\" has no value"));
}

TEST(Tables, RegressionReadsTargetColumns) {
  Folder folder;
  folder.put("t.csv", "a,x,y\n1,2.5,-3\n4,5,6e1\n");
  Options one = options({-1, 2});
  one.task = Task::kRegression;
  const auto data = folder.open("t.csv", one).value();
  EXPECT_EQ(data->outputs(), 1u);
  EXPECT_TRUE(data->class_counts().empty());
  EXPECT_THAT(read_all(*data).targets, ElementsAre(-3, 60));
  Options two = options({-1, 1});
  two.task = Task::kRegression;
  two.label = "x, y";
  EXPECT_THAT(read_all(*folder.open("t.csv", two).value()).targets, ElementsAre(2.5f, -3, 5, 60));
}

TEST(Tables, MultilabelReadsListsOrColumnsOfFlags) {
  Folder folder;
  folder.put("lists.csv", "1,red; big\n2,\n3,big|big\n");
  Options lists = options({-1, 1});
  lists.task = Task::kMultiLabel;
  const auto data = folder.open("lists.csv", lists).value();
  EXPECT_THAT(data->classes(), ElementsAre("big", "red"));
  EXPECT_THAT(read_all(*data).targets, ElementsAre(1, 1, 0, 0, 1, 0));
  folder.put("flags.csv", "a,red,big\n1,1,0\n2,1,1\n");
  Options flags = options({-1, 1});
  flags.task = Task::kMultiLabel;
  flags.label = "red,big";
  const auto columns = folder.open("flags.csv", flags).value();
  EXPECT_THAT(columns->classes(), ElementsAre("red", "big"));
  EXPECT_THAT(columns->class_counts(), ElementsAre(2, 1));
  EXPECT_THAT(read_all(*columns).targets, ElementsAre(1, 0, 1, 1));
  flags.classes = {"big", "red"};
  EXPECT_THAT(read_all(*folder.open("flags.csv", flags).value()).targets, ElementsAre(0, 1, 1, 1));
  flags.classes = {"crimson", "large"};
  EXPECT_THAT(read_all(*folder.open("flags.csv", flags).value()).targets, ElementsAre(1, 0, 1, 1));
  folder.put("flags.csv", "a,red,big\n1,1,0\n2,1,2\n");
  EXPECT_EQ(folder.error("flags.csv", flags),
            "flags.csv, line 3: the label \"big\" must be 0 or 1, not \"2\"");
}

TEST(Tables, ErrorsNameFileLineAndRemedy) {
  struct Case {
    const char* bytes;
    const char* message;
  };
  const Case cases[] = {
      {"", "t.csv has no rows; training needs at least one"},
      {"a,b,c\n", "t.csv has no rows; training needs at least one"},
      {"1,2,a\n1,2\n", "t.csv, line 2: 2 fields where the first record has 3"},
      {"1,2,a\n\n1,x,b\n",
       "t.csv, line 3: column \"2\": \"x\" is not a number; correct it, or leave the column out "
       "with featureColumns"},
      {"1,2,a\n1,inf,b\n", "t.csv, line 2: column \"2\": \"inf\" is not a number; correct it"},
      {"1,2,a\n1,1e39,b\n", "is no value of type FP32"},
      {"1,2,a\n1,2,NA\n",
       "t.csv, line 2: the label is missing; add the label, or remove the sample"},
      {"1,2,a\n1,2,\"b\n", "t.csv, line 2: a quoted field is not closed before the end"},
      {"1,2,a\n1,2\"3,b\n", "t.csv, line 2: a quote inside an unquoted field"},
      {"1,2,a\n1,\"2\"3,b\n", "t.csv, line 2: text between a closing quote"},
      {"1,2,3,a\n",
       "t.csv, line 1: the table has 3 feature columns: a sample of shape [3] does not fit the "
       "model's input \"x\" of shape [-1,2]; choose the columns with featureColumns"},
      {"1;2;a\n", "t.csv, line 1: one column, but a table needs features and a label"},
      // A table that does not fit the model, too: the first mistake in the file is reported.
      {"a,b,c,d\n", "t.csv has no rows; training needs at least one"},
      {"a,b,c,d\n1,2.o,3,a\n", "t.csv, line 2: column \"b\": \"2.o\" is not a number; correct it"},
      {"1,2,3.o,a\n", "t.csv, line 1: column \"3\": \"3.o\" is not a number; correct it"},
      {"a,l\n1,a\n", "t.csv, line 2: the table has 1 feature column: a sample of shape [1]"},
  };
  for (const Case& c : cases) {
    Folder folder;
    folder.put("t.csv", c.bytes);
    EXPECT_THAT(folder.error("t.csv", options({-1, 2})), HasSubstr(c.message)) << c.bytes;
  }
}

TEST(Tables, EvaluationWithOtherColumnsNamesBothNumbers) {
  Folder folder;
  folder.put("t.csv", "1,2,a\n");
  Options evaluation = options({-1, 2});
  evaluation.fill = {0, 0, 0};
  EXPECT_EQ(folder.error("t.csv", evaluation),
            "t.csv, line 1: the table has 2 feature columns, but the training data have 3; the "
            "evaluation needs the same columns");
}

TEST(Tables, FolderOfFilesIsOneTable) {
  Folder folder;
  folder.put("b.csv", "x,y\n3,a\n");
  folder.put("a/1.csv", "x,y\n4,b\n");
  folder.put("a.CSV", "x,y\n1,b\n2,a\n");
  folder.put("empty.csv", "x,y\n");
  folder.put("notes.txt", "none");
  const auto data = folder.open("", options({-1, 1})).value();
  EXPECT_THAT(values(read_all(*data)), ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(data->place(2), "b.csv, line 2");
  EXPECT_EQ(data->place(3), "a/1.csv, line 2");
  folder.put("c.csv", "z,y\n3,a\n");
  EXPECT_EQ(folder.error("", options({-1, 1})),
            "c.csv, line 1: the columns differ from the columns of the first file");
}

TEST(Tables, RowsFillInputsOfTheSameNumberOfValues) {
  Folder folder;
  folder.put("t.csv", "1,2,3,4,a\n");
  const auto shape = [&](tensor::Shape input) {
    return read_all(*folder.open("t.csv", options(std::move(input))).value()).input.shape();
  };
  EXPECT_EQ(shape({-1, 1, 2, 2}), (tensor::Shape{1, 1, 2, 2}));
  EXPECT_EQ(shape({8, -1}), (tensor::Shape{1, 4}));
  EXPECT_EQ(shape({-1, 2, -1}), (tensor::Shape{1, 2, 2}));
  EXPECT_NE(folder.error("t.csv", options({-1, 3, -1})), "");
  EXPECT_NE(folder.error("t.csv", options({-1, -1, -1})), "");
}

TEST(Tables, IntegerInputsTakeIntegersOfTheirRange) {
  Folder folder;
  folder.put("t.csv", "0,255,a\n");
  folder.put("bad.csv", "0,255,a\n0,256,a\n");
  const Options bytes = options({-1, 2}, tensor::DType::kUint8);
  const Batch batch = read_all(*folder.open("t.csv", bytes).value());
  EXPECT_EQ(batch.input.values<std::uint8_t>()[1], 255);
  EXPECT_THAT(folder.error("bad.csv", bytes), HasSubstr("is no value of type UINT8"));
  EXPECT_EQ(folder.error("bad.csv", options({-1, 2}, tensor::DType::kInt64)), "");
  EXPECT_THAT(folder.error("t.csv", options({-1, 2}, tensor::DType::kFp16)), HasSubstr("FP16"));
}

TEST(Tables, FingerprintChangesWithTheContentOnly) {
  Folder folder, other;
  folder.put("t.csv", "1,a\n2,b\n");
  other.put("t.csv", "1,a\n2,b\n");
  const std::string first = folder.open("t.csv", options({-1, 1})).value()->fingerprint();
  EXPECT_EQ(first.size(), 71u);
  EXPECT_EQ(other.open("t.csv", options({-1, 1})).value()->fingerprint(), first);
  other.put("t.csv", "1,a\n3,b\n");
  EXPECT_NE(other.open("t.csv", options({-1, 1})).value()->fingerprint(), first);
}

TEST(Tables, LongTablesAreReadRowByRow) {
  Folder folder;
  std::string text = "x,y,label\n";
  for (int i = 0; i < 100'000; ++i)
    text += std::to_string(i) + "," + std::to_string(i % 7) + "," + std::to_string(i % 3) + "\n";
  folder.put("t.csv", text);
  const auto data = folder.open("t.csv", options({-1, 2})).value();
  ASSERT_EQ(data->size(), 100'000u);
  const Batch batch = data->read(std::vector<std::size_t>{99'999, 77'777}, {}, 1).value();
  EXPECT_THAT(values(batch), ElementsAre(99'999, 99'999 % 7, 77'777, 77'777 % 7));
  EXPECT_THAT(batch.labels, ElementsAre(99'999 % 3, 77'777 % 3));
  EXPECT_EQ(data->place(99'999), "t.csv, line 100001");
}

TEST(Tables, RecordsMayBeLargerThanOneRead) {
  Folder folder;
  std::string text = "a,notes,kind\n";
  for (int i = 0; i < 3; ++i) {
    text += std::to_string(i) + ",\"";
    for (int line = 0; line < 200'000; ++line) text += "line \"\"x\"\",\n";
    text += "\"," + std::to_string(i % 2) + "\n";
  }
  folder.put("t.csv", text);
  Options some = options({-1, 1});
  some.features = {"a"};
  const auto data = folder.open("t.csv", some).value();
  EXPECT_THAT(values(read_all(*data)), ElementsAre(0, 1, 2));
  EXPECT_EQ(data->place(2), "t.csv, line 400004");
}

TEST(Tables, AppendedRowsWaitForTheNextTraining) {
  Folder folder;
  folder.put("t.csv", "1,a\n2,b\n");
  const auto data = folder.open("t.csv", options({-1, 1})).value();
  folder.put("t.csv", "1,a\n2,b\n3,c\n");
  EXPECT_THAT(values(read_all(*data)), ElementsAre(1, 2));
  folder.put("t.csv", "1,a\n");
  const auto read = data->read(std::vector<std::size_t>{0}, {}, 1);
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.error().code(), Code::kConflict);
  EXPECT_THAT(read.error().message(), HasSubstr("t.csv, line 1: the file changed"));
}

TEST(Tables, AugmentNeedsImages) {
  Folder folder;
  folder.put("t.csv", "1,a\n2,b\n");
  const auto data = folder.open("t.csv", options({-1, 1})).value();
  const auto read = data->read(std::vector<std::size_t>{0}, {.flip = true}, 1);
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.error().code(), Code::kInvalid);
}

TEST(Tables, UnknownFormatsAreRefusedWithTheKnownOnes) {
  Folder folder;
  folder.put("t.parquet", "PAR1");
  EXPECT_THAT(folder.error("t.parquet", options({-1, 1})),
              HasSubstr("the format of ROOT/t.parquet is not clear from its name; set the format"));
  Options named = options({-1, 1});
  named.format = "parquet";
  EXPECT_THAT(folder.error("t.parquet", named),
              HasSubstr("training cannot read the format \"parquet\"; training reads csv, tsv"));
  named.format = "imagefolder";
  EXPECT_EQ(folder.error("t.parquet", named),
            "ROOT/t.parquet is not a folder; imagefolder is read from a folder");
}

}  // namespace
}  // namespace varda::samples
