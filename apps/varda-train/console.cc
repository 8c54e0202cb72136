#include "console.h"

#include <chrono>
#include <sys/ioctl.h>
#include <unistd.h>

#include "text.h"

namespace varda::trainapp {
namespace {

constexpr std::chrono::milliseconds kRedraw{100};

/// One column stays free, so that no terminal wraps the line.
std::size_t columns_of(std::FILE* out) {
  winsize size{};
  const bool known = ::ioctl(::fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
  return known ? size.ws_col - 1u : 79;
}

}  // namespace

Console::Console(Options options, const Clock& clock)
    : options_(std::move(options)), clock_(clock) {}

Console::~Console() { clear(); }

void Console::clear() {
  if (!options_.terminal || !drawn_) return;
  drawn_.reset();
  std::fputs("\r\033[K", options_.out);
  std::fflush(options_.out);
}

void Console::progress(const training::Progress& progress) {
  if (!options_.terminal) return;
  const SteadyTime now = clock_.now();
  if (drawn_ && now - *drawn_ < kRedraw) return;
  drawn_ = now;
  const std::string line = progress_line(progress, metric_, columns_of(options_.out));
  std::fprintf(options_.out, "\r\033[K%s", line.c_str());
  std::fflush(options_.out);
}

void Console::epoch(const training::EpochRecord& record) {
  metric_ = main_metric(record.metrics, options_.metric);
  if (options_.terminal) return;
  std::fprintf(options_.out, "%s\n", epoch_line(record, options_.epochs).c_str());
  std::fflush(options_.out);
}

}  // namespace varda::trainapp
