// The persisted record of a pod: enough to continue after the runner was killed, without an API
// server.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "codec/json.h"
#include "node/pod_runner.h"

namespace varda::node::internal {

using codec::Json;

/// One finished run of a container.
struct Termination {
  int code = 0;
  int signal = 0;
  std::string reason, message, id;
  std::string started, finished;  // RFC 3339, as in the status
};

struct ContainerRecord {
  // kStarting is written before a start: the process may or may not exist.
  enum class State { kWaiting, kStarting, kRunning, kTerminated };
  std::string name;
  State state = State::kWaiting;
  int attempt = -1;  // of the current or last run; -1: never started
  std::string id;    // kRunning
  std::string started;
  Termination ended;                // kTerminated
  std::optional<Termination> last;  // the previous run
  std::string reason, message;      // kWaiting
  bool up = false;                  // status.started: the startup probe, if any, has succeeded
  bool ready = false;

  bool running() const { return state == State::kRunning; }
  bool succeeded() const { return state == State::kTerminated && ended.code == 0; }
};

struct PodRecord {
  Json pod;  // as last desired
  std::string ip;
  std::string start_time;
  std::string boot;                        // boot id at the starts: a reboot ends all containers
  LogFormat log_format = LogFormat::kRaw;  // of the last driver
  std::vector<ContainerRecord> init, main;
  Json status;  // as last reported

  /// A pod seen for the first time.
  static PodRecord of(Json pod);
  /// kCorrupt: not a valid record.
  static Result<PodRecord> from_json(const Json& json);
  Json to_json() const;

  PodName name() const;
  bool deleting() const { return !pod.at("metadata/deletionTimestamp").is_null(); }
  bool host_network() const { return pod.at("spec/hostNetwork").as_bool(); }
  /// Ports of the node that its containers listen on, as "8080/TCP". Empty without the host's
  /// network.
  std::set<std::string> host_ports() const;
  std::string restart_policy() const { return pod.at("spec/restartPolicy").string_or("Always"); }
};

/// "default/web"
std::string text(const PodName& name);

}  // namespace varda::node::internal
