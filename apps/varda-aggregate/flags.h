// The command line of varda-aggregate. Flags and keys of the configuration file are the same.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "codec/json.h"
#include "os/file_system.h"

namespace varda::aggregate {

/// A flag of spec.federated is absent unless the command line or --config sets it.
struct Flags {
  std::string model, out, settings;
  std::string listen = "127.0.0.1:7363";
  std::string admin;
  std::string flower;
  bool worker = false;
  bool trust_clients = false;
  std::int64_t clients = 0;  // expected; 0: unknown
  std::int64_t threads = 0;  // 0: one for each processor
  std::string lost_after = "90s";

  bool secure_aggregation = false;
  std::optional<std::string> mode, aggregator, round_deadline, late, encoding;
  std::optional<std::int64_t> rounds, minimum_clients, clients_per_round, local_epochs, local_steps,
      seed, evaluate_every;
  std::optional<double> quorum, fraction, proximal;

  std::string log_format = "text";
  std::string log_level = "info";
};

/// The flags, or the exit code if the program ends at once (--help, --version, a wrong flag).
struct Parsed {
  std::optional<Flags> flags;
  int exit_code = 0;
};
Parsed parse_flags(int argc, char** argv);

/// The members of spec.federated: those of the file --settings, replaced by flags. kInvalid: the
/// file is no YAML mapping.
Result<codec::Json> settings_of(os::FileSystem& fs, const Flags& flags);

}  // namespace varda::aggregate
