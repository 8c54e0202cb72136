#include "runtime/internal/api_writer.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/log.h"
#include "meta/patch.h"
#include "runtime/last_applied.h"

namespace varda::runtime {
namespace {

constexpr int kConflictsMax = 5;

ObjectKey key_in(const Json& object) {
  const Json& metadata = object["metadata"];
  return {metadata["namespace"].as_string(), metadata["name"].as_string()};
}

std::string_view group_of(std::string_view api_version) {
  const auto slash = api_version.find('/');
  return slash == std::string_view::npos ? std::string_view() : api_version.substr(0, slash);
}

const Json& controller_of(const Json& object) {
  static const Json none;
  for (const Json& owner : object["metadata"]["ownerReferences"].as_array()) {
    if (owner["controller"].as_bool()) return owner;
  }
  return none;
}

bool deleting(const Json& object) { return !object["metadata"]["deletionTimestamp"].is_null(); }

Json owner_reference(const ObjectRef& owner) {
  return Json::object({{"apiVersion", owner.resource->api_version()},
                       {"kind", owner.resource->kind},
                       {"name", owner.key.name},
                       {"uid", owner.uid},
                       {"controller", true},
                       {"blockOwnerDeletion", true}});
}

/// `wanted` with the annotation and the owner reference of our objects.
Json dressed(Json wanted, const ObjectRef* owner, const std::string& applied) {
  wanted.make("metadata/annotations").set(kLastApplied, applied);
  if (owner) wanted.make("metadata/ownerReferences").push_back(owner_reference(*owner));
  return wanted;
}

enum class Claim { kOwned, kWait, kForeign };

/// Decides to which owner the existing object of that name belongs.
Claim claim(const Json& live, const ObjectRef& owner) {
  const Json& controller = controller_of(live);
  if (controller["uid"].as_string() == owner.uid)
    return deleting(live) ? Claim::kWait : Claim::kOwned;
  if (controller.is_null()) {
    // Left by an orphaning delete: it was ours.
    const bool made_by_us = live["metadata"]["annotations"].contains(kLastApplied);
    return made_by_us ? (deleting(live) ? Claim::kWait : Claim::kOwned) : Claim::kForeign;
  }
  const bool same_name = controller["kind"].as_string() == owner.resource->kind &&
                         controller["name"].as_string() == owner.key.name &&
                         group_of(controller["apiVersion"].as_string()) == owner.resource->group;
  return same_name ? Claim::kWait : Claim::kForeign;
}

}  // namespace

Result<Informer*> ApiWriter::informer_of(const Json& object) const {
  Informer* informer = caches_.find(object["apiVersion"].as_string(), object["kind"].as_string());
  if (!informer) {
    return Error(Code::kInternal, object["apiVersion"].as_string() + " " +
                                      object["kind"].as_string() +
                                      " is not watched: the controller must declare it")
        .as_terminal();
  }
  return informer;
}

Update ApiWriter::update_of(const Resource& resource) const {
  for (const Owned& owned : owned_) {
    if (owned.resource == resource) return owned.update;
  }
  return Update::kInPlace;
}

Status ApiWriter::converge(const Context& ctx, const ObjectRef& owner, std::vector<Json> wanted) {
  std::set<std::pair<std::string, ObjectKey>> names;
  for (Json& object : wanted) {
    TRY(Informer* const informer, informer_of(object));
    if (informer->resource().namespaced &&
        std::as_const(object)["metadata"]["namespace"].as_string().empty()) {
      object.make("metadata/namespace") = owner.key.ns;
    }
    if (!names.emplace(informer->resource().group_resource(), key_in(object)).second) {
      return Error(Code::kInternal, "two objects wanted are " + meta::describe(object))
          .as_terminal();
    }
  }
  // Unwanted objects are deleted first: they may hold a name or a port that new objects need.
  Status first = remove_unwanted(ctx, owner, wanted);
  for (Json& object : wanted) {
    TRY_VOID(ctx.check());
    const std::string what = meta::describe(object);
    Status status = create_or_update(ctx, &owner, std::move(object)).context(what);
    if (!status.ok() && first.ok()) first = std::move(status);
  }
  return first;
}

Status ApiWriter::remove_unwanted(const Context& ctx, const ObjectRef& owner,
                                  const std::vector<Json>& wanted) {
  Status first;
  for (const Owned& owned : owned_) {
    const Informer* informer = caches_.find(owned.resource);
    if (!informer) continue;
    for (const StoredPtr& child : informer->owned_by(owner.uid)) {
      const meta::OwnerReference* controller = child->metadata.controller();
      if (!controller || controller->uid != owner.uid || child->metadata.deleting()) continue;
      const bool keep = std::any_of(wanted.begin(), wanted.end(), [&](const Json& object) {
        return object["kind"].as_string() == owned.resource.kind &&
               object["apiVersion"].as_string() == owned.resource.api_version() &&
               key_in(object) == child->metadata.key();
      });
      if (keep) continue;
      const ObjectRef ref{&owned.resource, child->metadata.key(), child->metadata.uid,
                          child->metadata.resource_version};
      Status status = remove(ctx, ref).context(ref.str());
      if (!status.ok() && first.ok()) first = std::move(status);
    }
  }
  return first;
}

Status ApiWriter::apply(const Context& ctx, Json wanted) {
  const std::string what = meta::describe(wanted);
  return create_or_update(ctx, nullptr, std::move(wanted)).context(what);
}

Status ApiWriter::create_or_update(const Context& ctx, const ObjectRef* owner, Json wanted) {
  TRY(Informer* const informer, informer_of(wanted));
  const Resource& resource = informer->resource();
  const ObjectKey key = key_in(wanted);
  wanted.erase("status");
  // With a uid only that object is meant. A successor of the same name is left alone. A deleted
  // object is not created again.
  const std::string uid = std::as_const(wanted)["metadata"]["uid"].as_string();
  if (!uid.empty()) wanted["metadata"].erase("uid");
  if (const StoredPtr live = informer->get(key)) {
    if (!uid.empty() && live->metadata.uid != uid) return {};
    return update(ctx, *informer, owner, wanted, live->json(), update_of(resource), uid);
  }
  if (!uid.empty()) return {};

  auto created = client_.create(ctx, resource, dressed(wanted, owner, codec::write_json(wanted)));
  if (created.ok()) {
    informer->wrote(*created);
    return {};
  }
  if (created.error().code() != Code::kAlreadyExists) return std::move(created).error();
  // The copy is behind, or holds only some of the objects.
  TRY(std::optional<Json> live, client_.find(ctx, resource, key));
  if (!live) return Error(Code::kConflict, "another client created and deleted it");
  return update(ctx, *informer, owner, wanted, std::move(*live), update_of(resource), uid);
}

Status ApiWriter::update(const Context& ctx, Informer& informer, const ObjectRef* owner,
                         const Json& wanted, Json live, Update how, const std::string& uid) {
  const Resource& resource = informer.resource();
  for (int attempt = 0; attempt < kConflictsMax; ++attempt) {
    if (owner) {
      const Claim ownership = claim(live, *owner);
      if (ownership == Claim::kWait) return {};
      if (ownership == Claim::kForeign) {
        return Error(Code::kAlreadyExists,
                     "an object of that name exists and is not controlled by " + owner->str() +
                         "; rename one of them, or delete it");
      }
    } else if (deleting(live)) {
      return {};
    }
    const Json last = last_applied(live);
    // The text stays if the content is equal, whatever the order of its members.
    const std::string applied =
        last == wanted ? std::as_const(live)["metadata"]["annotations"][kLastApplied].as_string()
                       : codec::write_json(wanted);
    Json merged =
        meta::three_way_merge(last, dressed(wanted, owner, applied), live, informer.list_keys());
    if (how == Update::kRecreate) {
      // Compares the applied objects, so that changes by the server do not count.
      const bool changed = last.is_null() ? without_metadata(merged) != without_metadata(live)
                                          : without_metadata(last) != without_metadata(wanted);
      if (changed) {
        return remove(
            ctx, {&resource, key_in(live), std::as_const(live)["metadata"]["uid"].as_string(), ""});
      }
      Json metadata = std::as_const(merged)["metadata"];
      merged = live;
      merged.set("metadata", std::move(metadata));
    }
    if (merged == live) return {};

    auto updated = client_.update(ctx, resource, merged);
    if (updated.ok()) {
      informer.wrote(*updated);
      return {};
    }
    if (updated.error().code() != Code::kConflict) return std::move(updated).error();
    TRY(std::optional<Json> fresh, client_.find(ctx, resource, key_in(live)));
    if (!fresh) return Error(Code::kConflict, "it was deleted while it was being updated");
    live = std::move(*fresh);
    if (!uid.empty() && std::as_const(live)["metadata"]["uid"].as_string() != uid) return {};
  }
  return Error(Code::kConflict, "too many concurrent changes");
}

Status ApiWriter::edit(const Context& ctx, const ObjectRef& object, Part part,
                       const std::function<void(Json&)>& change) {
  const Resource& resource = *object.resource;
  Informer* informer = caches_.find(resource);
  std::optional<Json> live;
  if (informer) {
    if (const StoredPtr cached = informer->get(object.key)) live = cached->json();
  }
  if (!live) {
    TRY(live, client_.find(ctx, resource, object.key));
  }
  for (int attempt = 0; attempt < kConflictsMax; ++attempt) {
    if (!live) return {};
    if (!object.uid.empty() && std::as_const(*live)["metadata"]["uid"].as_string() != object.uid)
      return {};
    Json wanted = *live;
    change(wanted);
    if (wanted == *live) return {};
    auto written = part == Part::kStatus ? client_.update_status(ctx, resource, wanted)
                                         : client_.update(ctx, resource, wanted);
    if (written.ok()) {
      if (informer) informer->wrote(*written);
      return {};
    }
    const Code code = written.error().code();
    if (code == Code::kNotFound) return {};
    if (code != Code::kConflict) return std::move(written).error().context(object.str());
    TRY(live, client_.find(ctx, resource, object.key));
  }
  return Error(Code::kConflict, object.str() + ": too many concurrent changes");
}

Result<Json> ApiWriter::create(const Context& ctx, Json object, const ObjectRef* owner) {
  TRY(Informer* const informer, informer_of(object));
  if (owner) {
    object.make("metadata/ownerReferences").push_back(owner_reference(*owner));
    if (informer->resource().namespaced &&
        std::as_const(object)["metadata"]["namespace"].as_string().empty()) {
      object.make("metadata/namespace") = owner->key.ns;
    }
  }
  TRY(Json created,
      client_.create(ctx, informer->resource(), object).context(meta::describe(object)));
  informer->wrote(created);
  return created;
}

Status ApiWriter::remove(const Context& ctx, const ObjectRef& object) {
  auto left = client_.remove(ctx, *object.resource, object.key,
                             {.propagation = kube::Propagation::kBackground,
                              .uid = object.uid,
                              .resource_version = "",
                              .grace_seconds = {}});
  if (left.ok()) {
    // The object still exists, with a deletionTimestamp that reads should see.
    if (Informer* informer = caches_.find(*object.resource); informer && deleting(*left))
      informer->wrote(*left);
    return {};
  }
  // A uid conflict means that our object is gone.
  if (left.error().code() == Code::kNotFound || left.error().code() == Code::kConflict) return {};
  return std::move(left).error();
}

Status ApiWriter::add_finalizer(const Context& ctx, const ObjectRef& object,
                                std::string_view finalizer) {
  return edit(ctx, object, Part::kWhole, [&](Json& live) {
    if (deleting(live)) return;
    const auto& have = std::as_const(live)["metadata"]["finalizers"].as_array();
    if (std::any_of(have.begin(), have.end(),
                    [&](const Json& item) { return item.as_string() == finalizer; }))
      return;
    live.make("metadata/finalizers").push_back(finalizer);
  });
}

Status ApiWriter::remove_finalizer(const Context& ctx, const ObjectRef& object,
                                   std::string_view finalizer) {
  return edit(ctx, object, Part::kWhole, [&](Json& live) {
    Json* metadata = live.find("metadata");
    Json* list = metadata ? metadata->find("finalizers") : nullptr;
    if (!list || !list->is_array()) return;
    auto& items = list->array_items();
    std::erase_if(items, [&](const Json& item) { return item.as_string() == finalizer; });
    if (items.empty()) metadata->erase("finalizers");
  });
}

void ApiWriter::event(const ObjectRef& object, EventType type, std::string_view reason,
                      std::string_view message) {
  events_.record(object, type, reason, message);
}

}  // namespace varda::runtime
