// imagefolder: one folder per class, with images below.
#include <limits>

#include "samples/internal/formats.h"
#include "samples/internal/pictures.h"

namespace varda::samples::internal {
namespace {

class ImageFolder final : public Pictures {
 public:
  ImageFolder(const Source& source, PictureInput input)
      : Pictures(source.tree, Labels(source.options.task, source.options.classes),
                 std::move(input)),
        root_(source.path) {}

  Status scan(const Context& ctx) {
    Fingerprint hash;
    TRY_VOID(visit_files(ctx, tree_, root_, is_image_name,
                         [&](const Found& found) { return add(found, hash); }));
    if (size() == 0)
      return Error(Code::kInvalid, root_.string() +
                                       " has no images in class folders; put each image into a "
                                       "folder that names its class");
    for (std::size_t i = 0; i < folders_.size(); ++i) {
      const std::size_t end = i + 1 < folders_.size() ? folders_[i + 1].first : size();
      auto added = labels_.add(folders_[i].class_name, end - folders_[i].first);
      if (!added.ok()) return std::move(added).error().context(folders_[i].path);
    }
    labels_.settle();
    fingerprint_ = hash.text();
    return {};
  }

  std::size_t size() const override { return folder_of_.size(); }
  std::string place(std::size_t index) const override {
    return folders_[folder_of_[index]].path + "/" + std::string(names_[index]);
  }

 private:
  struct Folder {
    std::string path, class_name;
    std::size_t first = 0;  // number of the first image
  };

  Status add(const Found& found, Fingerprint& hash) {
    // An image beside the class folders is no sample, as in room dataset.
    if (found.folder.empty()) return {};
    const std::string path = found.folder + "/" + found.name;
    TRY_VOID(check_decodable(path));
    if (folder_of_.size() == std::numeric_limits<std::uint32_t>::max())
      return Error(Code::kExhausted, "more than 4,294,967,295 images");
    TRY(const auto file, found.open());
    TRY_VOID(hash.add_file(path, *file, Fingerprint::kImageWindow));
    if (folders_.empty() || folders_.back().path != found.folder)
      folders_.push_back(
          {found.folder, found.folder.substr(0, found.folder.find('/')), folder_of_.size()});
    folder_of_.push_back(static_cast<std::uint32_t>(folders_.size() - 1));
    names_.add(found.name);
    return {};
  }

  Result<Item> item(std::size_t index) const override {
    const Folder& folder = folders_[folder_of_[index]];
    return Item{root_ / folder.path / names_[index], std::nullopt, folder.class_name};
  }

  const os::Path root_;
  std::vector<Folder> folders_;
  std::vector<std::uint32_t> folder_of_;
  Names names_;
};

}  // namespace

Opened open_image_folder(Source source) {
  TRY(PictureInput input, PictureInput::bind(source.options.preprocess, source.options.input));
  auto out = std::make_shared<ImageFolder>(source, std::move(input));
  TRY_VOID(out->scan(source.ctx));
  return std::shared_ptr<const Dataset>(std::move(out));
}

}  // namespace varda::samples::internal
