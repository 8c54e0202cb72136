#include "transform/image_input.h"

#include <algorithm>
#include <cmath>
#include <list>

#include "base/text.h"
#include "codec/digest.h"
#include "codec/image.h"
#include "transform/internal/place.h"
#include "transform/internal/resize.h"

namespace varda::transform {
namespace {

using tensor::DType;

/// The values of unchanged bytes.
constexpr Tones kTones = [] {
  Tones out{};
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<float>(i);
  return out;
}();

std::string quoted_input(const tensor::Spec& spec) {
  return "the model's input \"" + spec.name + "\" of shape " + tensor::to_string(spec.shape);
}

std::string input_names(std::span<const tensor::Spec> specs) {
  return join(specs, ", ", [](const auto& spec) { return spec.name; });
}

Result<tensor::Spec> find_target(const std::string& name, std::span<const tensor::Spec> inputs) {
  if (name.empty()) {
    if (inputs.size() == 1) return inputs[0];
    return Error(Code::kInvalid,
                 "preprocess.input must name the model's input for images: " + input_names(inputs));
  }
  const auto it = std::find_if(inputs.begin(), inputs.end(),
                               [&](const tensor::Spec& spec) { return spec.name == name; });
  if (it == inputs.end())
    return Error(Code::kInvalid, "preprocess.input: the model has no input \"" + name +
                                     "\"; it has " + input_names(inputs));
  return *it;
}

Error open_layout(const tensor::Spec& target) {
  return Error(Code::kInvalid, "preprocess.image.layout must be set: the shape of " +
                                   quoted_input(target) + " does not define it");
}

// Derives the layout from a shape, for a number of channels.
Result<std::string> layout_of(const tensor::Spec& target, std::size_t channels) {
  const tensor::Shape& shape = target.shape;
  const auto has = [&](std::size_t i) { return shape[i] == static_cast<std::int64_t>(channels); };
  if (shape.size() == 4 && has(1) != has(3)) return std::string(has(1) ? "NCHW" : "NHWC");
  if (channels == 1 && shape.size() == 3)
    return std::string(shape[2] == 1 && shape[0] > 1 ? "HWC" : "NHW");
  if (shape.size() == 3 && has(0) != has(2)) return std::string(has(0) ? "CHW" : "HWC");
  if (channels == 1 && shape.size() == 2) return std::string(shape[0] > 1 ? "HW" : "NHW");
  return open_layout(target);
}

std::string size_text(std::size_t width, std::size_t height) {
  return std::to_string(width) + "x" + std::to_string(height);
}

// Converts to the declared number of channels, 8 bits each: grey by ITU-R BT.601, rounded.
void convert(codec::Image& image, std::size_t channels) {
  if (image.channels == channels) return;
  const std::size_t count = image.width * image.height;
  if (channels == 1) {
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint8_t* p = image.pixels.data() + 3 * i;
      image.pixels[i] =
          static_cast<std::uint8_t>((299 * p[0] + 587 * p[1] + 114 * p[2] + 500) / 1000);
    }
    image.pixels.resize(count);
  } else {
    std::vector<std::uint8_t> colour(count * 3);
    for (std::size_t i = 0; i < count; ++i)
      std::fill_n(colour.begin() + static_cast<std::ptrdiff_t>(3 * i), 3, image.pixels[i]);
    image.pixels = std::move(colour);
  }
  image.channels = channels;
}

// JSON cannot carry binary files, so base64 is accepted too. No image file starts like base64 of
// another.
bool looks_like_base64(std::string_view bytes) {
  constexpr std::string_view kJpeg = "/9j/", kPng = "iVBORw0KGgo";
  return bytes.substr(0, kJpeg.size()) == kJpeg || bytes.substr(0, kPng.size()) == kPng;
}

bool is_text(std::string_view bytes) {
  return !bytes.empty() && std::all_of(bytes.begin(), bytes.end(), [](char c) {
    return (c >= ' ' && c <= '~') || c == '\n' || c == '\r' || c == '\t';
  });
}

}  // namespace

