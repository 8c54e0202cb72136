// Endpoints (core/v1): addresses of a Service's ready pods.
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

struct EndpointAddress {
  std::string ip{};
  std::string node_name{};
  Json target_ref{};
  Json unknown{};
  static void describe(Type<EndpointAddress>& t);
};

struct EndpointPort {
  std::string name{};
  std::int64_t port = 0;
  std::string protocol{};
  Json unknown{};
  static void describe(Type<EndpointPort>& t);
};

struct EndpointSubset {
  std::vector<EndpointAddress> addresses, not_ready_addresses;
  std::vector<EndpointPort> ports;
  Json unknown;
  static void describe(Type<EndpointSubset>& t);
};

struct Endpoints {
  meta::ObjectMeta metadata;
  std::vector<EndpointSubset> subsets;
  Json unknown;

  /// True if there is a ready address.
  bool any_ready() const;
  static const meta::Resource& resource();
  static Result<Endpoints> from_json(const Json& object);
  Json to_json() const;
  static void describe(Type<Endpoints>& t);
};

}  // namespace varda::api
