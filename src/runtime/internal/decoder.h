// Makes C++ objects of the texts of a cache that keeps no more than these, and remembers the last few.
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

/// One for each informer, shared with the objects it gave out. Thread-safe. Of two threads that ask for one text at once both may
/// decode it; they get the same object.
class Decoder {
 public:
  using Decode = std::function<Result<std::shared_ptr<const void>>(const codec::Json&)>;
  /// `decode` may throw. At most `kept_max` objects are remembered, those that were asked for last.
  Decoder(Decode decode, std::size_t kept_max) : decode_(std::move(decode)), kept_max_(kept_max) {}

  /// What identifies a text from now on. The text is that of `tree`, and `object` what was just made of it.
  std::uint64_t add(std::shared_ptr<const void> object);
  /// Null, with a word in the log: what could be decoded once can be no more.
  std::shared_ptr<const void> object(std::uint64_t id, const std::string& text);
  /// kInternal: decode threw.
  Result<std::shared_ptr<const void>> decode(const codec::Json& tree) const;
  std::size_t kept() const;

 private:
  using Entry = std::pair<std::uint64_t, std::shared_ptr<const void>>;
  std::shared_ptr<const void> keep(std::uint64_t id, std::shared_ptr<const void> object) REQUIRES(mutex_);

  const Decode decode_;
  const std::size_t kept_max_;
  mutable Mutex mutex_;
  std::uint64_t last_id_ GUARDED_BY(mutex_) = 0;
  std::list<Entry> kept_ GUARDED_BY(mutex_);  // the last one asked for first
  std::unordered_map<std::uint64_t, std::list<Entry>::iterator> places_ GUARDED_BY(mutex_);
};

}  // namespace varda::runtime
