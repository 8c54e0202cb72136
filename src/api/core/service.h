// Service (core/v1): the fields that our controllers use. All other fields stay unchanged.
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

struct ServicePort {
  std::string name{};
  std::string protocol{};  // "" means TCP
  std::int64_t port = 0;
  Json target_port{};  // a number, or the name of a container's port; null: same as port
  std::int64_t node_port = 0;
  Json unknown{};
  static void describe(Type<ServicePort>& t);
};

struct ServiceSpec {
  std::string type;
  std::string cluster_ip;
  std::map<std::string, std::string> selector;
  std::vector<ServicePort> ports;
  Json unknown;
  static void describe(Type<ServiceSpec>& t);
};

struct ServiceStatus {
  Json load_balancer;  // {ingress: [{ip, hostname}]}
  Json unknown;
  static void describe(Type<ServiceStatus>& t);
};

struct Service {
  meta::ObjectMeta metadata;
  ServiceSpec spec;
  ServiceStatus status;
  Json unknown;

  static const meta::Resource& resource();
  static Result<Service> from_json(const Json& object);
  Json to_json() const;
  static void describe(Type<Service>& t);
};

}  // namespace varda::api
