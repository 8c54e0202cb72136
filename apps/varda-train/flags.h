// The command line of varda-train. Flags and keys of the configuration file are the same.
#pragma once

#include <optional>

#include "../train_flags.h"
#include "base/result.h"
#include "codec/json.h"
#include "os/file_system.h"

namespace varda::trainapp {

/// The flags, or the exit code if the program ends at once (--help, --version, a wrong flag).
struct Parsed {
  std::optional<app::TrainFlags> flags;
  int exit_code = 0;
};
Parsed parse_flags(int argc, char** argv);

/// The members of spec.trainer: those of the file --settings, replaced by flags. kInvalid: the file
/// is no YAML mapping; or a flag has a wrong form.
Result<codec::Json> settings_of(os::FileSystem& fs, const app::TrainFlags& flags);

}  // namespace varda::trainapp
