// What a format is made of: a scanner that is fed one file, or a walk through a folder.
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

/// Counts the samples of bytes that come in pieces, in memory that does not grow with them. However the bytes are cut, the result
/// is the same; and it can be asked for at any byte, saved, and gone on from. Not thread-safe.
class StreamScanner {
 public:
  virtual ~StreamScanner() = default;
  /// A UTF-8 byte order mark at the very beginning is left out.
  void feed(std::string_view bytes);
  /// As if the bytes ended here: an unfinished record is judged as it stands. The scanner itself can go on.
  Tally end() const;
  Json save() const;
  /// Of a new scanner with the options of the one that was saved. kCorrupt.
  Status restore(const Json& saved);

 protected:
  StreamScanner() = default;
  StreamScanner(const StreamScanner&) = default;
  std::uint64_t offset() const { return offset_; }  // of the first byte that scan() gets next

  virtual void scan(std::string_view bytes) = 0;
  /// The bytes have ended. Called on a copy.
  virtual Tally finish() = 0;
  virtual std::unique_ptr<StreamScanner> clone() const = 0;
  virtual Json save_own() const = 0;
  virtual Status restore_own(const Json& saved) = 0;

 private:
  void pass(std::string_view bytes);
  std::uint64_t offset_ = 0;
  bool begun_ = false;  // past the byte order mark, or past where one could be
  std::string held_;    // the beginning of what may become one
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
    std::uint64_t entries = 0;  // looked at
    std::uint64_t bytes = 0;    // of the files that are samples or malformed
    std::string fingerprint;    // 32 hex digits
  };
  virtual ~TreeScan() = default;
  /// Once, before anything else. `around` outlives the scan.
  virtual Status begin(const Surroundings& around) = 0;
  /// Goes on for about so many steps: an entry that is looked at is one, and so are kStepBytes that are read. True: that was all.
  virtual Result<bool> go_on(const Context& ctx, std::uint64_t steps) = 0;
  /// What there was so far, without its fingerprint; with it once that was all.
  virtual const Found& found() const = 0;
  static constexpr std::uint64_t kStepBytes = 4096;
};

/// Numbers and texts of saved states, where anything may stand.
class Saved {
 public:
  explicit Saved(const Json& json) : json_(json) {}
  std::uint64_t number(std::string_view name, std::uint64_t max = (std::uint64_t{1} << 62));
  bool flag(std::string_view name) { return number(name, 1) == 1; }
  std::string bytes(std::string_view name, std::size_t max);  // base64
  std::string text(std::string_view name, std::size_t max = 4096);
  /// kCorrupt if any of them was not there or not right.
  Status status() const;

 private:
  const Json& json_;
  std::string wrong_;
};

Json save_tally(const Tally& tally);
Result<Tally> restore_tally(const Json& saved);

/// Remembers the first malformed record only.
void add_malformed(Tally& tally, Malformed what);

/// Counts by key, never more keys than kClassesMax: those that sort first, in whatever order they come.
template <typename Key>
void add_bounded(std::map<Key, std::uint64_t>& counts, std::uint64_t& further, const Key& key, std::uint64_t count = 1) {
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
