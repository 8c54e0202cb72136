// The position of a count in a file or a folder, as storable text: one line of JSON with its own
// hash.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "codec/json.h"
#include "dataset/format.h"
#include "dataset/internal/fingerprint.h"

namespace varda::dataset::internal {

struct State {
  static constexpr std::uint64_t kCheckedBytes =
      64 << 10;                       // checked at the beginning and before `offset`
  static constexpr int kVersion = 1;  // a state of another version is ignored

  std::uint64_t device = 0, inode = 0;
  std::uint64_t offset = 0;  // end of the counted part
  Hash head, tail;           // hashes of the first and last kCheckedBytes of the counted part
  Hash chain;                // hash of the fingerprint's whole blocks
  codec::Json scanner;

  std::string text(const Format& format, const FormatOptions& options) const;
  /// kCorrupt: damaged, or another version, format or options; the message says which.
  static Result<State> parse(std::string_view text, const Format& format,
                             const FormatOptions& options);
  codec::Json to_json() const;
  static Result<State> from_json(const codec::Json& json);
};

/// The counts of the files in a folder.
struct FolderState {
  struct File {
    std::string times;        // of last change; another text: the file has changed
    std::string fingerprint;  // of the content
    State state;
  };
  std::map<std::string, File> files;  // by path below the folder

  std::string text(const Format& format, const FormatOptions& options) const;
  /// kCorrupt: as State::parse().
  static Result<FolderState> parse(std::string_view text, const Format& format,
                                   const FormatOptions& options);
};

}  // namespace varda::dataset::internal
