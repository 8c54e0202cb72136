// Progress of a run on standard error: one line that is redrawn on a terminal, else one line for
// each epoch.
#pragma once

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>

#include "base/clock.h"
#include "training/run.h"

namespace varda::trainapp {

/// Called by one thread.
class Console final : public training::Observer {
 public:
  struct Options {
    std::FILE* out = stderr;
    bool terminal = false;
    std::string metric;  // shown in the line; "": the usual one
    std::int64_t epochs = 0;
  };
  Console(Options options, const Clock& clock);
  ~Console() override;

  void progress(const training::Progress& progress) override;
  void epoch(const training::EpochRecord& record) override;
  /// Removes the redrawn line, so that other output starts in an empty line.
  void clear();

 private:
  const Options options_;
  const Clock& clock_;
  std::optional<SteadyTime> drawn_;
  std::pair<std::string, double> metric_;
};

}  // namespace varda::trainapp
