#include "descriptors.h"

#include <algorithm>
#include <sys/resource.h>

#include "base/log.h"

namespace varda::app {
namespace {

// Files, pipes, and connections of this process to the API server and other servers.
constexpr rlim_t kOthers = 512;

}  // namespace

std::size_t make_room_for_connections(std::size_t wanted) {
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return wanted;
  const rlim_t needed = std::min<rlim_t>(wanted, RLIM_INFINITY - kOthers - 1) + kOthers;
  if (files.rlim_cur < needed) {
    files.rlim_cur = std::min(needed, files.rlim_max);
    (void)::setrlimit(RLIMIT_NOFILE, &files);
    if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return wanted;
  }
  if (files.rlim_cur >= needed) return wanted;
  const std::size_t room =
      files.rlim_cur > 2 * kOthers ? files.rlim_cur - kOthers : files.rlim_cur / 2;
  log::warn("the limit of open files (ulimit -Hn) allows fewer node connections than wanted",
            {{"connections", room}, {"wanted", wanted}});
  return std::max<std::size_t>(room, 1);
}

}  // namespace varda::app
