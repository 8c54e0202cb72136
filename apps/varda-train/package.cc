#include "package.h"

#include "report.h"
#include "summary.h"
#include "training/settings.h"

namespace varda::trainapp {
namespace {

constexpr const char* kReport = "report.html";

}  // namespace

Result<Delivery> write_report(os::FileSystem& fs, const Job& job, const Trained& trained) {
  const std::string html = html_report({.outcome = trained.outcome,
                                        .settings = training::to_json(job.settings),
                                        .model = job.model.string(),
                                        .data = job.data.path.string(),
                                        .evaluation = evaluation_text(job),
                                        .digest = trained.digest.hex(),
                                        .engine = trained.engine,
                                        .comparison = trained.report["comparison"]});
  TRY_VOID(os::write_file_atomically(fs, job.directory / kReport, html));
  return Delivery{kReport, codec::Sha256::of(html)};
}

}  // namespace varda::trainapp
