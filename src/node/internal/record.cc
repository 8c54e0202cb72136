#include "node/internal/record.h"

namespace varda::node::internal {
namespace {

using State = ContainerRecord::State;

constexpr const char* kCriLogs = "cri";

constexpr std::pair<State, const char*> kStates[] = {{State::kWaiting, "waiting"},
                                                     {State::kStarting, "starting"},
                                                     {State::kRunning, "running"},
                                                     {State::kTerminated, "terminated"}};

Json to_json(const Termination& t) {
  return Json::object({{"code", t.code},
                       {"signal", t.signal},
                       {"reason", t.reason},
                       {"message", t.message},
                       {"id", t.id},
                       {"started", t.started},
                       {"finished", t.finished}});
}

Termination termination(const Json& json) {
  return {.code = static_cast<int>(json["code"].as_integer()),
          .signal = static_cast<int>(json["signal"].as_integer()),
          .reason = json["reason"].as_string(),
          .message = json["message"].as_string(),
          .id = json["id"].as_string(),
          .started = json["started"].as_string(),
          .finished = json["finished"].as_string()};
}

Json to_json(const ContainerRecord& c) {
  Json json = Json::object({{"name", c.name},
                            {"attempt", c.attempt},
                            {"id", c.id},
                            {"started", c.started},
                            {"up", c.up},
                            {"ready", c.ready}});
  for (const auto& [state, name] : kStates) {
    if (state == c.state) json.set("state", name);
  }
  if (c.state == State::kTerminated) json.set("ended", to_json(c.ended));
  if (c.last) json.set("last", to_json(*c.last));
  if (!c.reason.empty()) json.set("reason", c.reason);
  if (!c.message.empty()) json.set("message", c.message);
  return json;
}

ContainerRecord container(const Json& json) {
  ContainerRecord c;
  c.name = json["name"].as_string();
  for (const auto& [state, name] : kStates) {
    if (json["state"].as_string() == name) c.state = state;
  }
  c.attempt = static_cast<int>(json["attempt"].as_integer(-1));
  c.id = json["id"].as_string();
  c.started = json["started"].as_string();
  c.ended = termination(json["ended"]);
  if (const Json* last = json.find("last")) c.last = termination(*last);
  c.reason = json["reason"].as_string();
  c.message = json["message"].as_string();
  c.up = json["up"].as_bool();
  c.ready = json["ready"].as_bool();
  return c;
}

Json to_json(const std::vector<ContainerRecord>& containers) {
  Json list = Json::array();
  for (const ContainerRecord& c : containers) list.push_back(to_json(c));
  return list;
}

std::vector<ContainerRecord> containers(const Json& list) {
  std::vector<ContainerRecord> out;
  for (const Json& item : list.as_array()) out.push_back(container(item));
  return out;
}

std::vector<ContainerRecord> fresh(const Json& specs) {
  std::vector<ContainerRecord> out;
  for (const Json& spec : specs.as_array()) {
    ContainerRecord c;
    c.name = spec["name"].as_string();
    out.push_back(std::move(c));
  }
  return out;
}

}  // namespace

PodRecord PodRecord::of(Json pod) {
  PodRecord record;
  record.init = fresh(pod.at("spec/initContainers"));
  record.main = fresh(pod.at("spec/containers"));
  record.pod = std::move(pod);
  return record;
}

Result<PodRecord> PodRecord::from_json(const Json& json) {
  PodRecord record;
  record.pod = json["pod"];
  record.ip = json["ip"].as_string();
  record.start_time = json["startTime"].as_string();
  record.boot = json["boot"].as_string();
  if (json["logFormat"].as_string() == kCriLogs) record.log_format = LogFormat::kCri;
  record.init = containers(json["init"]);
  record.main = containers(json["main"]);
  record.status = json["status"];
  if (record.name().uid.empty()) return Error(Code::kCorrupt, "a pod record without metadata.uid");
  if (record.main.size() != record.pod.at("spec/containers").size() ||
      record.init.size() != record.pod.at("spec/initContainers").size()) {
    return Error(Code::kCorrupt, "a pod record whose containers differ from its spec");
  }
  return record;
}

Json PodRecord::to_json() const {
  return Json::object({{"pod", pod},
                       {"ip", ip},
                       {"startTime", start_time},
                       {"boot", boot},
                       {"logFormat", log_format == LogFormat::kCri ? kCriLogs : "raw"},
                       {"init", internal::to_json(init)},
                       {"main", internal::to_json(main)},
                       {"status", status}});
}

PodName PodRecord::name() const {
  const Json& metadata = pod["metadata"];
  return {.ns = metadata["namespace"].string_or("default"),
          .name = metadata["name"].as_string(),
          .uid = metadata["uid"].as_string()};
}

std::set<std::string> PodRecord::host_ports() const {
  std::set<std::string> out;
  if (!host_network()) return out;
  for (const Json& container : pod.at("spec/containers").as_array()) {
    for (const Json& port : container["ports"].as_array())
      out.insert(std::to_string(port["containerPort"].as_integer()) + "/" +
                 port["protocol"].string_or("TCP"));
  }
  return out;
}

std::string text(const PodName& name) { return name.ns + "/" + name.name; }

}  // namespace varda::node::internal
