// Node (core/v1): the fields that our controllers and agents use. All other fields stay unchanged.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/core/condition.h"
#include "meta/object.h"

namespace varda::api {

template <typename T>
class Type;

struct Taint {
  std::string key{};
  std::string value{};
  std::string effect{};  // NoSchedule, PreferNoSchedule, NoExecute
  std::string time_added{};
  Json unknown{};
  static void describe(Type<Taint>& t);
};

struct NodeAddress {
  std::string type{};  // InternalIP, ExternalIP, Hostname
  std::string address{};
  Json unknown{};
  static void describe(Type<NodeAddress>& t);
};

struct NodeSpec {
  bool unschedulable = false;
  std::vector<Taint> taints;
  Json unknown;
  static void describe(Type<NodeSpec>& t);
};

struct NodeStatus {
  std::vector<NodeAddress> addresses;
  std::vector<CoreCondition> conditions;
  Json capacity, allocatable, node_info;
  Json unknown;
  static void describe(Type<NodeStatus>& t);
};

struct Node {
  meta::ObjectMeta metadata;
  NodeSpec spec;
  NodeStatus status;
  Json unknown;

  /// The first address of that type, or "".
  std::string address(std::string_view type) const;
  static const meta::Resource& resource();
  static Result<Node> from_json(const Json& object);
  Json to_json() const;
  static void describe(Type<Node>& t);
};

}  // namespace varda::api