Result<ImageInput> ImageInput::bind(const ImageStep& step, std::span<const tensor::Spec> inputs,
                                    const Limits& limits) {
  ImageInput out;
  TRY(out.target_, find_target(step.input, inputs));
  out.limits_ = limits;
  out.order_ = step.channels;
  out.filter_ = step.filter;
  out.channels_ = step.channel_count();
  switch (out.target_.dtype) {
    case DType::kFp32:
    case DType::kFp64:
    case DType::kFp16:
    case DType::kUint8:
      break;
    default:
      return Error(Code::kInvalid, "preprocess: " + quoted_input(out.target_) + " is " +
                                       std::string(to_string(out.target_.dtype)) +
                                       "; images become FP32, FP64, FP16 or UINT8");
  }
  TRY_VOID(out.settle_layout(step));
  TRY_VOID(out.settle_size(step));
  TRY_VOID(out.settle_numbers(step));
  return out;
}

Status ImageInput::settle_layout(const ImageStep& step) {
  const tensor::Shape& shape = target_.shape;
  layout_ = step.layout;
  if (layout_.empty()) {
    TRY(layout_, layout_of(target_, channels_));
  }
  const bool batched = layout_[0] == 'N';
  flattened_ = batched && shape.size() == 2;
  if (!flattened_ && shape.size() != layout_.size()) {
    return Error(Code::kInvalid, "preprocess.image.layout " + layout_ + " has " +
                                     std::to_string(layout_.size()) + " dimensions, " +
                                     quoted_input(target_) + " has " +
                                     std::to_string(shape.size()));
  }
  if (layout_.find('C') == std::string::npos && channels_ != 1) {
    return Error(Code::kInvalid, "preprocess.image.layout " + layout_ +
                                     " has no channels: set channels: grey, or a layout with C");
  }
  files_ = {batched ? shape[0] : 1};
  if (files_[0] == 0)
    return Error(Code::kInvalid, "preprocess: " + quoted_input(target_) + " takes no image");
  return {};
}

Status ImageInput::settle_size(const ImageStep& step) {
  const tensor::Shape& shape = target_.shape;
  // The declared size, else the model's.
  const auto settle = [&](char letter, std::optional<std::int64_t> declared,
                          std::string_view setting) -> Result<std::size_t> {
    const std::int64_t own = flattened_ ? -1 : shape[layout_.find(letter)];
    if (!declared && own <= 0) {
      return Error(Code::kInvalid, "preprocess.image.resize needs width and height: the shape of " +
                                       quoted_input(target_) + " does not define them");
    }
    if (declared && own >= 0 && own != *declared) {
      return Error(Code::kInvalid, "preprocess.image.resize." + std::string(setting) + " is " +
                                       std::to_string(*declared) + ", but " +
                                       quoted_input(target_) + " takes " + std::to_string(own) +
                                       " (layout " + layout_ + ")");
    }
    return static_cast<std::size_t>(declared ? *declared : own);
  };
  TRY(width_, settle('W', step.width, "width"));
  TRY(height_, settle('H', step.height, "height"));
  const auto count = static_cast<std::int64_t>(channels_);
  if (const std::size_t c = layout_.find('C');
      !flattened_ && c != std::string::npos && shape[c] != -1 && shape[c] != count) {
    return Error(Code::kInvalid, "preprocess.image.channels " + std::string(to_string(order_)) +
                                     " are " + std::to_string(count) + ", but " +
                                     quoted_input(target_) + " takes " + std::to_string(shape[c]) +
                                     " (layout " + layout_ + ")");
  }
  // Each side is within the range of elements(), but the product may not be.
  if (width_ > limits_.tensor_bytes_max || height_ > limits_.tensor_bytes_max ||
      width_ * height_ * channels_ >
          limits_.tensor_bytes_max / tensor::element_bytes(target_.dtype)) {
    return Error(Code::kInvalid, "preprocess: images of " + size_text(width_, height_) +
                                     " pixels are more than " +
                                     std::to_string(limits_.tensor_bytes_max) + " bytes");
  }
  const std::size_t bytes = width_ * height_ * channels_ * tensor::element_bytes(target_.dtype);
  if (const auto batch = static_cast<std::size_t>(std::max<std::int64_t>(files_[0], 1));
      batch > limits_.images_max || batch > limits_.tensor_bytes_max / bytes ||
      batch > limits_.pixels_max / (width_ * height_)) {
    return Error(Code::kInvalid,
                 "preprocess: " + std::to_string(batch) + " images of " +
                     size_text(width_, height_) + " pixels for " + quoted_input(target_) +
                     " are more than a request may have: " + std::to_string(limits_.images_max) +
                     " images, " + std::to_string(limits_.pixels_max) + " pixels, " +
                     std::to_string(limits_.tensor_bytes_max) + " bytes");
  }
  if (flattened_ && shape[1] != -1 &&
      shape[1] != static_cast<std::int64_t>(width_ * height_ * channels_)) {
    return Error(Code::kInvalid, "preprocess.image.resize: " + size_text(width_, height_) +
                                     " pixels in " + std::to_string(channels_) + " channels are " +
                                     std::to_string(width_ * height_ * channels_) +
                                     " values, but " + quoted_input(target_) + " takes " +
                                     std::to_string(shape[1]));
  }
  return {};
}

