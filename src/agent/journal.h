// Journal: what the agent must know without its API server, in one small database.
//
//   desired      {uid, generation, spec} of the EdgeNode as last read
//   failures     jobs that failed, with reason and message, so that a restart does not forget why
//   address      the node's address, once drawn
//   cascades/KEY what that model's server counted of its tiers (cascade_record.h)
//   workers/KEY  what that worker said, and how far it was passed on (worker_state.h)
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "codec/json.h"
#include "os/file_system.h"
#include "store/store.h"

namespace varda::agent {

/// Thread-safe. Durable on return.
class Journal {
 public:
  /// kUnavailable: another agent has it open. A file that is damaged is set aside as FILE.damaged and begun anew: everything in it
  /// can be learned again, and a node that does nothing is worse.
  static Result<std::unique_ptr<Journal>> open(const os::Path& file);
  static std::unique_ptr<Journal> in_memory();
  static std::unique_ptr<Journal> over(std::unique_ptr<store::Store> store);

  /// Null: not there.
  Result<codec::Json> get(std::string_view key);
  /// Nothing is written if it is there already.
  Status put(std::string_view key, const codec::Json& value);

  /// All that begins with `prefix`, by key.
  Result<std::map<std::string, codec::Json>> entries(const std::string& prefix);
  /// All of these or none, in one write of the disk; null takes the key away.
  Status put_all(const std::map<std::string, codec::Json>& values);

 private:
  explicit Journal(std::unique_ptr<store::Store> store) : store_(std::move(store)) {}
  std::unique_ptr<store::Store> store_;
};

}  // namespace varda::agent
