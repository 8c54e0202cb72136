// imagefolder, and the changes of images.
#include <algorithm>
#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "samples/internal/augment.h"
#include "samples/testing/folder.h"
#include "transform/pipeline.h"

namespace varda::samples {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using testing::Folder;
using ::testing::HasSubstr;
using testing::options;
using testing::plain_png;
using testing::values;

transform::Declaration image_step(transform::ImageStep step) {
  transform::Declaration out;
  out.image = std::move(step);
  return out;
}

codec::Image slope(std::size_t width, std::size_t height, std::size_t channels) {
  codec::Image out{width, height, channels, {}};
  for (std::size_t i = 0; i < width * height * channels; ++i)
    out.pixels.push_back(static_cast<std::uint8_t>(i * 7));
  return out;
}

TEST(ImageFolders, FoldersNameTheClassesAtAnyDepth) {
  Folder folder;
  folder.put("dog/1.png", plain_png(2, 2, 10));
  folder.put("cat/b/2.PNG", plain_png(2, 2, 20));
  folder.put("cat/1.png", plain_png(2, 2, 30));
  folder.put("cat/notes.txt", "x");
  folder.put("cat/.hidden.png", "x");
  folder.put("outside.png", plain_png(2, 2, 40));
  const auto data = folder.open("", options({-1, 1, 2, 2})).value();
  EXPECT_EQ(data->size(), 3u);
  EXPECT_THAT(data->classes(), ElementsAre("cat", "dog"));
  EXPECT_THAT(data->class_counts(), ElementsAre(2, 1));
  EXPECT_EQ(data->place(0), "cat/1.png");
  EXPECT_EQ(data->place(1), "cat/b/2.PNG");
  const Batch batch = data->read(std::vector<std::size_t>{0, 1, 2}, {}, 1).value();
  EXPECT_THAT(batch.labels, ElementsAre(0, 0, 1));
  EXPECT_THAT(values(batch), ElementsAre(30, 30, 30, 30, 20, 20, 20, 20, 10, 10, 10, 10));
  EXPECT_EQ(data->picture(2).value(), plain_png(2, 2, 10));
}

TEST(ImageFolders, ImagesBecomeTheValuesThatServingComputes) {
  Folder folder;
  const std::string png = codec::encode_png(slope(9, 7, 3)).value();
  folder.put("a/1.png", png);
  for (const tensor::DType dtype :
       {tensor::DType::kFp32, tensor::DType::kFp16, tensor::DType::kUint8}) {
    for (const transform::Filter filter :
         {transform::Filter::kBilinear, transform::Filter::kArea}) {
      transform::ImageStep step;
      step.channels = transform::Channels::kBgr;
      step.filter = filter;
      if (dtype != tensor::DType::kUint8) {
        step.scale = 1 / 255.0;
        step.mean = {0.4, 0.5, 0.6};
        step.std = {0.2, 0.25, 0.3};
      }
      Options opened = options({-1, 3, 4, 5}, dtype);
      opened.preprocess = image_step(step);
      const auto data = folder.open("", opened).value();
      const Batch batch = data->read(std::vector<std::size_t>{0}, {}, 1).value();
      const auto pipeline =
          transform::Pipeline::compile(opened.preprocess, {opened.input}, {}, {}).value();
      const auto served =
          pipeline
              .before({{"image",
                        tensor::Tensor::of_strings({1}, std::vector<std::string>{png}).value()}})
              .value();
      EXPECT_EQ(batch.input.shape(), served.inputs[0].tensor.shape());
      EXPECT_TRUE(std::ranges::equal(batch.input.bytes(), served.inputs[0].tensor.bytes()));
    }
  }
}

TEST(ImageFolders, ErrorsNameTheFile) {
  Folder folder;
  EXPECT_THAT(folder.error("",
                           [] {
                             Options out = options({-1, 1, 2, 2});
                             out.format = "imagefolder";
                             return out;
                           }()),
              HasSubstr("ROOT has no images in class folders; put each image into a folder"));
  folder.put("a/1.png", plain_png(2, 2, 10));
  folder.put("b/torn.png", plain_png(2, 2, 10).substr(0, 40));
  const auto data = folder.open("", options({-1, 1, 2, 2})).value();
  const auto read = data->read(std::vector<std::size_t>{0, 1}, {}, 1);
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.error().code(), Code::kInvalid);
  EXPECT_THAT(read.error().message(), ::testing::StartsWith("b/torn.png: "));
  folder.put("b/2.webp", "RIFF");
  EXPECT_EQ(folder.error("", options({-1, 1, 2, 2})),
            "b/2.webp is neither JPEG nor PNG; convert the image, or remove it");
}

