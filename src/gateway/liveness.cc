#include "gateway/liveness.h"

#include <stop_token>

#include "api/edgeai/edge_node.h"
#include "base/log.h"
#include "meta/object.h"

namespace varda::gateway {

using codec::Json;

std::optional<Json> connected_patch(const Json& edge_node, bool connected, WallTime seen, WallTime now) {
  const std::string wanted = connected ? "True" : "Unknown";
  const std::string reason = connected ? "AgentConnected" : "AgentDisconnected";
  Json conditions = edge_node.at("status/conditions");
  if (!conditions.is_array()) conditions = Json::array();
  Json* mine = nullptr;
  for (Json& condition : conditions.array_items()) {
    if (std::as_const(condition)["type"].as_string() == "Connected") mine = &condition;
  }
  std::string before;
  if (mine) {
    before = std::as_const(*mine)["status"].as_string();
    if (before == wanted && std::as_const(*mine)["reason"].as_string() == reason) return std::nullopt;
  } else {
    conditions.push_back(Json::object({{"type", "Connected"}}));
    mine = &conditions.array_items().back();
  }
  if (before != wanted) mine->set("lastTransitionTime", meta::format_time(now));
  mine->set("status", wanted);
  mine->set("reason", reason);
  mine->set("message", connected ? "the node's agent is connected"
                                 : "the node's agent has no connection to the gateway; what runs on the node goes on");
  Json status = Json::object({{"conditions", std::move(conditions)}});
  if (connected) {
    if (!edge_node.at("status/lastSeen").is_null()) status.set("lastSeen", nullptr);
  } else if (before == "True") {
    status.set("lastSeen", meta::format_time(seen));
  }
  // Conditions are a list, so what others wrote meanwhile must not be lost.
  const Json& metadata = edge_node["metadata"];
  return Json::object({{"metadata", Json::object({{"uid", metadata["uid"]}, {"resourceVersion", metadata["resourceVersion"]}})},
                       {"status", std::move(status)}});
}

Liveness::Liveness(const kube::Client& client, Options options)
    : client_(client),
      options_(options),
      clock_(options_.clock ? *options_.clock : system_clock()),
      started_(std::chrono::steady_clock::now()) {
  for (std::size_t i = 0; i < options_.threads; ++i) threads_.emplace_back([this](const std::stop_token& stop) { run(stop); });
}

Liveness::~Liveness() {
  for (std::jthread& thread : threads_) thread.request_stop();
  threads_.clear();
}

void Liveness::opened(const std::string& node) { set(node, true); }
void Liveness::closed(const std::string& node) { set(node, false); }

void Liveness::set(const std::string& name, bool connected) {
  MutexLock lock(mutex_);
  Node& node = nodes_[name];
  node.seen = true;
  node.connected = connected;
  node.since = std::chrono::steady_clock::now();
  schedule(name, node, node.since);
}

void Liveness::changed(const runtime::Change& change) {
  MutexLock lock(mutex_);
  const std::string& name = change.key.name;
  if (!change.now && !nodes_.contains(name)) return;
  Node& node = nodes_[name];
  node.object = change.now;
  if (change.now) {
    schedule(name, node, std::chrono::steady_clock::now());
  } else if (!node.connected && !node.working) {
    if (node.due) due_.erase({*node.due, name});
    nodes_.erase(name);
  }
}

void Liveness::schedule(const std::string& name, Node& node, SteadyTime when) {
  if (node.working) {
    node.again = true;
    return;
  }
  if (node.due) {
    if (*node.due <= when) return;
    due_.erase({*node.due, name});
  }
  node.due = when;
  due_.insert({when, name});
  changed_.notify_one();
}

void Liveness::run(const std::stop_token& stop) {
  const std::stop_callback wake(stop, [this] {
    { MutexLock lock(mutex_); }
    changed_.notify_all();
  });
  while (true) {
    std::string name;
    Node before;
    {
      MutexLock lock(mutex_);
      while (!stop.stop_requested()) {
        if (due_.empty()) {
          changed_.wait(mutex_);
        } else if (const SteadyTime next = due_.begin()->first; std::chrono::steady_clock::now() < next) {
          (void)changed_.wait_until(mutex_, next);
        } else {
          break;
        }
      }
      if (stop.stop_requested()) return;
      name = due_.begin()->second;
      due_.erase(due_.begin());
      Node& node = nodes_[name];
      node.due.reset();
      node.working = true;
      node.again = false;
      before = node;
    }
    const auto next = step(Context(stop), name, before);
    MutexLock lock(mutex_);
    Node& node = nodes_[name];
    node.working = false;
    if (node.again) {
      schedule(name, node, std::chrono::steady_clock::now());
    } else if (next) {
      schedule(name, node, *next);
    } else if (!node.object && !node.connected) {
      nodes_.erase(name);
    }
  }
}

std::optional<SteadyTime> Liveness::step(const Context& ctx, const std::string& name, const Node& node) const {
  if (!node.object) return std::nullopt;
  const SteadyTime now = std::chrono::steady_clock::now();
  if (!node.seen && now < started_ + options_.start_grace) return started_ + options_.start_grace;
  const SteadyTime since = node.seen ? node.since : started_;
  const WallTime wall = clock_.wall();
  const WallTime seen = wall - std::chrono::duration_cast<WallTime::duration>(now - since);
  const auto patch = connected_patch(node.object->json(), node.connected, seen, wall);
  if (!patch) return std::nullopt;
  const auto written = client_.patch(ctx, api::EdgeNode::resource(), {"", name}, kube::PatchType::kMerge, *patch, "status");
  if (written.ok() || ctx.done()) return std::nullopt;
  // What was written meanwhile comes by itself, and this is then tried again at once.
  const Code code = written.error().code();
  if (code != Code::kConflict && code != Code::kNotFound) {
    log::warn("cannot write whether a node is connected; trying on", {{"node", name}, {"error", written.error()}});
  }
  return now + options_.retry;
}

}  // namespace varda::gateway
