// StateStore: the state that the agent needs without an API server, in one small database.
//
//   desired      {uid, generation, spec} of the EdgeNode as last read
//   failures     failed jobs with reason and message, so that a restart still reports them
//   address      the node's address, once drawn
//   joint/KEY the tier counters of that model (tier_counters.h)
//   artifacts/KEY the files that the worker handed over (workers/artifact_store.h)
//   stream-ports the ports of workers' streams (workers/streams.h)
//   workers/KEY  the last messages of that worker, and what was forwarded (workers/state.h)
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "codec/json.h"
#include "os/file_system.h"
#include "store/store.h"

namespace varda::agent::core {

/// Thread-safe. Writes are durable on return.
class StateStore {
 public:
  /// kUnavailable: another agent has the file open. A damaged file is renamed to FILE.damaged and
  /// replaced by an empty database. The agent can relearn all content, and an idle node would be
  /// worse.
  static Result<std::unique_ptr<StateStore>> open(const os::Path& file);
  static std::unique_ptr<StateStore> in_memory();
  static std::unique_ptr<StateStore> over(std::unique_ptr<store::Store> store);

  /// Null: not found.
  Result<codec::Json> get(std::string_view key);
  /// Skips the write if the value is unchanged.
  Status put(std::string_view key, const codec::Json& value);

  /// All entries with this prefix, by key.
  Result<std::map<std::string, codec::Json>> entries(const std::string& prefix);
  /// Writes all values or none, with one disk write. Null deletes the key.
  Status put_all(const std::map<std::string, codec::Json>& values);

 private:
  explicit StateStore(std::unique_ptr<store::Store> store) : store_(std::move(store)) {}
  std::unique_ptr<store::Store> store_;
};

}  // namespace varda::agent::core
