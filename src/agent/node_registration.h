// The agent's Node object: made when missing, its status kept true. Ready is the control plane's to say, where that is ours. The
// node controller of Kubernetes judges by what a node posts, so there the agent posts it as a kubelet would.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/context.h"
#include "codec/json.h"
#include "kube/client.h"

namespace varda::agent {

struct NodeFacts {
  std::string name;
  std::string layer = "edge";  // cloud, edge, device
  std::string address;         // "": none is reported
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
/// status.conditions with Ready posted anew, if it is Kubernetes' node controller that judges this node: it called the node Unknown
/// for want of such posts, or was posted to before. Nothing where a control plane of ours says Ready, or nobody does yet. Pure.
std::optional<codec::Json> posted_conditions(const codec::Json& status, WallTime now);

/// Makes it so and looks again every `period`: a Node that somebody deletes while its agent lives comes back. Retries with
/// back-off. What others wrote stays; where nothing is missing, and nobody waits for the post of Ready, nothing is written.
/// `period` is well below the 40 s of silence after which the node controller gives a node up. One thread.
class NodeRegistration {
 public:
  /// `client` and `clock` outlive it.
  NodeRegistration(const kube::Client& client, NodeFacts facts, Duration period, const Clock& clock = system_clock())
      : client_(client), facts_(std::move(facts)), period_(period), clock_(clock) {}

  /// Until the context is done.
  void run(const Context& ctx);
  void step(const Context& ctx);
  SteadyTime due() const { return due_; }

 private:
  const kube::Client& client_;
  const NodeFacts facts_;
  const Duration period_;
  const Clock& clock_;
  SteadyTime due_ = SteadyTime::min();
  std::optional<Duration> backoff_;  // set: the last attempt failed
};

}  // namespace varda::agent
