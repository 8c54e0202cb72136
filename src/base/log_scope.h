// Fields that every line of a piece of work has, whoever writes it: which reconcile, which request.
//
//   const log::Scope scope({{"controller", name_}, {"reconcileID", rng.uuid()}});
//   log::info("created", {{"object", "Pod a/b"}});    // ... object="Pod a/b" controller=... reconcileID=...
#pragma once

#include <vector>

#include "base/log.h"

namespace varda::log {

/// Adds its fields to the lines of this thread while it lives, behind their own; a line's own field of the same name wins. Scopes
/// of a thread nest, and end in the reverse order.
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
