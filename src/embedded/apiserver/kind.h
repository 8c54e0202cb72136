// Kind: everything the API server needs to know to serve one kind of object (group, version and
// resource).
//
// The server implements the parts common to all kinds: paths, negotiation, metadata, locking,
// watches, garbage collection. A Kind implements the rest: defaults, validation, immutable fields,
// columns. core_kinds() (kinds/core.h) creates the built-in kinds, kinds_from_crd() (kinds/crd.h)
// those of a CRD.
//
// A write goes through these steps in this order; `old` is the object as from_storage() gave it:
//   create: decode, prune, [metadata by the server],
//           prepare_create, apply_defaults, validate_create
//   update: decode, prune, [metadata by the server],
//           apply_defaults, prepare_update, validate_update
//
// A patch is applied to the stored object (with this kind's apiVersion); the result passes the
// steps of an update.
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

/// The part of an object that a write changes. kStatus: PUT or PATCH of the subresource "status".
enum class Part { kWhole, kStatus };

/// A column of Table output, as meta/v1 TableColumnDefinition.
struct Column {
  std::string name;    // "Ready"
  std::string type;    // string, integer, number, boolean, date
  std::string format;  // "name" for the first column, else mostly ""
  std::string description;
  int priority = 0;  // 0: always shown; else only with -o wide
};

/// JSON paths of the scale subresource, with a leading dot (".spec.replicas"). The selector of a
/// built-in kind is a LabelSelector object, which the server writes as text. The selector of a
/// custom resource is already a string.
struct Scale {
  std::string spec_replicas;
  std::string status_replicas;
  std::string label_selector;  // "": none
};

/// Strategic merge of a list (or a map) at a path, like `patchStrategy` and `patchMergeKey` in
/// Kubernetes.
struct ListMerge {
  bool merge = false;        // false: the list is replaced
  std::string key;           // "" with merge: a list of scalars taken as a set
  bool retain_keys = false;  // map: $retainKeys removes members that the patch omits
};

struct KindInfo {
  meta::Resource resource;
  std::string singular;   // "pod"; built-in kinds: lower-case kind
  std::string list_kind;  // "PodList"
  std::vector<std::string> short_names;
  std::vector<std::string> categories;
  /// Verbs in discovery: create delete deletecollection get list patch update watch. Others get
  /// 405.
  std::vector<std::string> verbs = {"create", "delete", "deletecollection", "get",
                                    "list",   "patch",  "update",           "watch"};

  bool custom = false;          // made from a CRD
  bool status = false;          // has the subresource "status"
  std::optional<Scale> scale;   // has the subresource "scale"
  std::string storage_version;  // version of the objects in the store; "" means resource.version
  std::string storage_hash;     // discovery's storageVersionHash; "" none
  bool unconditional_update = true;  // PUT without resourceVersion is accepted
  bool create_on_update = false;     // PUT of a missing object creates it
  bool delete_returns_object =
      false;  // DELETE answers with the object, not with a Success Status (pods, services)
  bool orphan_dependents_by_default = false;  // Job
  bool answered = false;                      // a POST is answered and not stored (kinds/review.cc)
  /// Every apiVersion "group/version" of the object, preferred first (for owner references). CRDs
  /// may have several.
  std::vector<std::string> served_versions;
};

/// Immutable and thread-safe.
class Kind {
 public:
  explicit Kind(KindInfo info);
  virtual ~Kind() = default;
  Kind(const Kind&) = delete;
  Kind& operator=(const Kind&) = delete;

  const KindInfo& info() const { return info_; }
  const meta::Resource& resource() const { return info_.resource; }
  /// Unique in this process, from 1; never reused. Cached facts about an object's bytes are valid
  /// for one Kind.
  std::uint64_t number() const { return number_; }
  /// Prefix of the stored objects: "/registry/GROUP/PLURAL/" ("core" for the group ""), the same
  /// for all versions of a CRD.
  std::string storage_prefix() const;
  /// storage_prefix + "NS/NAME" or "NAME".
  std::string storage_key(std::string_view ns, std::string_view name) const;
  /// Namespace and name of a key that begins with storage_prefix().
  meta::ObjectKey key_of(std::string_view storage_key) const;

