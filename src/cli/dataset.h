// `varda dataset count`: how many samples a dataset on this machine has. Needs no server.
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
  std::string output;           // "" for people, json or yaml
  os::Path state;               // read if it is there, and written; empty: none
  std::vector<os::Path> roots;  // links lead nowhere else; empty: anywhere
  std::function<void(std::uint64_t done_bytes, std::uint64_t total_bytes)> progress;
};

/// What is printed. A state that cannot be written is an error, with nothing printed. Errors as dataset::count().
Result<std::string> count_dataset(const Context& ctx, os::FileSystem& fs, const CountOptions& options);

/// The count as people read it, classes with the largest first. Pure.
std::string describe_count(const dataset::Counted& counted);

}  // namespace varda::cli
