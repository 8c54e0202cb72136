// Makes C++ objects from the texts of a cache that keeps only texts, and remembers the last few.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/mutex.h"
#include "base/result.h"
#include "codec/json.h"

namespace varda::runtime {

/// One per informer, shared with the objects that it returned. Thread-safe. Two threads that ask
/// for one text may both decode it; they get the same object.
class Decoder {
 public:
  using Decode = std::function<Result<std::shared_ptr<const void>>(const codec::Json&)>;
  /// `decode` may throw. At most `cached_max` objects are kept, the most recently used.
  Decoder(Decode decode, std::size_t cached_max)
      : decode_(std::move(decode)), cached_max_(cached_max) {}

  /// Returns an id for a new text. `object` is the result of decoding it.
  std::uint64_t add(std::shared_ptr<const void> object);
  /// Null, with a log message, if the text can no longer be decoded.
  std::shared_ptr<const void> object(std::uint64_t id, const std::string& text);
  /// kInternal: decode threw.
  Result<std::shared_ptr<const void>> decode(const codec::Json& tree) const;
  std::size_t cached() const;

 private:
  using Entry = std::pair<std::uint64_t, std::shared_ptr<const void>>;
  std::shared_ptr<const void> cache(std::uint64_t id, std::shared_ptr<const void> object)
      REQUIRES(mutex_);

  const Decode decode_;
  const std::size_t cached_max_;
  mutable Mutex mutex_;
  std::uint64_t last_id_ GUARDED_BY(mutex_) = 0;
  std::list<Entry> cached_ GUARDED_BY(mutex_);  // most recently used first
  std::unordered_map<std::uint64_t, std::list<Entry>::iterator> places_ GUARDED_BY(mutex_);
};

}  // namespace varda::runtime
