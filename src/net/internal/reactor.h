// One thread's event loop: readiness of sockets, calls from other threads, a coarse tick. Asio behind a plain interface, so that
// only reactor.cc compiles it.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

namespace varda::net::internal {

/// Everything but post() and stop() belongs to the thread inside run().
class Reactor {
 public:
  /// Told when a socket is ready, or broken: each want_…() gives one call at most.
  class Listener {
   public:
    virtual void on_readable() = 0;
    virtual void on_writable() = 0;
    virtual void on_broken() {}

   protected:
    ~Listener() = default;
  };

  /// A socket being watched; owns it. Destroying it closes the socket and ends the calls, also from inside one of them.
  class Watch {
   public:
    virtual ~Watch() = default;
    virtual int fd() const = 0;
    virtual void want_read() = 0;  // no effect while already wanted
    virtual void want_write() = 0;
    /// Of an error or of the end of both directions: what a socket shows whose peer has reset it, also where nothing is read.
    virtual void want_broken() = 0;
  };

  static std::unique_ptr<Reactor> create();
  virtual ~Reactor() = default;

  /// Serves until stop(). Once.
  virtual void run() = 0;
  virtual void stop() = 0;
  /// Runs `work` on the loop's thread. Dropped, unrun, when the reactor is destroyed.
  virtual void post(std::function<void()> work) = 0;
  /// `listener` outlives the watch.
  virtual std::unique_ptr<Watch> watch(int fd, Listener& listener) = 0;
  /// Calls `work` every `period` until it returns false.
  virtual void tick(std::chrono::milliseconds period, std::function<bool()> work) = 0;
};

}  // namespace varda::net::internal
