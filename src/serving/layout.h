// Reads which version of each model a repository on disk asks for.
//
//   DIR/MODEL/VERSION/…    one version
//   DIR/MODEL/target       optional: one line, the version to serve; replaced by rename
//   DIR/MODEL/.last-good   optional: one line "VERSION FILES", the version that served last here
//                          (FILES as the repository's index names them). This version needs no
//                          probe, and serves from the start while another version is probed
//   DIR/MODEL/joint.json optional: the model is the first tier of several (serving/joint);
//                          replaced by rename
//   DIR/MODEL/trial.json   optional: a second version that answers beside the served one
//                          (serving/trial); replaced by rename
//
// Without `target` the newest version is served. Numbers compare as numbers and rank above names;
// names compare by character. Names that begin with '.' are unfinished work and are ignored.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "os/file_system.h"
#include "serving/trial/file.h"

namespace varda::serving {

/// Content of trial.json.
struct WantedTrial {
  trial::File file;
  std::string fingerprint;  // identifies the files of the version
  std::string reason;       // one word, with `problem`
  std::string problem;      // why there is no trial, or ""
  friend bool operator==(const WantedTrial&, const WantedTrial&) = default;
};

/// Content of one model's directory.
struct Wanted {
  std::string version;      // version to serve; "" without any
  std::string fingerprint;  // identifies the files of `version`; changes with any of them
  std::string last_good;    // version that served last and is still present; "" unknown
  std::string last_good_fingerprint;
  bool last_good_unchanged = false;  // the files are the ones that served
  std::optional<std::string> joint;  // content of joint.json, "" if unreadable
  std::optional<WantedTrial> trial;  // as trial.json asks
  std::string problem;               // why `version` cannot be served, or ""
  friend bool operator==(const Wanted&, const Wanted&) = default;
};

/// Models by name. An unreadable model has a problem. An unreadable repository is an error, so that
/// callers do not take it for an empty one.
Result<std::map<std::string, Wanted>> scan(os::FileSystem& fs,
                                           const std::filesystem::path& repository);

/// Like os::read_file(), but for regular files only: opening a pipe would block until a writer
/// comes.
Result<std::string> read_text(os::FileSystem& fs, const std::filesystem::path& path,
                              std::uint64_t max_bytes);

/// A short hash of a fingerprint: equal for equal files on one file system.
std::string files_name(std::string_view fingerprint);

bool older(std::string_view a, std::string_view b);

}  // namespace varda::serving
