#include "cluster/internal/nodes.h"

#include <chrono>
#include <optional>
#include <string_view>
#include <utility>

#include "meta/resources.h"

namespace varda::cluster {

namespace {

using codec::Json;

struct ConditionText {
  std::string status, reason, message;
};

ConditionText condition_text(Liveness::State state) {
  if (state == Liveness::State::kConnected)
    return {"True", "AgentConnected", "the node's agent is connected"};
  return {"Unknown", "AgentDisconnected",
          "the node's agent has no connection to the API server; pods on the node keep running"};
}

enum class Heartbeat { kNone, kShown };  // kShown: a Node's conditions have a heartbeat time

/// Sets the condition if it differs, and then returns its previous status ("" if new). The
/// transition time changes with the status only.
std::optional<std::string> put_condition(Json& live, const std::string& type,
                                         const ConditionText& wanted, const std::string& now,
                                         Heartbeat heartbeat) {
  for (const Json& present : std::as_const(live).at("status/conditions").as_array()) {
    if (present["type"].as_string() == type && present["status"].as_string() == wanted.status &&
        present["reason"].as_string() == wanted.reason &&
        (heartbeat == Heartbeat::kNone || !present["lastHeartbeatTime"].as_string().empty())) {
      return std::nullopt;
    }
  }
  Json& conditions = live.make("status/conditions");
  Json* own = nullptr;
  for (Json& present : conditions.array_items()) {
    if (present["type"].as_string() == type) own = &present;
  }
  if (!own) {
    conditions.push_back(Json::object({{"type", type}}));
    own = &conditions.array_items().back();
  }
  const std::string before = std::as_const(*own)["status"].as_string();
  if (before != wanted.status) own->set("lastTransitionTime", now);
  own->set("status", wanted.status);
  own->set("reason", wanted.reason);
  own->set("message", wanted.message);
  if (heartbeat == Heartbeat::kShown) own->set("lastHeartbeatTime", now);
  return before;
}

/// The API server taints every new node as not ready; this controller removes the taint. No taint
/// evicts pods: pods on a disconnected node keep running.
Status set_taints(const Context& ctx, runtime::Writer& writer, const runtime::ObjectRef& node,
                  Liveness::State state) {
  static constexpr std::string_view kNotReady = "node.kubernetes.io/not-ready";
  static constexpr std::string_view kUnreachable = "node.kubernetes.io/unreachable";
  return writer.edit(ctx, node, runtime::Part::kWhole, [state](Json& live) {
    const bool unreachable = state == Liveness::State::kDisconnected;
    bool have = false;
    Json wanted = Json::array();
    for (const Json& taint : std::as_const(live).at("spec/taints").as_array()) {
      const std::string& key = taint["key"].as_string();
      const bool managed =
          taint["effect"].as_string() == "NoSchedule" && (key == kNotReady || key == kUnreachable);
      have = have || (managed && key == kUnreachable);
      if (!managed || (unreachable && key == kUnreachable)) wanted.push_back(taint);
    }
    if (unreachable && !have)
      wanted.push_back(Json::object({{"key", kUnreachable}, {"effect", "NoSchedule"}}));
    if (wanted == std::as_const(live).at("spec/taints")) return;
    if (!wanted.empty()) {
      live.make("spec/taints") = std::move(wanted);
    } else if (Json* spec = live.find("spec"); spec && spec->is_object()) {
      spec->erase("taints");
    }
  });
}

}  // namespace

Liveness judge(const NodeSessions::State& session, SteadyTime now, Duration grace) {
  if (session.connected) return {.state = Liveness::State::kConnected, .again = {}};
  if (now - session.since >= grace) return {.state = Liveness::State::kDisconnected, .again = {}};
  return {.state = Liveness::State::kUndecided, .again = session.since + grace - now};
}

NodeReconciler::NodeReconciler(const NodeSessions& sessions, const kube::Client& client,
                               const Options& options)
    : sessions_(sessions),
      client_(client),
      options_(options),
      clock_(options.clock ? *options.clock : system_clock()) {}

void NodeReconciler::watches(runtime::Watches<api::Node>& w) const { w.name("node-liveness"); }

Result<runtime::Action> NodeReconciler::reconcile(const Context& ctx, const api::Node& node,
                                                  runtime::Writer& writer) {
  const NodeSessions::State session = sessions_.of(node.metadata.name);
  const SteadyTime steady = clock_.now();
  const Liveness liveness = judge(session, steady, options_.disconnect_grace);
  if (liveness.state == Liveness::State::kUndecided) return runtime::Action::after(liveness.again);
  const ConditionText wanted = condition_text(liveness.state);
  const api::CoreCondition* before = api::find_condition(node.status.conditions, "Ready");
  const bool changed = !before || before->status != wanted.status;
  if (changed) {
    const bool connected = liveness.state == Liveness::State::kConnected;
    writer.event(node, connected ? runtime::EventType::kNormal : runtime::EventType::kWarning,
                 connected ? "NodeReady" : "NodeNotReady", wanted.message);
  }
  const runtime::ObjectRef ref = runtime::ObjectRef::of(node);
  const std::string now = meta::format_time(clock_.wall());
  TRY_VOID(writer.edit(ctx, ref, runtime::Part::kStatus, [&](Json& live) {
    put_condition(live, "Ready", wanted, now, Heartbeat::kShown);
  }));
  TRY_VOID(set_taints(ctx, writer, ref, liveness.state));
  if (const auto written = leases_.find(node.metadata.name);
      written == leases_.end() || written->second != liveness.state) {
    const bool connected = liveness.state == Liveness::State::kConnected;
    const auto ago = connected
                         ? WallTime::duration(0)
                         : std::chrono::duration_cast<WallTime::duration>(steady - session.since);
    // A restart of this process alone writes no Lease.
    if (changed ||
        !client_.get(ctx, meta::core::leases(), {"kube-node-lease", node.metadata.name}).ok())
      TRY_VOID(renew_lease(ctx, node, clock_.wall() - ago));
    leases_[node.metadata.name] = liveness.state;
  }
  return runtime::Action::await_change();
}

Status NodeReconciler::renew_lease(const Context& ctx, const api::Node& node, WallTime seen) {
  constexpr int kDurationSeconds = 40;  // as for a kubelet
  const std::string& name = node.metadata.name;
  const meta::ObjectKey key{"kube-node-lease", name};
  const Json spec = Json::object({{"holderIdentity", name},
                                  {"leaseDurationSeconds", kDurationSeconds},
                                  {"renewTime", meta::format_micro_time(seen)}});
  const auto renewed = client_.patch(ctx, meta::core::leases(), key, kube::PatchType::kMerge,
                                     Json::object({{"spec", spec}}));
  if (renewed.ok() || renewed.error().code() != Code::kNotFound)
    return renewed.ok() ? Status() : Status(renewed.error());
  const Json owner = Json::object(
      {{"apiVersion", "v1"}, {"kind", "Node"}, {"name", name}, {"uid", node.metadata.uid}});
  const auto created = client_.create(
      ctx, meta::core::leases(),
      Json::object({{"apiVersion", "coordination.k8s.io/v1"},
                    {"kind", "Lease"},
                    {"metadata", Json::object({{"namespace", key.ns},
                                               {"name", name},
                                               {"ownerReferences", Json::array({owner})}})},
                    {"spec", spec}}));
  return created.ok() ? Status() : Status(created.error());
}

Result<runtime::Action> NodeReconciler::on_deleted(const Context&, const meta::ObjectKey& key,
                                                   runtime::Writer&) {
  leases_.erase(key.name);
  return runtime::Action::await_change();
}

EdgeNodeLivenessReconciler::EdgeNodeLivenessReconciler(const NodeSessions& sessions,
                                                       const Options& options)
    : sessions_(sessions),
      options_(options),
      clock_(options.clock ? *options.clock : system_clock()) {}

void EdgeNodeLivenessReconciler::watches(runtime::Watches<api::EdgeNode>& w) const {
  w.name("edgenode-liveness");
}

Result<runtime::Action> EdgeNodeLivenessReconciler::reconcile(const Context& ctx,
                                                              const api::EdgeNode& node,
                                                              runtime::Writer& writer) const {
  const NodeSessions::State session = sessions_.of(node.metadata.name);
  const SteadyTime now = clock_.now();
  const Liveness liveness = judge(session, now, options_.disconnect_grace);
  if (liveness.state == Liveness::State::kUndecided) return runtime::Action::after(liveness.again);
  // Most changes of an EdgeNode do not concern liveness, and its lists are long: skip early.
  const meta::Condition* reported = meta::find_condition(node.status.conditions, "Connected");
  const ConditionText wanted = condition_text(liveness.state);
  const bool stale =
      liveness.state == Liveness::State::kConnected && !node.status.last_seen.empty();
  if (reported != nullptr && reported->status == wanted.status &&
      reported->reason == wanted.reason && !stale)
    return runtime::Action::await_change();
  const WallTime wall = clock_.wall();
  const WallTime seen = wall - std::chrono::duration_cast<WallTime::duration>(now - session.since);
  TRY_VOID(writer.edit(ctx, runtime::ObjectRef::of(node), runtime::Part::kStatus, [&](Json& live) {
    const auto before =
        put_condition(live, "Connected", wanted, meta::format_time(wall), Heartbeat::kNone);
    // For an EdgeNode that was never connected the last contact is unknown.
    if (liveness.state == Liveness::State::kDisconnected && before == "True") {
      live["status"].set("lastSeen", meta::format_time(seen));
    } else if (liveness.state == Liveness::State::kConnected &&
               std::as_const(live)["status"].contains("lastSeen")) {
      live["status"].erase("lastSeen");
    }
  }));
  return runtime::Action::await_change();
}

}  // namespace varda::cluster
