// Images as people have them in files, made into the tensors a model takes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tensor/tensor.h"

namespace varda::oip {

/// Images of one size, 8 bits a channel, row by row, channels of a pixel together.
struct Images {
  std::size_t count = 0;
  std::size_t height = 0;
  std::size_t width = 0;
  std::size_t channels = 1;  // 1 grey, 3 red, green, blue
  std::vector<std::uint8_t> pixels;
  std::string file;  // the JPEG or PNG that it was; "" of an IDX file
};

/// An IDX file of images (MNIST's format: magic 0x00000803, big-endian sizes, bytes), a JPEG or a PNG (codec/image.h), told by
/// their first bytes. kInvalid: none of them, torn, or larger than 64 Mpixel.
Result<Images> parse_images(std::string_view bytes);
/// An IDX file of labels (magic 0x00000801).
Result<std::vector<int>> parse_labels(std::string_view bytes);

/// `count` images from `first` on as the model takes them: pixels 0 to 255 as they are, FP32, FP64 or UINT8, in the shape of
/// `input` ([-1,H,W], [-1,H*W], [-1,C,H,W] or [-1,H,W,C]; grey becomes colour and colour grey as needed).
/// kInvalid: the model takes another size, type or number; sizes are never changed here. Where the model
/// takes files instead (BYTES, [-1] or [1]), the one that the image was in, else a PNG of it.
Result<tensor::Tensor> image_tensor(const Images& images, std::size_t first, std::size_t count, const tensor::Spec& input);

}  // namespace varda::oip
