// Detaching from the terminal: the parent waits until the child reports that it is ready or failed.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "base/result.h"

namespace varda::os {

/// The child's end of the pipe to a waiting parent. Not thread-safe.
class Detached {
 public:
  explicit Detached(int pipe) : pipe_(pipe) {}
  Detached(Detached&& other) noexcept : pipe_(std::exchange(other.pipe_, -1)) {}
  Detached& operator=(Detached&&) = delete;
  /// Without ready() before, the parent reports a failure.
  ~Detached();
  /// The parent prints `line` and exits 0.
  void ready(std::string_view line);
  /// The parent prints the message and exits 1.
  void failed(std::string_view message);

 private:
  void send(char kind, std::string_view text);
  int pipe_;
};

/// Forks; call before any thread starts. The parent never returns: it prints the child's report and
/// exits. The child returns as leader of a new session, with stdin from /dev/null and stdout and
/// stderr appended to `log`.
Result<Detached> detach(const std::filesystem::path& log);

}  // namespace varda::os
