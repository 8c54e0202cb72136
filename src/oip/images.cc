#include "oip/images.h"

#include <algorithm>
#include <array>
#include <optional>

#include "codec/image.h"

namespace varda::oip {
namespace {

constexpr std::size_t kPixelsMax = std::size_t{64} << 20;

std::size_t big_endian(std::string_view bytes, std::size_t at) {
  std::size_t out = 0;
  for (std::size_t i = 0; i < 4; ++i) out = out << 8 | static_cast<unsigned char>(bytes[at + i]);
  return out;
}

// The dimensions of an IDX file of unsigned bytes with rank `rank`.
Result<std::vector<std::size_t>> idx_sizes(std::string_view bytes, std::size_t rank,
                                           std::string_view what) {
  const std::size_t header = 4 + 4 * rank;
  if (bytes.size() < 4 || bytes.substr(0, 3) != std::string_view("\0\0\x08", 3) ||
      static_cast<unsigned char>(bytes[3]) != rank) {
    return Error(Code::kInvalid, "not an IDX file of " + std::string(what));
  }
  if (bytes.size() < header) return Error(Code::kInvalid, "the IDX file ends within its header");
  std::vector<std::size_t> sizes;
  std::size_t total = 1;
  for (std::size_t i = 0; i < rank; ++i) {
    sizes.push_back(big_endian(bytes, 4 + 4 * i));
    if (sizes.back() > kPixelsMax || (total *= sizes.back()) > kPixelsMax)
      return Error(Code::kInvalid, "the IDX file has more than 64 Mpixel");
  }
  if (bytes.size() != header + total) {
    return Error(Code::kInvalid, "the IDX file has " + std::to_string(bytes.size() - header) +
                                     " bytes of data, its header says " + std::to_string(total));
  }
  return sizes;
}

// Arrangement of one image in the model's input.
struct Layout {
  std::size_t channels = 1;
  bool planes = false;  // [C,H,W]: one plane per channel
};

std::optional<Layout> layout_for(const Images& images, const tensor::Shape& shape) {
  const auto is = [&](std::size_t i, std::size_t size) {
    return shape[i] == static_cast<std::int64_t>(size) || shape[i] == -1;
  };
  const auto channels = [&](std::size_t i) -> std::size_t {
    return shape[i] == -1                   ? images.channels
           : shape[i] == 1 || shape[i] == 3 ? static_cast<std::size_t>(shape[i])
                                            : 0;
  };
  const std::size_t area = images.height * images.width;
  if (shape.size() == 2) {
    if (is(1, area)) return Layout{1, false};
    if (is(1, area * 3)) return Layout{3, false};
  } else if (shape.size() == 3 && is(1, images.height) && is(2, images.width)) {
    return Layout{1, false};
  } else if (shape.size() == 4) {
    if (channels(1) > 0 && is(2, images.height) && is(3, images.width))
      return Layout{channels(1), true};
    if (channels(3) > 0 && is(1, images.height) && is(2, images.width))
      return Layout{channels(3), false};
  }
  return std::nullopt;
}

// The value of one channel of a pixel, converted between grey and colour (ITU-R BT.601) if needed.
std::uint8_t channel_of(const std::uint8_t* pixel, std::size_t have, std::size_t want,
                        std::size_t channel) {
  if (have == want) return pixel[channel];
  if (have == 1) return pixel[0];
  return static_cast<std::uint8_t>((299 * pixel[0] + 587 * pixel[1] + 114 * pixel[2] + 500) / 1000);
}

template <typename T>
void fill(const Images& images, std::size_t first, std::size_t count, const Layout& layout,
          std::span<T> out) {
  const std::size_t area = images.height * images.width;
  T* to = out.data();
  for (std::size_t image = first; image < first + count; ++image) {
    const std::uint8_t* from = images.pixels.data() + image * area * images.channels;
    const std::size_t outer = layout.planes ? layout.channels : area;
    const std::size_t inner = layout.planes ? area : layout.channels;
    for (std::size_t i = 0; i < outer; ++i) {
      for (std::size_t j = 0; j < inner; ++j) {
        const std::size_t pixel = layout.planes ? j : i;
        const std::size_t channel = layout.planes ? i : j;
        *to++ = static_cast<T>(
            channel_of(from + pixel * images.channels, images.channels, layout.channels, channel));
      }
    }
  }
}

tensor::Shape shape_for(const Images& images, std::size_t count, const Layout& layout,
                        const tensor::Shape& specification) {
  const auto size = [](std::size_t n) { return static_cast<std::int64_t>(n); };
  const std::int64_t n = size(count), h = size(images.height), w = size(images.width),
                     c = size(layout.channels);
  if (specification.size() == 2) return {n, h * w * c};
  if (specification.size() == 3) return {n, h, w};
  return layout.planes ? tensor::Shape{n, c, h, w} : tensor::Shape{n, h, w, c};
}

Result<tensor::Tensor> file_tensor(const Images& images, std::size_t first, std::size_t count,
                                   const tensor::Spec& input) {
  const tensor::Shape shape = {static_cast<std::int64_t>(count)};
  if (!tensor::fits(shape, input.shape)) {
    return Error(Code::kInvalid,
                 "the model's input \"" + input.name + "\" takes strings in the shape " +
                     tensor::to_string(input.shape) + ", not " + tensor::to_string(shape));
  }
  std::vector<std::string> files;
  for (std::size_t i = first; i < first + count; ++i) {
    if (!images.file.empty()) {
      files.push_back(images.file);
      continue;
    }
    const std::size_t size = images.height * images.width * images.channels;
    const auto from = images.pixels.begin() + static_cast<std::ptrdiff_t>(i * size);
    TRY(std::string png, codec::encode_png({images.width,
                                            images.height,
                                            images.channels,
                                            {from, from + static_cast<std::ptrdiff_t>(size)}}));
    files.push_back(std::move(png));
  }
  return tensor::Tensor::of_strings(shape, files);
}

}  // namespace

Result<Images> parse_images(std::string_view bytes) {
  if (codec::image_format(bytes)) {
    TRY(codec::Image image, codec::decode_image(bytes, kPixelsMax));
    return Images{
        1, image.height, image.width, image.channels, std::move(image.pixels), std::string(bytes)};
  }
  auto sizes = idx_sizes(bytes, 3, "images");
  if (!sizes.ok() && bytes.substr(0, 2) != std::string_view("\0\0", 2))
    return Error(Code::kInvalid, "neither a JPEG, a PNG nor an IDX file of images");
  if (!sizes.ok()) return std::move(sizes).error();
  const std::string_view data = bytes.substr(16);
  return Images{(*sizes)[0], (*sizes)[1], (*sizes)[2], 1, {data.begin(), data.end()}, ""};
}

Result<std::vector<int>> parse_labels(std::string_view bytes) {
  TRY(const std::vector<std::size_t> sizes, idx_sizes(bytes, 1, "labels"));
  std::vector<int> out;
  out.reserve(sizes[0]);
  for (const char c : bytes.substr(8)) out.push_back(static_cast<unsigned char>(c));
  return out;
}

Result<tensor::Tensor> image_tensor(const Images& images, std::size_t first, std::size_t count,
                                    const tensor::Spec& input) {
  if (first + count > images.count)
    return Error(Code::kInvalid, "there are " + std::to_string(images.count) + " images");
  if (input.dtype == tensor::DType::kBytes) return file_tensor(images, first, count, input);
  const auto layout = layout_for(images, input.shape);
  if (!layout) {
    return Error(Code::kInvalid, "images of " + std::to_string(images.width) + "x" +
                                     std::to_string(images.height) +
                                     " pixels do not fit the model's input \"" + input.name +
                                     "\" of shape " + tensor::to_string(input.shape));
  }
  const tensor::Shape shape = shape_for(images, count, *layout, input.shape);
  if (!tensor::fits(shape, input.shape)) {
    return Error(Code::kInvalid, "the model's input \"" + input.name + "\" takes " +
                                     std::to_string(input.shape[0]) + " images at a time");
  }
  TRY(tensor::Tensor out, tensor::Tensor::allocate(input.dtype, shape));
  switch (input.dtype) {
    case tensor::DType::kFp32:
      fill(images, first, count, *layout, out.mutable_values<float>());
      break;
    case tensor::DType::kFp64:
      fill(images, first, count, *layout, out.mutable_values<double>());
      break;
    case tensor::DType::kUint8:
      fill(images, first, count, *layout, out.mutable_values<std::uint8_t>());
      break;
    default:
      return Error(Code::kInvalid, "the model's input \"" + input.name + "\" is " +
                                       std::string(to_string(input.dtype)) +
                                       "; images become FP32, FP64 or UINT8");
  }
  return out;
}

}  // namespace varda::oip
