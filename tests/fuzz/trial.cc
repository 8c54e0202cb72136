// Trials, as JSON. As a trial.json: an accepted one has sensible values. As a server's answer about
// a trial: no count is negative.
#include <cstdint>
#include <string_view>

#include "api/ai/model_trial.h"
#include "base/check.h"
#include "codec/json.h"
#include "serving/trial/file.h"

namespace {

using namespace varda;  // NOLINT: a program of one file

void file(std::string_view text) {
  const auto file = serving::trial::parse_file(text);
  if (!file.ok()) return;
  CHECK(!file->version.empty());
  CHECK(file->share >= 0 && file->share <= 1);
  CHECK(file->mode == serving::trial::Mode::kCanary || file->share == 0);
}

void answer(std::string_view text) {
  const auto json = codec::parse_json(text);
  if (!json.ok()) return;
  const auto report = api::ModelTrialStatus::of_server(*json);
  if (!report) return;
  CHECK(!report->version.empty() && !report->state.empty());
  CHECK(report->answers >= 0 && report->failures >= 0 && report->serving.answers >= 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  file(text);
  answer(text);
  return 0;
}
