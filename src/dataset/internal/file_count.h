// Counts one file, in order, in as many calls as the caller wants.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/context.h"
#include "base/result.h"
#include "dataset/count.h"
#include "dataset/internal/fingerprint.h"
#include "dataset/internal/scanner.h"
#include "dataset/internal/state.h"
#include "os/readable_tree.h"

namespace varda::dataset::internal {

/// Counts the bytes that the file has at begin(). Not thread-safe.
class FileCount {
 public:
  /// `format` has a stream and outlives the count.
  FileCount(const Format& format, const FormatOptions& options,
            std::unique_ptr<os::ReadableFile> file);

  /// Call it once, first. Continues from `state` if the file still has the counted part.
  Status begin(const Context& ctx, const std::optional<State>& state);
  /// Reads at most `bytes_max` more; 0: no limit. True: the end is reached.
  Result<bool> resume(const Context& ctx, std::uint64_t bytes_max,
                      const std::function<void(const Progress&)>& progress);
  /// Call it once, last. The count of the bytes so far, without `state`.
  Result<Counted> finish(const Context& ctx);
  /// After finish(): the state for the next count. Absent: that must read everything.
  const std::optional<State>& state() const { return state_; }
  /// All bytes read, including those that begin() and finish() check.
  std::uint64_t bytes_read() const { return bytes_read_; }

 private:
  template <typename Take>
  Result<bool> pieces(const Context& ctx, std::uint64_t from, std::uint64_t to, const Take& take);
  Result<std::optional<Hash>> hash(const Context& ctx, std::uint64_t from, std::uint64_t to);
  Result<bool> continues_at(std::uint64_t from);
  Result<std::string> changed(const Context& ctx, const State& state);
  Status keep(const Context& ctx);
  void judge(bool more, const os::FileFacts& after);

  const Format& format_;
  const FormatOptions options_;
  const std::unique_ptr<os::ReadableFile> file_;
  std::string buffer_;
  std::uint64_t bytes_read_ = 0;
  std::unique_ptr<StreamScanner> scanner_;
  ContentHash content_;
  os::FileFacts before_;    // facts at begin()
  std::uint64_t at_ = 0;    // end of the counted part
  bool whole_ = true;       // false: the file ended before its size
  std::uint64_t from_ = 0;  // start of reading
  std::string whole_because_;
  Counted out_;
  std::optional<State> state_;
};

}  // namespace varda::dataset::internal
