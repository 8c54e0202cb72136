// The agent's Node object: made when missing, its status kept true. Ready is the control plane's to say.
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

/// Makes it so and looks again every `period`: a Node that somebody deletes while its agent lives comes back. Retries with
/// back-off. Conditions and what others wrote stay; where nothing is missing nothing is written. One thread.
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