TEST(ImageFolders, UnknownClassIsRefused) {
  Folder folder;
  folder.put("cat/1.png", plain_png(2, 2, 10));
  folder.put("cow/1.png", plain_png(2, 2, 10));
  Options given = options({-1, 1, 2, 2});
  given.classes = {"dog", "cat"};
  EXPECT_THAT(folder.error("", given),
              HasSubstr("cow: the label \"cow\" is none of the 2 classes (\"dog\", \"cat\")"));
}

TEST(ImageFolders, LinksDoNotLeadOutOfTheAllowedFolder) {
  Folder folder, outside;
  outside.put("secret.png", plain_png(2, 2, 10));
  folder.put("a/1.png", plain_png(2, 2, 10));
  ASSERT_EQ(::symlink((outside.path() / "secret.png").c_str(), (folder.path() / "a/2.png").c_str()),
            0);
  EXPECT_THAT(folder.error("", options({-1, 1, 2, 2})), HasSubstr("does not lie below"));
}

TEST(ImageFolders, FingerprintChangesWithNamesAndContent) {
  const auto fingerprint = [](const char* name, std::uint8_t value) {
    Folder folder;
    folder.put(name, plain_png(2, 2, value));
    return folder.open("", options({-1, 1, 2, 2})).value()->fingerprint();
  };
  EXPECT_EQ(fingerprint("a/1.png", 1), fingerprint("a/1.png", 1));
  EXPECT_NE(fingerprint("a/1.png", 1), fingerprint("a/1.png", 2));
  EXPECT_NE(fingerprint("a/1.png", 1), fingerprint("b/1.png", 1));
}

class Changes : public ::testing::Test {
 protected:
  Changes() {
    for (int i = 0; i < 40; ++i)
      folder_.put("a/" + std::to_string(100 + i) + ".png",
                  codec::encode_png(slope(4, 4, 1)).value());
    data_ = folder_.open("", options({-1, 1, 4, 4})).value();
  }
  std::vector<float> read(std::size_t index, const Augment& augment, std::uint64_t seed = 1) {
    return values(data_->read(std::vector<std::size_t>{index}, augment, seed).value());
  }

  Folder folder_;
  std::shared_ptr<const Dataset> data_;
};

/// The definition of the changes, value by value.
std::vector<float> changed_literally(std::vector<float> pixels, std::ptrdiff_t width,
                                     std::ptrdiff_t height, std::ptrdiff_t channels,
                                     const Augment& augment, std::uint64_t seed,
                                     std::uint64_t index) {
  // SplitMix64.
  std::uint64_t state = seed;
  const auto next = [&] {
    std::uint64_t z = state += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  };
  state = next() ^ index;
  const auto unit = [&] { return static_cast<double>(next() >> 11) * 0x1p-53; };
  const auto shift = [&](std::ptrdiff_t size) {
    const std::ptrdiff_t most = std::min<std::ptrdiff_t>(augment.crop, size);
    return static_cast<std::ptrdiff_t>(std::floor(unit() * static_cast<double>(2 * most + 1))) -
           most;
  };
  const auto factor = [&] { return static_cast<float>(1 + augment.jitter * (2 * unit() - 1)); };
  const bool flip = unit() < 0.5 && augment.flip;
  const std::ptrdiff_t right = shift(width), down = shift(height);
  const float contrast = factor(), brightness = factor();
  std::vector<float> out;
  for (std::ptrdiff_t y = 0; y < height; ++y) {
    for (std::ptrdiff_t x = 0; x < width; ++x) {
      const std::ptrdiff_t row = std::clamp<std::ptrdiff_t>(y - down, 0, height - 1);
      std::ptrdiff_t column = std::clamp<std::ptrdiff_t>(x - right, 0, width - 1);
      if (flip) column = width - 1 - column;
      for (std::ptrdiff_t c = 0; c < channels; ++c)
        out.push_back(pixels[static_cast<std::size_t>((row * width + column) * channels + c)]);
    }
  }
  if (augment.jitter <= 0) return out;
  double sum = 0;
  for (const float value : out) sum += static_cast<double>(value);
  const auto mean = static_cast<float>(sum / static_cast<double>(out.size()));
  for (float& value : out)
    value = std::clamp(((value - mean) * contrast + mean) * brightness, 0.0f, 255.0f);
  return out;
}

