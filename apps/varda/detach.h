// Going to the background: the parent waits until the child says that it is ready, or why it is not.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "base/result.h"

namespace varda::app {

/// The child's end of the pipe to a waiting parent. Not thread-safe.
class Detached {
 public:
  explicit Detached(int pipe) : pipe_(pipe) {}
  Detached(Detached&& other) noexcept : pipe_(std::exchange(other.pipe_, -1)) {}
  Detached& operator=(Detached&&) = delete;
  /// Closed without ready(): the parent reports a failure.
  ~Detached();
  /// The parent prints `line` and exits 0.
  void ready(std::string_view line);
  /// The parent prints the message and exits 1.
  void failed(std::string_view message);

 private:
  void send(char kind, std::string_view text);
  int pipe_;
};

/// Forks; call before any thread starts. The parent never returns: it prints what the child reports and exits. The child returns,
/// leader of a session of its own, with stdin from /dev/null and stdout and stderr appended to `log`.
Result<Detached> detach(const std::filesystem::path& log);

}  // namespace varda::app
