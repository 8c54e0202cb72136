// coco and voc: parts of images.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "samples/internal/pictures.h"
#include "samples/testing/folder.h"

namespace varda::samples {
namespace boxes_test {

using ::testing::ElementsAre;
using testing::Folder;
using ::testing::HasSubstr;
using testing::options;
using testing::plain_png;
using testing::values;

const tensor::Shape kInput = {-1, 1, 2};

/// A grey image of 4x3 pixels: 0, 1, 2, 3, then 10, 11, …
std::string numbered_png() {
  codec::Image image{4, 3, 1, {}};
  for (std::uint8_t y = 0; y < 3; ++y) {
    for (std::uint8_t x = 0; x < 4; ++x)
      image.pixels.push_back(static_cast<std::uint8_t>(10 * y + x));
  }
  return codec::encode_png(image).value();
}

std::string coco(const std::string& annotations, const std::string& more = "") {
  return R"({"annotations": [)" + annotations +
         R"(], "images": [{"id": 7, "file_name": "1.png", "width": 4}],
"categories": [{"id": 3, "name": "cat"}, {"id": 1, "name": "d\u006fg"}])" +
         more + "}";
}

std::string annotation(const std::string& box, int category = 3, const std::string& more = "") {
  return R"({"image_id": 7, "category_id": )" + std::to_string(category) + R"(, "bbox": )" + box +
         more + "}";
}

Batch read_all(const Dataset& data) {
  std::vector<std::size_t> indices(data.size());
  for (std::size_t i = 0; i < indices.size(); ++i) indices[i] = i;
  return data.read(indices, {}, 1).value();
}

TEST(CocoBoxes, EachBoxIsASampleOfItsCategory) {
  Folder folder;
  folder.put("1.png", numbered_png());
  folder.put("boxes.json", coco(annotation("[1, 1, 2, 1]") + "," +
                                annotation("[2.0, 2, 2, 1]", 1, R"(, "segmentation": [[1, 2]])") +
                                "," + annotation("[0, 0, 4, 3]", 3, R"(, "iscrowd": 1)")));
  const auto data = folder.open("boxes.json", options(kInput)).value();
  EXPECT_EQ(data->size(), 2u);
  EXPECT_THAT(data->classes(), ElementsAre("cat", "dog"));
  const Batch batch = read_all(*data);
  EXPECT_THAT(values(batch), ElementsAre(11, 12, 22, 23));
  EXPECT_THAT(batch.labels, ElementsAre(0, 1));
  EXPECT_EQ(data->place(1), "boxes.json, annotation 2 (1.png)");
  const codec::Image picture = codec::decode_image(data->picture(0).value()).value();
  EXPECT_EQ(picture.width, 2u);
  EXPECT_THAT(picture.pixels, ElementsAre(11, 12));
}

TEST(CocoBoxes, ImagesMayBeBesideTheFolderOfAnnotations) {
  for (const char* place : {"images/1.png", "train2017/1.png", "1.png", "annotations/1.png"}) {
    Folder folder;
    folder.put(place, numbered_png());
    folder.put("annotations/instances_train2017.json", coco(annotation("[0, 0, 2, 1]")));
    EXPECT_EQ(folder.error("annotations/instances_train2017.json", options(kInput)), "") << place;
  }
}

TEST(CocoBoxes, ErrorsNameTheElement) {
  const struct {
    std::string text;
    const char* message;
  } cases[] = {
      {"[1]", "b.json: line 1: the file is not an object"},
      {"{\"images\": 1}", "b.json: line 1: images is not an array"},
      {coco(""), "b.json has no boxes; training needs at least one"},
      {coco("{\"image_id\": 7}"),
       "b.json: line 1: annotations, element 1: an annotation needs an image_id, a category_id"},
      {coco(annotation("[0, 0, 1]")), "and a bbox of four numbers"},
      {coco(annotation("[0, 0, 1, 1, 1]")), "bbox is not a list of four numbers"},
      {coco(annotation("[0, 0, \"1\", 1]")), "bbox is not a list of four numbers"},
      {coco(annotation("[0, 0, 1, 0]")), "b.json, annotation 1: the box has no area"},
      {coco(annotation("[0, 0, 1, 1e300]")), "the box is too large"},
      {coco(annotation("[9, 9, 1, 1]")), ""},
      {coco(annotation("[0, 0, 1, 1]", 9)),
       "b.json, annotation 1: no category has its category_id"},
      {coco(annotation("[0, 0, 1, 1]"), R"(, "images": [{"id": 7, "file_name": "x"}])"),
       "images, element 1: an earlier element has the same id"},
      {coco(annotation("[0, 0, 1, 1]")).substr(0, 60), "the JSON text is incomplete"},
      {coco("\n\n}"), "b.json: line 3: "},
      {R"({"images": [{"id": 1, "file_name": "../1.png"}], "annotations": [{"image_id": 1,
          "category_id": 1, "bbox": [0, 0, 1, 1]}], "categories": [{"id": 1, "name": "a"}]})",
       "annotation 1 (../1.png): the path \"../1.png\" does not lie below"},
      {R"({"images": [{"id": 1, "file_name": "2.png"}], "annotations": [{"image_id": 1,
          "category_id": 1, "bbox": [0, 0, 1, 1]}], "categories": [{"id": 1, "name": "a"}]})",
       "annotation 1 (2.png): there is no image 2.png in ROOT, ROOT/images"},
  };
  for (const auto& one : cases) {
    Folder folder;
    folder.put("1.png", numbered_png());
    folder.put("b.json", one.text);
    Options coco_options = options(kInput);
    coco_options.format = "coco";
    EXPECT_THAT(folder.error("b.json", coco_options), HasSubstr(one.message)) << one.text;
  }
}

