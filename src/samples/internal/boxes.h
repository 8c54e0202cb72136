// Parts of images, given by boxes: the samples of coco and voc.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "samples/internal/pictures.h"

namespace varda::samples::internal {

/// A format adds images and boxes, then calls finish().
class Boxes final : public Pictures {
 public:
  /// `places`: between the annotation's file and its number, ", line ".
  Boxes(const Source& source, PictureInput input, std::string_view places)
      : Pictures(source.tree, Labels(source.options.task, source.options.classes),
                 std::move(input)),
        places_(places) {}

  /// Returns the number of a class name.
  std::uint32_t add_label(std::string name);
  /// Returns the number of an image. `annotation`: the file that describes the image.
  std::uint32_t add_image(std::string_view name, std::string_view annotation);
  /// kInvalid: a box without area, or a label of a class that does not exist.
  Status add_box(std::uint32_t image, std::uint32_t label, const Box& box, std::uint32_t number);
  /// Looks for the images in the first of the folders that has the first image. Adds all images
  /// with boxes to `hash`.
  Status finish(const Context& ctx, const std::vector<os::Path>& folders, Fingerprint& hash);

  std::size_t size() const override { return parts_.size(); }
  std::string place(std::size_t index) const override;

 private:
  struct Part {
    std::uint32_t image = 0, label = 0;
    Box box;
    std::uint32_t number = 0;  // of the line or element
  };
  Result<Item> item(std::size_t index) const override;

  const std::string_view places_;
  std::vector<std::string> label_names_;
  Names images_, annotations_;  // by image
  std::vector<Part> parts_;
  os::Path folder_;  // of the images
};

}  // namespace varda::samples::internal
