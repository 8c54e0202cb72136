// Addresses and ports that services have, as the store says: read again are only those that changed since the last look.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "apiserver/internal/outcome.h"
#include "apiserver/kind.h"
#include "store/store.h"

namespace varda::apiserver {

/// One thread at a time.
class ServicesHeld {
 public:
  /// What is in the store now. `kind` is that of services, always the same one.
  Outcome<void> look(store::Store& store, const Kind& kind);
  /// By another service than that of storage key `self`.
  bool has_address(const std::string& address, const std::string& self) const;
  bool has_port(std::int64_t port, const std::string& self) const;

 private:
  struct Service {
    std::shared_ptr<const store::Value> value;  // kept, so that another value is never at its place
    std::string address;
    std::vector<std::int64_t> ports;
  };
  void forget(std::map<std::string, Service>::iterator service);

  std::map<std::string, Service> services_;  // by storage key
  std::map<std::string, std::set<std::string>> addresses_;
  std::map<std::int64_t, std::set<std::string>> ports_;
};

}  // namespace varda::apiserver
