// What a pod's directory remembers: enough to go on after the runner was killed, with no API server.
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
  std::string started, finished;  // RFC 3339, as the status shows them
};

struct ContainerRecord {
  // kStarting is written before a start: a process may or may not be there.
  enum class State { kWaiting, kStarting, kRunning, kTerminated };
  std::string name;
  State state = State::kWaiting;
  int attempt = -1;  // of the current or last run; -1: never started
  std::string id;    // kRunning
  std::string started;
  Termination ended;                // kTerminated
  std::optional<Termination> last;  // the run before
  std::string reason, message;      // kWaiting
  bool up = false;                  // its startup probe, if any, has succeeded: status.started
  bool ready = false;

  bool running() const { return state == State::kRunning; }
  bool succeeded() const { return state == State::kTerminated && ended.code == 0; }
};

struct PodRecord {
  Json pod;  // as last desired
  std::string ip;
  std::string start_time;
  std::string boot;  // of the machine when its containers were started: after a reboot all have ended, whatever their ids say
  LogFormat log_format = LogFormat::kRaw;  // of the driver that ran it last
  std::vector<ContainerRecord> init, main;
  Json status;  // as last told

  /// A pod seen for the first time.
  static PodRecord of(Json pod);
  /// kCorrupt: no record of ours.
  static Result<PodRecord> from_json(const Json& json);
  Json to_json() const;

  PodName name() const;
  bool deleting() const { return !pod.at("metadata/deletionTimestamp").is_null(); }
  bool host_network() const { return pod.at("spec/hostNetwork").as_bool(); }
  /// Ports of the node that its containers listen on, as "8080/TCP": none without the host's network.
  std::set<std::string> host_ports() const;
  std::string restart_policy() const { return pod.at("spec/restartPolicy").string_or("Always"); }
};

/// "default/web"
std::string text(const PodName& name);

}  // namespace varda::node::internal
