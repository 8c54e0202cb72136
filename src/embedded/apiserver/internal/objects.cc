#include "apiserver/internal/objects.h"

#include <mutex>

#include "apiserver/internal/admission.h"
#include "apiserver/internal/metadata.h"
#include "apiserver/internal/wire_form.h"
#include "base/text.h"
#include "meta/resources.h"

namespace varda::apiserver {

namespace {

// Attempts of a write without a resourceVersion before it fails with a conflict.
constexpr int kAttempts = 50;
// Names tried per object with a generateName, as in kube-apiserver since 1.30.
constexpr int kGeneratedNames = 8;

bool same_but_version(const Json& a, const Json& b) {
  if (a == b) return true;
  Json x = a;
  Json y = b;
  x["metadata"].erase("resourceVersion");
  y["metadata"].erase("resourceVersion");
  return x == y;
}

Outcome<std::optional<store::Revision>> version_of(const Json& object) {
  const std::string& text = object.at("metadata/resourceVersion").as_string();
  if (text.empty()) return std::optional<store::Revision>();
  const auto value = parse_integer<std::uint64_t>(text);
  if (!value) return internal("strconv.ParseUint: parsing " + in_quotes(text) + ": invalid syntax");
  if (*value == 0) return std::optional<store::Revision>();
  return std::optional<store::Revision>(static_cast<store::Revision>(*value));
}

void add(std::vector<std::string>* to, std::vector<std::string> what) {
  if (to != nullptr)
    to->insert(to->end(), std::make_move_iterator(what.begin()),
               std::make_move_iterator(what.end()));
}

// Grace period in seconds: a pod on a node first terminates its processes.
std::int64_t grace_of(const Kind& kind, const Json& object, const DeleteOptions& deletion) {
  if (!is_pod(kind.resource())) return 0;
  const std::string& phase = object.at("status/phase").as_string();
  if (object.at("spec/nodeName").as_string().empty() || phase == "Succeeded" || phase == "Failed")
    return 0;
  const std::int64_t wanted = deletion.grace_seconds.value_or(
      object.at("spec/terminationGracePeriodSeconds").as_integer(30));
  return wanted < 0 ? 1 : wanted;
}

}  // namespace

std::string Objects::now() const { return meta::format_time(core_.clock.wall()); }

Outcome<Json> Objects::decode(const Kind& kind, const store::Entry& entry) {
  auto parsed = codec::parse_json(*entry.value, {.depth_max = 1000});
  if (!parsed.ok())
    return internal("the stored object " + entry.key +
                    " is unreadable: " + parsed.error().message());
  Json object = std::move(parsed).value();
  kind.from_storage(object);
  object["metadata"].set("resourceVersion", std::to_string(entry.modified));
  return object;
}

Outcome<Json> Objects::get(const Kind& kind, std::string_view ns, std::string_view name) const {
  auto entry = core_.store.get(kind.storage_key(ns, name));
  if (!entry.ok()) return store_failure(entry.error());
  if (!*entry) return not_found(kind.resource(), name);
  return decode(kind, **entry);
}

Outcome<std::string> Objects::get_json(const Kind& kind, std::string_view ns,
                                       std::string_view name) const {
  auto entry = core_.store.get(kind.storage_key(ns, name));
  if (!entry.ok()) return store_failure(entry.error());
  if (!*entry) return not_found(kind.resource(), name);
  std::string out;
  TRY_VOID(append_wire_form(kind, **entry, Place::kAlone, out));
  return out;
}

Outcome<void> Objects::written(const Kind& kind) {
  if (!is_crd(kind.resource())) return {};
  if (auto refreshed = core_.registry.refresh(); !refreshed.ok())
    return store_failure(refreshed.error());
  core_.timers.all();  // watches of changed kinds end
  return {};
}

Outcome<Json> Objects::commit_put(const Kind& kind, std::string key, Json object,
                                  std::optional<store::Revision> expected, bool& raced,
                                  const WriteOptions& options) {
  raced = false;
  if (options.dry_run == DryRun::kYes) return object;
  std::string text = stored_form(object);
  if (text.size() > core_.options.limits.object_bytes_max)
    return too_large(core_.options.limits.object_bytes_max);
  auto revision = core_.store.put(std::move(key), std::move(text), expected);
  if (!revision.ok()) {
    raced = revision.error().code() == Code::kConflict;
    return raced ? modified_conflict(kind.resource(), name_of(object))
                 : store_failure(revision.error());
  }
  object["metadata"].set("resourceVersion", std::to_string(*revision));
  TRY_VOID(written(kind));
  return object;
}

Outcome<void> Objects::admit(const Kind& kind, std::string_view ns, Json& object) const {
  if (!kind.resource().namespaced) return {};
  auto entry = core_.store.get("/registry/core/namespaces/" + std::string(ns));
  if (!entry.ok()) return store_failure(entry.error());
  if (!*entry) return not_found(meta::core::namespaces(), ns);
  if ((*entry)->value->find("\"deletionTimestamp\"") == std::string::npos) return {};  // usual case
  auto space = codec::parse_json(*(*entry)->value);
  if (!space.ok()) return internal("the stored namespace is unreadable");
  if (deleting(*space)) {
    ApiStatus status = forbidden(kind.resource(), name_of(object),
                                 "unable to create new content in namespace " + std::string(ns) +
                                     " because it is being terminated");
    status.causes.push_back({"NamespaceTerminating",
                             "namespace " + std::string(ns) + " is being terminated",
                             "metadata.namespace"});
    return status;
  }
  return {};
}

Outcome<Json> Objects::create(const Kind& kind, std::string_view ns, Json object,
                              const WriteOptions& options) {
  const bool generated =
      name_of(object).empty() && !object.at("metadata/generateName").as_string().empty();
  const std::size_t warnings_before = options.warnings == nullptr ? 0 : options.warnings->size();
  for (int attempt = 1; generated && attempt < kGeneratedNames; ++attempt) {
    Outcome<Json> made = create_once(kind, ns, object, options);
    if (made.ok() || made.error().reason != "AlreadyExists") return made;
    if (options.warnings != nullptr) options.warnings->resize(warnings_before);
  }
  return create_once(kind, ns, std::move(object), options);
}

Outcome<Json> Objects::create_once(const Kind& kind, std::string_view ns, Json object,
                                   const WriteOptions& options) {
  const std::string& version = object.at("metadata/resourceVersion").as_string();
  if (!version.empty() && version != "0")
    return bad_request("resourceVersion should not be set on objects to be created");
  fill_new_metadata(object, kind.resource(), ns, now(), core_.rng);

  std::shared_lock namespaces(core_.namespaces, std::defer_lock);
  if (kind.resource().namespaced) namespaces.lock();
  TRY_VOID(admit(kind, ns, object));

  add(options.warnings, tidy_metadata(kind, object));
  kind.prepare_create(object);
  kind.apply_defaults(object);
  fill_at_creation(core_, kind, object);
  std::vector<StatusCause> causes = validate_metadata(kind, object);
  for (StatusCause& cause : kind.validate_create(object)) causes.push_back(std::move(cause));
  if (!causes.empty())
    return invalid(kind.resource().group, kind.resource().kind, name_of(object), std::move(causes));
  add(options.warnings, kind.warnings(object));

  std::optional<MutexLock> services;
  if (is_service(kind.resource())) {
    services.emplace(core_.services);
    TRY_VOID(allocate_service(core_, kind, object, nullptr));
  }
  const std::string key = kind.storage_key(namespace_of(object), name_of(object));
  bool raced = false;
  if (options.dry_run == DryRun::kYes) {
    auto present = core_.store.get(key);
    if (!present.ok()) return store_failure(present.error());
    raced = present->has_value();
  }
  Outcome<Json> made = raced ? Outcome<Json>(ApiStatus())
                             : commit_put(kind, key, object, store::Revision{0}, raced, options);
  if (!raced) return made;
  const Outcome<Json> present = get(kind, ns, name_of(object));
  ApiStatus taken = object.at("metadata/generateName").as_string().empty()
                        ? already_exists(kind.resource(), name_of(object))
                        : generated_name_taken(kind.resource(), name_of(object));
  if (present.ok() && deleting(present.value()))
    taken.message = "object is being deleted: " + taken.message;
  return taken;
}

Outcome<Json> Objects::update(const Kind& kind, std::string_view ns, std::string_view name,
                              const Change& change, const UpdateOptions& options) {
  const meta::Resource& resource = kind.resource();
  const std::string key = kind.storage_key(ns, name);
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    auto entry = core_.store.get(key);
    if (!entry.ok()) return store_failure(entry.error());
    if (!*entry) {
      if (!options.replaces || !kind.info().create_on_update || options.part != Part::kWhole)
        return not_found(resource, name);
      TRY(Json fresh, change(nullptr));
      fresh["metadata"].erase("resourceVersion");
      if (options.created != nullptr) *options.created = true;
      return create(kind, ns, std::move(fresh), options);
    }
    const store::Revision present = (*entry)->modified;
    TRY(const Json old, decode(kind, **entry));
    TRY(Json object, change(old));

    TRY(const std::optional<store::Revision> wanted, version_of(object));
    if (!wanted && options.replaces && !kind.info().unconditional_update) {
      return invalid(resource.group, resource.group_resource().substr(0, resource.plural.size()),
                     name,
                     {{"FieldValueInvalid", "Invalid value: 0x0: must be specified for an update",
                       "metadata.resourceVersion"}});
    }
    const std::string& uid = uid_of(object);
    if (!uid.empty() && uid != uid_of(old)) {
      return conflict(resource, name,
                      "Precondition failed: UID in precondition: " + uid +
                          ", UID in object meta: " + uid_of(old));
    }
    if (wanted && *wanted != present) return modified_conflict(resource, name);

    keep_metadata(object, old);
    object["metadata"].set("resourceVersion", std::to_string(present));
    std::vector<std::string> warnings = tidy_metadata(kind, object);
    std::vector<StatusCause> causes;
    if (!options.binding) {
      kind.apply_defaults(object);
      kind.prepare_update(object, old, options.part);
      fill_at_update(core_, kind, object, old);
      causes = validate_metadata_update(kind, object, old);
      for (StatusCause& cause : kind.validate_update(object, old, options.part))
        causes.push_back(std::move(cause));
    }
    if (!causes.empty()) return invalid(resource.group, resource.kind, name, std::move(causes));
    for (std::string& warning : kind.warnings(object)) warnings.push_back(std::move(warning));

    std::optional<MutexLock> services;
    if (is_service(resource) && options.part == Part::kWhole) {
      services.emplace(core_.services);
      TRY_VOID(allocate_service(core_, kind, object, &old));
    }
    if (same_but_version(object, old)) {
      add(options.warnings, std::move(warnings));
      return old;
    }
    // The last finalizer of a deleted object is gone: remove the object.
    if (deleting(object) && !has_finalizers(object) &&
        object.at("metadata/deletionGracePeriodSeconds").as_integer() == 0 &&
        !waits_for_controller(kind, object)) {
      if (options.dry_run == DryRun::kYes) return object;
      auto removed = core_.store.remove(key, present);
      if (!removed.ok()) {
        if (removed.error().code() != Code::kConflict) return store_failure(removed.error());
        continue;
      }
      TRY_VOID(written(kind));
      add(options.warnings, std::move(warnings));
      return object;
    }
    bool raced = false;
    Outcome<Json> result = commit_put(kind, key, std::move(object), present, raced, options);
    // Retry even with a resourceVersion: the concurrent write may be a removal, then 404 is the
    // answer.
    if (raced) continue;
    add(options.warnings, std::move(warnings));
    return result;
  }
  return modified_conflict(resource, name);
}