TEST(ImageChanges, EqualTheirDefinitionInEachForm) {
  for (const std::size_t channels : {1, 3}) {
    for (const bool resized : {false, true}) {
      for (const auto& [width, height] : {std::pair(7, 5), std::pair(1, 1), std::pair(2, 9)}) {
        const auto columns = static_cast<std::size_t>(width),
                   rows = static_cast<std::size_t>(height);
        transform::Pixels image;
        image.resized = resized;
        image.bytes = slope(columns, rows, channels).pixels;
        for (std::size_t i = 0; i < image.tones.size(); ++i) image.tones[i] = static_cast<float>(i);
        image.values.assign(image.bytes.begin(), image.bytes.end());
        if (resized)
          for (float& value : image.values) value += 0.1f;
        for (const Augment& augment :
             {Augment{.flip = true}, Augment{.crop = 3}, Augment{.crop = 100},
              Augment{.jitter = 0.7}, Augment{.flip = true, .crop = 2, .jitter = 0.3}}) {
          for (std::uint64_t seed = 0; seed < 10; ++seed) {
            transform::Pixels got = image;
            internal::change(got, columns, rows, channels, augment, seed, 4);
            if (!resized) {
              got.values.clear();
              for (const std::uint8_t byte : got.bytes) got.values.push_back(got.tones[byte]);
            }
            EXPECT_EQ(got.values,
                      changed_literally(image.values, width, height,
                                        static_cast<std::ptrdiff_t>(channels), augment, seed, 4));
          }
        }
      }
    }
  }
}

TEST_F(Changes, DependOnSeedAndSampleAlone) {
  const Augment all{.flip = true, .crop = 2, .jitter = 0.3};
  std::vector<std::size_t> every(40);
  for (std::size_t i = 0; i < every.size(); ++i) every[i] = 39 - i;
  const std::vector<float> together = values(data_->read(every, all, 7).value());
  bool differs = false, seed_matters = false;
  for (std::size_t i = 0; i < every.size(); ++i) {
    const std::vector<float> alone = read(every[i], all, 7);
    EXPECT_TRUE(
        std::equal(alone.begin(), alone.end(), together.begin() + 16 * static_cast<long>(i)));
    differs |= alone != read(0, all, 7);
    seed_matters |= alone != read(every[i], all, 8);
  }
  EXPECT_TRUE(differs);
  EXPECT_TRUE(seed_matters);
}

TEST_F(Changes, FlipMirrorsAboutHalfOfTheImages) {
  const std::vector<float> plain = read(0, {});
  std::vector<float> mirrored = plain;
  for (auto row = mirrored.begin(); row != mirrored.end(); row += 4) std::reverse(row, row + 4);
  int flipped = 0;
  for (std::size_t i = 0; i < 40; ++i) {
    const std::vector<float> got = read(i, {.flip = true});
    if (got == mirrored) {
      ++flipped;
    } else {
      EXPECT_EQ(got, plain);
    }
  }
  EXPECT_GT(flipped, 8);
  EXPECT_LT(flipped, 32);
}

TEST_F(Changes, ShiftRepeatsTheEdge) {
  const std::vector<float> plain = read(0, {});
  for (std::size_t i = 0; i < 40; ++i) {
    const std::vector<float> got = read(i, {.crop = 1});
    bool found = false;
    for (int down = -1; down <= 1; ++down) {
      for (int right = -1; right <= 1; ++right) {
        std::vector<float> shifted;
        for (int y = 0; y < 4; ++y) {
          for (int x = 0; x < 4; ++x)
            shifted.push_back(plain[static_cast<std::size_t>(std::clamp(y - down, 0, 3) * 4 +
                                                             std::clamp(x - right, 0, 3))]);
        }
        found |= shifted == got;
      }
    }
    EXPECT_TRUE(found) << i;
  }
}

TEST_F(Changes, JitterStaysInTheRangeOfPixels) {
  bool changed = false;
  for (std::size_t i = 0; i < 40; ++i) {
    const std::vector<float> got = read(i, {.jitter = 1});
    EXPECT_THAT(got, Each(::testing::AllOf(::testing::Ge(0.0f), ::testing::Le(255.0f))));
    changed |= got != read(i, {});
  }
  EXPECT_TRUE(changed);
}

}  // namespace
}  // namespace varda::samples
