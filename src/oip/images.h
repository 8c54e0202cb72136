// Image files, converted to the tensors that a model takes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tensor/tensor.h"

namespace varda::oip {

/// Images of one size, 8 bits per channel, row by row, channels interleaved.
struct Images {
  std::size_t count = 0;
  std::size_t height = 0;
  std::size_t width = 0;
  std::size_t channels = 1;  // 1 grey, 3 red, green, blue
  std::vector<std::uint8_t> pixels;
  std::string file;  // the original JPEG or PNG; "" for an IDX file
};

/// Reads an IDX file of images (MNIST's format: magic 0x00000803, big-endian sizes, bytes), a JPEG
/// or a PNG (codec/image.h), detected by the first bytes. kInvalid: another format, a torn file, or
/// more than 64 Mpixel.
Result<Images> parse_images(std::string_view bytes);
/// Reads an IDX file of labels (magic 0x00000801).
Result<std::vector<int>> parse_labels(std::string_view bytes);

/// The tensor for `count` images from `first` on. Pixels stay 0 to 255, as FP32, FP64 or UINT8, in
/// the shape of `input` ([-1,H,W], [-1,H*W], [-1,C,H,W] or [-1,H,W,C]). Grey and colour are
/// converted as needed; sizes are not. For an input of files (BYTES, [-1] or [1]) the tensor holds
/// the original file, else a PNG. kInvalid: the model takes another size, type or number.
Result<tensor::Tensor> image_tensor(const Images& images, std::size_t first, std::size_t count,
                                    const tensor::Spec& input);

}  // namespace varda::oip
