// Counts open watches, in total and per identity, and notifies the observer of first and last ones.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "apiserver/identity.h"

namespace varda::apiserver {

/// Thread-safe; outlives its handles.
class Sessions {
 public:
  Sessions(SessionObserver* observer, std::size_t watches_max)
      : observer_(observer), watches_max_(watches_max) {}

  /// One open watch; its end closes it.
  class Handle {
   public:
    Handle(Sessions& sessions, Identity caller) : sessions_(sessions), caller_(std::move(caller)) {}
    ~Handle() { sessions_.close(caller_); }
    Handle(const Handle&) = delete;
    Handle& operator=(const Handle&) = delete;

   private:
    Sessions& sessions_;
    Identity caller_;
  };
  /// Null: watches_max is reached.
  std::unique_ptr<Handle> open(const Identity& caller);
  std::size_t count();

 private:
  void close(const Identity& caller);

  SessionObserver* observer_;
  const std::size_t watches_max_;
  std::mutex notify_mutex_;  // orders the observer's calls; taken before mutex_
  std::mutex mutex_;
  std::map<std::string, std::size_t> open_;
  std::size_t total_ = 0;
};

}  // namespace varda::apiserver
