// Addresses and ports in use by stored services. Only services changed since the last look() are
// parsed again.
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
  /// Updates from the store. `kind` is the Service kind, the same one in every call.
  Outcome<void> look(store::Store& store, const Kind& kind);
  /// True if a service other than that of storage key `self` has it.
  bool has_address(const std::string& address, const std::string& self) const;
  bool has_port(std::int64_t port, const std::string& self) const;

 private:
  struct Service {
    std::shared_ptr<const store::Value> value;  // kept alive, so that its address is not reused
    std::string address;
    std::vector<std::int64_t> ports;
  };
  void forget(std::map<std::string, Service>::iterator service);

  std::map<std::string, Service> services_;  // by storage key
  std::map<std::string, std::set<std::string>> addresses_;
  std::map<std::int64_t, std::set<std::string>> ports_;
};

}  // namespace varda::apiserver
