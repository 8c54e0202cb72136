#include "samples/internal/pictures.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <utility>

#include "codec/text.h"

namespace varda::samples::internal {
namespace {

constexpr std::array<std::string_view, 3> kDecodable = {".jpg", ".jpeg", ".png"};
// Room dataset counts these too (imagefolder).
constexpr std::array<std::string_view, 8> kOtherImages = {".bmp",  ".gif", ".webp", ".tif",
                                                          ".tiff", ".ppm", ".pgm",  ".pbm"};

Result<std::string> image_bytes(os::ReadableTree& tree, const os::Path& path) {
  TRY(const auto file, tree.open(path));
  return read_whole(*file, kImageBytesMax);
}

Result<codec::Image> decode(std::string_view bytes, std::vector<std::uint8_t> memory) {
  auto image = codec::decode_image(bytes, codec::kImagePixelsMax, std::move(memory));
  // The message says what to change, so a later attempt fails again.
  if (!image.ok() && image.error().code() == Code::kUnsupported)
    return Error(Code::kInvalid, image.error().message());
  return image;
}

}  // namespace

bool is_decodable(std::string_view name) {
  return std::any_of(kDecodable.begin(), kDecodable.end(),
                     [&](std::string_view end) { return has_extension(name, end); });
}

bool is_image_name(std::string_view name) {
  return is_decodable(name) ||
         std::any_of(kOtherImages.begin(), kOtherImages.end(),
                     [&](std::string_view end) { return has_extension(name, end); });
}

Status check_decodable(std::string_view path) {
  if (is_decodable(path) || !is_image_name(path)) return {};
  return Error(Code::kInvalid,
               std::string(path) + " is neither JPEG nor PNG; convert the image, or remove it");
}

Result<codec::Image> cropped(codec::Image image, const Box& box) {
  // The written bounds may be fractions, or lie a little outside.
  const auto range = [](float from, float to,
                        std::size_t size) -> std::optional<std::pair<std::size_t, std::size_t>> {
    const auto most = static_cast<float>(size);
    if (!(from < to) || !(from < most) || !(to > 0)) return std::nullopt;
    const auto begin = static_cast<std::size_t>(std::max(std::floor(from), 0.0f));
    const auto end = static_cast<std::size_t>(std::min(std::ceil(to), most));
    return std::pair(std::min(begin, size - 1),
                     std::clamp(end, std::min(begin, size - 1) + 1, size));
  };
  const auto across = range(box.left, box.right, image.width);
  const auto down = range(box.top, box.bottom, image.height);
  if (!across || !down)
    return Error(Code::kInvalid, "the box lies outside the image of " +
                                     std::to_string(image.width) + "x" +
                                     std::to_string(image.height) + " pixels; correct the box");
  // In place: a row moves towards the front, over pixels outside the box and rows that moved.
  const std::size_t width = across->second - across->first, height = down->second - down->first;
  const std::size_t row_bytes = width * image.channels;
  for (std::size_t y = 0; y < height; ++y) {
    const std::size_t from = ((down->first + y) * image.width + across->first) * image.channels;
    std::memmove(image.pixels.data() + y * row_bytes, image.pixels.data() + from, row_bytes);
  }
  image.width = width;
  image.height = height;
  image.pixels.resize(height * row_bytes);
  return image;
}

Result<codec::Image> Pictures::image(const Item& item, std::vector<std::uint8_t> memory) const {
  TRY(const std::string bytes, image_bytes(tree_, item.path));
  TRY(codec::Image image, decode(bytes, std::move(memory)));
  if (item.box) return cropped(std::move(image), *item.box);
  return image;
}

Result<std::string> Pictures::picture(std::size_t index) const {
  const auto read = [&]() -> Result<std::string> {
    TRY(const Item found, item(index));
    if (!found.box) return image_bytes(tree_, found.path);
    TRY(const codec::Image part, image(found));
    return codec::encode_png(part);
  };
  return read().context(place(index));
}

Result<std::vector<std::int64_t>> Pictures::labels(const Context& ctx,
                                                   std::span<const std::size_t> indices) const {
  Batch out;
  for (const std::size_t index : indices) {
    TRY_VOID(ctx.check());
    TRY(const Item found, item(index).context(place(index)));
    const std::string_view label = found.label;
    TRY_VOID(labels_.append({&label, 1}, out).context(place(index)));
  }
  return std::move(out.labels);
}

Result<std::string> Pictures::line(std::size_t index) const {
  TRY(const Item found, item(index).context(place(index)));
  if (found.box) return std::to_string(index);
  const std::string path = found.path.string();
  const bool blanks = (path + found.label).find_first_of(" \v\f") != std::string::npos;
  return path + (blanks ? "\t" : " ") + found.label;
}

class Pictures::Reader final : public SampleReader {
 public:
  explicit Reader(const Pictures& pictures) : pictures_(pictures) {}

  Status read(const Place& at, Batch& out) override {
    TRY(const Item item, pictures_.item(at.index));
    TRY(codec::Image image, pictures_.image(item, std::move(memory_.bytes)));
    pictures_.input_->write(std::move(image), at.augment, at.seed, at.index, out.input, at.row,
                            memory_);
    const std::string_view label = item.label;
    return pictures_.labels_.append({&label, 1}, out);
  }

 private:
  const Pictures& pictures_;
  transform::Pixels memory_;
};

std::unique_ptr<SampleReader> Pictures::reader() const { return std::make_unique<Reader>(*this); }

}  // namespace varda::samples::internal
