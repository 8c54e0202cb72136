// Flags for limits, shared by all subcommands with the same part. The option structs hold the
// defaults.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "agent/agent.h"
#include "apiserver/audit.h"
#include "apiserver/server.h"
#include "artifact/limits.h"
#include "net/server.h"
#include "store/store.h"

namespace varda::app {

/// Limits on clients of the API server.
struct ApiLimits {
  ApiLimits() {
    http.connections_per_address_max = http.connections_max / 2;
    http.bodies_bytes_max = std::size_t{256} << 20;
  }
  apiserver::Limits api;
  store::Options store;
  net::Server::Options http;  // the caller sets address and TLS
};
/// `limits` outlives the parsing.
void add_limit_flags(CLI::App& command, ApiLimits& limits);

struct AuditFlags {
  std::string file, level = "Metadata";
  std::uint64_t bytes_max = 100u << 20;
  std::size_t files_max = 10;
};
void add_audit_flags(CLI::App& command, AuditFlags& flags);
/// Nothing: no audit log.
Result<std::optional<apiserver::AuditLog::Options>> audit_options(const AuditFlags& flags);

/// Limits on the models of one node, and the directories of file URLs.
struct NodeLimits {
  artifact::Limits archives;
  std::uint64_t artifact_bytes_max = 0;  // 0: only the disk limits
  std::uint64_t replica_bytes_max = agent::Options().replica_bytes_max;
  std::vector<std::string> file_roots;
};
void add_limit_flags(CLI::App& command, NodeLimits& limits);
/// The arguments that set the same limits in another process.
std::vector<std::string> arguments_of(const NodeLimits& limits);

/// Adds the flags for archives alone.
void add_limit_flags(CLI::App& command, artifact::Limits& limits);

}  // namespace varda::app
