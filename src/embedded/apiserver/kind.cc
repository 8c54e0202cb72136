#include "apiserver/kind.h"

#include <algorithm>
#include <atomic>

#include "meta/members.h"

namespace varda::apiserver {

namespace {

std::uint64_t next_number() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

}  // namespace

Kind::Kind(KindInfo info) : info_(std::move(info)), number_(next_number()) {}

std::string Kind::storage_prefix() const {
  const std::string& group = info_.resource.group;
  return "/registry/" + (group.empty() ? std::string("core") : group) + "/" +
         info_.resource.plural + "/";
}

std::string Kind::storage_key(std::string_view ns, std::string_view name) const {
  std::string key = storage_prefix();
  if (info_.resource.namespaced) key.append(ns).append("/");
  return key.append(name);
}

meta::ObjectKey Kind::key_of(std::string_view storage_key) const {
  const std::string& group = info_.resource.group;
  std::string_view rest = storage_key;
  rest.remove_prefix(std::min(
      rest.size(), 12 + (group.empty() ? 4 : group.size()) + info_.resource.plural.size()));
  const std::size_t slash = info_.resource.namespaced ? rest.find('/') : std::string_view::npos;
  if (slash == std::string_view::npos) return {"", std::string(rest)};
  return {std::string(rest.substr(0, slash)), std::string(rest.substr(slash + 1))};
}

std::string Kind::check_name(std::string_view name, bool prefix) const {
  // The server appends to a generated name, so a trailing dash or dot of the prefix is valid.
  std::string text(name);
  if (prefix && !text.empty() && (text.back() == '-' || text.back() == '.')) text.back() = 'a';
  return meta::check_dns_subdomain(text);
}

Status Kind::decode(Json&) const { return {}; }

std::vector<std::string> Kind::prune(Json&) const { return {}; }

void Kind::apply_defaults(Json&) const {}

void Kind::prepare_create(Json& object) const {
  if (info_.status) object.erase("status");
  if (info_.status || info_.custom) object["metadata"].set("generation", 1);
}

namespace {

// Compares everything but metadata, apiVersion and kind, and optionally status.
bool same_applied(const Json& a, const Json& b, bool without_status) {
  const auto ignored = [&](const std::string& name) {
    return name == "metadata" || name == "apiVersion" || name == "kind" ||
           (without_status && name == "status");
  };
  const auto covers = [&](const Json& x, const Json& y) {
    meta::MemberIndex others(y);
    return std::all_of(x.as_object().begin(), x.as_object().end(), [&](const Json::Member& member) {
      if (ignored(member.first)) return true;
      const Json* other = others.find(member.first);
      return other != nullptr && *other == member.second;
    });
  };
  return covers(a, b) && covers(b, a);
}

}  // namespace

void Kind::prepare_update(Json& object, const Json& old, Part part) const {
  if (part == Part::kStatus) {
    const bool has_status = object.contains("status");
    Json wanted = std::as_const(object)["status"];
    Json version = object.at("metadata/resourceVersion");
    object = old;
    if (has_status) {
      object.set("status", std::move(wanted));
    } else {
      object.erase("status");
    }
    if (!version.is_null()) object["metadata"].set("resourceVersion", std::move(version));
    return;
  }
  if (info_.status) {
    if (const Json* status = old.find("status")) {
      object.set("status", *status);
    } else {
      object.erase("status");
    }
  }
  const Json& generation = old.at("metadata/generation");
  if (!info_.status && !info_.custom) {
    if (generation.is_null()) object["metadata"].erase("generation");
    return;
  }
  const bool changed = !same_applied(object, old, info_.status);
  object["metadata"].set("generation", generation.as_integer() + (changed ? 1 : 0));
}

std::vector<StatusCause> Kind::validate_create(const Json&) const { return {}; }

std::vector<StatusCause> Kind::validate_update(const Json& object, const Json&, Part) const {
  return validate_create(object);
}

std::vector<std::string> Kind::warnings(const Json&) const { return {}; }

void Kind::from_storage(Json& object) const {
  object.set("apiVersion", info_.resource.api_version());
  object.set("kind", info_.resource.kind);
}

const std::vector<Column>& Kind::columns() const {
  static const std::vector<Column> columns = {
      {.name = "Name", .type = "string", .format = "name", .description = "Name of the object."},
      {.name = "Created At", .type = "date", .format = "", .description = "Time of creation."},
  };
  return columns;
}

std::vector<Json> Kind::cells(const Json& object, WallTime) const {
  const Json& metadata = object["metadata"];
  return {metadata["name"], metadata["creationTimestamp"]};
}

const std::vector<std::string>& Kind::selectable_fields() const {
  static const std::vector<std::string> none;
  return none;
}

std::string Kind::field(const Json& object, std::string_view name) const {
  std::string path(name);
  if (path.starts_with(".")) path.erase(0, 1);
  std::replace(path.begin(), path.end(), '.', '/');
  const Json& value = object.at(path);
  if (value.is_string()) return value.as_string();
  if (value.is_null() || value.is_array() || value.is_object()) return "";
  return codec::write_json(value);
}

std::optional<ListMerge> Kind::list_merge(std::string_view) const { return std::nullopt; }

Json Kind::openapi_schema() const { return nullptr; }

}  // namespace varda::apiserver
