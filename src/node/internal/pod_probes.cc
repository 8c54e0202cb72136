// The probes of a pod's containers: due times, and effects of the results.
#include <algorithm>

#include "node/internal/pod_worker.h"

namespace varda::node::internal {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

std::int64_t number(const Json& probe, const char* name, std::int64_t otherwise) {
  const std::int64_t value = probe[name].as_integer(otherwise);
  return value > 0 ? value : otherwise;
}

// A port by number, or by its name in the container's spec.
int port_of(const Json& container, const Json& port) {
  if (port.is_integer()) return static_cast<int>(port.as_integer());
  for (const Json& named : container["ports"].as_array()) {
    if (named["name"].as_string() == port.as_string())
      return static_cast<int>(named["containerPort"].as_integer());
  }
  return 0;
}

const char* kind_name(ProbeKind kind) {
  return kind == ProbeKind::kStartup    ? "Startup"
         : kind == ProbeKind::kLiveness ? "Liveness"
                                        : "Readiness";
}

}  // namespace

void PodWorker::begin_probes(std::size_t i) {
  ContainerRecord& c = container(i);
  Live& live = live_[i];
  const SteadyTime now = shared_.clock.now();
  for (ProbeState* state : {&live.startup, &live.liveness, &live.readiness}) {
    state->successes = state->failures = 0;
    state->in_flight = false;
    if (state->spec != nullptr)
      state->due = now + seconds((*state->spec)["initialDelaySeconds"].as_integer(0));
  }
  if (live.startup.spec == nullptr) c.up = true;
  if (live.readiness.spec == nullptr) c.ready = c.up && !live.init;
}

void PodWorker::run_probes(std::size_t i) {
  ContainerRecord& c = container(i);
  Live& live = live_[i];
  const SteadyTime now = shared_.clock.now();
  if (live.ending) {
    // A failed probe stopped this run: it gets no more probes, only its deadline.
    end_container(i, live.kill_at ? std::max(Duration{0}, *live.kill_at - now) : grace());
    return;
  }
  const auto run = [&](ProbeState& state, ProbeKind kind) {
    if (state.spec == nullptr || state.in_flight) return;
    if (now < state.due) return due(state.due);
    state.in_flight = true;
    state.due = now + seconds(number(*state.spec, "periodSeconds", 10));
    due(state.due);
    start_probe(i, kind, *state.spec, seconds(number(*state.spec, "timeoutSeconds", 1)));
  };
  if (!c.up) return run(live.startup, ProbeKind::kStartup);
  run(live.liveness, ProbeKind::kLiveness);
  run(live.readiness, ProbeKind::kReadiness);
}

void PodWorker::start_probe(std::size_t i, ProbeKind kind, const Json& handler,
                            milliseconds timeout) {
  const ContainerRecord& c = container(i);
  Live& live = live_[i];
  Probe probe;
  probe.timeout = timeout;
  if (const Json* http = handler.find("httpGet")) {
    probe.kind = Probe::Kind::kHttp;
    probe.host = (*http)["host"].string_or(record_.ip);
    probe.port = port_of(*live.spec, (*http)["port"]);
    probe.path = (*http)["path"].string_or("/");
    probe.scheme = (*http)["scheme"].string_or("HTTP");
    for (const Json& header : (*http)["httpHeaders"].as_array()) {
      probe.headers.emplace_back(header["name"].as_string(), header["value"].as_string());
    }
  } else if (const Json* tcp = handler.find("tcpSocket")) {
    probe.kind = Probe::Kind::kTcp;
    probe.host = (*tcp)["host"].string_or(record_.ip);
    probe.port = port_of(*live.spec, (*tcp)["port"]);
  } else {
    probe.kind = Probe::Kind::kExec;
    for (const Json& argument : handler.at("exec/command").as_array())
      probe.command.push_back(argument.as_string());
    // An adopted container has no configuration in this process yet.
    if (!live.has_config) {
      if (auto config = configure(i); config.ok()) {
        live.config = std::move(config).value();
        live.has_config = true;
      }
    }
    probe.config = live.config;
  }
  const ContainerName name = run_name(c);
  if (probe.kind == Probe::Kind::kExec && (probe.command.empty() || !live.has_config)) {
    return shared_.deliver(
        {.name = name,
         .kind = kind,
         .status = Error(Code::kInvalid, "the probe has no httpGet, tcpSocket or exec")});
  }
  shared_.prober.start(std::move(probe), [deliver = shared_.deliver, name, kind](Status status) {
    deliver({.name = name, .kind = kind, .status = std::move(status)});
  });
}

void PodWorker::on_probe(const ProbeResult& result) {
  for (std::size_t i = 0; i < live_.size(); ++i) {
    ContainerRecord& c = container(i);
    Live& live = live_[i];
    // Results for a previous run are ignored.
    if (!c.running() || run_name(c) != result.name) continue;
    if (result.kind == ProbeKind::kPreStop) {
      shared_.driver.stop(c.id, run_name(c), StopSignal::kTerminate);
      return;
    }
    if (live.ending) return;
    ProbeState& state = result.kind == ProbeKind::kStartup    ? live.startup
                        : result.kind == ProbeKind::kLiveness ? live.liveness
                                                              : live.readiness;
    state.in_flight = false;
    if (state.spec == nullptr) return;
    const Json& spec = *state.spec;
    if (result.status.ok()) {
      state.failures = 0;
      ++state.successes;
      if (result.kind == ProbeKind::kStartup) {
        c.up = true;
        if (live.readiness.spec == nullptr) c.ready = true;
      } else if (result.kind == ProbeKind::kReadiness &&
                 state.successes >= number(spec, "successThreshold", 1)) {
        c.ready = true;
      }
      return;
    }
    state.successes = 0;
    ++state.failures;
    event(
        "Warning", "Unhealthy",
        std::string(kind_name(result.kind)) + " probe failed: " + result.status.error().message());
    if (state.failures < number(spec, "failureThreshold", 3)) return;
    if (result.kind == ProbeKind::kReadiness) {
      c.ready = false;
      return;
    }
    event("Normal", "Killing",
          "Container " + c.name + " failed " +
              (result.kind == ProbeKind::kStartup ? "startup" : "liveness") +
              " probe, will be restarted");
    const Json& own = spec["terminationGracePeriodSeconds"];
    end_container(i, own.is_integer() ? Duration(seconds(own.as_integer())) : grace());
    return;
  }
}

}  // namespace varda::node::internal
