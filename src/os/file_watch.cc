#include "os/file_watch.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <deque>
#include <dirent.h>
#include <fcntl.h>
#include <map>
#include <optional>
#include <poll.h>
#include <set>
#include <string>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/mutex.h"
#include "os/internal/posix.h"

namespace varda::os {
namespace {

using internal::Descriptor;

constexpr std::uint32_t kNameEvents =
    IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_ATTRIB | IN_DELETE_SELF | IN_MOVE_SELF;
constexpr std::uint32_t kContentEvents = IN_MODIFY | IN_CLOSE_WRITE;
constexpr int kLinksMax = 40,
              kComponentsMax = 512;  // the kernel's link limit; no real path has more components
constexpr std::size_t kDepthMax = 64;

/// False for file systems with changes unknown to this kernel (statfs(2), linux/magic.h).
bool reports_changes(const struct statfs& raw) {
  switch (static_cast<std::uint32_t>(raw.f_type)) {
    case 0x6969:      // NFS
    case 0x517B:      // SMB
    case 0xFF534D42:  // CIFS
    case 0xFE534D42:  // SMB2
    case 0x65735546:  // FUSE, virtiofs
    case 0x01021997:  // 9P
    case 0x00C36400:  // Ceph
    case 0x5346414F:  // AFS
    case 0x73757245:  // Coda
    case 0x0BD00BD0:  // Lustre
    case 0x47504653:  // GPFS
    case 0x19830326:  // BeeGFS
      return false;
    default:
      return true;
  }
}

class InotifyWatch final : public FileWatch {
 public:
  explicit InotifyWatch(FileWatchOptions options)
      : options_(options), wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

  Status watch(Id id, const Path& path, Scope scope) override {
    // One call at a time: concurrent rounds of one id would remove each other's watches.
    const MutexLock one(round_mutex_);
    TRY_VOID(open_inotify());
    Round round{id, begin_round(), Status(), 0};
    const std::optional<Path> resolved = resolve(round, path);
    if (resolved && scope != Scope::kNames) {
      struct statfs raw {};
      if (::statfs(resolved->c_str(), &raw) == 0 && !reports_changes(raw))
        round.status =
            Error(Code::kUnsupported,
                  resolved->string() + " is on a file system that does not report changes");
      if (scope == Scope::kFile) {
        add(round, *resolved, kContentEvents | IN_ATTRIB | IN_DELETE_SELF | IN_MOVE_SELF, "");
      } else {
        add_folder(round, *resolved, 0);
      }
    }
    forget(id, round.number);
    return round.status;
  }

  void unwatch(Id id) override {
    const MutexLock one(round_mutex_);
    forget(id, 0);
  }

  Status wait(const Context& ctx) override {
    const std::stop_callback stopped(ctx.stop_token(), [this] { wake(); });
    for (;;) {
      TRY_VOID(ctx.check());
      std::array<pollfd, 2> descriptors{pollfd{wake_.get(), POLLIN, 0},
                                        pollfd{inotify(), POLLIN, 0}};  // negative: ignored
      int timeout = -1;
      if (ctx.deadline()) {
        const auto left =
            std::chrono::ceil<std::chrono::milliseconds>(*ctx.deadline() - system_clock().now());
        timeout = static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 3'600'000));
      }
      (void)::poll(descriptors.data(), descriptors.size(), timeout);
      if ((descriptors[0].revents & POLLIN) != 0) {
        std::uint64_t drained = 0;
        (void)!::read(wake_.get(), &drained, sizeof(drained));
      }
      if ((descriptors[1].revents & POLLIN) != 0) return {};
    }
  }

  bool pending() override {
    pollfd descriptor{inotify(), POLLIN, 0};
    return descriptor.fd >= 0 && ::poll(&descriptor, 1, 0) == 1;
  }

  std::vector<Id> take() override {
    std::set<Id> changed;
    alignas(inotify_event) std::array<char, 16 << 10> buffer;  // NOLINT: filled by read()
    const int fd = inotify();
    // Bounded, so that a constant writer cannot block this call.
    for (int reads = 0; fd >= 0 && reads < 64; ++reads) {
      const ssize_t count =
          internal::retry([&] { return ::read(fd, buffer.data(), buffer.size()); });
      if (count <= 0) break;
      const MutexLock lock(mutex_);
      for (std::size_t at = 0; at < static_cast<std::size_t>(count);) {
        inotify_event event{};
        std::memcpy(&event, buffer.data() + at, sizeof(event));
        take(event,
             event.len > 0 ? std::string_view(buffer.data() + at + sizeof(event))
                           : std::string_view(),
             changed);
        at += sizeof(event) + event.len;
      }
    }
    return {changed.begin(), changed.end()};
  }

 private:
  /// One use of a kernel watch.
  struct Subscription {
    Id id = 0;
    std::uint64_t round = 0;
    std::string name;  // an entry of that folder; "": all events there
  };
  struct Round {
    Id id;
    std::uint64_t number;
    Status status;  // the first error
    std::size_t folders;
  };

