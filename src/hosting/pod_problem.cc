#include "hosting/pod_problem.h"

#include <string_view>

namespace varda::hosting {

namespace {

using codec::Json;

// Reasons that an agent or `varda fetch` gives for a version. In the cloud layer they are in the
// message of an ended container.
constexpr std::string_view kFetchReasons[] = {
    "DigestMismatch",  "DownloadFailed",     "UnsafeArchive",
    "BadLayout",       "CredentialsMissing", "DiskFull",
    "SourceForbidden", "CredentialsInvalid", "CredentialsForbidden"};

// Reasons with which varda-serve ends if no version loads (VARDA_SERVE_END_ON_LOAD_FAILURE).
constexpr std::string_view kLoadReasons[] = {"LoadFailed", "LoadCrashed", "LoadTimedOut"};

// The line of a failure in the end of a log, without the parts that differ between attempts.
template <std::size_t kCount>
std::optional<Problem> known_reason(const std::string& text,
                                    const std::string_view (&reasons)[kCount]) {
  for (const std::string_view known : reasons) {
    const std::size_t at = text.rfind(std::string(known) + ": ");
    if (at == std::string::npos) continue;
    const std::size_t start = at + known.size() + 2;
    return Problem{std::string(known), text.substr(start, text.find('\n', start) - start)};
  }
  return {};
}

std::string last_line(std::string_view text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.remove_suffix(1);
  const std::size_t start = text.rfind('\n');
  return std::string(start == std::string_view::npos ? text : text.substr(start + 1));
}

std::optional<Problem> container_problem(const api::ContainerStatus& container, bool fetch) {
  const Json* state = nullptr;
  const std::string waiting = container.state.at("waiting/reason").as_string();
  if (!waiting.empty() && waiting != "ContainerCreating" && waiting != "PodInitializing") {
    if (waiting != "CrashLoopBackOff")
      return Problem{waiting, "container " + container.name + ": " +
                                  container.state.at("waiting/message").as_string()};
    state = &container.last_state.at("terminated");
  }
  const Json& ended = container.state["terminated"];
  if (ended.is_object()) {
    state = &ended;
  } else if (fetch || known_reason(container.last_state.at("terminated/message").as_string(),
                                   kLoadReasons)) {
    state = &container.last_state["terminated"];  // the last failure counts during a retry
  }
  if (state == nullptr || (*state)["exitCode"].as_integer() == 0) return {};
  // The container ended while the agent restarted, so the exit code is made up. It runs again.
  if ((*state)["reason"].as_string() == "ContainerStatusUnknown") return {};
  const std::string& text = (*state)["message"].as_string();
  if (auto known = fetch ? known_reason(text, kFetchReasons) : known_reason(text, kLoadReasons))
    return known;
  const std::string how = "container " + container.name + " ended with exit code " +
                          std::to_string((*state)["exitCode"].as_integer());
  const std::string last = last_line(text);
  return Problem{fetch ? "FetchFailed" : "ContainerFailed", last.empty() ? how : how + ": " + last};
}

}  // namespace

std::optional<Problem> pod_problem(const api::Pod& pod) {
  // Evicted, OutOfcpu, NodeAffinity ...: the node's reason for the pod as a whole. The containers
  // report only that they ended.
  if (pod.ended() && !pod.status.reason.empty())
    return Problem{pod.status.reason, pod.status.message};
  if (const auto* scheduled = find_condition(pod.status.conditions, "PodScheduled");
      scheduled != nullptr && scheduled->status == "False") {
    return Problem{scheduled->reason.empty() ? "Unschedulable" : scheduled->reason,
                   scheduled->message};
  }
  for (const auto& container : pod.status.init_container_statuses) {
    if (auto problem = container_problem(container, true)) return problem;
  }
  for (const auto& container : pod.status.container_statuses) {
    if (auto problem = container_problem(container, false)) return problem;
  }
  if (pod.ended())
    return Problem{"PodFailed",
                   pod.status.message.empty() ? "the pod has ended" : pod.status.message};
  return {};
}

std::optional<Problem> out_of_reach(const std::string& name, const api::Node* node,
                                    const api::EdgeNode* agent) {
  const auto problem = [&](std::string_view reason, std::string_view why,
                           std::string_view message) {
    std::string text = "node " + name + " is unreachable";
    if (!why.empty())
      text += " (" + std::string(why) + (message.empty() ? "" : ": " + std::string(message)) + ")";
    return Problem{std::string(reason), text + "; the status shows its last report"};
  };
  if (node != nullptr) {
    const api::CoreCondition* ready = find_condition(node->status.conditions, "Ready");
    if (ready != nullptr && ready->status == "Unknown")
      return problem("NodeUnreachable", ready->reason, ready->message);
    if (ready != nullptr && ready->status == "False")
      return problem("NodeNotReady", ready->reason, ready->message);
  }
  if (agent != nullptr) {
    const meta::Condition* connected = meta::find_condition(agent->status.conditions, "Connected");
    if (connected != nullptr && connected->status != "True")
      return problem("NodeUnreachable", connected->reason, connected->message);
  }
  return {};
}

bool agent_vouches(const api::Pod* pod, const api::EdgeNode* agent,
                   const api::EdgeModelReport* report) {
  if (pod == nullptr || pod->metadata.deleting() || pod->status.phase != "Running" ||
      pod_problem(*pod))
    return false;
  if (agent == nullptr || report == nullptr || !report->serving ||
      report->serving->state != api::EdgeServingReport::kReady)
    return false;
  const meta::Condition* connected = meta::find_condition(agent->status.conditions, "Connected");
  return connected != nullptr && connected->status == "True";
}

std::string pod_address(const api::Pod* pod, const api::EdgeNode* agent, const api::Node* node,
                        Machines machines) {
  const bool own_address = pod != nullptr && (pod->spec.host_network || machines == Machines::kOne);
  if (own_address && !pod->status.pod_ip.empty()) return pod->status.pod_ip;
  if (pod != nullptr && !pod->status.host_ip.empty()) return pod->status.host_ip;
  if (agent != nullptr && !agent->status.address.empty()) return agent->status.address;
  return node == nullptr ? "" : node->address("InternalIP");
}

bool answers_https(const api::Container& server) {
  return server.readiness_probe["httpGet"]["scheme"].as_string() == "HTTPS";
}

std::string with_scheme(std::string http_url, bool https) {
  if (https && http_url.starts_with("http:")) http_url.insert(4, 1, 's');
  return http_url;
}

std::string http_url(const std::string& host, std::int64_t port) {
  const bool v6 = host.find(':') != std::string::npos;
  return "http://" + (v6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

}  // namespace varda::hosting
