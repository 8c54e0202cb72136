#include "limit_flags.h"

#include "../flag_checks.h"

namespace varda::app {
namespace {

constexpr const char* kApiGroup = "Limits of the API server";
constexpr const char* kNodeGroup = "Limits of models on nodes";

template <typename Number>
void add(CLI::App& command, const char* group, const char* flag, Number& number,
         const std::string& what) {
  command.add_option(flag, number, what)
      ->capture_default_str()
      ->check(CLI::PositiveNumber)
      ->check(whole_number())
      ->group(group);
}

void add_seconds(CLI::App& command, const char* flag, std::chrono::milliseconds& time,
                 const std::string& what) {
  command
      .add_option_function<double>(
          flag,
          [&time](double seconds) {
            time = std::chrono::milliseconds(static_cast<long>(seconds * 1000));
          },
          what)
      ->default_str(std::to_string(time.count() / 1000))
      ->check(CLI::Range(0.1, 86400.0))
      ->check(finite_number())
      ->group(kApiGroup);
}

}  // namespace

void add_limit_flags(CLI::App& command, ApiLimits& limits) {
  add(command, kApiGroup, "--request-bytes-max", limits.api.body_bytes_max,
      "largest request body; 413 beyond");
  add(command, kApiGroup, "--object-bytes-max", limits.api.object_bytes_max,
      "largest stored object; 413 beyond");
  add(command, kApiGroup, "--header-bytes-max", limits.http.header_bytes_max,
      "largest request header; 431 beyond");
  add(command, kApiGroup, "--connections-max", limits.http.connections_max,
      "connections at a time; beyond that, the connection whose client was silent longest is "
      "closed");
  add(command, kApiGroup, "--connections-per-address-max", limits.http.connections_per_address_max,
      "connections of one client address at a time");
  add(command, kApiGroup, "--bodies-bytes-max", limits.http.bodies_bytes_max,
      "total bytes of request bodies larger than 64 KiB, half of them for one address; beyond "
      "that, the slowest request is "
      "answered 408");
  add_seconds(command, "--header-timeout", limits.http.header_timeout,
              "seconds a request header may take; 408 beyond");
  add_seconds(command, "--idle-timeout", limits.http.idle_timeout,
              "seconds a connection may lie idle");
  add_seconds(command, "--write-timeout", limits.http.write_timeout,
              "seconds without progress before a connection is closed");
  add(command, kApiGroup, "--json-depth-max", limits.api.json_depth_max,
      "deepest nesting of a body");
  add(command, kApiGroup, "--patch-operations-max", limits.api.patch_operations_max,
      "operations of one JSON patch");
  add(command, kApiGroup, "--watches-max", limits.api.watches_max, "watches at a time; 429 beyond");
  add(command, kApiGroup, "--watch-queue-events-max", limits.store.watch_queue_events_max,
      "events a watch may lag; beyond that, the watch is closed");
  add(command, kApiGroup, "--history-events-max", limits.store.history_events_max,
      "changes in the history; a watch that starts before them gets 410");
  add(command, kApiGroup, "--history-bytes-max", limits.store.history_bytes_max,
      "bytes of the history");
  add(command, kApiGroup, "--events-max", limits.api.events_max,
      "Event objects kept; the oldest are deleted");
  add(command, kApiGroup, "--handler-threads", limits.api.handler_threads,
      "requests worked on at a time");
  add(command, kApiGroup, "--handler-queue-max", limits.api.handler_queue_max,
      "requests waiting for a thread; 429 beyond");
}

void add_audit_flags(CLI::App& command, AuditFlags& flags) {
  constexpr const char* kGroup = "Audit log";
  command
      .add_option("--audit-log", flags.file,
                  "file for a JSON line per request to the API server; default: none")
      ->group(kGroup);
  command
      .add_option("--audit-level", flags.level,
                  "None, Metadata, or Request: also request bodies, except secrets")
      ->capture_default_str()
      ->check(CLI::IsMember({"None", "Metadata", "Request"}))
      ->group(kGroup);
  add(command, kGroup, "--audit-log-bytes-max", flags.bytes_max,
      "size at which the file is rotated");
  add(command, kGroup, "--audit-log-files-max", flags.files_max,
      "rotated files to keep; FILE.1 is the newest");
}

Result<std::optional<apiserver::AuditLog::Options>> audit_options(const AuditFlags& flags) {
  if (flags.file.empty()) return std::optional<apiserver::AuditLog::Options>();
  apiserver::AuditLog::Options options;
  options.file = std::filesystem::absolute(flags.file).lexically_normal();
  TRY(options.level, apiserver::parse_audit_level(flags.level));
  options.bytes_max = flags.bytes_max;
  options.files_max = flags.files_max;
  return std::optional(std::move(options));
}

void add_limit_flags(CLI::App& command, artifact::Limits& limits) {
  add(command, kNodeGroup, "--archive-bytes-max", limits.archive_bytes_max,
      "largest archive as downloaded");
  add(command, kNodeGroup, "--extracted-bytes-max", limits.extracted_bytes_max,
      "largest archive after unpacking");
  add(command, kNodeGroup, "--archive-entries-max", limits.entries_max,
      "most files, links and directories in an archive");
  add(command, kNodeGroup, "--archive-ratio-max", limits.ratio_max,
      "maximum ratio of unpacked to packed size (checked beyond 64 MiB)");
}

void add_limit_flags(CLI::App& command, NodeLimits& limits) {
  add_limit_flags(command, limits.archives);
  command
      .add_option("--artifact-bytes-max", limits.artifact_bytes_max,
                  "disk space for kept archives; 0: no separate limit")
      ->capture_default_str()
      ->check(whole_number())
      ->group(kNodeGroup);
  add(command, kNodeGroup, "--replica-bytes-max", limits.replica_bytes_max,
      "largest set of files that a node copies from another node");
  command
      .add_option("--allow-files-below", limits.file_roots,
                  "allow file URLs and paths of Models below this directory; default: none")
      ->group(kNodeGroup);
}

std::vector<std::string> arguments_of(const NodeLimits& limits) {
  std::vector<std::string> out;
  const auto number = [&out](const char* flag, std::uint64_t value, std::uint64_t usual) {
    if (value == usual) return;
    out.emplace_back(flag);
    out.push_back(std::to_string(value));
  };
  const artifact::Limits usual;
  number("--archive-bytes-max", limits.archives.archive_bytes_max, usual.archive_bytes_max);
  number("--extracted-bytes-max", limits.archives.extracted_bytes_max, usual.extracted_bytes_max);
  number("--archive-entries-max", limits.archives.entries_max, usual.entries_max);
  number("--archive-ratio-max", limits.archives.ratio_max, usual.ratio_max);
  number("--artifact-bytes-max", limits.artifact_bytes_max, 0);
  number("--replica-bytes-max", limits.replica_bytes_max, NodeLimits().replica_bytes_max);
  for (const std::string& root : limits.file_roots) {
    out.emplace_back("--allow-files-below");
    out.push_back(root);
  }
  return out;
}

}  // namespace varda::app