  Status open_inotify() {
    const MutexLock lock(mutex_);
    if (inotify_.ok()) return {};
    inotify_ = Descriptor(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
    if (!inotify_.ok())
      return Error(Code::kExhausted, std::string("inotify: ") + std::strerror(errno));
    wake();  // so that wait() polls it
    return {};
  }
  int inotify() {
    const MutexLock lock(mutex_);
    return inotify_.get();  // not closed before destruction
  }
  std::uint64_t begin_round() {
    const MutexLock lock(mutex_);
    return ++rounds_;
  }
  void wake() {
    const std::uint64_t one = 1;
    (void)!::write(wake_.get(), &one, sizeof(one));
  }

  /// Watches the folder of every name on the path. Returns the resolved path; nullopt if it does
  /// not exist.
  std::optional<Path> resolve(Round& round, const Path& path) {
    std::deque<std::string> left;
    for (const Path& component : path.relative_path()) left.push_back(component.string());
    Path at = "/";
    int links = 0, components = 0;
    while (!left.empty()) {
      const std::string name = left.front();
      left.pop_front();
      if (name.empty() || name == ".") continue;
      if (name == "..") {
        at = at.parent_path();
        continue;
      }
      if (++components > kComponentsMax) return std::nullopt;
      // Before lstat(), so that later changes are reported.
      add(round, at, kNameEvents | IN_ONLYDIR, name);
      const Path next = at / name;
      struct stat raw {};
      if (::lstat(next.c_str(), &raw) != 0) return std::nullopt;
      if (!S_ISLNK(raw.st_mode)) {
        at = next;
        continue;
      }
      std::array<char, 4097> target{};
      const ssize_t length = ::readlink(next.c_str(), target.data(), target.size() - 1);
      if (length < 0 || ++links > kLinksMax) return std::nullopt;
      const Path link_target(std::string(target.data(), static_cast<std::size_t>(length)));
      if (link_target.is_absolute()) at = "/";
      const Path relative = link_target.relative_path();
      std::deque<std::string> inserted;
      for (const Path& component : relative) inserted.push_back(component.string());
      left.insert(left.begin(), inserted.begin(), inserted.end());
    }
    return at;
  }

  void add_folder(Round& round, const Path& path, std::size_t depth) {
    if (++round.folders > options_.folders_max) {
      complain(round, Error(Code::kExhausted,
                            "more than " + std::to_string(options_.folders_max) + " folders"));
      return;
    }
    // Before listing, for the same reason.
    if (!add(round, path, kNameEvents | kContentEvents | IN_ONLYDIR, "")) return;
    if (depth >= kDepthMax) return;
    std::vector<std::string> below;
    DIR* stream = ::opendir(path.c_str());
    if (stream == nullptr) return;
    while (const dirent* entry = ::readdir(stream)) {
      if (entry->d_name[0] == '.') continue;
      bool folder = entry->d_type == DT_DIR;
      if (entry->d_type == DT_UNKNOWN) {
        struct stat raw {};
        folder = ::fstatat(::dirfd(stream), entry->d_name, &raw, AT_SYMLINK_NOFOLLOW) == 0 &&
                 S_ISDIR(raw.st_mode);
      }
      if (folder) below.emplace_back(entry->d_name);
      if (below.size() > options_.folders_max) break;
    }
    ::closedir(stream);
    for (const std::string& name : below) {
      if (round.folders > options_.folders_max) return;
      add_folder(round, path / name, depth + 1);
    }
  }

  static void complain(Round& round, Error error) {
    if (round.status.ok()) round.status = std::move(error);
  }

  /// False: nothing is watched there.
  bool add(Round& round, const Path& path, std::uint32_t events, std::string name) {
    const MutexLock lock(
        mutex_);  // held during the call, so that take() knows the id before the first event
    const int watch = ::inotify_add_watch(inotify_.get(), path.c_str(),
                                          events | IN_MASK_ADD | IN_DONT_FOLLOW | IN_EXCL_UNLINK);
    if (watch < 0) {
      const int number = errno;
      if (number == ENOSPC || number == ENOMEM) {
        complain(round,
                 Error(Code::kExhausted,
                       path.string() + ": inotify limit reached (fs.inotify.max_user_watches)"));
      } else if (number != ENOENT && number != ENOTDIR) {
        complain(round, Error(Code::kForbidden, path.string() + ": " + std::strerror(number)));
      }
      return false;
    }
    std::vector<Subscription>& subscriptions = watches_[watch];
    for (Subscription& known : subscriptions) {
      if (known.id != round.id || known.name != name) continue;
      known.round = round.number;
      return true;
    }
    subscriptions.push_back({round.id, round.number, std::move(name)});
    return true;
  }

  /// Removes subscriptions of `id` from other rounds.
  void forget(Id id, std::uint64_t round) {
    const MutexLock lock(mutex_);
    for (auto at = watches_.begin(); at != watches_.end();) {
      std::erase_if(at->second,
                    [&](const Subscription& one) { return one.id == id && one.round != round; });
      if (at->second.empty()) {
        (void)::inotify_rm_watch(inotify_.get(), at->first);
        at = watches_.erase(at);
      } else {
        ++at;
      }
    }
  }

  void take(const inotify_event& event, std::string_view name, std::set<Id>& changed)
      REQUIRES(mutex_) {
    if ((event.mask & IN_Q_OVERFLOW) != 0) {
      for (const auto& [watch, subscriptions] : watches_)
        for (const Subscription& one : subscriptions) changed.insert(one.id);
      return;
    }
    const auto found = watches_.find(event.wd);
    if (found == watches_.end()) return;
    for (const Subscription& one : found->second)
      if (name.empty() || one.name.empty() || one.name == name) changed.insert(one.id);
    if ((event.mask & IN_IGNORED) != 0) watches_.erase(found);  // removal was reported above
  }

  const FileWatchOptions options_;
  const Descriptor wake_;
  Mutex round_mutex_;
  Mutex mutex_;
  Descriptor inotify_ GUARDED_BY(mutex_);
  std::map<int, std::vector<Subscription>> watches_ GUARDED_BY(mutex_);
  std::uint64_t rounds_ GUARDED_BY(mutex_) = 0;
};

}  // namespace

std::unique_ptr<FileWatch> make_file_watch(FileWatchOptions options) {
  return std::make_unique<InotifyWatch>(options);
}

}  // namespace varda::os