  /// Returns "" for a valid name, else the message of Kubernetes' validation. `prefix`: the name is
  /// a generateName. Default: DNS subdomain.
  virtual std::string check_name(std::string_view name, bool prefix) const;

  /// Does what Go's decoder does for a built-in kind: drops nulls, checks types, normalizes times
  /// and quantities. kInvalid: 400 BadRequest with that message. A custom kind only drops nulls of
  /// fields with a default; validation checks the types. The server has already checked `metadata`.
  virtual Status decode(Json& object) const;

  /// Removes unknown fields and returns the paths ("spec.foo", "spec.list[0].bar"), sorted. The
  /// server handles `metadata`. Default: keeps everything.
  virtual std::vector<std::string> prune(Json& object) const;

  virtual void apply_defaults(Json& object) const;

  /// Resets fields a client may not set at creation: drops `status` if it is a subresource, sets
  /// metadata.generation = 1. The default does this for a kind with that subresource. A custom kind
  /// without it only gets the generation.
  virtual void prepare_create(Json& object) const;
  /// Restores from `old` the fields this write may not change. kWhole: the status, if it is a
  /// subresource. kStatus: everything else; also labels and annotations, but not managedFields of
  /// custom kinds. metadata.generation = old's, plus 1 if the desired state changed. By default,
  /// the desired state is everything except metadata and a status subresource.
  virtual void prepare_update(Json& object, const Json& old, Part part) const;

  /// Returns all errors; empty if valid. The server checks metadata. `field` is like
  /// "spec.containers[0].name". `message` is the text after the field: "Required value", "Invalid
  /// value: 70000: must be between 1 and 65535, inclusive". The server answers 422 Invalid:
  /// `Kind.group "name" is invalid: [field: message, ...]`.
  virtual std::vector<StatusCause> validate_create(const Json& object) const;
  virtual std::vector<StatusCause> validate_update(const Json& object, const Json& old,
                                                   Part part) const;
  /// Warning headers for a valid object (deprecated fields etc.). Default: none.
  virtual std::vector<std::string> warnings(const Json& object) const;

  /// Converts a stored object to this version: sets apiVersion; custom resources also prune and
  /// default on read. Default: sets apiVersion and kind.
  virtual void from_storage(Json& object) const;

  /// Default: Name and Created At.
  virtual const std::vector<Column>& columns() const;
  /// One cell per column. `now` is for ages, which are strings ("5m") as in Kubernetes. Custom
  /// columns of type date hold the age too.
  virtual std::vector<Json> cells(const Json& object, WallTime now) const;

  /// Field selectors besides metadata.name and metadata.namespace.
  virtual const std::vector<std::string>& selectable_fields() const;
  /// The text of such a field ("" if absent). Default: reads the dotted path.
  virtual std::string field(const Json& object, std::string_view name) const;

  /// Strategic merge, by paths without indexes: "spec.template.spec.containers.ports". nullopt: a
  /// plain member.
  virtual std::optional<ListMerge> list_merge(std::string_view path) const;

  /// OpenAPI v3 schema (with description and x-kubernetes-*), for /openapi/v3. Null: unknown.
  virtual Json openapi_schema() const;

 private:
  KindInfo info_;
  const std::uint64_t number_;
};

using KindPtr = std::shared_ptr<const Kind>;

// Factories, each declared in its own header:
//
//   kinds/core.h    std::vector<KindPtr> core_kinds();
//                   Namespace, Node, Pod, Service, Endpoints, ConfigMap, Secret, ServiceAccount,
//                   Event (v1 and events.k8s.io/v1), Lease, Deployment, ReplicaSet, DaemonSet,
//                   ControllerRevision, Job, CustomResourceDefinition. /api/v1 kinds first, in the
//                   order of discovery.
//   kinds/crd.h     Result<std::vector<KindPtr>> kinds_from_crd(const Json& crd);
//                   one per served version, the storage version first
//                   Json accepted_crd_status(const Json& crd);
//                   status with names accepted, established, storedVersions
//   schema/openapi.h  Json openapi_v3(group, version, kinds);
//                   the OpenAPI v3 document of one group version ("" and "v1" for core)
//                   Json openapi_v2(kinds);
//                   Swagger 2.0, enough for kubectl's validation

}  // namespace varda::apiserver
