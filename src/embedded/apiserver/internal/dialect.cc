#include "apiserver/internal/dialect.h"

#include <algorithm>

#include "apiserver/internal/admission.h"
#include "apiserver/internal/audit_event.h"
#include "apiserver/internal/metadata.h"
#include "apiserver/internal/paging.h"
#include "base/text.h"
#include "codec/text.h"
#include "meta/selector.h"

namespace varda::apiserver {

namespace {

std::string verb_of(const net::Request& request, const RequestInfo& info, bool watch) {
  const bool named = !info.name.empty();
  const std::string& method = request.method;
  if (method == "GET" || method == "HEAD") return watch ? "watch" : named ? "get" : "list";
  if (method == "POST") return "create";
  if (method == "PUT") return "update";
  if (method == "PATCH") return "patch";
  if (method == "DELETE") return named ? "delete" : "deletecollection";
  return method;
}

bool offers(const KindInfo& info, std::string_view verb) {
  return std::find(info.verbs.begin(), info.verbs.end(), verb) != info.verbs.end();
}

Json success(const meta::Resource& resource, const Json& object) {
  Json details = Json::object({{"name", name_of(object)}});
  if (!resource.group.empty()) details.set("group", resource.group);
  details.set("kind", resource.plural);
  details.set("uid", uid_of(object));
  return Json::object({{"kind", "Status"},
                       {"apiVersion", "v1"},
                       {"metadata", Json::object()},
                       {"status", "Success"},
                       {"details", std::move(details)}});
}

// Limits Warning headers like kube-apiserver. Beyond 4096 characters in total, each is cut to 256
// and the excess is dropped.
void add_warnings(net::Response& response, const std::vector<std::string>& warnings) {
  constexpr std::size_t kTotal = 4096;
  constexpr std::size_t kEach = 256;
  const auto begins_character = [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  };
  std::size_t total = 0;
  for (const std::string& warning : warnings) total += codec::utf8_length(warning);
  const bool cut = total > kTotal;
  std::size_t written = 0;
  for (const std::string& warning : warnings) {
    if (cut && written >= kTotal) break;
    std::string_view text = warning;
    if (cut && codec::utf8_length(text) > kEach) {
      std::size_t end = 0;
      for (std::size_t seen = 0; end < text.size(); ++end) {
        if (begins_character(text[end]) && ++seen > kEach) break;
      }
      text = text.substr(0, end);
    }
    written += codec::utf8_length(text);
    response.headers.add("Warning", "299 - " + in_quotes(text));
  }
}

}  // namespace

net::Response text_response(int status, std::string text) {
  net::Response response;
  response.status = status;
  response.headers.add("Content-Type", "text/plain; charset=utf-8");
  response.headers.add("Cache-Control", "no-cache, private");
  response.body = std::move(text);
  return response;
}

net::Response Dialect::answer(const Call& call, int status, const Json& body) const {
  return answer_text(call, status, render(body, call.how.output));
}

net::Response Dialect::answer_text(const Call& call, int status, std::string body) const {
  net::Response response;
  response.status = status;
  response.headers.add("Content-Type", std::string(media_type(call.how.output.format)));
  response.headers.add("Cache-Control", "no-cache, private");
  add_warnings(response, call.warnings);
  response.body = std::move(body);
  return response;
}

net::Response Dialect::failure(const net::Request& request, const ApiStatus& status,
                               const std::vector<std::string>& warnings) const {
  net::Response response;
  response.status = status.code;
  Output output;
  output.format = error_format(request);
  response.headers.add("Content-Type", std::string(media_type(output.format)));
  response.headers.add("Cache-Control", "no-cache, private");
  if (status.retry_after_seconds)
    response.headers.add("Retry-After", std::to_string(*status.retry_after_seconds));
  add_warnings(response, warnings);
  response.body = render(status.to_json(), output);
  return response;
}

Dialect::Reply Dialect::answer_object(Call& call, int status, Json object) const {
  call.how.now = core_.clock.wall();
  TRY(Json shown, present_object(*call.kind, std::move(object), call.how));
  return answer(call, status, shown);
}

net::Response Dialect::serve(const net::Request& request, const std::optional<Identity>& identity) {
  return serve(request, parse_path(request.path()), identity);
}

net::Response Dialect::serve(const net::Request& request, RequestInfo info,
                             const std::optional<Identity>& identity) {
  Call call{.http = request,
            .caller = {},
            .authenticated = {},
            .info = std::move(info),
            .query = net::Query::parse(request.query()),
            .attributes = {},
            .kind = nullptr,
            .kinds = core_.registry.kinds(),
            .how = {},
            .warnings = {}};
  const SteadyTime since = system_clock().now();
  const WallTime received = core_.clock.wall();
  net::Response response = respond(call, identity);
  if (AuditLog* audit = core_.options.audit; audit != nullptr) {
    const std::string id = core_.rng.uuid();
    if (const auto event =
            audit_event(call, response, audit->level(), id, {received, core_.clock.wall()}))
      audit->add(*event);
    response.headers.add("Audit-Id", id);
  }
  metrics_.count(call.attributes.verb, response.status, system_clock().now() - since);
  return response;
}

std::optional<net::Response> Dialect::serve_at_once(const net::Request& request) {
  if (request.method != "GET") return std::nullopt;
  RequestInfo info = parse_path(request.path());
  if (info.area != RequestInfo::Area::kResource || info.name.empty() || !info.subresource.empty() ||
      info.legacy_watch)
    return std::nullopt;
  if (request.headers.find("Impersonate-User")) return std::nullopt;  // may impersonate a node
  std::optional<Identity> caller;
  if (core_.options.authenticator != nullptr) {
    caller = core_.options.authenticator->authenticate(request);
    // The permissions of a node may depend on every pod.
    if (!caller || !caller->in("system:masters")) return std::nullopt;
  }
  return serve(request, std::move(info), caller);
}

net::Response Dialect::respond(Call& call, const std::optional<Identity>& identity) {
  const net::Request& request = call.http;
  const std::string& path = call.info.path;
  const bool open_to_all =
      path == "/healthz" || path == "/readyz" || path == "/livez" || path == "/version";
  if (identity) {
    call.caller = *identity;
  } else if (core_.options.authenticator == nullptr) {
    call.caller = {.name = "system:anonymous", .groups = {"system:masters"}};
  } else if (auto caller = core_.options.authenticator->authenticate(request)) {
    call.caller = std::move(*caller);
  } else if (!open_to_all) {
    ApiStatus status;
    status.code = 401;
    status.reason = "Unauthorized";
    status.message = "Unauthorized";
    status.details = false;
    net::Response response = failure(request, status, {});
    response.headers.add("WWW-Authenticate", "Bearer");
    return response;
  }
  call.authenticated = call.caller;
  auto reply = [&]() -> Reply {
    if (!open_to_all) {
      TRY_VOID(impersonate(call));
      TRY_VOID(authorize(call));
    }
    return route(call);
  }();
  if (reply.ok()) {
    net::Response response = std::move(reply).value();
    if (request.method == "HEAD") {
      response.body.clear();
      response.stream.reset();
    }
    return response;
  }
  return failure(request, reply.error(), call.warnings);
}

Outcome<void> Dialect::authorize(Call& call) const {
  const RequestInfo& info = call.info;
  Attributes& what = call.attributes;
  if (info.area == RequestInfo::Area::kResource) {
    what.is_resource = true;
    const bool watch = info.legacy_watch || (info.name.empty() && truthy(call.query.find("watch")));
    what.verb = verb_of(call.http, info, watch);
    what.group = info.group;
    what.version = info.version;
    what.resource = info.resource;
    what.ns = info.ns;
    what.name = info.name;
    for (const std::string& part : info.subresource)
      what.subresource += (what.subresource.empty() ? "" : "/") + part;
    what.field_selector = call.query.get("fieldSelector");
    what.label_selector = call.query.get("labelSelector");
    if (what.name.empty()) {
      if (auto fields = meta::FieldSelector::parse(what.field_selector); fields.ok()) {
        what.name = fields->exact("metadata.name").value_or("");
      }
    }
  } else {
    what.path = info.path;
    what.verb = lower(call.http.method);
  }
  if (allowed(call, what)) return {};
  if (!what.is_resource) {
    ApiStatus status = forbidden({}, "", "");
    status.message = "forbidden: User " + in_quotes(call.caller.name) + " cannot " + what.verb +
                     " path " + in_quotes(what.path);
    status.kind.clear();
    return status;
  }
  meta::Resource resource{what.group, what.version, "", what.resource, true};
  std::string why =
      "User " + in_quotes(call.caller.name) + " cannot " + what.verb + " resource " +
      in_quotes(what.resource + (what.subresource.empty() ? "" : "/" + what.subresource)) +
      " in API group " + in_quotes(what.group);
  why += what.ns.empty() ? " at the cluster scope" : " in the namespace " + in_quotes(what.ns);
  return forbidden(resource, what.name, why);
}

namespace {

Outcome<void> outcome_of(const Status& status, const Kind& kind, const Json& object) {
  if (status.ok()) return {};
  if (status.error().code() == Code::kForbidden)
    return forbidden(kind.resource(), name_of(object), status.error().message());
  return bad_request(status.error().message());
}

}  // namespace

Outcome<void> Dialect::narrow_creation(const Call& call, Json& object) const {
  if (core_.options.authorizer == nullptr) return {};
  const Status status = core_.options.authorizer->narrow_creation(call.caller, call.attributes,
                                                                  object, objects_of(call));
  return outcome_of(status, *call.kind, object);
}

Outcome<void> Dialect::narrow_change(const Call& call, const Json& old, Json& object) const {
  if (core_.options.authorizer == nullptr) return {};
  const Status status = core_.options.authorizer->narrow_change(call.caller, call.attributes, old,
                                                                object, objects_of(call));
  return outcome_of(status, *call.kind, object);
}

Dialect::Reply Dialect::route(Call& call) {
  switch (call.info.area) {
    case RequestInfo::Area::kUnknown:
      if (call.info.core) return resource_not_found();
      break;
    case RequestInfo::Area::kOther:
      return other(call);
    case RequestInfo::Area::kRoots:
      return discovery(call);
    case RequestInfo::Area::kResource:
      return serve_resource(call);
  }
  return text_response(404, "404 page not found\n");
}

Dialect::Reply Dialect::serve_resource(Call& call) {
  const RequestInfo& info = call.info;
  call.kind = call.kinds->find(info.group, info.version, info.resource);
  const bool custom_path =
      call.kind == nullptr
          ? !info.core &&
                (call.kinds->group_version(info.group, info.version) == nullptr ||
                 call.kinds->group_version(info.group, info.version)->kinds[0]->info().custom)
          : call.kind->info().custom;
  if (call.kind == nullptr || (!call.kind->resource().namespaced && !info.ns.empty())) {
    if (custom_path) return text_response(404, "404 page not found\n");
    return resource_not_found();
  }
  const KindInfo& kind = call.kind->info();
  const std::string& method = call.http.method;
  const bool named = !info.name.empty();
  if (kind.resource.namespaced && info.ns.empty() &&
      (named || (method != "GET" && method != "HEAD"))) {
    if (custom_path) return text_response(404, "404 page not found\n");
    return named ? resource_not_found() : method_not_allowed();
  }
  auto negotiated = negotiate(call.http);
  if (!negotiated.ok()) {
    ApiStatus status = std::move(negotiated).error();
    if (!kind.custom && !info.core) return status;
    if (!kind.custom && parse_accept(call.http).size() == 1 && !parse_accept(call.http)[0].as) {
      status.message =
          "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, "
          "application/vnd.kubernetes.protobuf";
      status.details = true;
    }
    return status;
  }
  call.how.output = std::move(negotiated).value();
  call.how.output.pretty = truthy(call.query.find("pretty"));
  TRY(call.how.include, parse_include(call.query.get("includeObject")));
  if (!info.subresource.empty()) return subresource(call);

  const bool watches = info.legacy_watch || (!named && truthy(call.query.find("watch")));
  if (method == "GET" || method == "HEAD") {
    if (watches) return offers(kind, "watch") ? watch(call) : Reply(method_not_allowed());
    if (named) return offers(kind, "get") ? get(call) : Reply(method_not_allowed());
    return offers(kind, "list") ? list(call) : Reply(method_not_allowed());
  }
  if (method == "POST" && (!named || kind.custom) && offers(kind, "create")) return create(call);
  if (method == "DELETE" && named && offers(kind, "delete")) return remove(call);
  if (method == "DELETE" && !named && offers(kind, "deletecollection"))
    return remove_collection(call);
  if (!named && kind.custom && (method == "PUT" || method == "PATCH"))
    return bad_request("name must be provided");
  if (method == "PUT" && named && offers(kind, "update")) return update(call, Part::kWhole);
  if (method == "PATCH" && named && offers(kind, "patch")) return patch(call, Part::kWhole);
  return method_not_allowed();
}

Dialect::Reply Dialect::get(Call& call) {
  const auto version = parse_version(call.query);
  if (!version.ok()) return internal(version.error().message());
  TRY_VOID(check_not_future(*version, core_.store));
  if (call.how.output.verbatim()) {
    TRY(std::string text, objects_.get_json(*call.kind, call.info.ns, call.info.name));
    return answer_text(call, 200, std::move(text += '\n'));
  }
  TRY(Json object, objects_.get(*call.kind, call.info.ns, call.info.name));
  return answer_object(call, 200, std::move(object));
}

Dialect::Reply Dialect::create(Call& call) {
  if (call.kind->info().answered) return review(call);
  constexpr std::string_view kOptions = "CreateOptions";
  TRY(const DryRun dry_run, parse_dry_run(call.query, kOptions));
  TRY(const Validation validation, parse_validation(call.query, kOptions));
  TRY_VOID(check_field_manager(call.query, kOptions));
  TRY(Json object,
      read_object(call.http, *call.kind, core_.options.limits, validation, &call.warnings));
  const std::string& ns = namespace_of(object);
  if (call.kind->resource().namespaced && !ns.empty() && ns != call.info.ns) {
    return bad_request(
        "the namespace of the provided object does not match the namespace sent on the request");
  }
  TRY_VOID(narrow_creation(call, object));
  TRY(Json made,
      objects_.create(*call.kind, call.info.ns, std::move(object), write_options(call, dry_run)));
  return answer_object(call, 201, std::move(made));
}

namespace {

Outcome<void> check_names(const RequestInfo& info, const Kind& kind, const Json& object) {
  const std::string& name = name_of(object);
  if (name.empty()) {
    return bad_request("the name of the object (" + info.name +
                       " based on URL) was undeterminable: name must be provided");
  }
  if (name != info.name) {
    return bad_request("the name of the object (" + name +
                       ") does not match the name on the URL (" + info.name + ")");
  }
  const std::string& ns = namespace_of(object);
  if (kind.resource().namespaced && !ns.empty() && ns != info.ns) {
    return bad_request(
        "the namespace of the provided object does not match the namespace sent on the request");
  }
  return {};
}

}  // namespace

Dialect::Reply Dialect::update(Call& call, Part part) {
  constexpr std::string_view kOptions = "UpdateOptions";
  TRY(const DryRun dry_run, parse_dry_run(call.query, kOptions));
  TRY(const Validation validation, parse_validation(call.query, kOptions));
  TRY_VOID(check_field_manager(call.query, kOptions));
  TRY(Json object,
      read_object(call.http, *call.kind, core_.options.limits, validation, &call.warnings));
  TRY_VOID(check_names(call.info, *call.kind, object));
  bool created = false;
  Objects::UpdateOptions options;
  static_cast<WriteOptions&>(options) = write_options(call, dry_run);
  options.part = part;
  options.replaces = true;
  options.created = &created;
  const auto change = [&](const Json& old) -> Outcome<Json> {
    Json changed = object;
    if (!old.is_null())
      TRY_VOID(narrow_change(call, old, changed));  // null: creation, forbidden to nodes
    return changed;
  };
  TRY(Json written, objects_.update(*call.kind, call.info.ns, call.info.name, change, options));
  return answer_object(call, created ? 201 : 200, std::move(written));
}

Dialect::Reply Dialect::patch(Call& call, Part part) {
  constexpr std::string_view kOptions = "PatchOptions";
  if (content_type(call.http) == "application/apply-patch+yaml") {
    ApiStatus status =
        unsupported_media_type("application/json-patch+json, application/merge-patch+json");
    status.message =
        "this server has no server-side apply; use kubectl apply without --server-side";
    return status;
  }
  TRY(const DryRun dry_run, parse_dry_run(call.query, kOptions));
  TRY(const Validation validation, parse_validation(call.query, kOptions));
  TRY_VOID(check_field_manager(call.query, kOptions));
  TRY(const Patch patch, Patch::read(call.http, *call.kind, core_.options.limits));
  Objects::UpdateOptions options;
  static_cast<WriteOptions&>(options) = write_options(call, dry_run);
  options.part = part;
  const std::size_t warnings_before = call.warnings.size();
  const auto change = [&](const Json& old) -> Outcome<Json> {
    call.warnings.resize(warnings_before);  // a second attempt adds its own warnings
    TRY(Json patched, patch.apply(*call.kind, old));
    TRY(Json object, accept_patched(std::move(patched), *call.kind, validation, patch.duplicates(),
                                    &call.warnings));
    TRY_VOID(check_names(call.info, *call.kind, object));
    TRY_VOID(narrow_change(call, old, object));
    return object;
  };
  TRY(Json written, objects_.update(*call.kind, call.info.ns, call.info.name, change, options));
  return answer_object(call, 200, std::move(written));
}

Dialect::Reply Dialect::remove(Call& call) {
  DryRun dry_run = DryRun::kNo;
  TRY(DeleteOptions deletion, read_delete_options(call.http, call.query, core_.options.limits,
                                                  DeletionOf::kObject, dry_run));
  if (call.kind->info().orphan_dependents_by_default && deletion.propagation.empty() &&
      !deletion.propagation_from_legacy) {
    call.warnings.push_back(
        "child pods are preserved by default when jobs are deleted; set "
        "propagationPolicy=Background to remove them or set "
        "propagationPolicy=Orphan to suppress this warning");
  }
  TRY(Deleted deleted, objects_.remove(*call.kind, call.info.ns, call.info.name, deletion,
                                       write_options(call, dry_run)));
  if (deleted.complete && !call.kind->info().delete_returns_object)
    return answer(call, 200, success(call.kind->resource(), deleted.object));
  return answer_object(call, 200, std::move(deleted.object));
}

}  // namespace varda::apiserver
