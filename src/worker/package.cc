#include "worker/package.h"

#include <vector>

#include "artifact/pack.h"

namespace varda::worker {
namespace {

constexpr const char* kModel = "model.onnx";
constexpr const char* kArchive = "model.tar";
constexpr const char* kStaging = ".package";

}  // namespace

Result<Delivery> package(const Context& ctx, os::FileSystem& fs, const os::Path& directory,
                         const ModelSource& source) {
  std::vector<std::string> files = {kModel};
  for (const std::string& name : {std::string("model.yaml"), source.labels_file}) {
    TRY(const auto info, fs.stat(directory / name));
    if (info && info->kind == os::FileKind::kFile) files.push_back(name);
  }
  if (files.size() == 1) {
    TRY(const codec::Sha256 digest, digest_of_file(fs, directory / kModel));
    return Delivery{kModel, digest};
  }
  const os::Path staging = directory / kStaging;
  TRY_VOID(fs.remove_all(staging));
  TRY_VOID(fs.make_directories(staging));
  for (const std::string& name : files) TRY_VOID(fs.link(directory / name, staging / name));
  TRY(const artifact::Packed packed,
      artifact::pack_to_file(ctx, fs, staging,
                             {.format = codec::ArchiveFormat::kTar, .framework = "onnx"},
                             directory / kArchive));
  TRY_VOID(fs.remove_all(staging));
  return Delivery{kArchive, packed.digest};
}

}  // namespace varda::worker
