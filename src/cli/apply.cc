#include "cli/verbs.h"
#include "codec/yaml.h"
#include "meta/patch.h"

namespace varda::cli {
namespace {

// kubectl's own, so that `kubectl apply` and `varda apply` can take turns on one object.
constexpr std::string_view kLastApplied = "kubectl.kubernetes.io/last-applied-configuration";

Json with_last_applied(Json object) {
  Json plain = object;
  if (Json* annotations = plain.make("metadata").find("annotations")) annotations->erase(kLastApplied);
  object.make("metadata/annotations")[kLastApplied] = codec::write_json(plain) + "\n";
  return object;
}

Result<std::string_view> apply_one(const Context& ctx, Session& session, const Named& where, const Json& object) {
  Json wanted = object;
  if (where.resource.resource.namespaced) wanted.make("metadata")["namespace"] = where.key.ns;
  if (Json* annotations = wanted.make("metadata").find("annotations"); annotations && annotations->is_null()) {
    wanted.make("metadata").erase("annotations");
  }
  wanted = with_last_applied(std::move(wanted));
  // Somebody else may write between our read and our write; then what they wrote is merged as well.
  for (int attempt = 0;; ++attempt) {
    TRY(const std::optional<Json> live, session.client.find(ctx, where.resource.resource, where.key));
    if (!live) {
      auto created = session.client.create(ctx, where.resource.resource, wanted);
      if (created.ok()) return "created";
      if (created.error().code() != Code::kAlreadyExists || attempt > 5) return std::move(created).error();
      continue;
    }
    Json last;
    if (const Json& text = live->at("metadata")["annotations"][kLastApplied]; text.is_string()) {
      if (auto parsed = codec::parse_json(text.as_string()); parsed.ok()) last = *parsed;
    }
    const Json merged = meta::three_way_merge(last, wanted, *live, meta::core_list_keys);
    if (merged == *live) return "unchanged";
    auto updated = session.client.update(ctx, where.resource.resource, merged);
    if (updated.ok()) {
      const bool same = (*updated)["metadata"]["resourceVersion"] == (*live)["metadata"]["resourceVersion"];
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
    const Error error = done.error().context(object["kind"].as_string() + " " + object.at("metadata/name").as_string());
    if (!first.ok()) session.error("error: " + first.error().message() + "\n");
    first = error;
  }
  return first;
}

Status patch(const Context& ctx, Session& session, const PatchOptions& options) {
  TRY(const std::vector<Named> objects, parse_names(ctx, session, options.words));
  TRY(const Json body, codec::parse_yaml(options.patch).context("--patch"));
  kube::PatchType type = kube::PatchType::kMerge;
  if (options.type == "json") {
    type = kube::PatchType::kJson;
  } else if (options.type == "strategic") {
    type = kube::PatchType::kStrategic;
  } else if (options.type != "merge") {
    return Error(Code::kInvalid, "--type takes merge, json or strategic, not \"" + options.type + "\"");
  }
  for (const Named& object : objects) {
    TRY([[maybe_unused]] const Json patched, session.client.patch(ctx, object.resource.resource, object.key, type, body));
    session.out(spelled(object.resource, object.key.name) + " patched\n");
  }
  return {};
}

Status scale(const Context& ctx, Session& session, const std::vector<std::string>& words, int replicas) {
  TRY(const std::vector<Named> objects, parse_names(ctx, session, words));
  const Json body = Json::object({{"spec", Json::object({{"replicas", replicas}})}});
  for (const Named& object : objects) {
    TRY([[maybe_unused]] const Json scaled, session.client.patch(ctx, object.resource.resource, object.key, kube::PatchType::kMerge, body, "scale"));
    session.out(spelled(object.resource, object.key.name) + " scaled\n");
  }
  return {};
}

}  // namespace varda::cli
