#include "node/internal/marked.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <fcntl.h>
#include <filesystem>
#include <optional>
#include <system_error>
#include <thread>
#include <unistd.h>

namespace varda::node::internal {
namespace {

// The kernel allows more, but our marks are within this limit for any realistic pod.
constexpr std::size_t kEnvironBytesMax = 1u << 20;

std::string read_environ_once(const std::string& directory) {
  const int fd = ::open((directory + "/environ").c_str(), O_RDONLY | O_CLOEXEC);
  std::string text;
  if (fd < 0) return text;
  char piece[16384];
  ssize_t count = 0;
  while (text.size() < kEnvironBytesMax && (count = ::read(fd, piece, sizeof(piece))) > 0)
    text.append(piece, static_cast<std::size_t>(count));
  ::close(fd);
  return text;
}

// During execve(2), a process shows an empty environment for a moment (fs/proc/base.c: environ_read
// returns nothing until the new stack is set up). Such a process must not be missed, so the read is
// repeated. Kernel threads and zombies have neither environment nor program.
std::string read_environ(pid_t pid) {
  const std::string directory = "/proc/" + std::to_string(pid);
  std::string text = read_environ_once(directory);
  char program[1];
  for (int i = 0; i < 20 && text.empty() &&
                  ::readlink((directory + "/exe").c_str(), program, sizeof(program)) > 0;
       ++i) {
    std::this_thread::sleep_for(std::chrono::microseconds(100));
    text = read_environ_once(directory);
  }
  return text;
}

std::optional<std::string> value_of(const std::string& environ_text, std::string_view name) {
  const std::string wanted = std::string(name) + "=";
  for (std::size_t at = 0; at < environ_text.size();) {
    const std::size_t end = std::min(environ_text.find('\0', at), environ_text.size());
    if (environ_text.compare(at, wanted.size(), wanted) == 0)
      return environ_text.substr(at + wanted.size(), end - at - wanted.size());
    at = end + 1;
  }
  return std::nullopt;
}

}  // namespace

std::string runner_mark(const os::Path& root) {
  std::error_code error;
  const os::Path absolute = std::filesystem::absolute(root, error);
  os::Path canonical = std::filesystem::weakly_canonical(absolute, error).lexically_normal();
  if (!canonical.has_filename()) canonical = canonical.parent_path();
  return error ? absolute.string() : canonical.string();
}

std::vector<MarkedProcess> find_marked(const os::Path& root) {
  const std::string runner = runner_mark(root);
  std::vector<MarkedProcess> found;
  std::error_code error;
  for (std::filesystem::directory_iterator it("/proc", error), end; !error && it != end;
       it.increment(error)) {
    const std::string name = it->path().filename().string();
    pid_t pid = 0;
    if (std::from_chars(name.data(), name.data() + name.size(), pid).ptr !=
        name.data() + name.size())
      continue;
    const std::string environ_text = read_environ(pid);
    if (value_of(environ_text, kMarkRunner) != runner) continue;
    const std::optional<os::ProcessId> id = os::find_process(pid);
    if (!id) continue;
    MarkedProcess process{.id = *id,
                          .name = {},
                          .leads_group = ::getpgid(pid) == pid,
                          .exec = value_of(environ_text, kMarkExec).has_value()};
    process.name.pod_uid = value_of(environ_text, kMarkPod).value_or("");
    process.name.container = value_of(environ_text, kMarkContainer).value_or("");
    const std::string attempt = value_of(environ_text, kMarkAttempt).value_or("");
    std::from_chars(attempt.data(), attempt.data() + attempt.size(), process.name.attempt);
    found.push_back(std::move(process));
  }
  std::sort(found.begin(), found.end(), [](const MarkedProcess& a, const MarkedProcess& b) {
    return a.id.start_ticks < b.id.start_ticks ||
           (a.id.start_ticks == b.id.start_ticks && a.id.pid < b.id.pid);
  });
  return found;
}

}  // namespace varda::node::internal
