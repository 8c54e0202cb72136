// txt: lists of images.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "samples/testing/folder.h"

namespace varda::samples {
namespace image_list_test {

using ::testing::ElementsAre;
using testing::Folder;
using ::testing::HasSubstr;
using testing::options;
using testing::plain_png;
using testing::values;

const tensor::Shape kInput = {-1, 1, 1};

Folder& with_images(Folder& folder) {
  folder.put("images/1.png", plain_png(1, 1, 10));
  folder.put("images/two words.png", plain_png(1, 1, 20));
  return folder;
}

TEST(ImageLists, ALineHasAPathAndALabel) {
  Folder folder;
  with_images(folder).put("list.txt",
                          "images/1.png cat\r\n  \n images/two words.png\tblack dog \n"
                          "images/two words.png   cat");
  const auto data = folder.open("list.txt", options(kInput)).value();
  EXPECT_THAT(data->classes(), ElementsAre("black dog", "cat"));
  EXPECT_THAT(data->class_counts(), ElementsAre(1, 2));
  const Batch batch = data->read(std::vector<std::size_t>{0, 1, 2}, {}, 1).value();
  EXPECT_THAT(values(batch), ElementsAre(10, 20, 20));
  EXPECT_THAT(batch.labels, ElementsAre(1, 0, 1));
  EXPECT_EQ(data->place(1), "list.txt, line 3");
  EXPECT_EQ(data->picture(0).value(), plain_png(1, 1, 10));
}

TEST(ImageLists, LabelsMayBeNumbersOrSeveralClasses) {
  Folder folder;
  with_images(folder).put("numbers.txt", "images/1.png 2.5\nimages/1.png -1\n");
  Options regression = options(kInput);
  regression.task = Task::kRegression;
  EXPECT_THAT(folder.open("numbers.txt", regression)
                  .value()
                  ->read(std::vector<std::size_t>{0, 1}, {}, 1)
                  .value()
                  .targets,
              ElementsAre(2.5f, -1));
  folder.put("many.txt", "images/1.png red;big\nimages/1.png\t\n");
  Options many = options(kInput);
  many.task = Task::kMultiLabel;
  EXPECT_THAT(folder.open("many.txt", many)
                  .value()
                  ->read(std::vector<std::size_t>{0, 1}, {}, 1)
                  .value()
                  .targets,
              ElementsAre(1, 1, 0, 0));
}

TEST(ImageLists, PathsOfAFoldersListsBeginAtTheListOrTheFolder) {
  Folder folder;
  with_images(folder).put("lists/1.png", plain_png(1, 1, 30));
  folder.put("lists/a.txt", "images/1.png a\n1.png b\n");
  folder.put("b.txt", "images/1.png c\n");
  Options lists = options(kInput);
  lists.format = "txt";
  const auto data = folder.open("", lists).value();
  EXPECT_THAT(values(data->read(std::vector<std::size_t>{0, 1, 2}, {}, 1).value()),
              ElementsAre(10, 10, 30));
  EXPECT_EQ(data->place(0), "b.txt, line 1");
  EXPECT_EQ(data->place(2), "lists/a.txt, line 2");
}

TEST(ImageLists, ErrorsNameTheLine) {
  const struct {
    const char *text, *message;
  } cases[] = {
      {"", "list.txt has no lines; training needs at least one"},
      {"images/1.png\n", "list.txt, line 1: the line needs a path, a blank or a tab, and a label"},
      {"images/1.png a\nimages/1.png\t\n", "list.txt, line 2: the label is missing"},
      {"images/1.png\ta\tb\n", "list.txt, line 1: several tabs"},
      {"images/1.png a\n\nimages/2.png a\n", "list.txt, line 3: ROOT/images/2.png: No such file"},
      {"images/1.gif a\n", "line 1: images/1.gif is neither JPEG nor PNG"},
      {"../x.png a\n", "line 1: the path \"../x.png\" does not lie below the dataset's folder"},
      {"images/../../x.png a\n", "does not lie below the dataset's folder"},
      {"/etc/passwd a\n", "line 1: the path \"/etc/passwd\" does not lie below"},
  };
  for (const auto& one : cases) {
    Folder folder;
    with_images(folder).put("list.txt", one.text);
    EXPECT_THAT(folder.error("list.txt", options(kInput)), HasSubstr(one.message)) << one.text;
  }
}

TEST(ImageLists, FingerprintCoversListAndImages) {
  const auto fingerprint = [](const char* list, std::uint8_t value) {
    Folder folder;
    folder.put("1.png", plain_png(1, 1, value));
    folder.put("list.txt", list);
    return folder.open("list.txt", options(kInput)).value()->fingerprint();
  };
  EXPECT_EQ(fingerprint("1.png a\n", 1), fingerprint("1.png a\n", 1));
  EXPECT_NE(fingerprint("1.png a\n", 1), fingerprint("1.png b\n", 1));
  EXPECT_NE(fingerprint("1.png a\n", 1), fingerprint("1.png a\n", 2));
}

}  // namespace image_list_test
}  // namespace varda::samples
