// A progress line on the terminal. Silent if stderr is no terminal.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace varda::app {

/// "1.4 MiB".
std::string human_bytes(std::uint64_t bytes);

/// Not thread-safe. The line is drawn at most ten times a second. The destructor clears it.
class ProgressBar {
 public:
  explicit ProgressBar(std::string title);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;
  /// `what`: "downloading". `done` and `total` in bytes; total 0: unknown.
  void update(const std::string& what, std::uint64_t done, std::uint64_t total);
  /// Removes the line until the next update.
  void clear();

 private:
  const std::string title_;
  const bool terminal_;
  const std::chrono::steady_clock::time_point begin_;
  std::chrono::steady_clock::time_point drawn_;
  bool shown_ = false;
};

}  // namespace varda::app
