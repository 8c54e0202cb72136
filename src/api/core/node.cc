#include "api/core/node.h"

#include "api/describe.h"
#include "meta/resources.h"

namespace varda::api {

void Taint::describe(Type<Taint>& t) {
  t.field("key", &Taint::key, "Key.").required();
  t.field("value", &Taint::value, "Value.");
  t.field("effect", &Taint::effect, "NoSchedule, PreferNoSchedule or NoExecute.").required();
  t.field("timeAdded", &Taint::time_added, "Time when the taint was added.");
  t.keep_unknown(&Taint::unknown);
}

void NodeAddress::describe(Type<NodeAddress>& t) {
  t.field("type", &NodeAddress::type, "InternalIP, ExternalIP, Hostname.").required();
  t.field("address", &NodeAddress::address, "The address.").required();
  t.keep_unknown(&NodeAddress::unknown);
}

void NodeSpec::describe(Type<NodeSpec>& t) {
  t.field("unschedulable", &NodeSpec::unschedulable, "The node accepts no new pods.");
  t.field("taints", &NodeSpec::taints, "Taints.");
  t.keep_unknown(&NodeSpec::unknown);
}

void NodeStatus::describe(Type<NodeStatus>& t) {
  t.field("addresses", &NodeStatus::addresses, "Addresses.");
  t.field("conditions", &NodeStatus::conditions, "Conditions.");
  t.field("capacity", &NodeStatus::capacity, "Resources of the node.");
  t.field("allocatable", &NodeStatus::allocatable, "Resources available to pods.");
  t.field("nodeInfo", &NodeStatus::node_info, "Versions.");
  t.keep_unknown(&NodeStatus::unknown);
}

void Node::describe(Type<Node>& t) {
  t.field("metadata", &Node::metadata, "Metadata.");
  t.field("spec", &Node::spec, "Spec.");
  t.field("status", &Node::status, "Status.");
  t.keep_unknown(&Node::unknown);
}

std::string Node::address(std::string_view type) const {
  for (const NodeAddress& address : status.addresses) {
    if (address.type == type) return address.address;
  }
  return "";
}

const meta::Resource& Node::resource() { return meta::core::nodes(); }

Result<Node> Node::from_json(const Json& object) { return read_object<Node>(object); }
Json Node::to_json() const { return write_object(*this); }

}  // namespace varda::api
