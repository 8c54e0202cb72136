// The requirements of the runtime for a kind's C++ type.
#pragma once

#include <concepts>
#include <memory>
#include <string>

#include "base/result.h"
#include "codec/json.h"
#include "meta/object.h"

namespace varda::runtime {

using codec::Json;
using meta::ObjectKey;
using meta::Resource;

/// resource() lives for ever. from_json() names the wrong field. to_json() has apiVersion, kind and
/// every member that was read. Optional: `static std::optional<std::vector<std::string>>
/// list_keys(std::string_view path)`, the kind's list maps as in meta::ListKeys. Without it, those
/// of the core kinds apply.
template <typename T>
concept Object = requires(const T& object, const Json& json) {
  { T::resource() } -> std::same_as<const Resource&>;
  { T::from_json(json) } -> std::same_as<Result<T>>;
  { object.to_json() } -> std::same_as<Json>;
  { object.metadata } -> std::convertible_to<const meta::ObjectMeta&>;
};

/// A kind as a JSON tree, for code that needs no struct:
///
///   const meta::Resource& endpoints_resource();
///   using Endpoints = runtime::Raw<endpoints_resource>;
template <const Resource& (*kResource)()>
struct Raw {
  meta::ObjectMeta metadata;
  Json json;  // the whole object, including metadata

  static const Resource& resource() { return kResource(); }
  static Result<Raw> from_json(const Json& value) {
    TRY(meta::ObjectMeta metadata, meta::ObjectMeta::from_json(value["metadata"]));
    return Raw{std::move(metadata), value};
  }
  Json to_json() const { return json; }
};

/// Identifies an object and its kind, for writers and events.
struct ObjectRef {
  const Resource* resource = nullptr;
  ObjectKey key;
  std::string uid;
  std::string resource_version;

  template <Object T>
  static ObjectRef of(const T& object) {
    const meta::ObjectMeta& metadata = object.metadata;
    return {&T::resource(), metadata.key(), metadata.uid, metadata.resource_version};
  }
  /// "InferenceModel default/digits"
  std::string str() const { return resource->kind + " " + key.str(); }
};

}  // namespace varda::runtime
