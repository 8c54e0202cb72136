// imagefolder: a folder for each class, images below it.
#include <algorithm>
#include <array>

#include "dataset/internal/fingerprint.h"
#include "dataset/internal/folder.h"
#include "dataset/internal/scanner.h"

namespace varda::dataset {
namespace {

constexpr std::array<std::string_view, 11> kExtensions = {".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp",
                                                          ".tif", ".tiff", ".ppm", ".pgm", ".pbm"};

bool is_image(std::string_view name) {
  return std::any_of(kExtensions.begin(), kExtensions.end(),
                     [&](std::string_view extension) { return has_extension(name, extension); });
}

class ImageFolderScan final : public TreeScan {
 public:
  Result<Found> scan(const Context& ctx, const Surroundings& around) override {
    Found found;
    found.tally.has_classes = true;
    FolderTally folder(found.tally);
    SetHash names;
    const auto image = [&](const FolderEntry& entry) {
      found.bytes += entry.facts.size_bytes;
      around.read(found.bytes);
      names.add(Hash::of(entry.path + '\0' + std::to_string(entry.facts.size_bytes)));
      const std::size_t slash = entry.path.find('/');
      if (slash == std::string::npos) {
        folder.malformed(entry.path, "an image in no folder of a class");
      } else if (entry.facts.size_bytes == 0) {
        folder.malformed(entry.path, "an empty file");
      } else if (slash > kClassNameBytesMax) {
        folder.malformed(entry.path, "the name of its class is longer than " + std::to_string(kClassNameBytesMax) + " bytes");
      } else {
        ++found.tally.samples;
        add_bounded(found.tally.classes, found.tally.further_classes, entry.path.substr(0, slash));
      }
    };
    TRY_VOID(walk(ctx, around, {.depth_max = kFolderDepthMax, .wanted = is_image}, folder, image));
    found.fingerprint = names.hex();
    return found;
  }
};

}  // namespace

extern const Format kImageFolder;
const Format kImageFolder{
    .name = "imagefolder",
    .sample = "an image at any depth below the folder of its class",
    .tree = [](const FormatOptions&) -> std::unique_ptr<TreeScan> { return std::make_unique<ImageFolderScan>(); }};

}  // namespace varda::dataset
