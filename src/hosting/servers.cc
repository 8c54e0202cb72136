#include "hosting/servers.h"

#include <algorithm>

#include "api/ai/inference_model.h"

namespace varda::hosting {

namespace {

using codec::Json;

Error invalid(const std::string& where, const std::string& what) {
  return Error(Code::kInvalid, "servers." + where + ": " + what);
}

Result<std::vector<std::string>> read_list(const Json& value, const std::string& where) {
  std::vector<std::string> out;
  if (!value.is_null() && !value.is_array()) return invalid(where, "must be a list of strings");
  for (const Json& item : value.as_array()) {
    if (!item.is_string()) return invalid(where, "must be a list of strings");
    out.push_back(item.as_string());
  }
  return out;
}

bool is_pointer(const std::string& text) { return text.empty() || text.front() == '/'; }

Result<api::EdgeStatusQuery> read_status_query(const Json& value, const std::string& where) {
  if (!value.is_object()) return invalid(where, "must be an object");
  api::EdgeStatusQuery query;
  // Another path is another protocol: members that the entry leaves out are not in its answers.
  if (value.contains("path")) {
    query.method = "GET";
    query.name = query.state = query.code = query.message = "";
    query.ready = query.loading = query.ignored_messages = {};
  }
  const std::pair<std::string_view, std::string*> texts[] = {
      {"path", &query.path}, {"method", &query.method},   {"list", &query.list},
      {"name", &query.name}, {"version", &query.version}, {"state", &query.state},
      {"code", &query.code}, {"message", &query.message}};
  const std::pair<std::string_view, std::vector<std::string>*> lists[] = {
      {"ready", &query.ready},
      {"loading", &query.loading},
      {"ignoredMessages", &query.ignored_messages}};
  for (const auto& [member, content] : value.as_object()) {
    const std::string at = where + "." + member;
    bool known = false;
    for (const auto& [name, place] : texts) {
      if (name != member) continue;
      known = true;
      if (!content.is_string()) return invalid(at, "must be a string");
      *place = content.as_string();
      if (name == "method") {
        if (*place != "GET" && *place != "POST") return invalid(at, "must be GET or POST");
      } else if (name == "path" ? !place->starts_with('/') : !is_pointer(*place)) {
        return invalid(at, "must begin with /");
      }
    }
    for (const auto& [name, place] : lists) {
      if (name != member) continue;
      known = true;
      TRY(*place, read_list(content, at));
    }
    if (!known)
      return invalid(at,
                     "is unknown: must be path, method, list, name, version, state, ready, "
                     "loading, code, message or ignoredMessages");
  }
  if (!query.state.empty() && query.ready.empty())
    return invalid(where + ".ready", "is required if state is set");
  return query;
}

std::string with_longest_names(std::string text) {
  const std::pair<std::string_view, std::size_t> lengths[] = {
      {"{modelName}", 63}, {"{port}", 5}, {"{version}", 63}};
  for (const auto& [name, length] : lengths) {
    for (std::size_t at = text.find(name); at != std::string::npos;
         at = text.find(name, at + length))
      text.replace(at, name.size(), std::string(length, 'x'));
  }
  return text;
}

// Parts of the entry go to agents in work lists, so they must fit the limits of EdgeNode. One entry
// beyond the limits would block the list of every model on its node.
Status check_limits(const std::string& name, const ServerEntry& entry) {
  api::EdgeModel model;
  model.key = "namespace/name";
  model.layout = entry.layout;
  model.extra_files = entry.extra_files;
  api::EdgeStatusQuery& query = model.serving.emplace().status_query.emplace(entry.status_query);
  model.serving->url = "http://server";
  query.path = with_longest_names(query.path);
  api::EdgeNodeSpec spec;
  spec.models.push_back(std::move(model));
  const auto causes =
      api::validate(api::EdgeNode::kind().schema->find("spec")->schema, spec.to_json());
  if (causes.empty()) return {};
  std::string field = causes.front().field;
  for (const auto& [model_field, table_field] :
       {std::pair<std::string_view, std::string_view>("models[0].serving.statusQuery", "status"),
        {"models[0].", ""}}) {
    if (field.starts_with(model_field)) field.replace(0, model_field.size(), table_field);
  }
  const bool path = field == "status.path";
  return invalid(name + "." + field,
                 causes.front().message + (path ? ", with the longest names filled in" : ""));
}

Result<ServerEntry> read_entry(const std::string& name, const Json& value) {
  if (!value.is_object()) return invalid(name, "must be an object");
  ServerEntry entry;
  const std::pair<std::string_view, std::string*> texts[] = {{"image", &entry.image},
                                                             {"mountPath", &entry.mount_path},
                                                             {"readyPath", &entry.ready_path},
                                                             {"layout", &entry.layout}};
  for (const auto& [member, content] : value.as_object()) {
    const std::string where = name + "." + member;
    if (member == "command") {
      TRY(entry.command, read_list(content, where));
    } else if (member == "args") {
      TRY(entry.args, read_list(content, where));
    } else if (member == "extraFiles") {
      TRY(entry.extra_files, read_list(content, where));
    } else if (member == "env") {
      if (!content.is_object()) return invalid(where, "must be an object");
      for (const auto& [variable, text] : content.as_object()) {
        if (!text.is_string()) return invalid(where + "." + variable, "must be a string");
        entry.env[variable] = text.as_string();
      }
    } else if (member == "status") {
      TRY(entry.status_query, read_status_query(content, where));
    } else if (member == "closable") {
      if (!content.is_bool()) return invalid(where, "must be true or false");
      entry.closable = content.as_bool();
    } else if (member == "securityContext") {
      if (!content.is_object()) return invalid(where, "must be an object");
      entry.security_context = content;
    } else {
      bool known = false;
      for (const auto& [text, place] : texts) {
        if (text != member) continue;
        known = true;
        if (!content.is_string()) return invalid(where, "must be a string");
        *place = content.as_string();
      }
      if (!known) {
        return invalid(where,
                       "is unknown: must be image, command, args, env, mountPath, readyPath, "
                       "layout, extraFiles, status, closable or "
                       "securityContext");
      }
    }
  }
  if (entry.image.empty()) return invalid(name + ".image", "is required");
  if (!entry.mount_path.starts_with('/'))
    return invalid(name + ".mountPath", "must be an absolute path");
  if (entry.layout != api::EdgeModel::kTarget && entry.layout != api::EdgeModel::kNumbered)
    return invalid(name + ".layout", "must be target or numbered");
  for (const std::string& file : entry.extra_files) {
    if (file.empty() || file.front() == '.' || file.find('/') != std::string::npos)
      return invalid(name + ".extraFiles",
                     "must be file names that have no / and do not begin with a dot");
  }
  if (!entry.extra_files.empty() && entry.layout != api::EdgeModel::kNumbered)
    return invalid(name + ".extraFiles", "may be set only with layout: numbered");
  TRY_VOID(check_limits(name, entry));
  return entry;
}

// A user that is not root, for images that work without root.
Json unprivileged(std::int64_t user) {
  return Json::object({{"runAsNonRoot", true},
                       {"runAsUser", user},
                       {"runAsGroup", user},
                       {"allowPrivilegeEscalation", false},
                       {"capabilities", Json::object({{"drop", Json::array({"ALL"})}})},
                       {"seccompProfile", Json::object({{"type", "RuntimeDefault"}})}});
}

// tensorflow.org/tfx/serving (docker, serving_config, api_rest). The image's entry point puts
// MODEL_NAME and MODEL_BASE_PATH into flags. Then it adds args, and the last flag counts. gRPC is
// off: servers in one node's network would meet at its port. The server looks every second for the
// greatest number below the base path. It unloads the former version only after it has loaded the
// new one. A failed load is reported at once, without retries for minutes.
ServerEntry tensorflow_serving() {
  ServerEntry entry;
  entry.image = "tensorflow/serving:2.16.1";
  entry.args = {"--port=0", "--rest_api_port={port}", "--file_system_poll_wait_seconds=1",
                "--max_num_load_retries=0"};
  entry.env = {{"MODEL_NAME", "{modelName}"}, {"MODEL_BASE_PATH", "/models"}};
  // /v1/models/NAME answers 200 while a version loads; its metadata is there once one is AVAILABLE.
  entry.ready_path = "/v1/models/{modelName}/metadata";
  entry.layout = api::EdgeModel::kNumbered;
  entry.status_query.path = "/v1/models/{modelName}";
  entry.status_query.method = "GET";
  entry.status_query.list = "/model_version_status";
  entry.status_query.name = "";
  entry.status_query.version = "/version";
  entry.status_query.state = "/state";
  entry.status_query.ready = {"AVAILABLE"};
  entry.status_query.loading = {"START", "LOADING"};
  entry.status_query.code = "";
  entry.status_query.message = "/status/error_message";
  entry.status_query.ignored_messages = {"OK"};
  entry.security_context = unprivileged(65532);
  return entry;
}

// docs.nvidia.com/deeplearning/triton-inference-server (model_repository, model_management):
// NAME/NUMBER/model.*, NAME/config.pbtxt. Triton polls its directory, so it serves the right
// version after a restart too. With explicit loads a restart would need the agent. A version is a
// whole directory that appears at once. So no poll meets a half-made change, of which the guide
// warns. The older version goes once the newer one is loaded, and stays if the newer one does not
// load. gRPC and metrics are off, like gRPC above. The index is that of the Open Inference
// Protocol.
ServerEntry triton() {
  ServerEntry entry;
  entry.image = "nvcr.io/nvidia/tritonserver:24.08-py3";
  entry.args = {"tritonserver",
                "--model-repository=/models",
                "--model-control-mode=poll",
                "--repository-poll-secs=2",
                "--exit-on-error=false",
                "--http-address=$(POD_IP)",
                "--http-port={port}",
                "--allow-grpc=false",
                "--allow-metrics=false"};
  entry.ready_path = "/v2/models/{modelName}/ready";
  entry.layout = api::EdgeModel::kNumbered;
  entry.extra_files = {"config.pbtxt"};
  entry.security_context = unprivileged(1000);  // triton-server in the image
  return entry;
}

}  // namespace

ServerEntry varda_serve(std::string image) {
  ServerEntry entry;
  entry.image = std::move(image);
  entry.args = {"--model-repository", "/models", "--http", "$(POD_IP):{port}"};
  entry.ready_path = "/v2/models/{modelName}/ready";
  entry.security_context = restricted_container();
  entry.closable = true;
  return entry;
}

Json restricted_container() {
  Json context = unprivileged(65532);
  context.set("readOnlyRootFilesystem", true);
  return context;
}

ServerTable builtin_servers() {
  return {{"onnx", varda_serve()},
          {std::string(kFrozenGraph), varda_serve()},
          {"caffe", varda_serve()},
          {"darknet", varda_serve()},
          {std::string(kTensorflow), tensorflow_serving()},
          {"triton", triton()},
          {"tensorrt", triton()}};
}

Result<ServerTable> servers_from_json(const Json& table) {
  ServerTable servers = builtin_servers();
  if (!table.is_null() && !table.is_object())
    return Error(Code::kInvalid, "servers: must be an object");
  const auto& known = api::known_frameworks();
  for (const auto& [name, value] : table.as_object()) {
    if (std::find(known.begin(), known.end(), name) == known.end())
      return invalid(name, "is not a valid frameworkType of an InferenceModel");
    TRY(ServerEntry entry, read_entry(name, value));
    servers[name] = std::move(entry);
  }
  return servers;
}

}  // namespace varda::hosting
