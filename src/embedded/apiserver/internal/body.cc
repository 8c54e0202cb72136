#include "apiserver/internal/body.h"

#include <algorithm>

#include "apiserver/internal/metadata.h"
#include "apiserver/internal/negotiation.h"
#include "apiserver/internal/paging.h"
#include "apiserver/internal/strategic.h"
#include "base/text.h"
#include "codec/digest.h"
#include "codec/reported_paths.h"
#include "meta/patch.h"

namespace varda::apiserver {

namespace {

ApiStatus bad_option(std::string_view options_kind, std::string reason, std::string message,
                     std::string field) {
  return invalid("meta.k8s.io", options_kind, "",
                 {{std::move(reason), std::move(message), std::move(field)}});
}

// The first bytes of a body for an error message, as text where it looks like JSON.
std::string summary(std::string_view body) {
  constexpr std::size_t kBytes = 30;
  if (body.empty()) return "<empty>";
  const bool cut = body.size() > kBytes;
  const std::string_view head = body.substr(0, kBytes);
  return (body[0] == '{' ? std::string(head) : codec::hex(head)) + (cut ? " ..." : "");
}

ApiStatus unrecognized(const Kind& kind, std::string_view why, std::string_view body) {
  return bad_request("the object provided is unrecognized (must be of type " +
                     kind.resource().kind + "): " + std::string(why) + " (" + summary(body) + ")");
}

std::string cannot_be_handled(const Kind& kind, std::string_view body_kind,
                              std::string_view body_version, std::string_view why) {
  return std::string(body_kind) + " in version " + in_quotes(body_version) +
         " cannot be handled as a " + kind.resource().kind + ": " + std::string(why);
}

ApiStatus wrong_kind(const Kind& kind, const Json& object) {
  const std::string& body_kind = object["kind"].as_string();
  return invalid(kind.resource().group, body_kind, name_of(object),
                 {invalid_value("kind", body_kind, "must be " + kind.resource().kind)});
}

ApiStatus bad_patch(const Json& object, std::string_view why) {
  return invalid(
      "", "", "",
      {{"FieldValueInvalid",
        "Invalid value: " + in_quotes(codec::write_json(object)) + ": " + std::string(why),
        "patch"}});
}

std::string version_part(std::string_view api_version) {
  const std::size_t slash = api_version.find('/');
  return std::string(slash == std::string_view::npos ? api_version : api_version.substr(slash + 1));
}

// More than a person reads, and below Python's limit of 100 headers.
constexpr std::size_t kProblemsMax = 64;

// Decodes and prunes; unknown and duplicate fields go to `problems`, worded like Kubernetes' strict
// decoder.
Status understand(const Kind& kind, Json& object, const std::vector<std::string>& duplicates,
                  std::vector<std::string>& problems) {
  for (const std::string& path : duplicates)
    problems.push_back("duplicate field " + in_quotes(path));
  std::vector<std::string> unknown;
  TRY_VOID(decode_metadata(object, unknown));
  TRY_VOID(kind.decode(object));
  for (std::string& path : kind.prune(object)) unknown.push_back(std::move(path));
  std::sort(unknown.begin(), unknown.end());
  for (const std::string& path : unknown) problems.push_back("unknown field " + in_quotes(path));
  if (problems.size() > kProblemsMax) problems.resize(kProblemsMax);
  return {};
}

void warn(std::vector<std::string>* warnings, Validation validation,
          std::vector<std::string> problems) {
  if (warnings == nullptr || validation == Validation::kIgnore) return;
  if (problems.size() > kProblemsMax) problems.resize(kProblemsMax);
  for (std::string& problem : problems) {
    if (std::find(warnings->begin(), warnings->end(), problem) == warnings->end())
      warnings->push_back(std::move(problem));
  }
}

}  // namespace

Outcome<Validation> parse_validation(const net::Query& query, std::string_view options_kind) {
  const auto text = query.find("fieldValidation");
  if (!text || text->empty() || *text == "Warn") return Validation::kWarn;
  if (*text == "Strict") return Validation::kStrict;
  if (*text == "Ignore") return Validation::kIgnore;
  return bad_option(options_kind, "FieldValueNotSupported",
                    "Unsupported value: " + in_quotes(*text) +
                        ": supported values: \"\", \"Ignore\", \"Strict\", \"Warn\"",
                    "fieldValidation");
}

Outcome<DryRun> parse_dry_run(const net::Query& query, std::string_view options_kind) {
  std::vector<std::string_view> values;
  for (const auto& [name, value] : query.all()) {
    if (name == "dryRun") values.push_back(value);
  }
  if (values.empty()) return DryRun::kNo;
  std::string list;
  bool good = true;
  for (const std::string_view value : values) {
    good = good && value == "All";
    list += (list.empty() ? "" : ", ") + in_quotes(value);
  }
  if (good) return DryRun::kYes;
  return bad_option(options_kind, "FieldValueNotSupported",
                    "Unsupported value: []string{" + list + "}: supported values: \"All\"",
                    "dryRun");
}

Outcome<void> check_field_manager(const net::Query& query, std::string_view options_kind) {
  if (query.get("fieldManager").size() > 128) {
    return bad_option(options_kind, "FieldValueTooLong", "Too long: may not be more than 128 bytes",
                      "fieldManager");
  }
  if (query.find("force")) {
    return bad_option(options_kind, "FieldValueForbidden",
                      "Forbidden: may not be specified for non-apply patch", "force");
  }
  return {};
}

Outcome<Json> read_object(const net::Request& request, const Kind& kind, const Limits& limits,
                          Validation validation, std::vector<std::string>* warnings) {
  if (request.body.size() > limits.body_bytes_max) return too_large(limits.body_bytes_max);
  std::vector<std::string> duplicates;
  TRY(Result<Json> tree,
      read_tree(request, {.depth_max = limits.json_depth_max, .duplicates = &duplicates}));
  if (!tree.ok())
    return unrecognized(kind,
                        "couldn't get version/kind; json parse error: " + tree.error().message(),
                        request.body);
  Json object = std::move(tree).value();
  if (!object.is_object()) {
    return unrecognized(
        kind, "couldn't get version/kind; json parse error: the body must be a JSON object",
        request.body);
  }
  const meta::Resource& resource = kind.resource();
  const auto text_of = [&](const char* name) { return std::as_const(object)[name].as_string(); };
  for (const char* name : {"kind", "apiVersion"}) {
    if (object.contains(name) && !std::as_const(object)[name].is_string() &&
        !std::as_const(object)[name].is_null()) {
      return unrecognized(
          kind,
          std::string("couldn't get version/kind; json parse error: ") + name + " must be a string",
          request.body);
    }
  }
  if (kind.info().custom) {
    if (text_of("kind").empty())
      return unrecognized(kind, "Object 'Kind' is missing in '" + request.body + "'", request.body);
    if (text_of("apiVersion").empty()) {
      return unrecognized(kind, "Object 'apiVersion' is missing in '" + request.body + "'",
                          request.body);
    }
    if (text_of("kind") != resource.kind) return wrong_kind(kind, object);
    if (text_of("apiVersion") != resource.api_version()) {
      std::vector<std::string> unknown;
      for (const auto& [name, value] : object.as_object()) {
        if (name != "kind" && name != "apiVersion" && name != "metadata")
          codec::report_path(unknown,
                             [&name = name] { return "unknown field " + in_quotes(name); });
      }
      std::sort(unknown.begin(), unknown.end());
      warn(warnings, validation, std::move(unknown));
      return bad_request("the API version in the data (" + text_of("apiVersion") +
                         ") does not match the expected API version (" + resource.api_version() +
                         ")");
    }
  } else {
    if (text_of("kind").empty()) object.set("kind", resource.kind);
    if (text_of("apiVersion").empty()) object.set("apiVersion", resource.api_version());
    const std::string body_version = text_of("apiVersion");
    if (body_version != resource.api_version()) {
      return bad_request(cannot_be_handled(kind, text_of("kind"), version_part(body_version),
                                           "no kind " + in_quotes(text_of("kind")) +
                                               " is registered for version " +
                                               in_quotes(body_version)));
    }
    if (text_of("kind") != resource.kind) {
      return bad_request(cannot_be_handled(
          kind, text_of("kind"), resource.version,
          "converting (" + resource.version + "." + text_of("kind") + ") to (" +
              (resource.group.empty() ? "core"
                                      : resource.group.substr(0, resource.group.find('.'))) +
              "." + resource.kind + "): unknown conversion"));
    }
  }
  std::vector<std::string> problems;
  if (auto understood = understand(kind, object, duplicates, problems); !understood.ok()) {
    return bad_request(
        cannot_be_handled(kind, resource.kind, resource.version, understood.error().message()));
  }
  if (validation == Validation::kStrict && !problems.empty()) {
    return bad_request(cannot_be_handled(kind, resource.kind, resource.version,
                                         "strict decoding error: " + join(problems)));
  }
  warn(warnings, validation, std::move(problems));
  return object;
}

Outcome<Json> accept_patched(Json object, const Kind& kind, Validation validation,
                             const std::vector<std::string>& duplicates,
                             std::vector<std::string>* warnings) {
  const meta::Resource& resource = kind.resource();
  if (!object.is_object()) return bad_patch(object, "the patched object is not a JSON object");
  const std::string body_kind = std::as_const(object)["kind"].as_string();
  const std::string body_version = std::as_const(object)["apiVersion"].as_string();
  if (kind.info().custom) {
    if (body_kind.empty())
      return bad_patch(object, "Object 'Kind' is missing in '" + codec::write_json(object) + "'");
    if (body_version.empty())
      return bad_patch(object,
                       "Object 'apiVersion' is missing in '" + codec::write_json(object) + "'");
    if (body_kind != resource.kind) return wrong_kind(kind, object);
    if (body_version != resource.api_version()) {
      std::vector<std::string> unknown;
      for (const auto& [name, value] : object.as_object()) {
        if (name != "kind" && name != "apiVersion" && name != "metadata")
          codec::report_path(unknown,
                             [&name = name] { return "unknown field " + in_quotes(name); });
      }
      std::sort(unknown.begin(), unknown.end());
      warn(warnings, validation, std::move(unknown));
      return invalid(
          resource.group, resource.kind, name_of(object),
          {invalid_value("apiVersion", body_version, "must be " + resource.api_version())});
    }
  } else if (body_kind != resource.kind || body_version != resource.api_version()) {
    return bad_patch(object, "the kind or apiVersion of an object cannot be changed");
  }
  std::vector<std::string> problems;
  const Json patched = object;
  if (auto understood = understand(kind, object, duplicates, problems); !understood.ok()) {
    return bad_patch(patched, understood.error().message());
  }
  if (validation == Validation::kStrict && !problems.empty())
    return bad_patch(patched, "strict decoding error: " + join(problems));
  warn(warnings, validation, std::move(problems));
  return object;
}

Outcome<Patch> Patch::read(const net::Request& request, const Kind& kind, const Limits& limits) {
  Patch out;
  out.operations_max_ = limits.patch_operations_max;
  const std::string type = content_type(request);
  if (type == "application/json-patch+json") {
    out.type_ = Type::kJson;
  } else if (type == "application/merge-patch+json") {
    out.type_ = Type::kMerge;
  } else if (type == "application/strategic-merge-patch+json" && !kind.info().custom) {
    out.type_ = Type::kStrategic;
  } else {
    return unsupported_media_type(
        kind.info().custom ? "application/json-patch+json, application/merge-patch+json"
                           : "application/json-patch+json, application/merge-patch+json, "
                             "application/strategic-merge-patch+json");
  }
  if (request.body.size() > limits.body_bytes_max) return too_large(limits.body_bytes_max);
  auto parsed = codec::parse_json(request.body, {.depth_max = limits.json_depth_max,
                                                 .nodes_max = kBodyValuesMax,
                                                 .duplicates = &out.duplicates_});
  if (!parsed.ok()) return bad_request("error decoding patch: " + parsed.error().message());
  out.patch_ = std::move(parsed).value();
  if (out.type_ == Type::kJson) {
    out.duplicates_.clear();
    if (!out.patch_.is_array())
      return bad_request("error decoding patch: a JSON patch must be an array of operations");
    if (out.patch_.size() > out.operations_max_) {
      return too_many_operations(out.operations_max_, out.patch_.size());
    }
  } else if (!out.patch_.is_object()) {
    return bad_request("error decoding patch: a merge patch must be an object");
  }
  return out;
}

Outcome<Json> Patch::apply(const Kind& kind, const Json& object) const {
  switch (type_) {
    case Type::kMerge:
      return meta::apply_merge_patch(object, patch_);
    case Type::kStrategic:
      return apply_strategic_patch(object, patch_, kind);
    case Type::kJson:
      break;
  }
  auto patched = meta::apply_json_patch(object, patch_, operations_max_);
  if (patched.ok()) return std::move(patched).value();
  ApiStatus status;
  status.code = 422;
  status.reason = "Invalid";
  status.message = "the server rejected our request due to an error in our request: " +
                   patched.error().message();
  return status;
}

Outcome<DeleteOptions> read_delete_options(const net::Request& request, const net::Query& query,
                                           const Limits& limits, DeletionOf of, DryRun& dry_run) {
  constexpr std::string_view kOptions = "DeleteOptions";
  Json body = Json::object();
  if (!request.body.empty()) {
    if (request.body.size() > limits.body_bytes_max) return too_large(limits.body_bytes_max);
    TRY(Result<Json> tree, read_tree(request, {.depth_max = limits.json_depth_max}));
    if (!tree.ok())
      return internal("couldn't get version/kind; json parse error: " + tree.error().message());
    body = std::move(tree).value();
    if (!body.is_object())
      return internal(
          "couldn't get version/kind; json parse error: DeleteOptions must be an object");
    const std::string& kind = std::as_const(body)["kind"].as_string();
    if (!kind.empty() && kind != "DeleteOptions") {
      return internal("no kind " + in_quotes(kind) + " is registered for version " +
                      in_quotes(std::as_const(body)["apiVersion"].as_string()));
    }
  }
  TRY(dry_run, parse_dry_run(query, kOptions));
  // Without a body, the query gives the options. dryRun in the query always counts.
  if (request.body.empty()) {
    TRY(const std::optional<std::int64_t> grace, query_number(query, "gracePeriodSeconds"));
    if (grace) body.set("gracePeriodSeconds", *grace);
    if (const auto text = query.find("propagationPolicy")) body.set("propagationPolicy", *text);
    if (const auto text = query.find("orphanDependents"))
      body.set("orphanDependents", truthy(text));
    Json preconditions = Json::object();
    for (const char* name : {"uid", "resourceVersion"}) {
      const auto text = query.find(name);
      if (text && !text->empty()) preconditions.set(name, *text);
    }
    if (of == DeletionOf::kObject) body.set("preconditions", std::move(preconditions));
  }
  return delete_options(body, dry_run);
}

Outcome<DeleteOptions> delete_options(const Json& body, DryRun& dry_run) {
  DeleteOptions out;
  constexpr std::string_view kOptions = "DeleteOptions";
  for (const Json& value : body["dryRun"].as_array()) {
    if (value.as_string() != "All") {
      return bad_option(kOptions, "FieldValueNotSupported",
                        "Unsupported value: []string{" + in_quotes(value.as_string()) +
                            "}: supported values: \"All\"",
                        "dryRun");
    }
    dry_run = DryRun::kYes;
  }
  if (body["gracePeriodSeconds"].is_integer())
    out.grace_seconds = body["gracePeriodSeconds"].as_integer();
  out.propagation = body["propagationPolicy"].as_string();
  const Json& orphan = body["orphanDependents"];
  if (orphan.is_bool() && !out.propagation.empty()) {
    return bad_option(kOptions, "FieldValueInvalid",
                      "Invalid value: " + in_quotes(out.propagation) +
                          ": orphanDependents and deletionPropagation cannot be both set",
                      "propagationPolicy");
  }
  if (!out.propagation.empty() && out.propagation != "Foreground" &&
      out.propagation != "Background" && out.propagation != "Orphan") {
    return bad_option(kOptions, "FieldValueNotSupported",
                      "Unsupported value: " + in_quotes(out.propagation) +
                          ": supported values: \"Foreground\", \"Background\", \"Orphan\", \"nil\"",
                      "propagationPolicy");
  }
  if (orphan.is_bool()) {
    out.propagation = orphan.as_bool() ? "Orphan" : "Background";
    out.propagation_from_legacy = true;
  }
  const Json& preconditions = body["preconditions"];
  if (preconditions["uid"].is_string()) out.uid = preconditions["uid"].as_string();
  if (preconditions["resourceVersion"].is_string())
    out.resource_version = preconditions["resourceVersion"].as_string();
  return out;
}

}  // namespace varda::apiserver
