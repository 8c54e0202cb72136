// Kind: what the API server must know about one kind of object (one group, version and resource) to serve it.
//
// The server does what is the same for all kinds: paths, negotiation, metadata, locking, watches, garbage collection. A Kind does
// what differs: defaults, validation, what a write may change, columns. core_kinds() (kinds/core.h) makes the built-in ones,
// kinds_from_crd() (kinds/crd.h) those of a CustomResourceDefinition.
//
// A write goes through these steps in this order; `old` is the object as from_storage() gave it:
//   create: decode, prune, [metadata by the server], prepare_create, apply_defaults, validate_create
//   update: decode, prune, [metadata by the server], apply_defaults, prepare_update, validate_update
// A patch is applied to the stored object (with this kind's apiVersion), and the outcome goes through the steps of an update.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "codec/json.h"
#include "meta/object.h"
#include "meta/status.h"

namespace varda::apiserver {

using codec::Json;
using meta::StatusCause;

/// Which part of an object a write is for. kStatus: PUT or PATCH of the subresource "status".
enum class Part { kWhole, kStatus };

/// A column of Table output, as meta/v1 TableColumnDefinition.
struct Column {
  std::string name;    // "Ready"
  std::string type;    // string, integer, number, boolean, date
  std::string format;  // "name" for the first column, else mostly ""
  std::string description;
  int priority = 0;  // 0: always shown; else only with -o wide
};

/// JSON paths of the scale subresource, with a leading dot (".spec.replicas"). A built-in kind's selector is a LabelSelector
/// object (the server writes it as text); a custom resource's is a string already.
struct Scale {
  std::string spec_replicas;
  std::string status_replicas;
  std::string label_selector;  // "": none
};

/// How strategic merge treats a list (or a map) at a path, as `patchStrategy` and `patchMergeKey` of the Kubernetes types.
struct ListMerge {
  bool merge = false;        // false: the list is replaced
  std::string key;           // "" with merge: a list of scalars taken as a set
  bool retain_keys = false;  // the map at this path: members the patch leaves out go away when $retainKeys says so
};

struct KindInfo {
  meta::Resource resource;
  std::string singular;   // "pod"; built-in kinds: lower-case kind
  std::string list_kind;  // "PodList"
  std::vector<std::string> short_names;
  std::vector<std::string> categories;
  /// Of discovery: create delete deletecollection get list patch update watch. Others answer 405.
  std::vector<std::string> verbs = {"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"};

  bool custom = false;                        // made from a CRD
  bool status = false;                        // has the subresource "status"
  std::optional<Scale> scale;                 // has the subresource "scale"
  std::string storage_version;                // version of the objects in the store; "" means resource.version
  std::string storage_hash;                   // discovery's storageVersionHash; "" none
  bool unconditional_update = true;           // PUT without resourceVersion is accepted
  bool create_on_update = false;              // PUT of a missing object creates it
  bool delete_returns_object = false;         // DELETE answers with the object, not with a Success Status (pods, services)
  bool orphan_dependents_by_default = false;  // Job
  bool answered = false;                      // a POST is answered at once and nothing is stored (kinds/review.cc)
  /// Every apiVersion "group/version" this object is served under, preferred first (for owner references); CRDs may have several.
  std::vector<std::string> served_versions;
};

/// Immutable once made; thread-safe.
class Kind {
 public:
  explicit Kind(KindInfo info);
  virtual ~Kind() = default;
  Kind(const Kind&) = delete;
  Kind& operator=(const Kind&) = delete;

  const KindInfo& info() const { return info_; }
  const meta::Resource& resource() const { return info_.resource; }
  /// Of this one in the process, from 1, never given twice: what was found out about an object's bytes holds for one Kind.
  std::uint64_t number() const { return number_; }
  /// Of the objects in the store: "/registry/GROUP/PLURAL/" ("core" for the group ""), one for all versions of a CRD.
  std::string storage_prefix() const;
  /// storage_prefix + "NS/NAME" or "NAME".
  std::string storage_key(std::string_view ns, std::string_view name) const;
  /// The other way: of a key that begins with storage_prefix().
  meta::ObjectKey key_of(std::string_view storage_key) const;

  /// Empty: the name may be used; else the sentence of Kubernetes' validation. `prefix`: it is a generateName. Default: DNS
  /// subdomain.
  virtual std::string check_name(std::string_view name, bool prefix) const;

