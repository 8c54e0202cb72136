// A line on the terminal that shows how far a download has come. Silent when stderr is no terminal.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace varda::app {

/// "1.4 MiB".
std::string human_bytes(std::uint64_t bytes);

/// Not thread-safe. The line is drawn at most ten times a second and cleared when the bar is destroyed.
class ProgressBar {
 public:
  explicit ProgressBar(std::string title);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;
  /// total 0: not known. `what`: "downloading".
  void update(const std::string& what, std::uint64_t done, std::uint64_t total);
  /// Leaves the line to others, until the next update.
  void clear();

 private:
  const std::string title_;
  const bool terminal_;
  const std::chrono::steady_clock::time_point begin_;
  std::chrono::steady_clock::time_point drawn_;
  bool shown_ = false;
};

}  // namespace varda::app
