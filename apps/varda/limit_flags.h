// Flags of limits, the same for every subcommand that runs the part they are of. The defaults stand where the options are declared.
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

/// What a client may ask of an API server.
struct ApiLimits {
  ApiLimits() {
    http.connections_per_address_max = http.connections_max / 2;
    http.bodies_bytes_max = std::size_t{256} << 20;
  }
  apiserver::Limits api;
  store::Options store;
  net::Server::Options http;  // address and TLS are set by who listens
};
/// `limits` outlives the parsing.
void add_limit_flags(CLI::App& command, ApiLimits& limits);

/// Of the audit log.
struct AuditFlags {
  std::string file, level = "Metadata";
  std::uint64_t bytes_max = 100u << 20;
  std::size_t files_max = 10;
};
void add_audit_flags(CLI::App& command, AuditFlags& flags);
/// Nothing: none is wanted.
Result<std::optional<apiserver::AuditLog::Options>> audit_options(const AuditFlags& flags);

/// What models may cost on one node, and where they may come from.
struct NodeLimits {
  artifact::Limits archives;
  std::uint64_t artifact_bytes_max = 0;  // 0: the disk's
  std::uint64_t replica_bytes_max = agent::Options().replica_bytes_max;
  std::vector<std::string> file_roots;
};
void add_limit_flags(CLI::App& command, NodeLimits& limits);
/// The command line by which another process gets the same.
std::vector<std::string> arguments_of(const NodeLimits& limits);

/// Archives alone, for whoever unpacks one.
void add_limit_flags(CLI::App& command, artifact::Limits& limits);

}  // namespace varda::app
