// A backup of a data directory: a tar archive, compressed with zstd, that says what it is and proves that it is whole.
//
//   varda-backup.json         format, program, time, revision, nodes and images of `varda up`
//   servers.yaml              if the directory has one
//   pki/ca.crt pki/ca.key tokens.json    only when asked for: they let clients go on with the kubeconfig they have
//   store/000001 ...          every object: a line {"key":K,"bytes":N}, then N bytes and a newline; all of one revision
//   SHA256SUMS                of all of it, at the end: `sha256sum -c` agrees with it
//
// What nodes keep is not in it: models come again by their digests, pods from their objects.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "codec/archive.h"
#include "store/store.h"
#include "up_state.h"

namespace varda::app {

enum class Credentials { kLeaveOut, kInclude };

/// Makes the bytes piece by piece, small ones. Not thread-safe.
class BackupMaker {
 public:
  struct Options {
    std::filesystem::path data_dir;
    Credentials credentials = Credentials::kLeaveOut;
  };
  /// Reads what it needs of the directory now; `page` holds every object at one revision.
  static Result<std::unique_ptr<BackupMaker>> create(const Options& options, store::Page page);
  virtual ~BackupMaker() = default;
  /// Nothing: that was all.
  virtual Result<std::optional<std::string>> next() = 0;
};

/// What a backup says of itself.
struct BackupInfo {
  std::string program, created;
  store::Revision revision = 0;
  std::uint64_t objects = 0;
  bool credentials = false;
};

/// Reads one to its end and checks all of it. kCorrupt: not a backup, damaged, or not whole. kUnsupported: of a newer program,
/// which the message names.
Result<BackupInfo> check_backup(codec::ByteSource source);
/// The same, and makes `data_dir`, which must not be there or be empty (kAlreadyExists). It appears when all of it is right.
Result<BackupInfo> restore_backup(codec::ByteSource source, const std::filesystem::path& data_dir);

}  // namespace varda::app
