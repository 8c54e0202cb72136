// ControllerRevision (apps/v1): one past state of a DaemonSet, stored for a rollback.
#pragma once

#include <cstdint>

#include "meta/object.h"

namespace varda::api {

using codec::Json;

template <typename T>
class Type;

struct ControllerRevision {
  meta::ObjectMeta metadata;
  Json data;  // a strategic merge patch that restores the state
  std::int64_t revision = 0;
  Json unknown;

  static const meta::Resource& resource();
  static Result<ControllerRevision> from_json(const Json& object);
  Json to_json() const;
  static void describe(Type<ControllerRevision>& t);
};

}  // namespace varda::api
