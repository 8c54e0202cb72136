#include <algorithm>

#include "apiserver/internal/admission.h"
#include "apiserver/internal/dialect.h"
#include "apiserver/internal/ending_stream.h"
#include "apiserver/internal/metadata.h"
#include "apiserver/kinds/core_kind.h"
#include "meta/patch.h"
#include "meta/selector.h"

namespace varda::apiserver {

namespace {

std::string slashes(std::string_view dotted) {
  std::string path(dotted);
  if (path.starts_with('.')) path.erase(0, 1);
  std::replace(path.begin(), path.end(), '.', '/');
  return path;
}

Json created_status() {
  return Json::object({{"kind", "Status"},
                       {"apiVersion", "v1"},
                       {"metadata", Json::object()},
                       {"status", "Success"},
                       {"code", 201}});
}

Json make_scale(const Kind& kind, const Json& object) {
  const Scale& paths = *kind.info().scale;
  const Json& from = object["metadata"];
  Json metadata = Json::object();
  for (const char* name : {"name", "namespace", "uid", "resourceVersion", "creationTimestamp"}) {
    if (const Json* value = from.find(name)) metadata.set(name, *value);
  }
  Json spec = Json::object();
  const std::int64_t wanted = object.at(slashes(paths.spec_replicas)).as_integer();
  if (wanted != 0) spec.set("replicas", wanted);
  Json status =
      Json::object({{"replicas", object.at(slashes(paths.status_replicas)).as_integer()}});
  if (!paths.label_selector.empty()) {
    const Json& selector = object.at(slashes(paths.label_selector));
    if (selector.is_string() && !selector.as_string().empty()) status.set("selector", selector);
    if (selector.is_object()) {
      auto parsed = meta::LabelSelector::from_json(selector);
      if (parsed.ok() && !parsed->empty()) status.set("selector", parsed->str());
    }
  }
  return Json::object({{"kind", "Scale"},
                       {"apiVersion", "autoscaling/v1"},
                       {"metadata", std::move(metadata)},
                       {"spec", std::move(spec)},
                       {"status", std::move(status)}});
}

}  // namespace

Dialect::Reply Dialect::subresource(Call& call) {
  const KindInfo& kind = call.kind->info();
  const std::string& first = call.info.subresource[0];
  const std::string& method = call.http.method;
  const bool alone = call.info.subresource.size() == 1;
  if (first == "status" && kind.status && (alone || kind.custom)) {
    if (method == "GET" || method == "HEAD") return get(call);
    if (method == "PUT") return update(call, Part::kStatus);
    if (method == "PATCH") return patch(call, Part::kStatus);
    if (kind.custom)
      return verb_not_supported(kind.resource, method == "POST" ? "create" : "delete");
    return method_not_allowed();
  }
  if (first == "scale" && kind.scale && (alone || kind.custom)) return scale(call);
  if (kind.custom) return not_found(kind.resource, call.info.name);
  if (!alone) return resource_not_found();
  if (is_pod(kind.resource)) {
    if (first == "binding") return method == "POST" ? bind(call) : Reply(method_not_allowed());
    if (first == "eviction") return method == "POST" ? evict(call) : Reply(method_not_allowed());
    if (first == "log") return method == "GET" ? log(call) : Reply(method_not_allowed());
    if (first == "exec" || first == "attach" || first == "portforward") {
      TRY(const Json pod, objects_.get(*call.kind, call.info.ns, call.info.name));
      if (pod.at("spec/nodeName").as_string().empty()) {
        return bad_request("pod " + call.info.name + " does not have a host assigned");
      }
      ApiStatus status = method_not_allowed();
      status.message = first +
                       " is not supported: this server has no access to running pods; the pod's "
                       "output is in its log";
      return status;
    }
  }
  if (kind.resource.group.empty() && kind.resource.plural == "serviceaccounts" &&
      first == "token" && method == "POST") {
    ApiStatus status = method_not_allowed();
    status.message =
        "this server issues no service account tokens, because it does not accept them";
    return status;
  }
  if (is_namespace(kind.resource) && first == "finalize" && method == "PUT") return finalize(call);
  return resource_not_found();
}

Dialect::Reply Dialect::scale(Call& call) {
  const Kind& kind = *call.kind;
  const std::string& method = call.http.method;
  if (method == "GET" || method == "HEAD") {
    TRY(const Json object, objects_.get(kind, call.info.ns, call.info.name));
    call.how.now = core_.clock.wall();
    TRY(const Json shown, present_object(scale_kind(), make_scale(kind, object), call.how));
    return answer(call, 200, shown);
  }
  if (method != "PUT" && method != "PATCH") {
    if (kind.info().custom)
      return verb_not_supported(kind.resource(), method == "POST" ? "create" : "delete");
    return method_not_allowed();
  }
  const bool replaces = method == "PUT";
  const std::string_view options_kind = replaces ? "UpdateOptions" : "PatchOptions";
  TRY(const DryRun dry_run, parse_dry_run(call.query, options_kind));
  if (call.http.body.size() > core_.options.limits.body_bytes_max)
    return too_large(core_.options.limits.body_bytes_max);
  const std::string type = content_type(call.http);
  Json body;
  if (replaces) {
    TRY(Result<Json> tree,
        read_tree(call.http, {.depth_max = core_.options.limits.json_depth_max}));
    if (!tree.ok()) return bad_request("the body is not a Scale: " + tree.error().message());
    body = std::move(tree).value();
    if (!body.is_object()) return bad_request("the body is not a Scale");
    const std::string& body_kind = std::as_const(body)["kind"].as_string();
    if (!body_kind.empty() && body_kind != "Scale") {
      return bad_request(
          body_kind + " in version " + in_quotes(std::as_const(body)["apiVersion"].as_string()) +
          " cannot be handled as a Scale: no kind " + in_quotes(body_kind) + " is registered");
    }
    const std::string& name = name_of(body);
    if (!name.empty() && name != call.info.name) {
      return bad_request("the name of the object (" + name +
                         ") does not match the name on the URL (" + call.info.name + ")");
    }
  } else {
    if (type != "application/json-patch+json" && type != "application/merge-patch+json" &&
        (type != "application/strategic-merge-patch+json" || kind.info().custom)) {
      return unsupported_media_type("application/json-patch+json, application/merge-patch+json");
    }
    auto parsed = codec::parse_json(
        call.http.body,
        {.depth_max = core_.options.limits.json_depth_max, .nodes_max = kBodyValuesMax});
    if (!parsed.ok()) return bad_request("error decoding patch: " + parsed.error().message());
    body = std::move(parsed).value();
  }

  const Scale& paths = *kind.info().scale;
  const auto change = [&](const Json& old) -> Outcome<Json> {
    Json wanted = body;
    if (!replaces) {
      Json present = make_scale(kind, old);
      if (type == "application/json-patch+json") {
        auto patched = meta::apply_json_patch(std::move(present), body,
                                              core_.options.limits.patch_operations_max);
        if (!patched.ok()) {
          ApiStatus status;
          status.code = 422;
          status.reason = "Invalid";
          status.message = "the server rejected our request due to an error in our request: " +
                           patched.error().message();
          return status;
        }
        wanted = std::move(patched).value();
      } else {
        wanted = meta::apply_merge_patch(std::move(present), body);
      }
    }
    const Json& replicas = wanted.at("spec/replicas");
    if (!replicas.is_null() && !replicas.is_integer()) {
      return bad_request(
          "Scale in version \"v1\" cannot be handled as a Scale: json: cannot unmarshal into Go "
          "struct field "
          "ScaleSpec.spec.replicas of type int32");
    }
    Json object = old;
    object.make(slashes(paths.spec_replicas)) = replicas.as_integer();
    Json& metadata = object["metadata"];
    metadata.erase("resourceVersion");
    const std::string& version = wanted.at("metadata/resourceVersion").as_string();
    if (!version.empty()) metadata.set("resourceVersion", version);
    const std::string& uid = uid_of(wanted);
    if (!uid.empty()) metadata.set("uid", uid);
    if (!kind.info().custom && replicas.as_integer() < 0) {
      return invalid("autoscaling", "Scale", call.info.name,
                     {{"FieldValueInvalid",
                       "Invalid value: " + std::to_string(replicas.as_integer()) +
                           ": must be greater than or equal to 0",
                       "spec.replicas"}});
    }
    return object;
  };
  Objects::UpdateOptions options;
  static_cast<WriteOptions&>(options) = write_options(call, dry_run);
  TRY(const Json written, objects_.update(kind, call.info.ns, call.info.name, change, options));
  return answer(call, 200, make_scale(kind, written));
}

Dialect::Reply Dialect::bind(Call& call) {
  TRY(const DryRun dry_run, parse_dry_run(call.query, "CreateOptions"));
  TRY(Result<Json> tree, read_tree(call.http, {.depth_max = core_.options.limits.json_depth_max}));
  if (!tree.ok()) return bad_request("the body is not a Binding: " + tree.error().message());
  const Json& binding = *tree;
  const std::string& target_kind = binding.at("target/kind").as_string();
  const std::string& node = binding.at("target/name").as_string();
  if (!target_kind.empty() && target_kind != "Node") {
    return internal("target.kind: Unsupported value: " + in_quotes(target_kind) +
                    ": supported values: \"Node\", \"<empty>\"");
  }
  if (node.empty()) return internal("target.name: Required value");
  const auto change = [&](const Json& old) -> Outcome<Json> {
    const meta::Resource& resource = call.kind->resource();
    meta::Resource bindings = resource;
    bindings.plural = "pods/binding";
    // A binding for an older pod must not bind a newer pod of the same name.
    const std::string& uid = binding.at("metadata/uid").as_string();
    const std::string& live = old.at("metadata/uid").as_string();
    if (!uid.empty() && uid != live)
      return conflict(
          bindings, call.info.name,
          "Precondition failed: UID in precondition: " + uid + ", UID in object meta: " + live);
    if (deleting(old))
      return conflict(bindings, call.info.name,
                      "pod " + call.info.name + " is being deleted, cannot be assigned to a host");
    const std::string& present = old.at("spec/nodeName").as_string();
    if (!present.empty()) {
      return conflict(
          bindings, call.info.name,
          "pod " + call.info.name + " is already assigned to node " + in_quotes(present));
    }
    Json pod = old;
    pod["spec"].set("nodeName", node);
    Json& conditions = pod["status"]["conditions"];
    const std::string now = objects_.now();
    bool found = false;
    if (conditions.is_array()) {
      for (Json& condition : conditions.array_items()) {
        if (condition["type"].as_string() != "PodScheduled") continue;
        condition = Json::object({{"type", "PodScheduled"},
                                  {"status", "True"},
                                  {"lastProbeTime", nullptr},
                                  {"lastTransitionTime", now}});
        found = true;
      }
    }
    if (!found) {
      conditions.push_back(Json::object({{"type", "PodScheduled"},
                                         {"status", "True"},
                                         {"lastProbeTime", nullptr},
                                         {"lastTransitionTime", now}}));
    }
    return pod;
  };
  Objects::UpdateOptions options;
  static_cast<WriteOptions&>(options) = write_options(call, dry_run);
  options.binding = true;
  auto bound = objects_.update(*call.kind, call.info.ns, call.info.name, change, options);
  if (!bound.ok()) return std::move(bound).error();
  return answer(call, 201, created_status());
}

Dialect::Reply Dialect::evict(Call& call) {
  TRY(DryRun dry_run, parse_dry_run(call.query, "CreateOptions"));
  TRY(Result<Json> tree, read_tree(call.http, {.depth_max = core_.options.limits.json_depth_max}));
  if (!tree.ok()) return bad_request("the body is not an Eviction: " + tree.error().message());
  const Json& eviction = *tree;
  if (name_of(eviction) != call.info.name)
    return bad_request("name in URL does not match name in Eviction object");
  TRY(const DeleteOptions deletion, delete_options(eviction["deleteOptions"], dry_run));
  auto deleted = objects_.remove(*call.kind, call.info.ns, call.info.name, deletion,
                                 write_options(call, dry_run));
  if (!deleted.ok()) return std::move(deleted).error();
  return answer(call, 201, created_status());
}

Dialect::Reply Dialect::finalize(Call& call) {
  TRY(const Json space,
      read_object(call.http, *call.kind, core_.options.limits, Validation::kIgnore, nullptr));
  // The server's own controller ends namespaces; other clients get the present state.
  TRY(Json present, objects_.get(*call.kind, "", call.info.name));
  return answer_object(call, 200, std::move(present));
}

Dialect::Reply Dialect::log(Call& call) {
  TRY(const Json pod, objects_.get(*call.kind, call.info.ns, call.info.name));
  LogRequest request{
      .ns = call.info.ns,
      .pod = call.info.name,
      .uid = uid_of(pod),
      .node = pod.at("spec/nodeName").as_string(),
      .container = std::string(call.query.get("container")),
      .follow = call.query.get("follow") == "true" || call.query.get("follow") == "1",
      .previous = call.query.get("previous") == "true",
      .timestamps = call.query.get("timestamps") == "true",
      .tail_lines = std::nullopt,
      .limit_bytes = std::nullopt,
      .since_seconds = std::nullopt};
  std::vector<std::string> names;
  std::string all;
  for (const char* list : {"spec/containers", "spec/initContainers"}) {
    for (const Json& container : pod.at(list).as_array()) {
      names.push_back(container["name"].as_string());
      all += (all.empty() ? "" : " ") + names.back();
    }
  }
  if (request.container.empty()) {
    const auto& containers = pod.at("spec/containers").as_array();
    if (containers.size() != 1) {
      return bad_request("a container name must be specified for pod " + call.info.name +
                         ", choose one of: [" + all + "]");
    }
    request.container = containers[0]["name"].as_string();
  } else if (std::find(names.begin(), names.end(), request.container) == names.end()) {
    return bad_request("container " + request.container + " is not valid for pod " +
                       call.info.name);
  }
  const auto number = [&](const char* name, std::optional<std::int64_t>& to) -> Outcome<void> {
    const auto text = call.query.find(name);
    if (!text || text->empty()) return {};
    auto parsed = codec::parse_json(*text);
    if (!parsed.ok() || !parsed->is_integer() || parsed->as_integer() < 0) {
      return bad_request(std::string(name) + " must be a non-negative number");
    }
    to = parsed->as_integer();
    return {};
  };
  TRY_VOID(number("tailLines", request.tail_lines));
  TRY_VOID(number("limitBytes", request.limit_bytes));
  TRY_VOID(number("sinceSeconds", request.since_seconds));
  if (request.node.empty()) {
    return bad_request("container " + in_quotes(request.container) + " in pod " +
                       in_quotes(call.info.name) +
                       " is waiting to start: the pod is not assigned to a node");
  }
  if (!core_.options.logs) {
    ApiStatus status;
    status.code = 503;
    status.reason = "ServiceUnavailable";
    status.message = "this server has no access to the logs of pods";
    return status;
  }
  auto stream = core_.options.logs(request);
  if (!stream.ok()) {
    if (stream.error().code() == Code::kNotFound || stream.error().code() == Code::kInvalid)
      return bad_request(stream.error().message());
    return ApiStatus::from_error(stream.error());
  }
  net::Response response;
  response.headers.add("Content-Type", "text/plain");
  response.headers.add("Cache-Control", "no-cache, private");
  response.stream = std::make_unique<EndingStream>(core_, std::move(stream).value());
  return response;
}

}  // namespace varda::apiserver