TEST(CocoBoxes, ABoxOutsideTheImageIsNamedWhenItIsRead) {
  Folder folder;
  folder.put("1.png", numbered_png());
  folder.put("b.json", coco(annotation("[9, 9, 1, 1]")));
  const auto data = folder.open("b.json", options(kInput)).value();
  const auto read = data->read(std::vector<std::size_t>{0}, {}, 1);
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.error().message(),
            "b.json, annotation 1 (1.png): the box lies outside the image of 4x3 pixels; correct "
            "the box");
}

std::string voc(const std::string& objects, const std::string& file = "1.png") {
  return "<annotation>\n<filename>" + file + "</filename>\n" + objects + "</annotation>";
}

std::string object(const std::string& name, const std::string& box) {
  return "<object><name>" + name + "</name><part><name>x</name></part><bndbox>" + box +
         "</bndbox></object>\n";
}

const std::string kBox = "<xmin>2</xmin><ymin>2</ymin><xmax>3</xmax><ymax>2</ymax>";

TEST(VocBoxes, EachObjectIsASampleOfItsName) {
  Folder folder;
  folder.put("JPEGImages/1.png", numbered_png());
  folder.put("Annotations/1.xml", voc(object("dog", kBox) + object(" cat ", kBox)));
  folder.put("Annotations/2.xml", voc(""));
  const auto data = folder.open("", options(kInput)).value();
  EXPECT_THAT(data->classes(), ElementsAre("cat", "dog"));
  const Batch batch = read_all(*data);
  EXPECT_THAT(values(batch), ElementsAre(11, 12, 11, 12));
  EXPECT_THAT(batch.labels, ElementsAre(1, 0));
  EXPECT_EQ(data->place(1), "Annotations/1.xml, line 4 (1.png)");
}

TEST(VocBoxes, AnnotationsMayLieBesideTheImages) {
  Folder folder;
  folder.put("1.png", numbered_png());
  folder.put("1.xml", voc(object("dog", kBox)));
  Options bare = options(kInput);
  bare.format = "voc";
  EXPECT_EQ(folder.open("", bare).value()->size(), 1u);
}

TEST(VocBoxes, ErrorsNameTheFileAndLine) {
  const struct {
    std::string text;
    const char* message;
  } cases[] = {
      {voc(""), "has no file Annotations/*.xml with an object"},
      {"<a/>", "Annotations/1.xml, line 1: its root is not <annotation>"},
      {voc("<object/>"), "Annotations/1.xml, line 3: an object without a name"},
      {voc(object("a", "<xmin>1</xmin>")),
       "Annotations/1.xml, line 3: the object \"a\" has no <bndbox> with xmin"},
      {voc(object("a", "<xmin>1</xmin><ymin>x</ymin><xmax>3</xmax><ymax>2</ymax>")),
       "has no <bndbox>"},
      {voc(object("a", "<xmin>5</xmin><ymin>2</ymin><xmax>3</xmax><ymax>2</ymax>")),
       "Annotations/1.xml, line 3: the box has no area"},
      {voc(object("a", kBox), ""), "Annotations/1.xml, line 1: the annotation has no <filename>"},
      {voc(object("a", kBox), "/etc/passwd"), "does not lie below the dataset's folder"},
      {"<!DOCTYPE a [<!ENTITY b \"c\">]><annotation/>", "it declares entities"},
  };
  for (const auto& one : cases) {
    Folder folder;
    folder.put("JPEGImages/1.png", numbered_png());
    folder.put("Annotations/1.xml", one.text);
    EXPECT_THAT(folder.error("", options(kInput)), HasSubstr(one.message)) << one.text;
  }
}

TEST(CroppedImages, KeepWholePixelsInsideTheImage) {
  const codec::Image image = codec::decode_image(numbered_png()).value();
  const auto crop = [&](internal::Box box) { return internal::cropped(image, box); };
  EXPECT_THAT(crop({-5, -5, 1, 1})->pixels, ElementsAre(0));
  EXPECT_THAT(crop({2.5f, 1.5f, 3.5f, 9})->pixels, ElementsAre(12, 13, 22, 23));
  EXPECT_THAT(crop({3.9f, 2.9f, 3.95f, 2.95f})->pixels, ElementsAre(23));
  EXPECT_EQ(crop({0, 0, 4, 3})->pixels, image.pixels);
  EXPECT_FALSE(crop({4, 0, 5, 3}).ok());
  EXPECT_FALSE(crop({0, -3, 4, 0}).ok());
}

}  // namespace boxes_test
}  // namespace varda::samples
