// Backup of a data directory: a tar archive, compressed with zstd. Checksums prove that it is
// complete.
//
//   varda-backup.json   format, program, time, revision, nodes and images of `varda up`
//   servers.yaml        if the directory has one
//   pki/ca.crt pki/ca.key tokens.json    only on request; existing kubeconfigs then stay valid
//   store/000001 ...    objects of one revision: a line {"key":K,"bytes":N}, N bytes, a newline
//   SHA256SUMS          of all entries above, for `sha256sum -c`; the last entry
//
// Files of nodes are left out: nodes download models again by digest and create pods from objects.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "codec/archive.h"
#include "datadir/up_state.h"
#include "store/store.h"

namespace varda::datadir {

enum class Credentials { kLeaveOut, kInclude };

/// Writes the archive in small pieces. Not thread-safe.
class BackupMaker {
 public:
  struct Options {
    std::filesystem::path data_dir;
    Credentials credentials = Credentials::kLeaveOut;
  };
  /// Reads the files of the directory at once. `page` holds every object at one revision.
  static Result<std::unique_ptr<BackupMaker>> create(const Options& options, store::Page page);
  virtual ~BackupMaker() = default;
  /// The next bytes of the archive; nothing at the end.
  virtual Result<std::optional<std::string>> next() = 0;
};

/// Facts from varda-backup.json.
struct BackupInfo {
  std::string program, created;
  store::Revision revision = 0;
  std::uint64_t objects = 0;
  bool credentials = false;
};

/// Reads and checks a whole backup. kCorrupt: not a backup, damaged or incomplete. kUnsupported: a
/// newer program wrote it; the message names the program.
Result<BackupInfo> check_backup(codec::ByteSource source);
/// Checks the backup and creates `data_dir`, which appears only after every check has passed.
/// kAlreadyExists: `data_dir` is not empty.
Result<BackupInfo> restore_backup(codec::ByteSource source, const std::filesystem::path& data_dir);

}  // namespace varda::datadir
