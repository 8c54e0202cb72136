// Remembers which sources work, to choose their order. No I/O.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "artifact/failure.h"
#include "base/clock.h"
#include "base/mutex.h"

namespace varda::artifact {

/// A failed source comes after the others for five minutes, so that working sources are tried
/// first. A source that gave wrong bytes comes last for an hour. Unresponsive servers are
/// remembered by origin, so that the next archive does not wait for them. Thread-safe; `clock`
/// outlives it.
class SourceHistory {
 public:
  explicit SourceHistory(const Clock& clock) : clock_(clock) {}

  /// The order in which to try `urls`: as given, except for known trouble. Duplicates are removed.
  std::vector<std::string> order(const std::vector<std::string>& urls) const;
  /// No trouble is known.
  bool is_healthy(const std::string& url) const;
  /// The remaining time for which the server asked not to be contacted; 0: none.
  std::chrono::seconds closed_for(const std::string& url) const;

  enum class Trouble {
    kBroke,       // it gave some of the bytes, then failed
    kRefused,     // it answered without any bytes
    kNoResponse,  // no answer, or a server error
    kWrong,       // it gave other bytes than those asked for
  };
  void failed(const std::string& url, Trouble trouble, std::chrono::seconds retry_after);
  void worked(const std::string& url);

 private:
  struct Mark {
    int weight = 0;  // larger weights come later
    SteadyTime until;
    SteadyTime closed_until;
  };
  int weight_of(const std::string& url) const REQUIRES(mutex_);
  void forget_old() REQUIRES(mutex_);

  const Clock& clock_;
  mutable Mutex mutex_;
  std::map<std::string, Mark> marks_ GUARDED_BY(mutex_);  // key: URL or origin
};

}  // namespace varda::artifact
