// Files that `predict` reads: PNG, JPEG, IDX and NumPy files.
#include "oip/images.h"

#include "base/check.h"
#include "input.h"
#include "oip/npy.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes = varda::fuzz::Input(data, size).rest();
  if (const auto images = varda::oip::parse_images(bytes); images.ok()) {
    CHECK(images->channels == 1 || images->channels == 3);
    CHECK(images->pixels.size() ==
          images->count * images->height * images->width * images->channels);
    const std::vector<std::int64_t> shape = {-1, static_cast<std::int64_t>(images->height),
                                             static_cast<std::int64_t>(images->width)};
    const varda::tensor::Spec spec{
        .name = "x", .dtype = varda::tensor::DType::kFp32, .shape = shape};
    if (images->count > 0 && images->pixels.size() < (1 << 20)) {
      const auto tensor = varda::oip::image_tensor(*images, 0, 1, spec);
      if (tensor.ok()) CHECK(tensor->bytes().size() == 4 * images->height * images->width);
    }
  }
  if (const auto tensor = varda::oip::parse_npy(bytes); tensor.ok())
    CHECK(tensor->bytes().size() <= size);
  if (const auto labels = varda::oip::parse_labels(bytes); labels.ok())
    CHECK(labels->size() < size);
  return 0;
}
