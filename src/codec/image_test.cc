#include "codec/image.h"

#include <cstdlib>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <iterator>

#include "codec/json.h"

namespace varda::codec {
namespace image_test {

using ::testing::HasSubstr;

std::string file(const std::string& name) {
  std::ifstream in(std::string(VARDA_TESTDATA "/images/") + name, std::ios::binary);
  EXPECT_TRUE(in.good()) << name;
  return {std::istreambuf_iterator<char>(in), {}};
}

// Writes a big-endian number of two bytes.
void put16(std::string& bytes, std::size_t at, unsigned value) {
  bytes[at] = static_cast<char>(value >> 8);
  bytes[at + 1] = static_cast<char>(value & 0xff);
}

// Offset of the height in a JPEG's start of frame; the width follows.
std::size_t jpeg_height(const std::string& bytes) {
  const std::size_t at = bytes.find("\xff\xc0");
  EXPECT_NE(at, std::string::npos);
  return at + 5;
}

TEST(Image, DecodedPixelsMatchTheExpectedValues) {
  const Json expected = parse_json(file("expected.json")).value();
  ASSERT_GE(expected.size(), 18u);
  for (const auto& [name, want] : expected.as_object()) {
    const std::string bytes = file(name);
    const auto image = decode_image(bytes);
    ASSERT_TRUE(image.ok()) << name << ": " << image.error();
    EXPECT_EQ(image->width, static_cast<std::size_t>(want["width"].as_integer())) << name;
    EXPECT_EQ(image->height, static_cast<std::size_t>(want["height"].as_integer())) << name;
    EXPECT_EQ(image->channels, static_cast<std::size_t>(want["channels"].as_integer())) << name;
    const Json& pixels = want["pixels"];
    ASSERT_EQ(image->pixels.size(), pixels.size()) << name;
    for (std::size_t i = 0; i < pixels.size(); ++i) {
      const auto off = std::abs(image->pixels[i] - pixels.as_array()[i].as_integer());
      EXPECT_LE(off, want["tolerance"].as_integer()) << name << " value " << i;
    }
    const ImageHeader header = read_image_header(bytes).value();
    EXPECT_EQ(header.width, image->width) << name;
    EXPECT_EQ(header.height, image->height) << name;
    EXPECT_EQ(header.format == ImageFormat::kPng, name.find(".png") != std::string::npos) << name;
  }
}

TEST(Image, MemoryOfAnEarlierImageLeavesNoTrace) {
  const Json expected = parse_json(file("expected.json")).value();
  for (const auto& [name, want] : expected.as_object()) {
    const std::string bytes = file(name);
    for (const std::size_t size : {1, 100, 100'000}) {
      const Image image =
          decode_image(bytes, kImagePixelsMax, std::vector<std::uint8_t>(size, 0xab)).value();
      EXPECT_EQ(image.pixels, decode_image(bytes)->pixels) << name;
    }
  }
}

TEST(Image, TruncatedImageIsAnErrorAtEveryByte) {
  for (const char* name : {"ramp.jpg", "ramp_progressive.jpg", "grey.jpg", "rgb8.png",
                           "palette2.png", "interlaced.png"}) {
    const std::string whole = file(name);
    // The last four bytes of a PNG are the checksum of the empty end chunk.
    const std::size_t end = whole.size() - (image_format(whole) == ImageFormat::kPng ? 4 : 0);
    for (std::size_t cut = 0; cut < end; ++cut) {
      const auto image = decode_image(std::string_view(whole).substr(0, cut));
      ASSERT_FALSE(image.ok()) << name << " cut at " << cut;
      EXPECT_EQ(image.error().code(), Code::kInvalid) << name << " cut at " << cut;
    }
  }
}

TEST(Image, SizeLimitIsCheckedAgainstTheHeaderBeforeDecoding) {
  EXPECT_TRUE(decode_image(file("rgb8.png"), 4).ok());
  EXPECT_EQ(decode_image(file("rgb8.png"), 3).error().message(), "PNG: 2x2 pixels are too many");
  EXPECT_EQ(decode_image(file("ramp.jpg"), 191).error().message(),
            "JPEG: 16x12 pixels are too many");
  std::string huge = file("ramp.jpg");
  put16(huge, jpeg_height(huge), 65500);
  put16(huge, jpeg_height(huge) + 2, 65500);
  EXPECT_EQ(decode_image(huge).error().message(), "JPEG: 65500x65500 pixels are too many");
  EXPECT_EQ(read_image_header(huge)->width, 65500u);
}

// A progressive JPEG of 8x8 grey pixels: one scan for the mean, then ten bytes per further
// coefficient, all 0.
std::string jpeg_of_scans(std::size_t scans) {
  using namespace std::string_literals;
  std::string out = "\xff\xd8\xff\xdb\0\x43\0"s + std::string(64, '\x01');
  out += "\xff\xc2\0\x0b\x08\0\x08\0\x08\x01\x01\x11\0"s;
  for (const char table : {'\0', '\x10'})
    out += "\xff\xc4\0\x14"s + table + '\x01' + std::string(15, '\0') + '\0';  // 0 is the code of 0
  for (std::size_t i = 0; i < scans; ++i)
    out += "\xff\xda\0\x08\x01\x01\0"s + char(i) + char(i) + "\0\x7f"s;
  return out + "\xff\xd9";
}

TEST(Image, JpegWithMoreThan32ScansIsRefused) {
  const std::string most = jpeg_of_scans(32);
  const auto image = decode_image(most);
  ASSERT_TRUE(image.ok()) << image.error();
  EXPECT_EQ(image->pixels, std::vector<std::uint8_t>(64, 128));
  for (const std::size_t scans : {33u, 64u}) {
    const auto refused = decode_image(jpeg_of_scans(scans));
    ASSERT_FALSE(refused.ok()) << scans;
    EXPECT_EQ(refused.error().code(), Code::kInvalid);
    EXPECT_EQ(refused.error().message(), "JPEG: it has more than 32 scans");
  }
  // Scan markers inside a thumbnail or after the end do not count.
  std::string thumbnail = "\xff\xe1";
  thumbnail += '\0';
  thumbnail += static_cast<char>(82);
  for (int i = 0; i < 40; ++i) thumbnail += "\xff\xda";
  std::string with = most;
  with.insert(2, thumbnail);
  EXPECT_TRUE(decode_image(with + most).ok()) << decode_image(with + most).error();
}

TEST(Image, ImagesWithoutPixelsAreRefused) {
  std::string jpeg = file("ramp.jpg");
  put16(jpeg, jpeg_height(jpeg), 0);
  EXPECT_FALSE(decode_image(jpeg).ok());
  std::string png = file("rgb8.png");
  for (std::size_t i = 16; i < 24; ++i) png[i] = 0;
  EXPECT_FALSE(decode_image(png).ok());
  EXPECT_FALSE(read_image_header(png).ok());
}

TEST(Image, JpegWithTooLittleDataForItsSizeIsRefused) {
  std::string jpeg = file("ramp.jpg");
  put16(jpeg, jpeg_height(jpeg), 1200);
  EXPECT_FALSE(decode_image(jpeg).ok());
}

TEST(Image, ErrorNamesUnsupportedAndForeignFormats) {
  for (const char* bytes : {"", "hello", "GIF89a", "\x89PN", "\xff\xd8"}) {
    EXPECT_EQ(decode_image(bytes).error().message(), "neither a JPEG nor a PNG") << bytes;
    EXPECT_EQ(read_image_header(bytes).error().code(), Code::kInvalid) << bytes;
  }
  const auto cmyk = decode_image(file("cmyk.jpg"));
  ASSERT_FALSE(cmyk.ok());
  EXPECT_EQ(cmyk.error().code(), Code::kUnsupported);
  EXPECT_THAT(cmyk.error().message(), HasSubstr("CMYK"));
}

TEST(Image, EncodedPngReadsBackUnchanged) {
  for (const std::size_t channels : {1u, 3u}) {
    Image image{5, 3, channels, {}};
    for (std::size_t i = 0; i < 15 * channels; ++i)
      image.pixels.push_back(static_cast<std::uint8_t>(i * 17));
    const Image back = decode_image(encode_png(image).value()).value();
    EXPECT_EQ(back.width, 5u);
    EXPECT_EQ(back.height, 3u);
    EXPECT_EQ(back.channels, channels);
    EXPECT_EQ(back.pixels, image.pixels);
  }
  EXPECT_EQ(encode_png({2, 2, 1, {1, 2, 3}}).error().code(), Code::kInvalid);
  EXPECT_EQ(encode_png({0, 2, 1, {}}).error().code(), Code::kInvalid);
  EXPECT_EQ(encode_png({1, 1, 2, {1, 2}}).error().code(), Code::kInvalid);
}

}  // namespace image_test
}  // namespace varda::codec
