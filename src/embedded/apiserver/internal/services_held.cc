#include "apiserver/internal/services_held.h"

#include <utility>

namespace varda::apiserver {

namespace {

template <typename Key>
void drop(std::map<Key, std::set<std::string>>& holders, const Key& what,
          const std::string& service) {
  const auto found = holders.find(what);
  if (found == holders.end()) return;
  found->second.erase(service);
  if (found->second.empty()) holders.erase(found);
}

template <typename Key>
bool held(const std::map<Key, std::set<std::string>>& holders, const Key& what,
          const std::string& self) {
  const auto found = holders.find(what);
  return found != holders.end() && (found->second.size() > 1 || !found->second.contains(self));
}

}  // namespace

void ServicesHeld::forget(std::map<std::string, Service>::iterator service) {
  drop(addresses_, service->second.address, service->first);
  for (const std::int64_t port : service->second.ports) drop(ports_, port, service->first);
  services_.erase(service);
}

Outcome<void> ServicesHeld::look(store::Store& store, const Kind& kind) {
  auto page = store.list({.prefix = kind.storage_prefix()});
  if (!page.ok()) return store_failure(page.error());
  auto known = services_.begin();  // both sorted by key
  for (const store::Entry& entry : page->entries) {
    while (known != services_.end() && known->first < entry.key) forget(known++);
    if (known != services_.end() && known->first == entry.key) {
      const auto current = known++;
      if (current->second.value == entry.value) continue;
      forget(current);
    }
    Service now;
    now.value = entry.value;
    if (const auto service = codec::parse_json(*entry.value); service.ok()) {
      now.address = service->at("spec/clusterIP").as_string();
      for (const Json& port : service->at("spec/ports").as_array())
        now.ports.push_back(port["nodePort"].as_integer());
    }
    addresses_[now.address].insert(entry.key);
    for (const std::int64_t port : now.ports) ports_[port].insert(entry.key);
    services_.emplace(entry.key, std::move(now));
  }
  while (known != services_.end()) forget(known++);
  return {};
}

bool ServicesHeld::has_address(const std::string& address, const std::string& self) const {
  return held(addresses_, address, self);
}

bool ServicesHeld::has_port(std::int64_t port, const std::string& self) const {
  return held(ports_, port, self);
}

}  // namespace varda::apiserver
