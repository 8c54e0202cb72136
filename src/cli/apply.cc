#include "cli/problem.h"
#include "cli/verbs.h"
#include "codec/yaml.h"
#include "meta/patch.h"
#include "net/url.h"

namespace varda::cli {
namespace {

// kubectl's annotation, so that `kubectl apply` and `varda apply` work on the same object.
constexpr std::chrono::seconds kRequestTimeout{30};
constexpr std::string_view kLastApplied = "kubectl.kubernetes.io/last-applied-configuration";

Json without_last_applied(Json object) {
  if (Json* annotations = object.make("metadata").find("annotations"))
    annotations->erase(kLastApplied);
  return object;
}

Json with_last_applied(Json object) {
  const Json plain = without_last_applied(object);
  object.make("metadata/annotations")[kLastApplied] = codec::write_json(plain) + "\n";
  return object;
}

/// True if the annotation's manifest `last` equals `wanted`. kubectl writes an empty annotations
/// map if the manifest has none.
bool is_manifest(Json last, const Json& wanted) {
  const auto bare = [](Json object) {
    object = without_last_applied(std::move(object));
    if (object["metadata"]["annotations"].empty()) object.make("metadata").erase("annotations");
    return object;
  };
  return bare(std::move(last)) == bare(wanted);
}

/// Writes with strict field validation: the server rejects unknown fields, so that a typing error
/// never passes for a success.
Result<Json> write(const Context& ctx, Session& session, std::string method,
                   const meta::Resource& r, const meta::ObjectKey& key, const Json& body,
                   std::string_view content_type = "application/json") {
  const std::string path = r.path(net::percent_encode(key.ns), net::percent_encode(key.name));
  auto written = session.client.json(ctx.with_timeout(kRequestTimeout), std::move(method),
                                     path + "?fieldValidation=Strict", body, content_type);
  if (!written.ok()) return readable(written.error());
  return written;
}

Status check_metadata(const Json& object) {
  const Json& annotations = object["metadata"]["annotations"];
  if (annotations.is_null() || annotations.is_object()) return {};
  return Error(Code::kInvalid, "metadata.annotations must be a map of strings");
}

Result<std::string_view> apply_one(const Context& ctx, Session& session, const Named& where,
                                   const Json& object) {
  TRY_VOID(check_metadata(object));
  const meta::Resource& resource = where.resource.resource;
  Json wanted = object;
  if (where.resource.resource.namespaced) wanted.make("metadata")["namespace"] = where.key.ns;
  if (Json* annotations = wanted.make("metadata").find("annotations");
      annotations && annotations->is_null()) {
    wanted.make("metadata").erase("annotations");
  }
  wanted = with_last_applied(std::move(wanted));
  // On a conflict or a concurrent creation, read again and merge again.
  for (int attempt = 0;; ++attempt) {
    TRY(const std::optional<Json> live,
        session.client.find(ctx, where.resource.resource, where.key));
    if (!live) {
      auto created = write(ctx, session, "POST", resource, {where.key.ns, ""}, wanted);
      if (created.ok()) return "created";
      if (created.error().code() != Code::kAlreadyExists || attempt > 5)
        return std::move(created).error();
      continue;
    }
    Json last;
    if (const Json& text = live->at("metadata")["annotations"][kLastApplied]; text.is_string()) {
      if (auto parsed = codec::parse_json(text.as_string()); parsed.ok()) last = *parsed;
    }
    Json merged = meta::three_way_merge(last, wanted, *live, meta::core_list_keys);
    // kubectl writes the same manifest as different text, which is not a change.
    if (last.is_object() && is_manifest(last, wanted))
      merged.make("metadata/annotations")[kLastApplied] =
          live->at("metadata")["annotations"][kLastApplied];
    if (merged == *live) return "unchanged";
    auto updated = write(ctx, session, "PUT", resource, where.key, merged);
    if (updated.ok()) {
      const bool same =
          updated->at("metadata/resourceVersion") == live->at("metadata/resourceVersion");
      return same ? "unchanged" : "configured";
    }
    if (updated.error().code() != Code::kConflict || attempt > 5) return std::move(updated).error();
  }
}

}  // namespace

Status apply(const Context& ctx, Session& session, const std::vector<std::string>& files) {
  TRY(const std::vector<Json> objects, read_manifests(session, files));
  Status first;
  for (const Json& object : objects) {
    const Result<std::string_view> done = [&]() -> Result<std::string_view> {
      TRY(const Named where, locate(ctx, session, object));
      TRY(const std::string_view verb, apply_one(ctx, session, where, object));
      session.out(spelled(where.resource, where.key.name) + " " + std::string(verb) + "\n");
      return verb;
    }();
    if (done.ok()) continue;
    const Error error = done.error().context(object["kind"].as_string() + " " +
                                             object.at("metadata/name").as_string());
    if (!first.ok()) session.error("error: " + first.error().message() + "\n");
    first = error;
  }
  return first;
}

Status patch(const Context& ctx, Session& session, const PatchOptions& options) {
  TRY(const std::vector<Named> objects, parse_names(ctx, session, options.arguments));
  TRY(const Json body, codec::parse_yaml(options.patch).context("--patch"));
  std::string_view content_type = "application/merge-patch+json";
  if (options.type == "json") {
    content_type = "application/json-patch+json";
  } else if (options.type == "strategic") {
    content_type = "application/strategic-merge-patch+json";
  } else if (options.type != "merge") {
    return Error(Code::kInvalid,
                 "--type takes merge, json or strategic, not \"" + options.type + "\"");
  }
  for (const Named& object : objects) {
    TRY([[maybe_unused]] const Json patched,
        write(ctx, session, "PATCH", object.resource.resource, object.key, body, content_type));
    session.out(spelled(object.resource, object.key.name) + " patched\n");
  }
  return {};
}

Status scale(const Context& ctx, Session& session, const std::vector<std::string>& arguments,
             int replicas) {
  TRY(const std::vector<Named> objects, parse_names(ctx, session, arguments));
  const Json body = Json::object({{"spec", Json::object({{"replicas", replicas}})}});
  for (const Named& object : objects) {
    TRY([[maybe_unused]] const Json scaled,
        session.client.patch(ctx, object.resource.resource, object.key, kube::PatchType::kMerge,
                             body, "scale"));
    session.out(spelled(object.resource, object.key.name) + " scaled\n");
  }
  return {};
}

}  // namespace varda::cli
