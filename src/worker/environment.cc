#include "worker/environment.h"

#include <unistd.h>
#include <utility>

#include "codec/text.h"

namespace varda::worker {
namespace {

using codec::Json;

constexpr std::size_t kMessageBytesMax = 1024;

}  // namespace

Environment environment_of_process() {
  Environment out;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const std::size_t equals = text.find('=');
    if (equals != std::string::npos) out.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return out;
}

std::string value_of(const Environment& environment, const std::string& name) {
  const auto found = environment.find(name);
  return found == environment.end() ? "" : found->second;
}

Result<os::Path> path_of(const Environment& environment, const std::string& name,
                         const std::string& what) {
  const std::string value = value_of(environment, name);
  if (value.empty()) return Error(Code::kInvalid, "the variable " + name + " is missing: " + what);
  return os::Path(value);
}

Result<Json> object_of(const Environment& environment, const std::string& name) {
  const std::string text = value_of(environment, name);
  if (text.empty()) return Json::object();
  TRY(Json value, codec::parse_json(text).context(name));
  if (!value.is_object()) return Error(Code::kInvalid, name + " must be a JSON object");
  return value;
}

Access access_of(const Environment& environment) {
  return {.socket = value_of(environment, "VARDA_WORKER_SOCKET"),
          .token_file = value_of(environment, "VARDA_WORKER_TOKEN_FILE")};
}

std::string message_for_agent(const std::string& message) {
  if (!codec::is_utf8(message)) return "the error's text is not UTF-8; see the log of the pod";
  return codec::clipped(message, kMessageBytesMax);
}

}  // namespace varda::worker
