// Writer: the only way for a controller to change the cluster. Every operation is idempotent and
// writes only differences.
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

/// Annotation with the object as last applied, in JSON: the `last` of the next three-way merge.
inline constexpr std::string_view kLastApplied = "edgeai.io/last-applied";

/// The way in which a changed child is updated.
enum class Update {
  kInPlace,   // PUT
  kRecreate,  // if more than metadata changed: deleted, then created once gone (Pods)
};

enum class Part { kWhole, kStatus };

/// Each controller has one. Thread-safe: one object is reconciled by one worker at a time, several
/// objects by several workers. Errors: kConflict (the next reconcile sees the reason), kInvalid
/// (the API refused the object), kUnavailable, kForbidden ...
class Writer {
 public:
  virtual ~Writer() = default;

  /// Makes the objects that `owner` controls equal to `wanted`. Creates and updates the wanted
  /// objects. Deletes (in the background) other objects it controls, of the kinds declared with
  /// owns<>().
  ///
  /// Each of `wanted` has apiVersion, kind and metadata.name. A missing namespace means the owner's
  /// namespace. The owner reference and the annotation are added. With metadata.uid, only the
  /// object with that uid is meant: if it is gone, it is not created. A child that is being
  /// deleted, or that has an earlier owner of the same name, is left alone. Its end triggers the
  /// next reconcile. All objects are tried; the first error is returned. kAlreadyExists: an object
  /// of that name belongs to another owner and is not touched.
  template <Object T>
  Status converge(const Context& ctx, const T& owner, std::vector<Json> wanted) {
    return converge(ctx, ObjectRef::of(owner), std::move(wanted));
  }

  /// Sets object.status to `wanted`. `object` is the object that reconcile() received. After a
  /// conflict the object is read again. Success if the object is gone or was replaced. Writes
  /// nothing if the live status.observedGeneration is later than in `wanted`. Then a previous
  /// leader saw changes that this process's copy lacks.
  template <Object T>
  Status status(const Context& ctx, const T& object, Json wanted) {
    return edit(ctx, ObjectRef::of(object), Part::kStatus, [&wanted](Json& live) {
      const auto observed = [](const Json& status) {
        return status["observedGeneration"].as_integer();
      };
      if (observed(std::as_const(live)["status"]) <= observed(wanted)) live.set("status", wanted);
    });
  }

  /// Creates or updates one object without an owner, by the same merge (EdgeNode.spec, a
  /// Namespace). Its kind must be watched.
  virtual Status apply(const Context& ctx, Json wanted) = 0;

  /// Reads the object (from the copy; after a conflict from the server), calls `change`, and writes
  /// any difference. For fields that others also write, such as one condition of a Node. Success if
  /// the object is gone. `change` may be called several times.
  virtual Status edit(const Context& ctx, const ObjectRef& object, Part part,
                      const std::function<void(Json&)>& change) = 0;

  /// Creates an object and returns the server's version. For objects with generateName. `owner`
  /// (optional) becomes its controller.
  virtual Result<Json> create(const Context& ctx, Json object, const ObjectRef* owner) = 0;

  /// Deletes the object with this uid, in the background. Success if it is gone.
  virtual Status remove(const Context& ctx, const ObjectRef& object) = 0;

  /// Finalizers: the object stays until its last finalizer is removed. Adding one to an object that
  /// is being deleted has no effect.
  virtual Status add_finalizer(const Context& ctx, const ObjectRef& object,
                               std::string_view finalizer) = 0;
  virtual Status remove_finalizer(const Context& ctx, const ObjectRef& object,
                                  std::string_view finalizer) = 0;

  /// Best effort; repeated events raise a count.
  virtual void event(const ObjectRef& object, EventType type, std::string_view reason,
                     std::string_view message) = 0;
  template <Object T>
  void event(const T& object, EventType type, std::string_view reason, std::string_view message) {
    event(ObjectRef::of(object), type, reason, message);
  }

 protected:
  virtual Status converge(const Context& ctx, const ObjectRef& owner, std::vector<Json> wanted) = 0;
};

}  // namespace varda::runtime