Status ImageInput::settle_numbers(const ImageStep& step) {
  if (target_.dtype == DType::kUint8 &&
      (step.scale != 1 || !step.mean.empty() || !step.std.empty())) {
    return Error(Code::kInvalid, "preprocess.image: " + quoted_input(target_) +
                                     " is UINT8: it takes no scale, mean or std");
  }
  const auto of_channel = [](const std::vector<double>& list, std::size_t channel,
                             double otherwise) {
    return list.empty() ? otherwise : list.size() == 1 ? list[0] : list[channel];
  };
  for (std::size_t c = 0; c < channels_; ++c) {
    const double divisor = of_channel(step.std, c, 1);
    factor_[c] = static_cast<float>(step.scale / divisor);
    offset_[c] = static_cast<float>(-of_channel(step.mean, c, 0) / divisor);
  }
  return {};
}

Status ImageInput::check(std::span<const std::string_view> files,
                         std::vector<ImageSize>& sizes) const {
  if (files.empty()) return Error(Code::kInvalid, "there is no image in the request");
  if (files_[0] != -1 && files.size() != static_cast<std::size_t>(files_[0])) {
    return Error(Code::kInvalid, "the model takes " + std::to_string(files_[0]) +
                                     " images at a time, not " + std::to_string(files.size()));
  }
  if (files.size() > limits_.images_max) {
    return Error(Code::kInvalid, std::to_string(files.size()) +
                                     " images in a request are too many: " +
                                     std::to_string(limits_.images_max) + " may be sent");
  }
  const std::size_t image_bytes =
      width_ * height_ * channels_ * tensor::element_bytes(target_.dtype);
  if (files.size() > limits_.tensor_bytes_max / image_bytes) {
    return Error(Code::kInvalid, std::to_string(files.size()) +
                                     " images in a request are too many: they become more than " +
                                     std::to_string(limits_.tensor_bytes_max) + " bytes");
  }
  std::size_t pixels = 0;
  for (std::size_t i = 0; i < files.size(); ++i) {
    auto header = codec::read_image_header(files[i]);
    if (!header.ok()) return std::move(header).error().context("image " + std::to_string(i));
    // The formats limit each side to below 2^31.
    if (header->height > limits_.pixels_max || header->width > limits_.pixels_max ||
        (pixels += header->width * header->height) > limits_.pixels_max) {
      return Error(Code::kInvalid, "image " + std::to_string(i) + " has " +
                                       size_text(header->width, header->height) +
                                       " pixels: the images of a request may have " +
                                       std::to_string(limits_.pixels_max) + " together");
    }
    sizes.push_back({header->width, header->height});
  }
  return {};
}

