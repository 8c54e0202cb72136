#include "package.h"

#include <vector>

#include "artifact/pack.h"
#include "report.h"
#include "summary.h"
#include "training/settings.h"

namespace varda::trainapp {
namespace {

constexpr const char* kModel = "model.onnx";
constexpr const char* kArchive = "model.tar";
constexpr const char* kReport = "report.html";
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

Result<Delivery> write_report(os::FileSystem& fs, const Job& job, const Trained& trained) {
  const std::string html = html_report({.outcome = trained.outcome,
                                        .settings = training::to_json(job.settings),
                                        .model = job.model.string(),
                                        .data = job.data.path.string(),
                                        .evaluation = evaluation_text(job),
                                        .digest = trained.digest.hex(),
                                        .engine = trained.engine});
  TRY_VOID(os::write_file_atomically(fs, job.directory / kReport, html));
  return Delivery{kReport, codec::Sha256::of(html)};
}

}  // namespace varda::trainapp
