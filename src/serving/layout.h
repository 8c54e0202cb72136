// What a model repository on disk asks for.
//
//   DIR/MODEL/VERSION/…   one version
//   DIR/MODEL/target      optional: one line, the version to serve; replaced by rename
//   DIR/MODEL/.last-good  optional: one line "VERSION FILES", what served last here (FILES as the repository's index names them).
//                         That version needs no try-out, and serves from the start while another one is tried
//   DIR/MODEL/cascade.json optional: the model is the first tier of several (serving/joint); replaced by rename
//
// Without `target` the newest version is meant: numbers as numbers and above names, names by their letters. Names that begin with
// '.' are somebody's work in progress and are not looked at.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "os/file_system.h"

namespace varda::serving {

/// What one model's directory asks for.
struct Wanted {
  std::string version;      // to serve; "" where there is none
  std::string fingerprint;  // of the version's files: another one after any change
  std::string last_good;    // version that served last and is there; "" unknown
  std::string last_good_fingerprint;
  bool last_good_unchanged = false;    // its files are the ones that served
  std::optional<std::string> cascade;  // what cascade.json holds, "" where it cannot be read
  std::string problem;                 // why that cannot be: "target names version 5, which is not there"; "" if it can
  friend bool operator==(const Wanted&, const Wanted&) = default;
};

/// Models by name. An unreadable model has a problem; an unreadable repository is an error, so that nobody takes it for an empty
/// one.
Result<std::map<std::string, Wanted>> scan(os::FileSystem& fs, const std::filesystem::path& repository);

/// As os::read_file(), of a regular file alone: whoever opens a pipe would wait until somebody writes into it.
Result<std::string> read_text(os::FileSystem& fs, const std::filesystem::path& path, std::uint64_t max_bytes);

/// A short name for a fingerprint: the same for the same files, on this file system.
std::string files_name(std::string_view fingerprint);

/// Whether `a` is older than `b`.
bool older(std::string_view a, std::string_view b);

}  // namespace varda::serving