  /// Does what Go's decoder does for a built-in kind: drops nulls, checks types (kInvalid: 400 BadRequest with that message),
  /// brings times and quantities to their normal form. A custom resource's values stay (its types are checked by validation),
  /// except that nulls of fields with a default go. `metadata` has been checked by the server already.
  virtual Status decode(Json& object) const;

  /// Removes the fields this kind does not have and returns their paths ("spec.foo", "spec.list[0].bar"), sorted. `metadata` and
  /// its unknown fields are the server's. Default: keeps everything.
  virtual std::vector<std::string> prune(Json& object) const;

  virtual void apply_defaults(Json& object) const;

  /// What a client may not choose when it creates: drops `status` where it is a subresource, sets metadata.generation = 1.
  /// The default does exactly this for a kind with the subresource, and generation only for custom kinds without it.
  virtual void prepare_create(Json& object) const;
  /// What the write may not change is taken from `old`: the status (kWhole, with the subresource), or all but status (kStatus;
  /// labels and annotations too, except for custom kinds' managedFields). metadata.generation = old's, plus 1 if the desired state
  /// changed. The default: desired state is everything but metadata and (with the subresource) status.
  virtual void prepare_update(Json& object, const Json& old, Part part) const;

  /// All that is wrong; empty: fine. metadata is checked by the server. `field` is like "spec.containers[0].name"; `message` is the
  /// full text behind the field: "Required value", "Invalid value: 70000: must be between 1 and 65535, inclusive". The server makes
  /// 422 Invalid from them: `Kind.group "name" is invalid: [field: message, ...]`.
  virtual std::vector<StatusCause> validate_create(const Json& object) const;
  virtual std::vector<StatusCause> validate_update(const Json& object, const Json& old, Part part) const;
  /// Texts for Warning headers about a valid object (deprecated fields and the like). Default: none.
  virtual std::vector<std::string> warnings(const Json& object) const;

  /// Makes what lies in the store an object of this version: sets apiVersion, prunes and defaults where the kind does so on read
  /// (custom resources), changes nothing else. Default: sets apiVersion and kind.
  virtual void from_storage(Json& object) const;

  /// Default: Name and Created At.
  virtual const std::vector<Column>& columns() const;
  /// One cell per column. `now` is for ages, which are cells of type string ("5m"), as Kubernetes prints them; custom resources'
  /// columns of type date hold the age too.
  virtual std::vector<Json> cells(const Json& object, WallTime now) const;

  /// Field selector names besides metadata.name and metadata.namespace.
  virtual const std::vector<std::string>& selectable_fields() const;
  /// The text of such a field ("" if absent). Default: reads the dotted path.
  virtual std::string field(const Json& object, std::string_view name) const;

  /// Strategic merge, by paths without indexes: "spec.template.spec.containers.ports". nullopt: a plain member.
  virtual std::optional<ListMerge> list_merge(std::string_view path) const;

  /// Its OpenAPI v3 schema (with description and x-kubernetes-*), for /openapi/v3. Null: none known.
  virtual Json openapi_schema() const;

 private:
  KindInfo info_;
  const std::uint64_t number_;
};

using KindPtr = std::shared_ptr<const Kind>;

// Who makes them (declared again in their own headers):
//
//   kinds/core.h    std::vector<KindPtr> core_kinds();
//                   Namespace, Node, Pod, Service, Endpoints, ConfigMap, Secret, ServiceAccount, Event (v1 and events.k8s.io/v1),
//                   Lease, Deployment, ReplicaSet, DaemonSet, ControllerRevision, Job, CustomResourceDefinition. /api/v1 kinds
//                   first, in the order of discovery.
//   kinds/crd.h     Result<std::vector<KindPtr>> kinds_from_crd(const Json& crd);   one per served version, the storage version
//   first
//                   Json accepted_crd_status(const Json& crd);                        status with names accepted, established,
//                   storedVersions
//   schema/openapi.h  Json openapi_v3(std::string_view group, std::string_view version, const std::vector<KindPtr>& kinds);
//                   the OpenAPI v3 document of one group version ("" and "v1" for core)
//                   Json openapi_v2(const std::vector<KindPtr>& kinds);              Swagger 2.0, enough for kubectl's validation

}  // namespace varda::apiserver
