// Fields for all log lines of one piece of work, such as a reconcile or a request.
//
//   const log::Scope scope({{"controller", name_}, {"reconcileID", rng.uuid()}});
//   log::info("created", {{"object", "Pod a/b"}});
//   // ... object="Pod a/b" controller=... reconcileID=...
#pragma once

#include <vector>

#include "base/log.h"

namespace varda::log {

/// Adds its fields to all lines of this thread during its lifetime, after each line's own fields.
/// On a duplicate name, the line's field wins. Scopes of a thread nest and end in reverse order.
class Scope {
 public:
  explicit Scope(std::vector<Field> fields);
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

  const std::vector<Field>& fields() const { return fields_; }
  const Scope* outer() const { return outer_; }

 private:
  const std::vector<Field> fields_;
  const Scope* const outer_;
};

}  // namespace varda::log
