#include "node/internal/environment.h"

namespace varda::node::internal {
namespace {

using Kind = ConfigSource::Kind;
using Values = std::map<std::string, std::string>;

const char* noun(Kind kind) { return kind == Kind::kConfigMap ? "configmap" : "secret"; }

// The data; empty if the reference is optional and the object does not exist.
Result<ConfigSource::Data> data_of(ConfigSource& source, Kind kind, const Json& reference) {
  Result<ConfigSource::Data> data = source.get(kind, reference["name"].as_string());
  if (!data.ok() && data.error().code() == Code::kNotFound && reference["optional"].as_bool())
    return ConfigSource::Data();
  return data;
}

Result<std::optional<std::string>> key_of(ConfigSource& source, Kind kind, const Json& reference) {
  TRY(const ConfigSource::Data data, data_of(source, kind, reference));
  const std::string& key = reference["key"].as_string();
  if (const auto found = data.find(key); found != data.end()) return std::optional(found->second);
  if (reference["optional"].as_bool()) return std::optional<std::string>();
  return Error(Code::kNotFound, "couldn't find key " + key + " in " + noun(kind) + " " +
                                    reference["name"].as_string());
}

Result<std::optional<std::string>> value_from(const PodRecord& record, const std::string& host_ip,
                                              const Json& from, ConfigSource& source) {
  if (const Json* field = from.find("fieldRef")) {
    TRY(std::string value, field_text(record, host_ip, (*field)["fieldPath"].as_string()));
    return std::optional(std::move(value));
  }
  if (const Json* reference = from.find("configMapKeyRef"))
    return key_of(source, Kind::kConfigMap, *reference);
  if (const Json* reference = from.find("secretKeyRef"))
    return key_of(source, Kind::kSecret, *reference);
  return Error(Code::kUnsupported,
               "only fieldRef, configMapKeyRef and secretKeyRef are known here");
}

}  // namespace

std::string expand(const std::string& text, const Values& values) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '$' || i + 1 == text.size()) {
      out += text[i];
    } else if (text[i + 1] == '$') {
      out += text[++i];
    } else if (const std::size_t end = text.find(')', i);
               text[i + 1] == '(' && end != std::string::npos) {
      const auto found = values.find(text.substr(i + 2, end - i - 2));
      out += found != values.end() ? found->second : text.substr(i, end - i + 1);
      i = end;
    } else {
      out += text[i];
    }
  }
  return out;
}

Result<std::string> field_text(const PodRecord& record, const std::string& host_ip,
                               const std::string& path) {
  const Json& pod = record.pod;
  if (path == "metadata.name") return record.name().name;
  if (path == "metadata.namespace") return record.name().ns;
  if (path == "metadata.uid") return record.name().uid;
  if (path == "spec.nodeName") return pod.at("spec/nodeName").as_string();
  if (path == "spec.serviceAccountName")
    return pod.at("spec/serviceAccountName").string_or("default");
  if (path == "status.podIP" || path == "status.podIPs") return record.ip;
  if (path == "status.hostIP" || path == "status.hostIPs") return host_ip;
  for (const char* map : {"labels", "annotations"}) {
    const std::string prefix = std::string("metadata.") + map;
    if (path == prefix) {
      std::string lines;
      for (const auto& [name, value] : pod["metadata"][map].as_object())
        lines += name + "=" + codec::write_json(value) + "\n";
      return lines;
    }
    if (path.starts_with(prefix + "['") && path.ends_with("']")) {
      return pod["metadata"][map][path.substr(prefix.size() + 2, path.size() - prefix.size() - 4)]
          .as_string();
    }
  }
  return Error(Code::kUnsupported, "fieldPath " + path + " is unknown");
}

Result<Values> make_environment(const PodRecord& record, const std::string& host_ip,
                                const Json& container, ConfigSource& source) {
  Values values;
  for (const Json& from : container["envFrom"].as_array()) {
    const bool secret = from.contains("secretRef");
    const Kind kind = secret ? Kind::kSecret : Kind::kConfigMap;
    TRY(const ConfigSource::Data data,
        data_of(source, kind, from[secret ? "secretRef" : "configMapRef"]));
    for (const auto& [name, value] : data) values[from["prefix"].as_string() + name] = value;
  }
  for (const Json& variable : container["env"].as_array()) {
    const std::string& name = variable["name"].as_string();
    if (const Json* from = variable.find("valueFrom")) {
      TRY(const std::optional<std::string> value,
          value_from(record, host_ip, *from, source).context("env " + name));
      if (value) values[name] = *value;
    } else {
      values[name] = expand(variable["value"].as_string(), values);
    }
  }
  return values;
}

}  // namespace varda::node::internal
