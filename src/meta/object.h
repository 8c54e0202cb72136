// The object model of all kinds: names of kinds, metadata, owner references, conditions.
// Source of names and meanings: Kubernetes API conventions (sig-architecture/api-conventions.md),
// apimachinery meta/v1.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "codec/json.h"

namespace varda::meta {

using codec::Json;

/// A resource type: its names in objects and in paths.
struct Resource {
  std::string group;    // "" for core
  std::string version;  // "v1"
  std::string kind;     // "Pod"
  std::string plural;   // "pods"
  bool namespaced = true;

  std::string api_version() const { return group.empty() ? version : group + "/" + version; }
  /// "pods", "deployments.apps", as in messages and CRD names.
  std::string group_resource() const { return group.empty() ? plural : plural + "." + group; }
  /// "/api/v1/namespaces/NS/pods/NAME", "/apis/apps/v1/deployments"; ns and name may be empty.
  std::string path(std::string_view ns = "", std::string_view name = "") const;
  friend bool operator==(const Resource&, const Resource&) = default;
};

/// Identifies an object: namespace (empty if cluster-scoped) and name. Prints as "ns/name" or
/// "name".
struct ObjectKey {
  std::string ns;
  std::string name;
  std::string str() const { return ns.empty() ? name : ns + "/" + name; }
  friend auto operator<=>(const ObjectKey&, const ObjectKey&) = default;
};

struct OwnerReference {
  std::string api_version, kind, name, uid;
  bool controller = false;
  bool block_owner_deletion = false;
  friend bool operator==(const OwnerReference&, const OwnerReference&) = default;
};

struct ObjectMeta {
  std::string name, generate_name, ns, uid;
  std::string resource_version;
  std::int64_t generation = 0;
  std::string creation_timestamp;
  std::optional<std::string> deletion_timestamp;
  std::map<std::string, std::string> labels, annotations;
  std::vector<OwnerReference> owner_references;
  std::vector<std::string> finalizers;
  Json unknown;  // other members, preserved when written (null: none)

  ObjectKey key() const { return {ns, name}; }
  const OwnerReference* controller() const;  // the one with controller: true
  bool deleting() const { return deletion_timestamp.has_value(); }
  /// kInvalid names the field ("metadata.labels.x: must be a string").
  static Result<ObjectMeta> from_json(const Json& metadata);
  Json to_json() const;
};

/// apimachinery meta/v1 Condition.
struct Condition {
  std::string type;
  std::string status = "Unknown";  // True, False, Unknown
  std::string reason;              // CamelCase
  std::string message;             // for people; recommends an action
  std::int64_t observed_generation = 0;
  std::string last_transition_time;
  friend bool operator==(const Condition&, const Condition&) = default;
  static Result<Condition> from_json(const Json& value);
  Json to_json() const;
};

/// Sets or replaces the condition of that type. last_transition_time becomes `now` only if the
/// status differs.
void set_condition(std::vector<Condition>& conditions, Condition wanted, std::string_view now);
const Condition* find_condition(const std::vector<Condition>& conditions, std::string_view type);

/// RFC 3339 in UTC: "2024-05-01T10:00:00Z"; micro has six digits of fraction.
std::string format_time(WallTime time);
std::string format_micro_time(WallTime time);
Result<WallTime> parse_time(std::string_view text);
/// Formats ages like kubectl: 5s, 3m20s, 4h, 2d.
std::string format_age(std::chrono::seconds age);

// Names (apimachinery validation): empty result = valid, else the sentence Kubernetes uses.
std::string check_dns_subdomain(std::string_view name);  // RFC 1123 subdomain, 253
std::string check_dns_label(std::string_view name);      // RFC 1123 label, 63
std::string check_dns1035_label(std::string_view name);  // RFC 1035 label, 63: names of Services
std::string check_label_key(
    std::string_view key);  // qualified name; several errors are joined by "; "
std::string check_label_value(std::string_view value);

/// kind, apiVersion, namespace and name of an object, for messages: "Pod default/web".
std::string describe(const Json& object);

}  // namespace varda::meta
