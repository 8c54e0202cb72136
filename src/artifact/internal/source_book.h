// Which sources of archives are worth asking first. No I/O.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "artifact/failure.h"
#include "base/clock.h"
#include "base/mutex.h"

namespace varda::artifact {

/// A source that fails stands behind the others for five minutes, so that whichever worked is asked first meanwhile; one that gave
/// other bytes than those asked for stands last for an hour. Servers that do not answer are known by their origin, so that the next
/// archive does not wait for them again. Thread-safe; `clock` outlives it.
class SourceBook {
 public:
  explicit SourceBook(const Clock& clock) : clock_(clock) {}

  /// In the order to ask them: as given, but for what is known of them. What is listed twice is asked once.
  std::vector<std::string> order(const std::vector<std::string>& urls) const;
  /// Nothing is known against it.
  bool well(const std::string& url) const;
  /// How long it asked not to be asked; 0: it may be.
  std::chrono::seconds closed_for(const std::string& url) const;

  enum class Trouble {
    kBroke,    // it gave some of the bytes, then failed
    kRefused,  // it answered, and gave none
    kSilent,   // nobody answered, or the server is in trouble
    kWrong,    // it gave other bytes than those asked for
  };
  void failed(const std::string& url, Trouble trouble, std::chrono::seconds retry_after);
  void worked(const std::string& url);

 private:
  struct Mark {
    int weight = 0;  // the heavier, the later
    SteadyTime until;
    SteadyTime closed_until;
  };
  int weight_of(const std::string& url) const REQUIRES(mutex_);
  void forget_old() REQUIRES(mutex_);

  const Clock& clock_;
  mutable Mutex mutex_;
  std::map<std::string, Mark> marks_ GUARDED_BY(mutex_);  // by URL or origin
};

}  // namespace varda::artifact
