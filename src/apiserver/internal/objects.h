// Objects: reading and writing objects of any kind. Every write, a client's or a controller's of the server, goes through here.
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
  bool propagation_from_legacy = false;              // orphanDependents gave it
};

struct Deleted {
  Json object;        // as it is now, or as it was when it went
  bool gone = false;  // false: it waits for its finalizers or its grace period
};

/// Thread-safe.
class Objects {
 public:
  explicit Objects(Core& core) : core_(core) {}

  Outcome<Json> get(const Kind& kind, std::string_view ns, std::string_view name) const;
  /// The same as JSON, without making a tree of it where that can be.
  Outcome<std::string> get_json(const Kind& kind, std::string_view ns, std::string_view name) const;
  /// An object as the store has it, made one of this kind, with its resourceVersion.
  static Outcome<Json> decode(const Kind& kind, const store::Entry& entry);

  /// `object` has gone through decode and prune.
  Outcome<Json> create(const Kind& kind, std::string_view ns, Json object, const WriteOptions& options);

  /// What a change makes of the present object. Called again when somebody else was faster. The result has gone through decode and
  /// prune; a resourceVersion in it that differs from the present one is a conflict.
  using Change = std::function<Outcome<Json>(const Json& old)>;
  struct UpdateOptions : WriteOptions {
    Part part = Part::kWhole;
    bool replaces = false;    // PUT: the rules about a missing resourceVersion hold
    bool* created = nullptr;  // set when create_on_update made it
    bool binding = false;     // of a pod to its node: what is otherwise immutable changes, so the kind is not asked
  };
  Outcome<Json> update(const Kind& kind, std::string_view ns, std::string_view name, const Change& change,
                       const UpdateOptions& options);

  Outcome<Deleted> remove(const Kind& kind, std::string_view ns, std::string_view name, const DeleteOptions& deletion,
                          const WriteOptions& options);

  std::string now() const;

 private:
  Outcome<Json> create_once(const Kind& kind, std::string_view ns, Json object, const WriteOptions& options);
  Outcome<void> admit(const Kind& kind, std::string_view ns, Json& object) const;
  Outcome<Json> commit_put(const Kind& kind, std::string key, Json object, std::optional<store::Revision> expected, bool& raced,
                           const WriteOptions& options);
  Outcome<void> written(const Kind& kind);

  Core& core_;
};

}  // namespace varda::apiserver