internal::Placing ImageInput::placing() const {
  internal::Placing out;
  out.channels = channels_;
  out.area = width_ * height_;
  const std::size_t c_at = layout_.find('C');
  out.planes = c_at != std::string::npos && c_at < layout_.find('H');
  out.reversed = order_ == Channels::kBgr;
  out.factor = factor_;
  out.offset = offset_;
  return out;
}

void ImageInput::place(const Pixels& pixels, tensor::Tensor& out, std::size_t index) const {
  const internal::Placing placing = this->placing();
  if (!pixels.resized) return placing.bytes(pixels.bytes, pixels.tones, out, index);
  placing.floats(pixels.values, 0, out, index);
}

void ImageInput::write(codec::Image& image, tensor::Tensor& out, std::size_t index) const {
  convert(image, channels_);
  const internal::Placing placing = this->placing();
  if (has_size(image)) return placing.bytes(image.pixels, kTones, out, index);
  internal::Resizer resizer(image, width_, height_, filter_);
  for (std::size_t y = 0; y < height_; ++y) placing.floats(resizer.row(y), y * width_, out, index);
}

Pixels ImageInput::pixels(codec::Image image, Pixels memory) const {
  convert(image, channels_);
  Pixels out = std::move(memory);
  out.resized = !has_size(image);
  out.tones = kTones;
  if (out.resized) {
    internal::Resizer resizer(image, width_, height_, filter_);
    out.values.resize(width_ * height_ * channels_);
    auto to = out.values.begin();
    for (std::size_t y = 0; y < height_; ++y) to = std::ranges::copy(resizer.row(y), to).out;
  }
  out.bytes = std::move(image.pixels);
  return out;
}

tensor::Shape ImageInput::shape(std::size_t count) const {
  const auto size = [](std::size_t n) { return static_cast<std::int64_t>(n); };
  if (flattened_) return {size(count), size(width_ * height_ * channels_)};
  tensor::Shape out;
  for (const char letter : layout_) {
    out.push_back(letter == 'N'   ? size(count)
                  : letter == 'C' ? size(channels_)
                  : letter == 'H' ? size(height_)
                                  : size(width_));
  }
  return out;
}

Result<tensor::Tensor> ImageInput::make(std::span<const std::string_view> inputs,
                                        std::vector<ImageSize>& sizes) const {
  std::vector<std::string_view> files(inputs.begin(), inputs.end());
  std::list<std::string> decoded;
  for (std::size_t i = 0; i < files.size(); ++i) {
    if (!looks_like_base64(files[i])) {
      if (is_text(files[i]))
        return Error(Code::kInvalid, "image " + std::to_string(i) +
                                         ": neither a JPEG nor a PNG, nor the base64 of one");
      continue;
    }
    auto bytes = codec::unbase64(files[i]);
    if (!bytes.ok()) return std::move(bytes).error().context("image " + std::to_string(i));
    files[i] = decoded.emplace_back(std::move(bytes).value());
  }
  TRY_VOID(check(files, sizes));
  TRY(tensor::Tensor out,
      tensor::Tensor::allocate(target_.dtype, shape(files.size()), tensor::Tensor::Fill::kNone));
  std::vector<std::uint8_t> memory;
  for (std::size_t i = 0; i < files.size(); ++i) {
    auto image = codec::decode_image(files[i], limits_.pixels_max, std::move(memory));
    if (!image.ok()) {
      // The client must fix an unsupported image type, like a torn image.
      Error why = std::move(image).error().context("image " + std::to_string(i));
      return why.code() == Code::kUnsupported ? Error(Code::kInvalid, why.message()) : why;
    }
    write(*image, out, i);
    memory = std::move(image->pixels);
  }
  return out;
}

}  // namespace varda::transform
