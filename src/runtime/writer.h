// Writer: the only way a controller changes the cluster. Every operation is idempotent and writes nothing when nothing differs.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/context.h"
#include "base/result.h"
#include "runtime/event.h"
#include "runtime/object.h"

namespace varda::runtime {

/// What our last wish for an object was, as JSON: the `last` of the next three-way merge.
inline constexpr std::string_view kLastApplied = "edgeai.io/last-applied";

/// How a child comes to differ from what is there.
enum class Update {
  kInPlace,   // PUT
  kRecreate,  // where our wish for anything but metadata changed: deleted, and created again once it is gone (Pods)
};

enum class Part { kWhole, kStatus };

/// Each controller has one. Thread-safe: one object is only reconciled by one worker at a time, several objects by several workers.
/// Errors: kConflict (the next reconcile will see why), kInvalid (the API refused the object), kUnavailable, kForbidden ...
class Writer {
 public:
  virtual ~Writer() = default;

  /// Makes the objects that `owner` controls be exactly `wanted`: creates and updates these, deletes (in the background) what it
  /// controls of the kinds declared with owns<>() and does not want any more.
  ///
  /// Each of `wanted` has apiVersion, kind and metadata.name, and may leave out the namespace (the owner's then); owner reference
  /// and annotation are added. With metadata.uid it means that very object, which stays: it is not created where it has gone. A
  /// child that is being deleted, or is left from an owner of the same name, is waited for: it is left alone, and its end brings
  /// the next reconcile. All objects are tried; the first error is returned. kAlreadyExists: an object of that name belongs to
  /// somebody else; it is not touched.
  template <Object T>
  Status converge(const Context& ctx, const T& owner, std::vector<Json> wanted) {
    return converge(ctx, ObjectRef::of(owner), std::move(wanted));
  }

  /// Makes object.status be `wanted`. `object` is as reconcile() got it. After a conflict the object is read again.
  /// An object that is gone, or is another one by now, is no error: there is nothing left to report to. Nor is one whose
  /// status.observedGeneration is later than that of `wanted`: who led before saw what is still on its way to this process's copy.
  template <Object T>
  Status status(const Context& ctx, const T& object, Json wanted) {
    return edit(ctx, ObjectRef::of(object), Part::kStatus, [&wanted](Json& live) {
      const auto observed = [](const Json& status) { return status["observedGeneration"].as_integer(); };
      if (observed(std::as_const(live)["status"]) <= observed(wanted)) live.set("status", wanted);
    });
  }

  /// Creates or updates one object that nobody owns, by the same merge (EdgeNode.spec, a Namespace). Its kind must be watched.
  virtual Status apply(const Context& ctx, Json wanted) = 0;

  /// Reads (the copy first, after a conflict the server), lets `change` change it, and writes if it did. For fields that others
  /// write as well, such as one condition of a Node. Gone is no error. `change` may be called several times.
  virtual Status edit(const Context& ctx, const ObjectRef& object, Part part, const std::function<void(Json&)>& change) = 0;

  /// Creates; what the server made of it. For objects with generateName. `owner` (optional) becomes its controller.
  virtual Result<Json> create(const Context& ctx, Json object, const ObjectRef* owner) = 0;

  /// Deletes this very object (by uid), in the background. Gone is no error.
  virtual Status remove(const Context& ctx, const ObjectRef& object) = 0;

  /// Finalizers: the object stays until its last one is removed. Adding to an object that is being deleted does nothing.
  virtual Status add_finalizer(const Context& ctx, const ObjectRef& object, std::string_view finalizer) = 0;
  virtual Status remove_finalizer(const Context& ctx, const ObjectRef& object, std::string_view finalizer) = 0;

  /// Best effort; repeated ones are counted, not repeated.
  virtual void event(const ObjectRef& object, EventType type, std::string_view reason, std::string_view message) = 0;
  template <Object T>
  void event(const T& object, EventType type, std::string_view reason, std::string_view message) {
    event(ObjectRef::of(object), type, reason, message);
  }

 protected:
  virtual Status converge(const Context& ctx, const ObjectRef& owner, std::vector<Json> wanted) = 0;
};

}  // namespace varda::runtime
