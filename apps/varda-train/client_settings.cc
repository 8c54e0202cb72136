#include "client_settings.h"

#include <limits>
#include <utility>

#include "codec/settings_reader.h"

namespace varda::trainapp {

using codec::Json;
using codec::SettingsReader;

Result<ClientSettings> parse_client_settings(const Json& json) {
  ClientSettings out;
  if (json.is_null()) return out;
  Status status;
  SettingsReader in(json, "", status);
  if (const Json* when = in.object("when")) {
    TRY(out.when, participant::parse_when(*when).context("when"));
  }
  in.integer("bytesPerSecond", out.bytes_per_second, 0, std::numeric_limits<std::int64_t>::max());
  in.integer("nice", out.nice, 0, 19);
  in.integer("threads", out.threads, 0, 1024);
  in.boolean("keepOptimizer", out.keep_optimizer);
  if (const Json* privacy = in.object("privacy")) {
    PrivacySettings& read = out.privacy.emplace();
    SettingsReader members(*privacy, "privacy", status);
    members.number("clipNorm", read.clip_norm, {0, 1e9, codec::kAboveLow});
    members.number("noise", read.noise, {0, 1e9});
    members.end();
  }
  in.end();
  TRY_VOID(std::move(status));
  return out;
}

}  // namespace varda::trainapp
