#include "serving/trial/file.h"

#include "codec/json.h"

namespace varda::serving::trial {

std::string_view to_string(Mode mode) { return mode == Mode::kShadow ? "shadow" : "canary"; }

Result<File> parse_file(std::string_view text) {
  auto json = codec::parse_json(text, {.depth_max = 16});
  if (!json.ok()) return std::move(json).error().context("trial.json");
  const auto wrong = [](std::string_view what) {
    return Error(Code::kInvalid, "trial.json: " + std::string(what));
  };
  File out;
  if (!json->is_object()) return wrong("must be an object");
  out.version = (*json)["version"].as_string();
  if (out.version.empty()) return wrong("version must be a text");
  const std::string& mode = (*json)["mode"].as_string();
  if (mode == "shadow") return out;
  if (mode != "canary") return wrong("mode must be shadow or canary");
  out.mode = Mode::kCanary;
  const codec::Json& share = (*json)["share"];
  out.share = share.as_double(-1);
  if (!share.is_number() || !(out.share >= 0 && out.share <= 1))
    return wrong("share must be a number from 0 to 1");
  return out;
}

}  // namespace varda::serving::trial
