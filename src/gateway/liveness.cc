#include "gateway/liveness.h"

#include <algorithm>
#include <stop_token>

#include "api/edgeai/edge_node.h"
#include "base/log.h"
#include "meta/object.h"

namespace varda::gateway {

using codec::Json;

namespace {

constexpr std::chrono::minutes kWarnPeriod{10};

/// Status of the condition Connected; "": no such condition yet.
std::string connected_status(const Json& edge_node) {
  for (const Json& condition : edge_node.at("status/conditions").as_array()) {
    if (condition["type"].as_string() == "Connected") return condition["status"].as_string();
  }
  return {};
}

runtime::StoredPtr stored(const Json& object) {
  auto out = std::make_shared<runtime::Stored>();
  auto metadata = meta::ObjectMeta::from_json(object["metadata"]);
  if (metadata.ok()) out->metadata = std::move(*metadata);
  out->text = codec::write_json(object);
  return out;
}

}  // namespace

std::optional<Json> connected_patch(const Json& edge_node, bool connected, WallTime seen,
                                    WallTime now) {
  const std::string wanted = connected ? "True" : "Unknown";
  const std::string reason = connected ? "AgentConnected" : "AgentDisconnected";
  Json conditions = edge_node.at("status/conditions");
  if (!conditions.is_array()) conditions = Json::array();
  Json* own_condition = nullptr;
  for (Json& condition : conditions.array_items()) {
    if (std::as_const(condition)["type"].as_string() == "Connected") own_condition = &condition;
  }
  std::string before;
  if (own_condition) {
    before = std::as_const(*own_condition)["status"].as_string();
    if (before == wanted && std::as_const(*own_condition)["reason"].as_string() == reason)
      return std::nullopt;
  } else {
    conditions.push_back(Json::object({{"type", "Connected"}}));
    own_condition = &conditions.array_items().back();
  }
  if (before != wanted) own_condition->set("lastTransitionTime", meta::format_time(now));
  own_condition->set("status", wanted);
  own_condition->set("reason", reason);
  own_condition->set(
      "message",
      connected
          ? "the node's agent is connected"
          : "the node's agent has no connection to the gateway; pods on the node keep running");
  Json status = Json::object({{"conditions", std::move(conditions)}});
  if (connected) {
    if (!edge_node.at("status/lastSeen").is_null()) status.set("lastSeen", nullptr);
  } else if (before == "True") {
    status.set("lastSeen", meta::format_time(seen));
  }
  // The patch replaces the whole list of conditions; resourceVersion protects changes of other
  // writers.
  const Json& metadata = edge_node["metadata"];
  return Json::object(
      {{"metadata",
        Json::object({{"uid", metadata["uid"]}, {"resourceVersion", metadata["resourceVersion"]}})},
       {"status", std::move(status)}});
}

Liveness::Liveness(const kube::Client& client, Options options)
    : client_(client),
      options_(options),
      clock_(options_.clock ? *options_.clock : system_clock()),
      started_(std::chrono::steady_clock::now()) {
  for (std::size_t i = 0; i < options_.threads; ++i)
    threads_.emplace_back([this](const std::stop_token& stop) { run(stop); });
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
  node.disconnection_unreported = !connected;
  node.reported_connected = false;
  node.since = std::chrono::steady_clock::now();
  schedule(name, node, node.since);
}

void Liveness::changed(const runtime::Change& change) {
  MutexLock lock(mutex_);
  const std::string& name = change.key.name;
  if (!change.now && !nodes_.contains(name)) return;
  Node& node = nodes_[name];
  if (!node.object || !change.now || node.object->metadata.uid != change.now->metadata.uid) {
    node.disconnection_unreported = true;  // this process has reported nothing for this object
    node.reported_connected = false;
  }
  node.object = change.now;
  if (change.now) {
    schedule(name, node, std::chrono::steady_clock::now());
  } else if (!node.connected && !node.working) {
    if (node.due) due_.erase({*node.due, name});
    nodes_.erase(name);
  }
}

bool Liveness::idle() const {
  MutexLock lock(mutex_);
  return due_.empty() && std::none_of(nodes_.begin(), nodes_.end(),
                                      [](const auto& entry) { return entry.second.working; });
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
        } else if (const SteadyTime next = due_.begin()->first;
                   std::chrono::steady_clock::now() < next) {
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
    const auto [next, is_current, written] = step(Context(stop), name, before);
    MutexLock lock(mutex_);
    Node& node = nodes_[name];
    node.working = false;
    if (is_current && node.object == before.object && node.connected == before.connected &&
        node.since == before.since) {
      node.disconnection_unreported = false;
      node.reported_connected = node.connected;
    }
    // Used before the watch delivers it: a step meanwhile must not decide by the older object.
    if (written && node.object == before.object) node.object = written;
    if (node.again) {
      schedule(name, node, std::chrono::steady_clock::now());
    } else if (next) {
      schedule(name, node, *next);
    } else if (!node.object && !node.connected) {
      nodes_.erase(name);
    }
  }
}

void Liveness::warn_of_another(const std::string& node) {
  {
    MutexLock lock(mutex_);
    const SteadyTime now = std::chrono::steady_clock::now();
    if (warned_ && now < *warned_ + kWarnPeriod) return;
    warned_ = now;
  }
  log::warn("another gateway reports a node of this gateway as disconnected, correcting it",
            {{"node", node}});
}

Liveness::Outcome Liveness::step(const Context& ctx, const std::string& name, const Node& node) {
  if (!node.object) return {};
  const SteadyTime now = std::chrono::steady_clock::now();
  if (!node.seen && now < started_ + options_.start_grace)
    return {.again = started_ + options_.start_grace};
  const Json object = node.object->json();
  const std::string status = connected_status(object);
  // Another gateway has the node, and will report when the node leaves it.
  if (!node.connected && !node.disconnection_unreported && status == "True") return {};
  if (node.connected && node.reported_connected && !status.empty() && status != "True")
    warn_of_another(name);
  const SteadyTime since = node.seen ? node.since : started_;
  const WallTime wall = clock_.wall();
  const WallTime seen = wall - std::chrono::duration_cast<WallTime::duration>(now - since);
  const auto patch = connected_patch(object, node.connected, seen, wall);
  if (!patch) return {.is_current = true};
  const auto written = client_.patch(ctx, api::EdgeNode::resource(), {"", name},
                                     kube::PatchType::kMerge, *patch, "status");
  if (written.ok()) return {.is_current = true, .written = stored(*written)};
  if (ctx.done()) return {};
  // After a conflict the watch delivers the newer object, which schedules the next step at once.
  const Code code = written.error().code();
  if (code != Code::kConflict && code != Code::kNotFound) {
    log::warn("cannot write the condition Connected of a node; retrying",
              {{"node", name}, {"error", written.error()}});
  }
  return {.again = now + options_.retry};
}

}  // namespace varda::gateway
