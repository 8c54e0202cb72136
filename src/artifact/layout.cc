#include "artifact/layout.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "artifact/internal/source.h"

namespace varda::artifact {
namespace {

// Files of the frameworks whose layout is known. `beside`: "" or the ending of a second file with
// the same stem.
struct Layout {
  std::string_view framework;
  std::string_view ending;
  std::string_view preferred;  // chosen among several files; "": none
  std::string_view beside;
};
constexpr Layout kLayouts[] = {{"onnx", ".onnx", "model.onnx", ""},
                               {"pb", ".pb", "", ""},
                               {"caffe", ".caffemodel", "", ".prototxt"},
                               {"darknet", ".weights", "", ".cfg"}};
constexpr std::string_view kSavedModelFile = "saved_model.pb";

std::string first_names(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < names.size() && i < 5; ++i) text += (i == 0 ? "" : ", ") + names[i];
  if (names.size() > 5) text += ", …";
  return text;
}

}  // namespace

std::optional<Failure> check_layout(os::FileSystem& fs, const os::Path& root,
                                    std::string_view framework) {
  const auto names = fs.list(root);
  if (!names.ok()) return disk_failure(names.error());
  const auto bad = [](std::string message) {
    return Failure{Reason::kBadLayout, Error(Code::kInvalid, std::move(message))};
  };
  if (names->empty()) return bad("the archive is empty");
  const auto* layout = std::find_if(std::begin(kLayouts), std::end(kLayouts),
                                    [&](const Layout& one) { return one.framework == framework; });
  if (layout == std::end(kLayouts)) return std::nullopt;

  const std::string ending(layout->ending), preferred(layout->preferred);
  std::vector<std::string> models;
  for (const std::string& name : *names) {
    if (name.size() <= ending.size() || !name.ends_with(ending) || name == kSavedModelFile)
      continue;
    const auto info = fs.stat(root / name);
    if (!info.ok()) return disk_failure(info.error());
    if (*info && (*info)->kind == os::FileKind::kFile && (*info)->size_bytes > 0)
      models.push_back(name);
  }
  const bool has_preferred = std::find(models.begin(), models.end(), preferred) != models.end();
  const std::string needs = "framework " + std::string(framework) + " needs " +
                            (preferred.empty() ? "" : preferred + ", or ") + "exactly one ";
  if (models.empty())
    return bad(needs + "non-empty *" + ending +
               " file, at the root; found: " + first_names(*names));
  if (models.size() > 1 && !has_preferred)
    return bad(needs + "*" + ending + " file, at the root; found: " + first_names(models));
  if (layout->beside.empty()) return std::nullopt;
  const std::string stem = models.front().substr(0, models.front().size() - ending.size());
  const std::string beside = stem + std::string(layout->beside);
  if (std::find(names->begin(), names->end(), beside) == names->end())
    return bad("framework " + std::string(framework) + " needs " + beside + " beside " +
               models.front() + "; found: " + first_names(*names));
  return std::nullopt;
}

std::string_view format_of(os::FileSystem& fs, const os::Path& root, std::string_view framework) {
  if (framework != "tensorflow") return "";
  const auto names = fs.list(root);
  if (!names.ok()) return "";
  if (std::find(names->begin(), names->end(), kSavedModelFile) != names->end()) return kSavedModel;
  const auto frozen = [](const std::string& name) { return name.ends_with(".pb"); };
  return std::any_of(names->begin(), names->end(), frozen) ? kFrozenGraph : kSavedModel;
}

}  // namespace varda::artifact
