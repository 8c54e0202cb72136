#include "artifact/layout.h"

#include <algorithm>

#include "artifact/internal/source.h"

namespace varda::artifact {
namespace {

constexpr std::string_view kSuffix = ".onnx";

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
  if (framework != "onnx") return std::nullopt;

  std::vector<std::string> models;
  for (const std::string& name : *names) {
    if (name.size() <= kSuffix.size() || !name.ends_with(kSuffix)) continue;
    const auto info = fs.stat(root / name);
    if (!info.ok()) return disk_failure(info.error());
    if (*info && (*info)->kind == os::FileKind::kFile && (*info)->size_bytes > 0)
      models.push_back(name);
  }
  if (models.size() == 1 || std::find(models.begin(), models.end(), "model.onnx") != models.end())
    return std::nullopt;
  if (models.empty())
    return bad(
        "framework onnx needs model.onnx, or exactly one non-empty *.onnx file, at the root; "
        "found: " +
        first_names(*names));
  return bad("framework onnx needs model.onnx, or exactly one *.onnx file, at the root; found: " +
             first_names(models));
}

}  // namespace varda::artifact
