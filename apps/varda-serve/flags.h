// The command line of varda-serve. Flags and keys of the configuration file are the same.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "serving/config.h"

namespace varda::serve {

struct Flags {
  std::string model_repository;
  std::string http = "127.0.0.1:8080";
  std::string admin;
  std::string grpc;
  std::vector<std::string> cors_origins;
  unsigned io_threads = 0;  // 0: one a core, up to four
  std::size_t connections_max = 4096;
  std::size_t connections_per_address_max = 0;  // 0: half of connections_max
  std::size_t body_bytes_max = std::size_t{64} << 20;
  std::size_t bodies_bytes_max = std::size_t{512} << 20;
  std::size_t header_bytes_max = std::size_t{64} << 10;
  double idle_timeout_seconds = 120;
  double drain_delay_seconds = 2;
  // The delay, this timeout and the shutdown after both fit into the 30 s that Kubernetes gives.
  double drain_timeout_seconds = 25;
  std::vector<std::string> engine_path;
  std::string tls_cert, tls_key;  // PEM files of the inference port; both or neither
  std::string client_ca;
  std::string token_file;
  std::string tier_ca, tier_token_file;  // for requests to later tiers
  bool confine = true;
  std::vector<std::string> also_read;
  std::string samples_directory;  // spools of kept samples; "": samples.json is ignored
  bool try_loads = true;
  double load_timeout_seconds = 600;
  std::string probe_load;  // "MODEL/VERSION": only load this version and report the result
  std::string log_format = "text";
  std::string log_level = "info";
  serving::ModelConfig defaults;
};

/// The flags, or the exit code if the program ends at once (--help, --version, a wrong flag).
struct Parsed {
  std::optional<Flags> flags;
  int exit_code = 0;
};
Parsed parse_flags(int argc, char** argv);

}  // namespace varda::serve
