#include "os/detach.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace varda::os {
namespace {

Error detach_error(const std::string& what) {
  return Error(Code::kUnavailable, what + ": " + std::strerror(errno));
}

/// Waits for the child's report, prints it and ends this process.
[[noreturn]] void report(int pipe, pid_t child, const std::filesystem::path& log) {
  std::string text;
  char piece[4096];
  for (;;) {
    const ssize_t n = ::read(pipe, piece, sizeof piece);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    text.append(piece, static_cast<std::size_t>(n));
    if (text.back() == '\0') break;  // the report is complete; the child keeps running
  }
  if (!text.empty() && text.back() == '\0') text.pop_back();
  if (!text.empty() && text[0] == '+') {
    std::printf("%s\n", text.c_str() + 1);
    std::fflush(stdout);
    std::_Exit(0);
  }
  if (!text.empty() && text[0] == '-') {
    std::fprintf(stderr, "error: %s\n", text.c_str() + 1);
    std::_Exit(1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  std::fprintf(stderr, "error: varda ended before it was ready; the last lines of %s:\n",
               log.c_str());
  std::ifstream file(log);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  for (std::size_t i = lines.size() > 10 ? lines.size() - 10 : 0; i < lines.size(); ++i)
    std::fprintf(stderr, "  %s\n", lines[i].c_str());
  std::_Exit(1);
}

}  // namespace

Detached::~Detached() {
  if (pipe_ >= 0) ::close(pipe_);
}

void Detached::send(char kind, std::string_view text) {
  if (pipe_ < 0) return;
  std::string message(1, kind);
  message += text;
  message += '\0';
  std::string_view rest = message;
  while (!rest.empty()) {
    const ssize_t n = ::write(pipe_, rest.data(), rest.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;  // the parent was killed meanwhile
    rest.remove_prefix(static_cast<std::size_t>(n));
  }
  ::close(std::exchange(pipe_, -1));
}

void Detached::ready(std::string_view line) { send('+', line); }
void Detached::failed(std::string_view message) { send('-', message); }

Result<Detached> detach(const std::filesystem::path& log) {
  const int file = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (file < 0) return detach_error("open " + log.string());
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return detach_error("pipe");
  const pid_t child = ::fork();
  if (child < 0) return detach_error("fork");
  if (child > 0) {
    ::close(ends[1]);
    ::close(file);
    report(ends[0], child, log);
  }
  ::close(ends[0]);
  ::setsid();
  const int null = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (null < 0 || ::dup2(null, STDIN_FILENO) < 0 || ::dup2(file, STDOUT_FILENO) < 0 ||
      ::dup2(file, STDERR_FILENO) < 0) {
    return detach_error("redirect to " + log.string());
  }
  ::close(null);
  ::close(file);
  return Detached(ends[1]);
}

}  // namespace varda::os
