// Spool: adds samples to a folder (folder.h) within bounds. The model server has one for each
// model.
//
//   TRY(auto spool, Spool::open({.root = "/samples/digits", .bounds = {}}, fs, rng));
//   TRY(const bool kept, spool->offer(facts, bytes, "7"));
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"
#include "base/rng.h"
#include "os/file_system.h"
#include "spool/facts.h"
#include "spool/folder.h"
#include "spool/selection.h"

namespace varda::spool {

/// Not thread-safe. One process at a time: the caller holds a lock.
class Spool {
 public:
  struct Options {
    os::Path root;
    Bounds bounds;
  };
  /// Creates the folder, removes what an interrupted change left, and the samples beyond the
  /// bounds. `fs` and `rng` outlive the spool.
  static Result<std::unique_ptr<Spool>> open(Options options, os::FileSystem& fs, Rng& rng);

  /// Keeps the sample, or drops it: false. `group` is the predicted class. `facts.id`, `bytes` and
  /// the time are set here. A failure keeps nothing, and may leave a file that the next open()
  /// removes. kExhausted: the disk is full.
  Result<bool> offer(Facts facts, std::string_view bytes, std::string_view group, WallTime now);
  Status set_bounds(Bounds bounds);
  const Bounds& bounds() const { return options_.bounds; }
  /// Notices samples that other processes took. offer() calls it when needed.
  Status refresh();
  /// Saves how often each group was offered. Losing it costs fairness only.
  Status save();

  std::uint64_t count() const { return selection_.count(); }
  std::uint64_t bytes() const { return selection_.bytes(); }

 private:
  Spool(Options options, os::FileSystem& fs, Rng& rng)
      : options_(std::move(options)), fs_(fs), rng_(rng), selection_(options_.bounds) {}
  Status load();
  Status refresh_if_changed(std::uint64_t bytes);
  Status drop(const std::string& id);
  os::Path pending(const std::string& file) const { return options_.root / kPending / file; }

  Options options_;
  os::FileSystem& fs_;
  Rng& rng_;
  Selection selection_;
  std::map<std::string, std::string> formats_;  // by id
  std::chrono::system_clock::time_point modified_;
  std::uint64_t unsaved_ = 0;
};

/// The group of control samples; no class has this name.
inline constexpr std::string_view kControlGroup = "\ncontrol";

}  // namespace varda::spool
