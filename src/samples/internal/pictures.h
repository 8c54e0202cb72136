// Datasets of image files: whole images, or parts of them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "samples/internal/base.h"
#include "samples/internal/input.h"

namespace varda::samples::internal {

/// A part of an image, in pixels. It ends before right and bottom.
struct Box {
  float left = 0, top = 0, right = 0, bottom = 0;
};

/// True for jpg, jpeg and png.
bool is_decodable(std::string_view name);
/// True for every extension that room dataset counts as an image.
bool is_image_name(std::string_view name);
/// kInvalid names the file, if its name has the extension of another image format.
Status check_decodable(std::string_view path);

/// The pixels of a box, at least one, cut at the image's edges.
Result<codec::Image> cropped(codec::Image image, const Box& box);

/// The format gives the place of each image, and the text of its label.
class Pictures : public Readable {
 public:
  /// Without an input, no sample is read as a picture.
  Pictures(os::ReadableTree& tree, Labels labels, std::optional<PictureInput> input)
      : Readable(std::move(labels)), tree_(tree), input_(std::move(input)) {}

  Result<std::string> picture(std::size_t index) const override;
  Result<std::vector<std::int64_t>> labels(const Context& ctx,
                                           std::span<const std::size_t> indices) const override;
  Result<std::string> line(std::size_t index) const override;

 protected:
  struct Item {
    os::Path path;
    std::optional<Box> box;
    std::string label;
  };
  /// An error lacks the place of the sample.
  virtual Result<Item> item(std::size_t index) const = 0;
  bool has_pictures() const override { return true; }
  Result<tensor::Tensor> allocate(std::size_t count, tensor::Pool& memory) const override {
    return input_->allocate(count, memory);
  }
  std::unique_ptr<SampleReader> reader() const override;

  os::ReadableTree& tree_;

 private:
  class Reader;
  /// `memory`: the pixels of an earlier image.
  Result<codec::Image> image(const Item& item, std::vector<std::uint8_t> memory = {}) const;

  const std::optional<PictureInput> input_;
};

}  // namespace varda::samples::internal
