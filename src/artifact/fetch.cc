#include "artifact/fetch.h"

#include <algorithm>

#include "artifact/internal/install.h"
#include "artifact/internal/tree.h"
#include "artifact/layout.h"
#include "base/log.h"

namespace varda::artifact {
namespace {

constexpr std::string_view kMarker = ".varda-sha256";
constexpr auto kRetryAfterMax = std::chrono::minutes(5);

Result<bool> complete(os::FileSystem& fs, const FetchOptions& options) {
  TRY(const auto marker, fs.stat(options.to / kMarker));
  if (!marker) return false;
  TRY(const std::string text, os::read_file(fs, options.to / kMarker, 128));
  return text == options.request.digest.hex() + "\n";
}

/// An existing path is replaced only if it is empty or an earlier version made here. A mistake such
/// as "--to ." must not destroy files.
Status check_replaceable(os::FileSystem& fs, const os::Path& to) {
  TRY(const auto existing, fs.stat(to));
  if (!existing) return {};
  if (existing->kind != os::FileKind::kDirectory) {
    return Error(
        Code::kInvalid,
        to.string() +
            " is not a directory and is not replaced; name a directory that does not exist yet");
  }
  TRY(const auto names, fs.list(to));
  if (names.empty() || std::find(names.begin(), names.end(), kMarker) != names.end()) return {};
  return Error(Code::kInvalid, to.string() +
                                   " contains files that `varda fetch` did not create; "
                                   "name a directory that does not exist yet");
}

/// Syncs the directory's name and the parent's name, because the parent may be new too.
Status sync_names(os::FileSystem& fs, const os::Path& to) {
  const os::Path parent = to.parent_path();
  TRY_VOID(fs.sync_directory(parent));
  const Status above = fs.sync_directory(parent.parent_path());
  // A parent's parent that we may not read was not created here.
  return !above.ok() && above.error().code() == Code::kForbidden ? ok_status() : above;
}

/// Links the files beside the directory; each appears atomically.
Status put_extra_files(os::FileSystem& fs, const FetchOptions& options) {
  const os::Path parent = options.to.parent_path();
  for (const std::string& name : options.extra_files) {
    TRY(const auto wanted, fs.stat(options.to / name));
    TRY(const auto existing, fs.stat(parent / name));
    if (!wanted || wanted->kind != os::FileKind::kFile) {
      if (existing) TRY_VOID(fs.remove(parent / name));
      continue;
    }
    if (existing && existing->inode == wanted->inode) continue;
    const os::Path fresh = parent / ("." + name + ".fetch");
    TRY_VOID(fs.remove_all(fresh));
    TRY_VOID(fs.link(options.to / name, fresh));
    TRY_VOID(fs.rename(fresh, parent / name));
  }
  return {};
}

Status put_in_place(os::FileSystem& fs, const FetchOptions& options, const os::Path& root,
                    const os::Path& work) {
  TRY_VOID(
      os::write_file_atomically(fs, root / kMarker, options.request.digest.hex() + "\n", 0644));
  TRY_VOID(check_replaceable(fs, options.to));
  TRY(const auto existing, fs.stat(options.to));
  if (existing) {
    TRY_VOID(fs.remove_all(work / "old"));
    TRY_VOID(fs.rename(options.to, work / "old"));
  }
  TRY_VOID(fs.rename(root, options.to));
  TRY_VOID(put_extra_files(fs, options));
  TRY_VOID(sync_names(fs, options.to));
  return fs.remove_all(work);
}

}  // namespace

Outcome<Installed> fetch(const Context& ctx, os::FileSystem& fs, net::HttpClient& http,
                         const FetchOptions& requested, const ProgressSink& progress) {
  FetchOptions options = requested;
  options.to = std::filesystem::absolute(options.to).lexically_normal();
  if (!options.to.has_filename()) options.to = options.to.parent_path();  // a trailing slash
  const auto installed = [&]() -> Outcome<Installed> {
    const auto use = tree_use(fs, options.to);
    if (!use.ok()) return disk_failure(use.error());
    return Installed{options.to, use->bytes};
  };
  const auto done = complete(fs, options);
  if (!done.ok()) return disk_failure(done.error());
  if (*done) {
    // An attempt killed before its last steps may have left them undone.
    if (Status status = put_extra_files(fs, options); !status.ok())
      return disk_failure(status.error());
    if (Status status = sync_names(fs, options.to); !status.ok())
      return disk_failure(status.error());
    return installed();
  }
  if (Status status = check_replaceable(fs, options.to); !status.ok())
    return disk_failure(status.error());

  const os::Path work =
      options.to.parent_path() / ("." + options.to.filename().string() + ".fetch");
  if (Status status = fs.make_directories(work, 0755); !status.ok())
    return disk_failure(status.error());
  SourceOptions source;
  source.request = options.request;
  source.spool = work / (options.request.digest.hex() + ".part");
  source.spooled = options.spooled;
  source.file_roots = options.file_roots;
  source.limits = options.limits;
  source.progress = progress;
  source.transport = options.transport;
  SourceHistory history(options.transport.clock != nullptr ? *options.transport.clock
                                                           : system_clock());
  source.history = &history;
  source.bases = options.bases;
  source.bases.push_back(options.to);
  Duration wait = std::chrono::seconds(1);
  for (int attempt = 1;; ++attempt) {
    Outcome<Tree> tree = install(ctx, fs, http, source, work / "tree");
    if (tree.ok()) {
      if (auto failure = check_layout(fs, tree->root, options.request.framework)) {
        (void)fs.remove_all(work);  // the layout is the error to report
        return *failure;
      }
      if (Status status = put_in_place(fs, options, tree->root, work); !status.ok())
        return disk_failure(status.error());
      Outcome<Installed> done_now = installed();
      if (done_now.ok()) done_now->received = tree->received;
      return done_now;
    }
    const Failure& failure = tree.error();
    if (failure.reason == Reason::kCancelled || retry_of(failure.reason) != Retry::kBackoff ||
        failure.error.terminal() || attempt >= options.attempts_max) {
      if (retry_of(failure.reason) != Retry::kBackoff)
        (void)fs.remove_all(work);  // useless for the next attempt
      return failure;
    }
    log::warn("fetch failed, retrying",
              {{"reason", to_string(failure.reason)}, {"error", failure.error}});
    if (Status status = ctx.sleep_for(
            std::max<Duration>(wait, std::min<Duration>(failure.retry_after, kRetryAfterMax)));
        !status.ok())
      return failure;
    wait = std::min<Duration>(wait * 2, std::chrono::seconds(30));
  }
}

}  // namespace varda::artifact
