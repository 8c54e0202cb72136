// One thread's event loop: socket readiness, calls from other threads, a coarse tick. Hides Asio,
// so that only reactor.cc compiles it.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

namespace varda::net::internal {

/// Everything but post() and stop() belongs to the thread inside run().
class Reactor {
 public:
  /// Notified when a socket is ready or broken. Each want_…() gives at most one call.
  class Listener {
   public:
    virtual void on_readable() = 0;
    virtual void on_writable() = 0;
    virtual void on_broken() {}

   protected:
    ~Listener() = default;
  };

  /// A watched socket; owns it. Destruction closes the socket and stops all calls, also from inside
  /// a call.
  class Watch {
   public:
    virtual ~Watch() = default;
    virtual int fd() const = 0;
    /// Ends all calls and gives the socket to the caller, open. Only the destructor may follow.
    virtual int release() = 0;
    virtual void want_read() = 0;  // no effect while already wanted
    virtual void want_write() = 0;
    /// Notifies of an error or of the end of both directions. A reset by the peer shows this way
    /// even without reads.
    virtual void want_broken() = 0;
  };

  static std::unique_ptr<Reactor> create();
  virtual ~Reactor() = default;

  /// Serves until stop(). Call it once.
  virtual void run() = 0;
  virtual void stop() = 0;
  /// Runs `work` on the loop's thread. `work` is dropped if the reactor is destroyed first.
  virtual void post(std::function<void()> work) = 0;
  /// `listener` outlives the watch.
  virtual std::unique_ptr<Watch> watch(int fd, Listener& listener) = 0;
  /// Calls `work` every `period` until it returns false.
  virtual void tick(std::chrono::milliseconds period, std::function<bool()> work) = 0;
};

}  // namespace varda::net::internal
