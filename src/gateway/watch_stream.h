// WatchStream: one open watch, which streams a view's changes as a response body until its end.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "gateway/sessions.h"
#include "gateway/view.h"
#include "net/http.h"
#include "net/timers.h"

namespace varda::gateway {

/// Decides whether a node's watches may continue.
class Admission {
 public:
  /// True: the node is revoked. Never blocks; thread-safe.
  virtual bool is_revoked(const std::string& node) const = 0;

 protected:
  ~Admission() = default;
};

class WatchStream final : public net::BodyStream, View::Watcher, net::Timers::Timed {
 public:
  struct Options {
    const meta::Resource* resource = nullptr;  // these outlive the stream
    View* view = nullptr;
    net::Timers* timers = nullptr;
    const Admission* admission = nullptr;
    const std::atomic<bool>* stopping = nullptr;
    View::Cursor cursor;
    SteadyTime end;
    bool bookmarks = false;
    std::unique_ptr<OpenWatches::Handle> session;
  };
  explicit WatchStream(Options options) : options_(std::move(options)) {}
  ~WatchStream() override;

  std::optional<std::string> read() override;
  void on_ready(std::function<void()> wake) override;

 private:
  void notify() override { wake_(); }
  void due() override { wake_(); }

  Options options_;
  std::function<void()> wake_;
  bool ended_ = false;
};

}  // namespace varda::gateway
