// idx, npy and npz.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "codec/digest.h"
#include "codec/gzip.h"
#include "samples/internal/array.h"
#include "samples/testing/folder.h"

namespace varda::samples {
namespace arrays_test {

using ::testing::ElementsAre;
using testing::Folder;
using ::testing::HasSubstr;
using testing::options;
using testing::values;

std::string idx(char type, const std::vector<int>& sizes, const std::string& data) {
  std::string out{'\0', '\0', type, static_cast<char>(sizes.size())};
  for (const int size : sizes) {
    for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>(size >> shift & 0xFF);
  }
  return out + data;
}

std::string npy(const std::string& type, const std::string& shape, const std::string& data) {
  std::string header =
      "{'descr': '" + type + "', 'fortran_order': False, 'shape': " + shape + ", }";
  while ((header.size() + 11) % 64 != 0) header += ' ';
  header += '\n';
  std::string out = "\x93NUMPY\x01";
  out += '\0';
  out += static_cast<char>(header.size() & 0xFF);
  out += static_cast<char>(header.size() >> 8);
  return out + header + data;
}

template <typename T>
std::string bytes_of(const std::vector<T>& list) {
  return {reinterpret_cast<const char*>(list.data()), list.size() * sizeof(T)};
}

/// A zip with stored entries. https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT
std::string zip(const std::vector<std::pair<std::string, std::string>>& files) {
  const auto number = [](std::uint64_t value, int bytes) {
    std::string out;
    for (int i = 0; i < bytes; ++i)
      out += i < 8 ? static_cast<char>(value >> (8 * i) & 0xFF) : '\0';
    return out;
  };
  const auto crc = [](const std::string& data) {
    std::uint32_t out = 0xFFFFFFFF;
    for (const char c : data) {
      out ^= static_cast<unsigned char>(c);
      for (int i = 0; i < 8; ++i) out = out >> 1 ^ (0xEDB88320 & (0 - (out & 1)));
    }
    return ~out;
  };
  std::string out, central;
  for (const auto& [name, data] : files) {
    const std::string common = number(20, 2) + number(0, 8) + number(crc(data), 4) +
                               number(data.size(), 4) + number(data.size(), 4) +
                               number(name.size(), 2) + number(0, 2);
    central += "PK\x01\x02" + number(20, 2) + common + number(0, 10) + number(out.size(), 4) + name;
    out += "PK\x03\x04" + common + name + data;
  }
  return out + central + "PK\x05\x06" + number(0, 4) + number(files.size(), 2) +
         number(files.size(), 2) + number(central.size(), 4) + number(out.size(), 4) + number(0, 2);
}

const std::vector<std::size_t> kBoth = {0, 1};
const std::string kImages("\x00\x01\x02\x03\xff\x05\x06\x07", 8);  // two of 2x2

void put_idx(Folder& folder) {
  folder.put("train-images-idx3-ubyte", idx(8, {2, 2, 2}, kImages));
  folder.put("train-labels-idx1-ubyte", idx(8, {2}, "\x07\x03"));
}

TEST(Arrays, IdxImagesKeepTheirValuesWithoutADeclaredStep) {
  Folder folder;
  put_idx(folder);
  for (const tensor::Shape& shape :
       std::vector<tensor::Shape>{{-1, 1, 2, 2}, {-1, 2, 2, 1}, {-1, 2, 2}, {-1, 4}}) {
    const auto data = folder.open("", options(shape)).value();
    EXPECT_THAT(data->classes(), ElementsAre("3", "7"));
    const Batch batch = data->read(kBoth, {}, 1).value();
    EXPECT_THAT(values(batch), ElementsAre(0, 1, 2, 3, 255, 5, 6, 7));
    EXPECT_THAT(batch.labels, ElementsAre(1, 0));
    EXPECT_EQ(batch.input.shape().size(), shape.size());
    EXPECT_EQ(data->place(1), "train-images-idx3-ubyte, row 2");
  }
}

TEST(Arrays, IdxImagesPassTheDeclaredStepLikeAPng) {
  Folder folder, pngs;
  put_idx(folder);
  transform::ImageStep step;
  step.channels = transform::Channels::kGrey;
  step.scale = 1 / 255.0;
  step.mean = {0.5};
  step.std = {0.25};
  Options declared = options({-1, 1, 3, 3});
  declared.preprocess.image = step;
  const auto data = folder.open("", declared).value();
  pngs.put("a/1.png", data->picture(0).value());
  pngs.put("a/2.png", data->picture(1).value());
  EXPECT_EQ(values(data->read(kBoth, {}, 1).value()),
            values(pngs.open("", declared).value()->read(kBoth, {}, 1).value()));
}

TEST(Arrays, FilesMayBeCompressedAndNamedDifferently) {
  Folder folder;
  folder.put("test-images.idx3-ubyte.gz", codec::gzip(idx(8, {2, 2, 2}, kImages)));
  folder.put("test-labels.idx1-ubyte", idx(8, {2}, "\x01\x02"));
  const auto data = folder.open("", options({-1, 4})).value();
  EXPECT_THAT(values(data->read(kBoth, {}, 1).value()), ElementsAre(0, 1, 2, 3, 255, 5, 6, 7));
  EXPECT_EQ(folder.open("test-images.idx3-ubyte.gz", options({-1, 4})).value()->size(), 2u);
  put_idx(folder);
  EXPECT_EQ(folder.open("", options({-1, 4})).value()->place(0), "train-images-idx3-ubyte, row 1");
}

TEST(Arrays, IdxValuesOfOtherTypesAreBigEndian) {
  Folder folder;
  folder.put("images-idx2", idx(0x0B, {2, 2}, std::string("\x01\x00\xff\xff\x00\x02\x80\x00", 8)));
  folder.put("labels-idx1", idx(0x0D, {2}, std::string("\x3f\x80\x00\x00\xc0\x20\x00\x00", 8)));
  Options regression = options({-1, 2});
  regression.task = Task::kRegression;
  regression.format = "idx";
  const Batch batch = folder.open("", regression).value()->read(kBoth, {}, 1).value();
  EXPECT_THAT(values(batch), ElementsAre(256, -1, 2, -32768));
  EXPECT_THAT(batch.targets, ElementsAre(1, -2.5f));
}

TEST(Arrays, NpyFilesOfAFolderFormAPair) {
  Folder folder;
  folder.put("X.npy", npy("<f4", "(2, 3)", bytes_of<float>({1, 2, 3, 4, 5, 6.5f})));
  folder.put("y.npy", npy("<i8", "(2,)", bytes_of<std::int64_t>({10, 9})));
  const auto data = folder.open("", options({-1, 3})).value();
  EXPECT_THAT(data->classes(), ElementsAre("9", "10"));
  const Batch batch = data->read(std::vector<std::size_t>{1, 0}, {}, 1).value();
  EXPECT_THAT(values(batch), ElementsAre(4, 5, 6.5f, 1, 2, 3));
  EXPECT_THAT(batch.labels, ElementsAre(0, 1));
  EXPECT_EQ(data->picture(0).value(), "");
  EXPECT_EQ(folder.open("X.npy", options({-1, 3})).value()->size(), 2u);
}

TEST(Arrays, NpzArraysFormAPair) {
  Folder folder;
  folder.put("d.npz", zip({{"x_test.npy", npy("|u1", "(1, 2)", "ab")},
                           {"labels.npy", npy("|b1", "(2,)", std::string("\1\0", 2))},
                           {"images.npy", npy("|u1", "(2, 2, 2)", kImages)}}));
  const auto data = folder.open("d.npz", options({-1, 2, 2, 1})).value();
  EXPECT_THAT(data->classes(), ElementsAre("0", "1"));
  EXPECT_THAT(values(data->read(kBoth, {}, 1).value()), ElementsAre(0, 1, 2, 3, 255, 5, 6, 7));
  EXPECT_EQ(data->place(0), "images.npy, row 1");
  folder.put("e.npz", zip({{"a.npy", npy("|u1", "(1, 2)", "ab")}}));
  EXPECT_EQ(folder.error("e.npz", options({-1, 2})),
            "e.npz: no pair of arrays named X and y, x_train and y_train, images and labels, or "
            "data and target");
}

// Written by Python's zipfile as numpy.savez_compressed() does: deflate, and 64-bit sizes.
constexpr std::string_view kSavezCompressed =
    "UEsDBC0AAAAIAAAAIQBO+yB1//////////8FABQAWC5ucHkBABAAkAAAAAAAAABTAAAAAAAAAJvsF+obEMnIUMZQ"
    "rZ6SWpxcpG6loG6TZqKuo6Cell9UUpSYF59flJIKEndLzClOBYoXZyQWpAL5GkY6CkaaOgq1CmQDLgaGBnsGBgYH"
    "IALiBgcAUEsDBC0AAAAIAAAAIQBxvme5//////////8FABQAeS5ucHkBABAAkAAAAAAAAABKAAAAAAAAAJvsF+ob"
    "EMnIUMZQrZ6SWpxcpG6loG6TaaGuo6Cell9UUpSYF59flJIKEndLzClOBYoXZyQWpAL5GkY6mjoKtQoUAC5WBghg"
    "g9IAUEsBAi0DLQAAAAgAAAAhAE77IHVTAAAAkAAAAAUAAAAAAAAAAAAAAIABAAAAAFgubnB5UEsBAi0DLQAAAAgA"
    "AAAhAHG+Z7lKAAAAkAAAAAUAAAAAAAAAAAAAAIABigAAAHkubnB5UEsFBgAAAAACAAIAZgAAAAsBAAAAAA==";

TEST(Arrays, CompressedNpzOfNumpyIsRead) {
  Folder folder;
  folder.put("d.npz", codec::unbase64(kSavezCompressed).value());
  const auto data = folder.open("d.npz", options({-1, 2})).value();
  EXPECT_THAT(data->classes(), ElementsAre("5", "6"));
  EXPECT_THAT(values(data->read(kBoth, {}, 1).value()), ElementsAre(1, 2, 3, 4));
}

TEST(Arrays, RowsOfFlagsAreSeveralLabels) {
  Folder folder;
  folder.put("X.npy", npy("<f8", "(2, 1)", bytes_of<double>({1, 2})));
  folder.put("y.npy", npy("|u1", "(2, 3)", std::string("\0\1\1\1\0\0", 6)));
  Options many = options({-1, 1});
  many.task = Task::kMultiLabel;
  const auto data = folder.open("", many).value();
  EXPECT_THAT(data->classes(), ElementsAre("0", "1", "2"));
  EXPECT_THAT(data->class_counts(), ElementsAre(1, 1, 1));
  EXPECT_THAT(data->read(kBoth, {}, 1).value().targets, ElementsAre(0, 1, 1, 1, 0, 0));
  EXPECT_THAT(folder.error("", options({-1, 1})), HasSubstr("save y.argmax(axis=1)"));
}

TEST(Arrays, ColourImagesMayBePlanesOrPixels) {
  Folder planes, pixels;
  planes.put("x.npy", npy("|u1", "(1, 3, 1, 2)", "rRgGbB"));
  pixels.put("x.npy", npy("|u1", "(1, 1, 2, 3)", "rgbRGB"));
  for (Folder* folder : {&planes, &pixels}) {
    folder->put("y.npy", npy("|u1", "(1,)", std::string(1, '\0')));
    const auto data = folder->open("", options({-1, 3, 1, 2})).value();
    EXPECT_THAT(values(data->read(std::vector<std::size_t>{0}, {}, 1).value()),
                ElementsAre('r', 'R', 'g', 'G', 'b', 'B'));
  }
}

TEST(Arrays, FlatRowsOfBytesPassADeclaredStep) {
  Folder folder;
  folder.put("x.npy", npy("|u1", "(2, 4)", kImages));
  folder.put("y.npy", npy("|u1", "(2,)", "\1\2"));
  Options declared = options({-1, 1, 2, 2});
  declared.preprocess.image = transform::ImageStep{};
  declared.preprocess.image->channels = transform::Channels::kGrey;
  declared.preprocess.image->scale = 2;
  const auto data = folder.open("", declared).value();
  EXPECT_THAT(values(data->read(std::vector<std::size_t>{1}, {}, 1).value()),
              ElementsAre(510, 10, 12, 14));
}

TEST(Arrays, ErrorsNameFileRowAndShapes) {
  Folder folder;
  const auto put = [&](const std::string& x, const std::string& y) {
    folder.put("X.npy", x);
    folder.put("y.npy", y);
  };
  const std::string good_x = npy("|u1", "(2, 2, 2)", kImages), good_y = npy("|u1", "(2,)", "\1\2");
  const auto error = [&](tensor::Shape input) {
    return folder.error("", options(std::move(input)));
  };
  put(good_x, good_y);
  EXPECT_EQ(error({-1, 1, 3, 3}),
            "X.npy: images of shape [2,2] do not fit the model's input \"x\" of shape "
            "[-1,1,3,3]; declare preprocess.image in model.yaml to resize them");
  put(npy("<f4", "(2, 2)", std::string(16, '\0')), good_y);
  EXPECT_EQ(error({-1, 3}),
            "X.npy: a sample of shape [2] does not fit the model's input \"x\" of shape [-1,3]");
  put(good_x, npy("|u1", "(1,)", "\1"));
  EXPECT_EQ(error({-1, 4}), "X.npy has 2 rows, but y.npy has 1; each sample needs one label");
  put(good_x.substr(0, good_x.size() - 1), good_y);
  EXPECT_EQ(error({-1, 4}),
            "X.npy: the file has 7 bytes of values, but its header says 8; copy "
            "the file again");
  put(npy("|u1", "(0, 2, 2)", ""), npy("|u1", "(0,)", ""));
  EXPECT_EQ(error({-1, 4}), "X.npy has no rows; training needs at least one");
  put(npy("<f4", "(99999999999, 99999999999)", ""), good_y);
  EXPECT_THAT(error({-1, 4}), HasSubstr("X.npy: "));
  put(good_x, npy("<f4", "(2,)", bytes_of<float>({1, std::nanf("")})));
  EXPECT_THAT(error({-1, 4}), HasSubstr("y.npy, row 2: the label is missing"));
  put(npy("<f4", "(2, 1)", bytes_of<float>({1, std::nanf("")})), good_y);
  const auto read = folder.open("", options({-1, 1})).value()->read(kBoth, {}, 1);
  ASSERT_FALSE(read.ok());
  EXPECT_THAT(read.error().message(), HasSubstr("X.npy, row 2: nan is no value of type FP32"));
  Folder empty;
  Options idx_format = options({-1, 4});
  idx_format.format = "idx";
  EXPECT_THAT(empty.error("", idx_format), HasSubstr("ROOT has no pair of files *images*idx*"));
}

TEST(Arrays, IdxHeadersAreChecked) {
  using internal::parse_idx_header;
  EXPECT_TRUE(parse_idx_header(idx(8, {2, 3}, "")).ok());
  EXPECT_EQ(parse_idx_header(idx(0x0E, {2, 3}, ""))->data_bytes, 48u);
  for (const std::string& bad : {std::string(), std::string("\0\0\x08", 3), std::string("abcd"),
                                 idx(8, {2, 3}, "").substr(0, 9), idx(7, {2}, ""), idx(8, {}, ""),
                                 idx(8, {0x7fffffff, 0x7fffffff, 0x7fffffff}, "")})
    EXPECT_FALSE(parse_idx_header(bad).ok());
}

}  // namespace arrays_test
}  // namespace varda::samples