Outcome<Deleted> Objects::remove(const Kind& kind, std::string_view ns, std::string_view name,
                                 const DeleteOptions& deletion, const WriteOptions& options) {
  const meta::Resource& resource = kind.resource();
  const std::string key = kind.storage_key(ns, name);
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    auto entry = core_.store.get(key);
    if (!entry.ok()) return store_failure(entry.error());
    if (!*entry) return not_found(resource, name);
    const store::Revision present = (*entry)->modified;
    TRY(Json object, decode(kind, **entry));

    meta::Resource by_kind = resource;  // messages about preconditions use the kind, not the plural
    by_kind.plural = resource.kind;
    if (deletion.uid && *deletion.uid != uid_of(object)) {
      return conflict(by_kind, name,
                      "the UID in the precondition (" + *deletion.uid +
                          ") does not match the UID in record (" + uid_of(object) +
                          "). The object might have been deleted and then recreated");
    }
    if (deletion.resource_version && *deletion.resource_version != std::to_string(present)) {
      return conflict(by_kind, name,
                      "the ResourceVersion in the precondition (" + *deletion.resource_version +
                          ") does not match the ResourceVersion in record (" +
                          std::to_string(present) + "). The object might have been modified");
    }
    const Json before = object;
    const bool was_deleting = deleting(object);
    if (is_namespace(resource) && was_deleting) {
      return conflict(resource, name,
                      "The system is ensuring all content is removed from this namespace.  Upon "
                      "completion, this namespace will "
                      "automatically be purged by the system.");
    }

    std::string propagation = deletion.propagation;
    if (propagation.empty() && kind.info().orphan_dependents_by_default) propagation = "Orphan";
    if (!propagation.empty()) {
      if (propagation == "Orphan") {
        add_finalizer(object, "orphan");
        remove_finalizer(object, "foregroundDeletion");
      } else if (propagation == "Foreground") {
        add_finalizer(object, "foregroundDeletion");
        remove_finalizer(object, "orphan");
      } else {
        remove_finalizer(object, "orphan");
        remove_finalizer(object, "foregroundDeletion");
      }
    }
    begin_deletion(kind, object, now());

    std::int64_t grace = grace_of(kind, object, deletion);
    Json& metadata = object["metadata"];
    if (was_deleting) {
      const std::int64_t running = metadata["deletionGracePeriodSeconds"].as_integer();
      if (!deletion.grace_seconds || grace > running) grace = running;  // can only get shorter
    }
    if (!was_deleting || grace != metadata["deletionGracePeriodSeconds"].as_integer()) {
      metadata.set("deletionTimestamp",
                   meta::format_time(core_.clock.wall() + std::chrono::seconds(grace)));
      const bool own_way = is_namespace(resource) ||
                           is_crd(resource);  // ended by controllers, not by a grace period
      if (!own_way) metadata.set("deletionGracePeriodSeconds", grace);
      if (!was_deleting && !own_way && metadata.contains("generation")) {
        metadata.set("generation", metadata["generation"].as_integer() + 1);
      }
    }

    const bool stays = has_finalizers(object) || grace > 0 || waits_for_controller(kind, object);
    if (options.dry_run == DryRun::kYes) return Deleted{std::move(object), !stays};
    if (stays) {
      if (same_but_version(object, before)) return Deleted{before, false};
      bool raced = false;
      Outcome<Json> put = commit_put(kind, key, std::move(object), present, raced, options);
      if (raced) continue;
      TRY(Json stored, std::move(put));
      return Deleted{std::move(stored), false};
    }
    auto removed = core_.store.remove(key, present);
    if (!removed.ok()) {
      if (removed.error().code() == Code::kConflict) continue;
      return store_failure(removed.error());
    }
    TRY_VOID(written(kind));
    // A pod's last state shows the deletion. Other objects are returned as before it.
    if (!is_pod(resource) && !was_deleting) object = before;
    object["metadata"].set("resourceVersion", std::to_string(*removed));
    return Deleted{std::move(object), true};
  }
  return modified_conflict(resource, name);
}

}  // namespace varda::apiserver
