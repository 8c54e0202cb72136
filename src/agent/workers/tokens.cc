#include "agent/workers/tokens.h"

#include <algorithm>
#include <cstdio>

#include "codec/digest.h"

namespace varda::agent::workers {
namespace {

constexpr std::size_t kOwnerDigits = 12, kSecretDigits = 64;
constexpr std::uint64_t kTokenFileBytesMax = 256;

std::string start_of(const Name& caller, const std::string& uid) {
  return "varda-worker." +
         codec::Sha256::of(caller.key() + "\n" + uid).hex().substr(0, kOwnerDigits) + ".";
}

}  // namespace

bool Tokens::is_of(std::string_view token, const Name& caller, const std::string& uid) {
  const std::string start = start_of(caller, uid);
  if (!token.starts_with(start) || token.size() != start.size() + kSecretDigits) return false;
  return token.substr(start.size()).find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

Result<std::string> Tokens::ensure(const Name& caller, const std::string& uid) {
  const os::Path directory = root_ / caller.ns / caller.name, file = directory / "token",
                 workspace = directory / kWorkspace;
  TRY(const auto info, fs_.stat(file));
  if (info && info->kind == os::FileKind::kFile) {
    const auto stored = os::read_file(fs_, file, kTokenFileBytesMax);
    if (stored.ok() && is_of(*stored, caller, uid)) {
      if (info->mode != 0600) TRY_VOID(fs_.set_mode(file, 0600));
      TRY_VOID(fs_.make_directories(workspace, 0700));
      return *stored;
    }
  }
  TRY_VOID(fs_.make_directories(root_, 0700));
  TRY_VOID(fs_.make_directories(root_ / caller.ns, 0700));
  TRY_VOID(fs_.make_directories(directory, 0700));
  TRY_VOID(os::remove_leftovers(fs_, directory));
  if (info && info->kind == os::FileKind::kDirectory) TRY_VOID(fs_.remove_all(file));
  // The files of a former worker with this name go before the new worker's token exists.
  TRY_VOID(fs_.remove_all(workspace));
  TRY_VOID(fs_.make_directories(workspace, 0700));
  std::string token = start_of(caller, uid);
  while (token.size() < start_of(caller, uid).size() + kSecretDigits) {
    char digits[17];
    (void)std::snprintf(digits, sizeof(digits), "%016llx",
                        static_cast<unsigned long long>(rng_.next()));
    token += digits;
  }
  TRY_VOID(os::write_file_atomically(fs_, file, token, 0600));
  for (const os::Path& above : {root_ / caller.ns, root_, root_.parent_path()})
    TRY_VOID(fs_.sync_directory(above));
  return token;
}

Status Tokens::keep_only(const std::set<std::string>& keys) {
  TRY(const auto root, fs_.stat(root_));
  if (!root) return {};
  TRY(const auto namespaces, fs_.list(root_));
  for (const std::string& ns : namespaces) {
    const std::string start = ns + "/";
    const auto first = keys.lower_bound(start);
    if (first == keys.end() || !first->starts_with(start)) {
      TRY_VOID(fs_.remove_all(root_ / ns));
      continue;
    }
    TRY(const auto names, fs_.list(root_ / ns));
    for (const std::string& name : names)
      if (!keys.contains(start + name)) TRY_VOID(fs_.remove_all(root_ / ns / name));
  }
  return {};
}

}  // namespace varda::agent::workers
