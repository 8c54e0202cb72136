// imagefolder: one folder per class, with images below. An image may also be an array in a .npy
// file: the input of a model, as kept by a model server.
#include <algorithm>
#include <array>
#include <optional>

#include "dataset/internal/fingerprint.h"
#include "dataset/internal/folder.h"
#include "dataset/internal/scanner.h"

namespace varda::dataset {
namespace {

constexpr std::array<std::string_view, 12> kExtensions = {".jpg", ".jpeg", ".png", ".bmp",
                                                          ".gif", ".webp", ".tif", ".tiff",
                                                          ".ppm", ".pgm",  ".pbm", ".npy"};

bool is_image(std::string_view name) {
  return std::any_of(kExtensions.begin(), kExtensions.end(),
                     [&](std::string_view extension) { return has_extension(name, extension); });
}

class ImageFolderScan final : public TreeScan {
 public:
  Status begin(const Surroundings& around) override {
    found_.tally.has_classes = true;
    walk_.emplace(around, WalkOptions{.depth_max = kFolderDepthMax, .wanted = is_image}, folder_,
                  [this](const FolderEntry& entry) { return image(entry); });
    return walk_->begin();
  }
  Result<bool> resume(const Context& ctx, std::uint64_t steps) override {
    TRY(const bool all, walk_->resume(ctx, steps));
    found_.entries = walk_->entries();
    if (all) found_.fingerprint = names_.hex();
    return all;
  }
  const Found& found() const override { return found_; }

 private:
  /// Counts an image by its name; its bytes are not read.
  std::uint64_t image(const FolderEntry& entry) {
    found_.bytes += entry.facts.size_bytes;
    names_.add(Hash::of(entry.path + '\0' + std::to_string(entry.facts.size_bytes)));
    const std::size_t slash = entry.path.find('/');
    if (slash == std::string::npos) {
      folder_.malformed(entry.path, "an image outside of class folders");
    } else if (entry.facts.size_bytes == 0) {
      folder_.malformed(entry.path, "an empty file");
    } else if (slash > kClassNameBytesMax) {
      folder_.malformed(entry.path, "the name of its class is longer than " +
                                        std::to_string(kClassNameBytesMax) + " bytes");
    } else {
      ++found_.tally.samples;
      add_bounded(found_.tally.classes, found_.tally.further_classes, entry.path.substr(0, slash));
    }
    return 0;
  }

  Found found_;
  FolderTally folder_{found_.tally};
  SetHash names_;
  std::optional<Walk> walk_;
};

}  // namespace

extern const Format kImageFolder;
const Format kImageFolder{.name = "imagefolder",
                          .sample = "an image at any depth below the folder of its class",
                          .tree = [](const FormatOptions&) -> std::unique_ptr<TreeScan> {
                            return std::make_unique<ImageFolderScan>();
                          }};

}  // namespace varda::dataset
