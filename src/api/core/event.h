// Event (core/v1): a human-readable record about an object.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "meta/object.h"

namespace varda::api {

using codec::Json;

template <typename T>
class Type;

struct ObjectReference {
  std::string api_version, kind, ns, name, uid, resource_version, field_path;
  Json unknown;
  static void describe(Type<ObjectReference>& t);
};

struct Event {
  meta::ObjectMeta metadata;
  ObjectReference involved_object;
  std::string type;  // Normal, Warning
  std::string reason;
  std::string message;
  Json source;  // {component, host}
  std::string first_timestamp, last_timestamp, event_time;
  std::int64_t count = 0;
  std::string action, reporting_component, reporting_instance;
  Json unknown;

  static const meta::Resource& resource();
  static Result<Event> from_json(const Json& object);
  Json to_json() const;
  static void describe(Type<Event>& t);
};

}  // namespace varda::api
