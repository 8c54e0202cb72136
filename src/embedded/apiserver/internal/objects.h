// Reads and writes objects of any kind. Every write, from a client or a controller of the server,
// passes here.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "apiserver/internal/core.h"
#include "apiserver/internal/outcome.h"

namespace varda::apiserver {

enum class Validation { kIgnore, kWarn, kStrict };
enum class DryRun { kNo, kYes };

struct WriteOptions {
  DryRun dry_run = DryRun::kNo;
  std::vector<std::string>* warnings = nullptr;
};

struct DeleteOptions {
  std::optional<std::int64_t> grace_seconds;
  std::optional<std::string> uid, resource_version;  // preconditions
  std::string propagation;                           // Orphan, Background, Foreground or ""
  bool propagation_from_legacy = false;              // set by orphanDependents
};

struct Deleted {
  Json object;            // the present state, or the last state before removal
  bool complete = false;  // false: finalizers or the grace period are pending
};

/// Thread-safe.
class Objects {
 public:
  explicit Objects(Core& core) : core_(core) {}

  Outcome<Json> get(const Kind& kind, std::string_view ns, std::string_view name) const;
  /// The same as JSON text, without parsing where possible.
  Outcome<std::string> get_json(const Kind& kind, std::string_view ns, std::string_view name) const;
  /// Decodes a stored object as `kind` and sets its resourceVersion.
  static Outcome<Json> decode(const Kind& kind, const store::Entry& entry);

  /// `object` has passed decode and prune.
  Outcome<Json> create(const Kind& kind, std::string_view ns, Json object,
                       const WriteOptions& options);

  /// Computes the changed object from the present one. Called again after a concurrent write. The
  /// result has passed decode and prune. A resourceVersion in it that differs from the present one
  /// is a conflict.
  using Change = std::function<Outcome<Json>(const Json& old)>;
  struct UpdateOptions : WriteOptions {
    Part part = Part::kWhole;
    bool replaces = false;    // PUT: applies the rules about a missing resourceVersion
    bool* created = nullptr;  // set when create_on_update created the object
    bool binding =
        false;  // binds a pod to a node; changes an immutable field, so skips the kind's validation
  };
  Outcome<Json> update(const Kind& kind, std::string_view ns, std::string_view name,
                       const Change& change, const UpdateOptions& options);

  Outcome<Deleted> remove(const Kind& kind, std::string_view ns, std::string_view name,
                          const DeleteOptions& deletion, const WriteOptions& options);

  std::string now() const;

 private:
  Outcome<Json> create_once(const Kind& kind, std::string_view ns, Json object,
                            const WriteOptions& options);
  Outcome<void> admit(const Kind& kind, std::string_view ns, Json& object) const;
  Outcome<Json> commit_put(const Kind& kind, std::string key, Json object,
                           std::optional<store::Revision> expected, bool& raced,
                           const WriteOptions& options);
  Outcome<void> written(const Kind& kind);

  Core& core_;
};

}  // namespace varda::apiserver
