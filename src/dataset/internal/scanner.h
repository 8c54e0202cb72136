// The interfaces of a format: a scanner that is fed one file, or a walk through a folder.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "base/context.h"
#include "codec/json.h"
#include "dataset/format.h"
#include "os/readable_tree.h"

namespace varda::dataset {

using codec::Json;

/// Counts samples in bytes that come in pieces; memory does not grow with them. The cuts between
/// pieces never change the result. The state can be read, saved and resumed at any byte. Not
/// thread-safe.
class StreamScanner {
 public:
  virtual ~StreamScanner() = default;
  /// Skips a UTF-8 byte order mark at the very beginning.
  void feed(std::string_view bytes);
  /// The result as if the bytes ended here: an unfinished record is judged as it is. The scanner
  /// can continue.
  Tally end() const;
  Json save() const;
  /// Restores into a new scanner with the same options. kCorrupt: a bad state.
  Status restore(const Json& saved);

 protected:
  StreamScanner() = default;
  StreamScanner(const StreamScanner&) = default;
  std::uint64_t offset() const { return offset_; }  // of the first byte of the next scan()

  virtual void scan(std::string_view bytes) = 0;
  /// Called at the end of the bytes, on a copy.
  virtual Tally finish() = 0;
  virtual std::unique_ptr<StreamScanner> clone() const = 0;
  virtual Json save_own() const = 0;
  virtual Status restore_own(const Json& saved) = 0;

 private:
  void pass(std::string_view bytes);
  std::uint64_t offset_ = 0;
  bool begun_ = false;  // past the byte order mark or its possible position
  std::string held_;    // a possible beginning of a byte order mark
};

/// A walk through a folder, a few steps at a time. Not thread-safe.
class TreeScan {
 public:
  struct Surroundings {
    os::ReadableTree& tree;
    os::Path root;
  };
  struct Found {
    Tally tally;
    std::uint64_t entries = 0;       // entries visited
    std::uint64_t bytes = 0;         // bytes of files that are samples or malformed
    std::uint64_t bytes_reused = 0;  // of these, bytes whose count comes from the given state
    std::string fingerprint;         // 32 hex digits
    std::string state;               // for the next scan; "": none
    std::string whole_because;       // the reason why the given state was unusable
  };
  virtual ~TreeScan() = default;
  /// Call it once, first. `around` outlives the scan.
  virtual Status begin(const Surroundings& around) = 0;
  /// Continues for about this many steps; a step is an entry, or kStepBytes read. True: finished.
  virtual Result<bool> resume(const Context& ctx, std::uint64_t steps) = 0;
  /// The result so far; fingerprint and state are set only when finished.
  virtual const Found& found() const = 0;
  static constexpr std::uint64_t kStepBytes = 4096;
};

/// Reads numbers and texts of saved states, which are untrusted.
class Saved {
 public:
  explicit Saved(const Json& json) : json_(json) {}
  std::uint64_t number(std::string_view name, std::uint64_t max = (std::uint64_t{1} << 62));
  bool flag(std::string_view name) { return number(name, 1) == 1; }
  std::string bytes(std::string_view name, std::size_t max);  // base64
  std::string text(std::string_view name, std::size_t max = 4096);
  /// kCorrupt if any member was missing or wrong.
  Status status() const;

 private:
  const Json& json_;
  std::string wrong_;
};

Json save_tally(const Tally& tally);
Result<Tally> restore_tally(const Json& saved);

/// Counts a malformed record; keeps only the first.
void add_malformed(Tally& tally, Malformed what);

/// Counts by key. Keeps at most kClassesMax keys, the first in sort order, whatever the order of
/// arrival.
template <typename Key>
void add_bounded(std::map<Key, std::uint64_t>& counts, std::uint64_t& further, const Key& key,
                 std::uint64_t count = 1) {
  if (const auto at = counts.find(key); at != counts.end()) {
    at->second += count;
    return;
  }
  if (counts.size() >= kClassesMax) {
    const auto last = std::prev(counts.end());
    if (!(key < last->first)) {
      further += count;
      return;
    }
    further += last->second;
    counts.erase(last);
  }
  counts.emplace(key, count);
}

}  // namespace varda::dataset
