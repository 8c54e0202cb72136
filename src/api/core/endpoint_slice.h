// EndpointSlice (discovery.k8s.io/v1): addresses of a Service's pods. A Service has one or more
// slices.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "meta/object.h"

namespace varda::api {

using codec::Json;

template <typename T>
class Type;

struct SliceConditions {
  std::optional<bool> ready{};
  Json unknown{};
  static void describe(Type<SliceConditions>& t);
};

struct SliceEndpoint {
  std::vector<std::string> addresses{};
  SliceConditions conditions{};
  std::string node_name{};
  Json target_ref{};
  Json unknown{};

  /// In Kubernetes, an endpoint without the condition is ready.
  bool ready() const { return conditions.ready.value_or(true) && !addresses.empty(); }
  static void describe(Type<SliceEndpoint>& t);
};

struct SlicePort {
  std::string name{};
  std::int64_t port = 0;
  std::string protocol{};
  Json unknown{};
  static void describe(Type<SlicePort>& t);
};

struct EndpointSlice {
  /// Label with the name of the Service.
  static constexpr std::string_view kServiceName = "kubernetes.io/service-name";

  meta::ObjectMeta metadata;
  std::string address_type;  // IPv4, IPv6, FQDN
  std::vector<SliceEndpoint> endpoints;
  std::vector<SlicePort> ports;
  Json unknown;

  bool any_ready() const;
  /// "" if the slice names none.
  std::string service_name() const;
  static const meta::Resource& resource();
  static Result<EndpointSlice> from_json(const Json& object);
  Json to_json() const;
  static void describe(Type<EndpointSlice>& t);
};

}  // namespace varda::api
