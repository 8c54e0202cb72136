#include "agent/pods/registration.h"

#include <algorithm>
#include <string_view>
#include <sys/utsname.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include "api/core/node.h"
#include "base/log.h"
#include "meta/object.h"
#include "meta/patch.h"

namespace varda::agent::pods {
namespace {

using codec::Json;

std::string architecture() {
  utsname name{};
  if (uname(&name) != 0) return "unknown";
  const std::string machine = name.machine;
  if (machine == "x86_64") return "amd64";
  if (machine == "aarch64") return "arm64";
  if (machine.starts_with("arm")) return "arm";
  return machine;
}

std::string kernel() {
  utsname name{};
  return uname(&name) == 0 ? name.release : "unknown";
}

// Canonical form of API servers: "8388608Ki" would come back as "8Gi" and always seem to differ.
std::string binary_quantity(std::uint64_t bytes) {
  static constexpr const char* kSuffixes[] = {"", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"};
  std::size_t suffix = 0;
  while (bytes > 0 && bytes % 1024 == 0 && suffix + 1 < std::size(kSuffixes)) {
    bytes /= 1024;
    ++suffix;
  }
  return std::to_string(bytes) + kSuffixes[suffix];
}

Status register_once(const Context& ctx, const kube::Client& client, const NodeFacts& facts,
                     WallTime time) {
  const meta::ObjectKey key{"", facts.name};
  TRY(auto found, client.find(ctx, api::Node::resource(), key));
  if (!found) {
    auto created = client.create(ctx, api::Node::resource(), node_object(facts));
    if (!created.ok() && created.error().code() != Code::kAlreadyExists) return created.error();
    TRY(auto again, client.get(ctx, api::Node::resource(), key));
    found = std::move(again);
  }
  const Json now = (*found)["status"].is_object() ? (*found)["status"] : Json::object();
  Json next = now;
  const Json wanted = node_status(facts);
  for (const auto& [name, value] : wanted.as_object()) next.set(name, value);
  auto conditions = posted_conditions(now, time);
  if (conditions) next.set("conditions", *conditions);
  if (next == now) return {};
  Json patch = Json::object({{"status", meta::make_merge_patch(now, next)}});
  // A merge patch replaces the whole list, so the resourceVersion protects concurrent writes of
  // others.
  if (conditions)
    patch.set("metadata",
              Json::object({{"resourceVersion", (*found)["metadata"]["resourceVersion"]}}));
  TRY([[maybe_unused]] const Json written,
      client.patch(ctx, api::Node::resource(), key, kube::PatchType::kMerge, std::move(patch),
                   "status"));
  return {};
}

}  // namespace

NodeFacts read_facts(std::string name, std::string layer, std::string address) {
  NodeFacts facts;
  facts.name = std::move(name);
  facts.layer = std::move(layer);
  facts.address = std::move(address);
  facts.cpus = std::max(1u, std::thread::hardware_concurrency());
  const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  if (pages > 0 && page > 0)
    facts.memory_bytes = static_cast<std::uint64_t>(pages) * static_cast<std::uint64_t>(page);
  return facts;
}

Json node_object(const NodeFacts& facts) {
  Json labels = Json::object({{"kubernetes.io/hostname", facts.name},
                              {"kubernetes.io/os", "linux"},
                              {"kubernetes.io/arch", architecture()},
                              {"edgeai.io/layer", facts.layer},
                              {"edgeai.io/runner", "varda"}});
  // The DaemonSet of agents avoids nodes with edgeai.io/runner, because this node runs an agent
  // already. Devices get the edge role, too: workloads for the cloud avoid nodes with that role.
  if (facts.layer != "cloud") labels.set("node-role.kubernetes.io/edge", "");
  return Json::object(
      {{"apiVersion", "v1"},
       {"kind", "Node"},
       {"metadata", Json::object({{"name", facts.name}, {"labels", std::move(labels)}})},
       {"spec", Json::object()}});
}

Json node_status(const NodeFacts& facts) {
  const Json capacity = Json::object({{"cpu", std::to_string(facts.cpus)},
                                      {"memory", binary_quantity(facts.memory_bytes)},
                                      {"pods", std::to_string(facts.pods_max)}});
  Json addresses = Json::array();
  if (!facts.address.empty())
    addresses.push_back(Json::object({{"type", "InternalIP"}, {"address", facts.address}}));
  addresses.push_back(Json::object({{"type", "Hostname"}, {"address", facts.name}}));
  return Json::object(
      {{"addresses", std::move(addresses)},
       {"capacity", capacity},
       {"allocatable", capacity},
       {"nodeInfo", Json::object({{"architecture", architecture()},
                                  {"bootID", ""},
                                  {"containerRuntimeVersion", "varda://" VARDA_VERSION},
                                  {"kernelVersion", kernel()},
                                  {"kubeProxyVersion", ""},
                                  {"kubeletVersion", "varda-" VARDA_VERSION},
                                  {"machineID", ""},
                                  {"operatingSystem", "linux"},
                                  {"osImage", "Linux"},
                                  {"systemUUID", ""}})}});
}

std::optional<Json> posted_conditions(const Json& status, WallTime now) {
  static constexpr std::string_view kPosted = "AgentRuns";
  // Reasons that the node controller sets for a node that never posted, and for one that stopped.
  static constexpr std::string_view kWaitedFor[] = {"NodeStatusNeverUpdated", "NodeStatusUnknown",
                                                    kPosted};
  if (!status["conditions"].is_array()) return {};
  Json conditions = status["conditions"];
  for (Json& condition : conditions.array_items()) {
    if (std::as_const(condition)["type"].as_string() != "Ready") continue;
    const std::string reason = std::as_const(condition)["reason"].as_string();
    if (std::find(std::begin(kWaitedFor), std::end(kWaitedFor), reason) == std::end(kWaitedFor))
      return {};
    const std::string time = meta::format_time(now);
    if (std::as_const(condition)["status"].as_string() != "True")
      condition.set("lastTransitionTime", time);
    condition.set("lastHeartbeatTime", time);
    condition.set("status", "True");
    condition.set("reason", std::string(kPosted));
    condition.set("message", "the node's agent runs pods");
    return conditions;
  }
  return {};
}

void Registration::step(const Context& ctx) {
  constexpr Duration kFirst = std::chrono::milliseconds(200), kMax = std::chrono::seconds(5);
  const Status status = register_once(ctx, client_, facts_, clock_.wall());
  if (status.ok()) {
    backoff_.reset();
  } else {
    if (!backoff_ && !ctx.done())
      log::warn("cannot register the node, retrying", {{"error", status.error()}});
    backoff_ = backoff_ ? std::min(*backoff_ * 2, kMax) : kFirst;
  }
  due_ = clock_.now() + backoff_.value_or(period_);
}

runtime::Task Registration::task() {
  return {.name = "registration",
          .due = [this] { return std::optional(due()); },
          .step = [this](const Context& ctx) { step(ctx); }};
}

}  // namespace varda::agent::pods
