#include "hosting/agent_change.h"

#include <map>

#include "codec/json.h"
#include "hosting/node_limits.h"

namespace varda::hosting {

namespace {

using codec::Json;
using Parts = std::map<std::string, Json>;

// The node's facts that affect every object there.
std::string facts_of(const api::EdgeNode& node) {
  std::string text = node.status.model_root + "\n" + node.status.sample_root + "\n" +
                     node.status.worker_root + "\n" + node.status.worker_socket_directory + "\n" +
                     std::to_string(node.status.worker_user.value_or(-1)) + "\n" +
                     node.status.address + "\n" + node.metadata.deletion_timestamp.value_or("") +
                     node.metadata.uid;
  for (const std::string& root : node.status.file_roots) text += "\n" + root;
  text += "\n";
  for (const std::string& root : node.status.dataset_roots) text += "\n" + root;
  if (const meta::Condition* connected = meta::find_condition(node.status.conditions, "Connected"))
    text += "\n" + connected->status + connected->reason + connected->message;
  // An object that a full list left out gets no other notice.
  if (node.spec.models.size() >= kModelsPerNode) text += "\nmodels full";
  if (node.spec.workers.size() >= kWorkersPerNode) text += "\nworkers full";
  return text;
}

void add(const std::string& key, const Json& item, Parts& out) {
  out.try_emplace(key, Json::array()).first->second.push_back(item);
}

// Reports, by key of a model or uid of a job. The JSON includes members that are added to reports
// later.
Parts reports_of(const api::EdgeNode& node) {
  Parts out;
  const Json status = node.status.to_json();
  for (const Json& model : status["models"].as_array()) add(model["key"].as_string(), model, out);
  for (const Json& report : status["workers"].as_array())
    add(report["uid"].as_string(), report, out);
  return out;
}

// The parts of the work list that decide the meaning of reports.
Parts work_of(const api::EdgeNode& node) {
  Parts out;
  const Json spec = node.spec.to_json();
  for (const Json& model : spec["models"].as_array()) add(model["key"].as_string(), model, out);
  for (const Json& worker : spec["workers"].as_array())
    add(worker["uid"].as_string(), worker["key"], out);
  return out;
}

void add_differences(const Parts& before, const Parts& now, std::set<std::string>& keys) {
  for (const auto& [key, parts] : now) {
    const auto found = before.find(key);
    if (found == before.end() || found->second != parts) keys.insert(key);
  }
  for (const auto& [key, parts] : before) {
    if (!now.contains(key)) keys.insert(key);
  }
}

}  // namespace

AgentChange change_of(const api::EdgeNode& before, const api::EdgeNode& now) {
  AgentChange out;
  out.of_node = facts_of(before) != facts_of(now);
  if (out.of_node) return out;
  add_differences(reports_of(before), reports_of(now), out.reports);
  // Reports never change a work list: the server counts its versions.
  const bool same_work =
      before.metadata.generation != 0 && before.metadata.generation == now.metadata.generation;
  if (!same_work) add_differences(work_of(before), work_of(now), out.reports);
  return out;
}

}  // namespace varda::hosting
