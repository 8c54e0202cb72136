// ConfigMap, Secret and ServiceAccount.
#include "apiserver/kinds/core_kind.h"
#include "codec/digest.h"

namespace varda::apiserver {

namespace {

constexpr std::size_t kBytesMax = 1 << 20;  // total of all values

Causes check_data_key(const std::string& key, const std::string& field) {
  Causes causes;
  const std::string where = keyed(field, key);
  const bool characters =
      key.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.") ==
      std::string::npos;
  if (key.size() > 253)
    causes.push_back(invalid(where, key, "must be no more than 253 characters"));
  if (!characters || key.empty()) {
    causes.push_back(
        invalid(where, key,
                "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. "
                "'key.name',  or "
                "'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"));
  }
  if (key == ".") {
    causes.push_back(invalid(where, key, "must not be '.'"));
  } else if (key == "..") {
    causes.push_back(invalid(where, key, "must not be '..'"));
  } else if (key.starts_with("..")) {
    causes.push_back(invalid(where, key, "must not start with '..'"));
  }
  return causes;
}

std::int64_t data_count(const Json& object) {
  return static_cast<std::int64_t>(object["data"].size() + object["binaryData"].size());
}

// An immutable object keeps its data and the flag.
Causes check_immutable(const Json& object, const Json& old,
                       std::initializer_list<const char*> members) {
  Causes causes;
  if (!old["immutable"].as_bool()) return causes;
  if (!object["immutable"].as_bool())
    causes.push_back(forbidden_field("immutable", "field is immutable when `immutable` is set"));
  for (const char* member : members) {
    if (!(object[member] == old[member])) {
      causes.push_back(forbidden_field(member, "field is immutable when `immutable` is set"));
    }
  }
  return causes;
}

class ConfigMapKind : public CoreKind {
 public:
  ConfigMapKind()
      : CoreKind({.info = {.resource = {"", "v1", "ConfigMap", "configmaps", true},
                           .short_names = {"cm"}}}) {}

  Causes validate_create(const Json& object) const override {
    Causes causes;
    std::size_t bytes = 0;
    for (const char* member : {"data", "binaryData"}) {
      for (const Json::Member& entry : object[member].as_object()) {
        append(causes, check_data_key(entry.first, member));
        bytes += entry.second.as_string().size();
      }
    }
    for (const Json::Member& entry : object["data"].as_object()) {
      if (object["binaryData"].contains(entry.first)) {
        causes.push_back(invalid(keyed("data", entry.first), entry.first,
                                 "duplicate of key present in binaryData"));
      }
    }
    if (bytes > kBytesMax) causes.push_back(too_long("", static_cast<std::int64_t>(kBytesMax)));
    return causes;
  }
  Causes validate_update(const Json& object, const Json& old, Part) const override {
    Causes causes = validate_create(object);
    append(causes, check_immutable(object, old, {"data", "binaryData"}));
    return causes;
  }
  const std::vector<Column>& columns() const override {
    static const std::vector<Column> columns = {
        name_column(), column("Data", "Number of entries.", 0, "string"), age_column()};
    return columns;
  }
  std::vector<Json> cells(const Json& object, WallTime now) const override {
    return {object.at("metadata/name"), data_count(object), age_of(object, now)};
  }
};

class SecretKind : public CoreKind {
 public:
  SecretKind() : CoreKind({.info = {.resource = {"", "v1", "Secret", "secrets", true}}}) {}

  void apply_defaults(Json& object) const override {
    CoreKind::apply_defaults(object);
    const Json text = std::as_const(object)["stringData"];
    if (!text.is_object()) return;
    object.erase("stringData");
    for (const Json::Member& entry : text.as_object())
      object["data"].set(entry.first, codec::base64(entry.second.as_string()));
  }

  Causes validate_create(const Json& object) const override {
    Causes causes;
    std::size_t bytes = 0;
    for (const Json::Member& entry : object["data"].as_object()) {
      append(causes, check_data_key(entry.first, "data"));
      bytes += entry.second.as_string().size() / 4 * 3;
    }
    if (bytes > kBytesMax) causes.push_back(too_long("data", static_cast<std::int64_t>(kBytesMax)));
    struct Demand {
      std::string_view type;
      std::vector<const char*> keys;
    };
    static const std::vector<Demand> demands = {
        {"kubernetes.io/tls", {"tls.crt", "tls.key"}},
        {"kubernetes.io/dockerconfigjson", {".dockerconfigjson"}},
        {"kubernetes.io/dockercfg", {".dockercfg"}},
        {"kubernetes.io/ssh-auth", {"ssh-privatekey"}}};
    for (const Demand& demand : demands) {
      if (object["type"].as_string() != demand.type) continue;
      for (const char* key : demand.keys) {
        if (!object["data"].contains(key)) causes.push_back(required(keyed("data", key)));
      }
    }
    return causes;
  }
  Causes validate_update(const Json& object, const Json& old, Part) const override {
    Causes causes;
    if (!(object["type"] == old["type"]))
      causes.push_back(invalid("type", object["type"], "field is immutable"));
    append(causes, check_immutable(object, old, {"data"}));
    append(causes, validate_create(object));
    return causes;
  }
  const std::vector<Column>& columns() const override {
    static const std::vector<Column> columns = {name_column(),
                                                column("Type", "Type of the secret."),
                                                column("Data", "Number of entries."), age_column()};
    return columns;
  }
  std::vector<Json> cells(const Json& object, WallTime now) const override {
    return {object.at("metadata/name"), object["type"].as_string(), data_count(object),
            age_of(object, now)};
  }
  const std::vector<std::string>& selectable_fields() const override {
    static const std::vector<std::string> fields = {"type"};
    return fields;
  }
};

class ServiceAccountKind : public CoreKind {
 public:
  ServiceAccountKind()
      : CoreKind({.info = {.resource = {"", "v1", "ServiceAccount", "serviceaccounts", true},
                           .short_names = {"sa"},
                           .delete_returns_object = true}}) {}
  const std::vector<Column>& columns() const override {
    static const std::vector<Column> columns = {
        name_column(), column("Secrets", "Number of secrets that the account may use."),
        age_column()};
    return columns;
  }
  std::vector<Json> cells(const Json& object, WallTime now) const override {
    return {object.at("metadata/name"), static_cast<std::int64_t>(object["secrets"].size()),
            age_of(object, now)};
  }
};

}  // namespace

KindPtr make_config_map() { return std::make_shared<ConfigMapKind>(); }
KindPtr make_secret() { return std::make_shared<SecretKind>(); }
KindPtr make_service_account() { return std::make_shared<ServiceAccountKind>(); }

}  // namespace varda::apiserver
