#include "samples/internal/boxes.h"

#include <cmath>
#include <limits>

#include "base/text.h"

namespace varda::samples::internal {

std::uint32_t Boxes::add_label(std::string name) {
  label_names_.push_back(std::move(name));
  return static_cast<std::uint32_t>(label_names_.size() - 1);
}

std::uint32_t Boxes::add_image(std::string_view name, std::string_view annotation) {
  annotations_.add(annotation);
  return static_cast<std::uint32_t>(images_.add(name));
}

Status Boxes::add_box(std::uint32_t image, std::uint32_t label, const Box& box,
                      std::uint32_t number) {
  const bool finite = std::isfinite(box.left) && std::isfinite(box.top) &&
                      std::isfinite(box.right) && std::isfinite(box.bottom);
  if (!finite || box.left >= box.right || box.top >= box.bottom)
    return Error(Code::kInvalid, "the box has no area; correct the box, or remove it");
  if (parts_.size() == std::numeric_limits<std::uint32_t>::max())
    return Error(Code::kExhausted, "more than 4,294,967,295 boxes");
  TRY_VOID(labels_.add(label_names_[label]));
  parts_.push_back({image, label, box, number});
  return {};
}

Status Boxes::finish(const Context& ctx, const std::vector<os::Path>& folders, Fingerprint& hash) {
  labels_.settle();
  std::vector<bool> used(images_.size());
  bool found = false;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const std::size_t image = parts_[i].image;
    if (used[image]) continue;
    used[image] = true;
    TRY_VOID(ctx.check());
    const std::string_view name = images_[image];
    const auto add = [&]() -> Status {
      TRY_VOID(check_decodable(name));
      for (const os::Path& folder : folders) {
        TRY(const os::Path path, path_below(folder, name));
        if (found) break;
        found = tree_.facts(path).ok();
        if (found) folder_ = folder;
      }
      if (!found)
        return Error(Code::kNotFound,
                     "there is no image " + std::string(name) + " in " +
                         join(folders, ", ", [](const auto& path) { return path.string(); }));
      TRY(const auto file, tree_.open(folder_ / name));
      return hash.add_file(name, *file, Fingerprint::kImageWindow);
    };
    if (auto added = add(); !added.ok()) return std::move(added).error().context(place(i));
  }
  fingerprint_ = hash.text();
  return {};
}

std::string Boxes::place(std::size_t index) const {
  const Part& part = parts_[index];
  return std::string(annotations_[part.image]) + std::string(places_) +
         std::to_string(part.number) + " (" + std::string(images_[part.image]) + ")";
}

Result<Pictures::Item> Boxes::item(std::size_t index) const {
  const Part& part = parts_[index];
  TRY(os::Path path, path_below(folder_, images_[part.image]));
  return Item{std::move(path), part.box, label_names_[part.label]};
}

}  // namespace varda::samples::internal
