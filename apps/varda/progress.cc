#include "progress.h"

#include <cstdio>
#include <unistd.h>

namespace varda::app {

std::string human_bytes(std::uint64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  // 1023.95 and more would be rounded to "1024.0", which is 1.0 of the next unit.
  while (value >= (unit == 0 ? 1024 : 1023.95) && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.1f %s", value, kUnits[unit]);
  return text;
}

ProgressBar::ProgressBar(std::string title)
    : title_(std::move(title)),
      terminal_(isatty(STDERR_FILENO) != 0),
      begin_(std::chrono::steady_clock::now()) {}

ProgressBar::~ProgressBar() { clear(); }

void ProgressBar::clear() {
  if (!shown_) return;
  shown_ = false;
  std::fputs("\r\033[K", stderr);
  std::fflush(stderr);
}

void ProgressBar::update(const std::string& what, std::uint64_t done, std::uint64_t total) {
  if (!terminal_) return;
  const auto now = std::chrono::steady_clock::now();
  if (shown_ && now - drawn_ < std::chrono::milliseconds(100)) return;
  drawn_ = now;
  shown_ = true;
  const double seconds = std::chrono::duration<double>(now - begin_).count();
  const std::uint64_t rate =
      seconds > 0.2 ? static_cast<std::uint64_t>(static_cast<double>(done) / seconds) : 0;
  constexpr int kWidth = 30;
  std::string line = "\r\033[K" + title_ + " " + what + " ";
  if (total > 0) {
    const int filled = static_cast<int>(static_cast<double>(std::min(done, total)) /
                                        static_cast<double>(total) * kWidth);
    line += "[" + std::string(static_cast<std::size_t>(filled), '=') +
            std::string(static_cast<std::size_t>(kWidth - filled), ' ') + "] " + human_bytes(done) +
            " of " + human_bytes(total);
  } else {
    line += human_bytes(done);
  }
  if (rate > 0) line += "  " + human_bytes(rate) + "/s";
  std::fputs(line.c_str(), stderr);
  std::fflush(stderr);
}

}  // namespace varda::app
