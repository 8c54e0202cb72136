// `varda dataset count`: counts the samples of a local dataset. Needs no server.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/context.h"
#include "dataset/count.h"
#include "os/file_system.h"

namespace varda::cli {

struct CountOptions {
  os::Path path;
  std::string format;
  std::string header = "auto";
  std::string output;           // "": human-readable; json or yaml
  os::Path state;               // read if it exists, then rewritten; empty: none
  std::vector<os::Path> roots;  // links must stay below these; empty: no limit
  std::function<void(std::uint64_t done_bytes, std::uint64_t total_bytes)> progress;
};

/// Returns the output. A failed write of the state is an error without output. Other errors as
/// dataset::count().
Result<std::string> count_dataset(const Context& ctx, os::FileSystem& fs,
                                  const CountOptions& options);

/// The count in human-readable form, largest classes first. Pure.
std::string describe_count(const dataset::Counted& counted);

}  // namespace varda::cli
