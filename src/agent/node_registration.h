// The agent's Node object: made when missing, its status kept true. Ready is the control plane's to say.
#pragma once

#include <chrono>
#include <string>

#include "base/context.h"
#include "codec/json.h"
#include "kube/client.h"

namespace varda::agent {

struct NodeFacts {
  std::string name;
  std::string layer = "edge";  // cloud, edge, device
  std::string address;
  std::uint64_t cpus = 1;
  std::uint64_t memory_bytes = 0;
  std::uint64_t pods_max = 250;
};

/// cpus and memory of this machine.
NodeFacts read_facts(std::string name, std::string layer, std::string address);

/// The object to create: labels, no status. Pure.
codec::Json node_object(const NodeFacts& facts);
/// status.addresses, capacity, allocatable and nodeInfo. Pure.
codec::Json node_status(const NodeFacts& facts);

/// Makes it so once, retrying with back-off until it is or the context is done. Conditions and what others wrote stay.
void register_node(const Context& ctx, const kube::Client& client, const NodeFacts& facts);

}  // namespace varda::agent
