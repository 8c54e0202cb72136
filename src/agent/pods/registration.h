// The agent's Node object: created if missing, and its status kept up to date. A varda control
// plane sets Ready itself. The node controller of Kubernetes judges by a node's posts, so there the
// agent posts Ready like a kubelet.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/context.h"
#include "codec/json.h"
#include "kube/client.h"
#include "runtime/task.h"

namespace varda::agent::pods {

struct NodeFacts {
  std::string name;
  std::string layer = "edge";  // cloud, edge, device
  std::string address;         // "": not reported
  std::uint64_t cpus = 1;
  std::uint64_t memory_bytes = 0;
  std::uint64_t pods_max = 250;
};

/// Reads cpus and memory of this machine.
NodeFacts read_facts(std::string name, std::string layer, std::string address);

/// The object to create: labels, no status. Pure.
codec::Json node_object(const NodeFacts& facts);
/// status.addresses, capacity, allocatable and nodeInfo. Pure.
codec::Json node_status(const NodeFacts& facts);
/// status.conditions with a fresh Ready, if the node controller of Kubernetes judges this node. It
/// does if it marked the node Unknown for lack of posts, or if Ready was posted before. Nothing if
/// a varda control plane sets Ready, or if Ready is unset. Pure.
std::optional<codec::Json> posted_conditions(const codec::Json& status, WallTime now);

/// Registers the node and checks it every `period`: a deleted Node is recreated. Retries with
/// backoff. Members of other writers stay. Nothing is written if the object is complete and Ready
/// is not posted. `period` must be well below the node controller's timeout of 40 s. One thread.
class Registration {
 public:
  /// `client` and `clock` outlive it.
  Registration(const kube::Client& client, NodeFacts facts, Duration period,
               const Clock& clock = system_clock())
      : client_(client), facts_(std::move(facts)), period_(period), clock_(clock) {}

  runtime::Task task();
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

}  // namespace varda::agent::pods
