#include "controllers/inferencemodel/options.h"

#include <algorithm>

#include "api/ai/inference_model.h"

namespace varda::controllers {

namespace {

using codec::Json;

Error invalid(const std::string& where, const std::string& what) { return Error(Code::kInvalid, "servers." + where + ": " + what); }

Result<std::vector<std::string>> read_list(const Json& value, const std::string& where) {
  std::vector<std::string> out;
  if (!value.is_null() && !value.is_array()) return invalid(where, "must be a list of strings");
  for (const Json& item : value.as_array()) {
    if (!item.is_string()) return invalid(where, "must be a list of strings");
    out.push_back(item.as_string());
  }
  return out;
}

Result<ServerEntry> read_entry(const std::string& name, const Json& value) {
  if (!value.is_object()) return invalid(name, "must be an object");
  ServerEntry entry;
  for (const auto& [member, text] : value.as_object()) {
    const std::string where = name + "." + member;
    if (member == "command") {
      TRY(entry.command, read_list(text, where));
    } else if (member == "args") {
      TRY(entry.args, read_list(text, where));
    } else if (member == "env") {
      if (!text.is_object()) return invalid(where, "must be an object");
      for (const auto& [variable, content] : text.as_object()) {
        if (!content.is_string()) return invalid(where + "." + variable, "must be a string");
        entry.env[variable] = content.as_string();
      }
    } else if (!text.is_string()) {
      return invalid(where, "must be a string");
    } else if (member == "image") {
      entry.image = text.as_string();
    } else if (member == "mountPath") {
      entry.mount_path = text.as_string();
    } else if (member == "readyPath") {
      entry.ready_path = text.as_string();
    } else {
      return invalid(where, "is not known: image, command, args, env, mountPath and readyPath are");
    }
  }
  if (entry.image.empty()) return invalid(name + ".image", "is required");
  if (!entry.mount_path.starts_with('/')) return invalid(name + ".mountPath", "must be an absolute path");
  return entry;
}

}  // namespace

ServerTable builtin_servers() {
  ServerEntry onnx;
  onnx.image = "varda-serve";
  onnx.args = {"--model-repository", "/models", "--http", "$(POD_IP):{port}"};
  onnx.ready_path = "/v2/models/{modelName}/ready";
  return {{"onnx", onnx}};
}

Result<ServerTable> servers_from_json(const Json& table) {
  ServerTable servers = builtin_servers();
  if (!table.is_null() && !table.is_object()) return Error(Code::kInvalid, "servers: must be an object");
  const auto& known = api::known_frameworks();
  for (const auto& [name, value] : table.as_object()) {
    if (std::find(known.begin(), known.end(), name) == known.end())
      return invalid(name, "is no framework that an InferenceModel can have");
    TRY(ServerEntry entry, read_entry(name, value));
    servers[name] = std::move(entry);
  }
  return servers;
}

}  // namespace varda::controllers
