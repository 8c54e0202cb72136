#include <algorithm>
#include <netinet/in.h>
#include <set>
#include <sys/socket.h>
#include <unistd.h>

#include "apiserver/internal/admission.h"
#include "apiserver/internal/metadata.h"
#include "apiserver/internal/objects.h"
#include "apiserver/internal/services_held.h"

namespace varda::apiserver {

namespace {

constexpr int kFirstNodePort = 30000;
constexpr int kLastNodePort = 32767;

/// Ports and addresses of other services, and ports given to this service just now.
class Taken {
 public:
  Taken(const ServicesHeld& held, std::string self) : held_(held), self_(std::move(self)) {}
  bool address(const std::string& address) const { return held_.has_address(address, self_); }
  bool port(std::int64_t port) const {
    return allocated_.contains(port) || held_.has_port(port, self_);
  }
  void add(std::int64_t port) { allocated_.insert(port); }

 private:
  const ServicesHeld& held_;
  const std::string self_;
  std::set<std::int64_t> allocated_;
};

// True if the port is free on this machine now.
bool can_bind(int port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  const int on = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const bool free = ::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  ::close(fd);
  return free;
}

std::string free_address(Core& core, const Taken& taken) {
  for (;;) {
    const std::uint64_t host = 2 + core.rng.below(65533);
    std::string address = "10.96." + std::to_string(host / 256) + "." + std::to_string(host % 256);
    if (!taken.address(address)) return address;
  }
}

std::optional<int> free_port(Core& core, const Taken& taken) {
  const int count = kLastNodePort - kFirstNodePort + 1;
  const int start = static_cast<int>(core.rng.below(count));
  for (int i = 0; i < count; ++i) {
    const int port = kFirstNodePort + (start + i) % count;
    if (!taken.port(port) && can_bind(port)) return port;
  }
  return std::nullopt;
}

bool wants_node_ports(const Json& service) {
  const std::string& type = service.at("spec/type").as_string();
  return type == "NodePort" || type == "LoadBalancer";
}

const Json* same_port(const Json* old, const Json& port) {
  if (old == nullptr) return nullptr;
  for (const Json& item : old->at("spec/ports").as_array()) {
    if (item["port"] == port["port"] && item["protocol"] == port["protocol"]) return &item;
  }
  return nullptr;
}

ApiStatus refused(const Json& service, std::string field, std::int64_t value,
                  std::string_view why) {
  return invalid(
      "", "Service", name_of(service),
      {{"FieldValueInvalid", "Invalid value: " + std::to_string(value) + ": " + std::string(why),
        std::move(field)}});
}

}  // namespace

Outcome<void> allocate_service(Core& core, const Kind& kind, Json& service, const Json* old) {
  Json& spec = service["spec"];
  if (!spec.is_object()) return {};
  const std::string type = std::as_const(spec)["type"].as_string();
  TRY_VOID(core.services_held.look(core.store, kind));
  Taken used(core.services_held, kind.storage_key(namespace_of(service), name_of(service)));

  if (type != "ExternalName") {
    std::string address = std::as_const(spec)["clusterIP"].as_string();
    if (address.empty() && old != nullptr) address = old->at("spec/clusterIP").as_string();
    if (address.empty()) {
      address = free_address(core, used);
    } else if (address != "None" && used.address(address)) {
      return invalid("", "Service", name_of(service),
                     {invalid_value("spec.clusterIPs", address,
                                    "failed to allocate IP " + address +
                                        ": provided IP is already allocated")});
    }
    spec.set("clusterIP", address);
    spec.set("clusterIPs", Json::array({address}));
  }

  if (!wants_node_ports(service)) {
    // Ports of an earlier type are removed. Ports requested by the client fail in validation.
    if (old != nullptr && wants_node_ports(*old) && spec.contains("ports")) {
      for (Json& port : spec["ports"].array_items()) {
        const Json* before = same_port(old, port);
        if (before != nullptr && std::as_const(port)["nodePort"] == (*before)["nodePort"])
          port.erase("nodePort");
      }
    }
    return {};
  }
  if (!spec.contains("ports")) return {};
  std::size_t index = 0;
  for (Json& port : spec["ports"].array_items()) {
    const std::string field = "spec.ports[" + std::to_string(index++) + "].nodePort";
    const Json* before = same_port(old, port);
    std::int64_t wanted = std::as_const(port)["nodePort"].as_integer();
    if (wanted == 0 && before != nullptr) wanted = (*before)["nodePort"].as_integer();
    if (wanted == 0) {
      const std::optional<int> chosen = free_port(core, used);
      if (!chosen) return internal("failed to allocate a nodePort: range is full");
      wanted = *chosen;
    } else if (wanted < kFirstNodePort || wanted > kLastNodePort) {
      return refused(
          service, field, wanted,
          "provided port is not in the valid range. The range of valid ports is 30000-32767");
    } else if (used.port(wanted)) {
      return refused(service, field, wanted, "provided port is already allocated");
    }
    used.add(wanted);
    port.set("nodePort", wanted);
  }
  return {};
}

}  // namespace varda::apiserver
