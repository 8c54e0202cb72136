#include "net/internal/reactor.h"

// TSan does not support stand-alone fences, and g++ refuses them. Data that crosses threads here
// passes through Asio's mutex.
#if defined(__SANITIZE_THREAD__)
#define BOOST_ASIO_DISABLE_FENCED_BLOCK 1
#endif

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <poll.h>
#include <utility>

#include "base/log.h"

namespace varda::net::internal {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

/// Shared by the watch and the operations in flight. Those find a null listener after the watch is
/// gone.
struct Socket {
  Socket(asio::io_context& io, int fd, Reactor::Listener& l) : descriptor(io, fd), listener(&l) {}
  asio::posix::stream_descriptor descriptor;
  Reactor::Listener* listener;
  bool reading = false;
  bool writing = false;
  bool breaking = false;  // async_wait is pending
};

class AsioWatch final : public Reactor::Watch {
 public:
  explicit AsioWatch(std::shared_ptr<Socket> socket) : socket_(std::move(socket)) {}
  ~AsioWatch() override {
    socket_->listener = nullptr;
    error_code ignored;
    socket_->descriptor.close(ignored);
  }
  int fd() const override { return const_cast<Socket&>(*socket_).descriptor.native_handle(); }

  int release() override {
    socket_->listener = nullptr;
    return socket_->descriptor.release();
  }

  void want_read() override {
    if (std::exchange(socket_->reading, true)) return;
    socket_->descriptor.async_wait(asio::posix::stream_descriptor::wait_read,
                                   [socket = socket_](error_code) {
                                     socket->reading = false;
                                     if (socket->listener) socket->listener->on_readable();
                                   });
  }

  void want_write() override {
    if (std::exchange(socket_->writing, true)) return;
    socket_->descriptor.async_wait(asio::posix::stream_descriptor::wait_write,
                                   [socket = socket_](error_code) {
                                     socket->writing = false;
                                     if (socket->listener) socket->listener->on_writable();
                                   });
  }

  void want_broken() override {
    if (std::exchange(socket_->breaking, true)) return;
    socket_->descriptor.async_wait(
        asio::posix::stream_descriptor::wait_error, [socket = socket_](error_code) {
          if (!socket->listener) return;
          socket->breaking = false;
          // Urgent data of the peer also ends the wait, and stays until it is read. Waiting again
          // here would spin, so the next want_broken() waits.
          pollfd state{.fd = socket->descriptor.native_handle(), .events = 0, .revents = 0};
          if (::poll(&state, 1, 0) <= 0) return;
          socket->listener->on_broken();
        });
  }

 private:
  const std::shared_ptr<Socket> socket_;
};

class AsioReactor final : public Reactor {
 public:
  AsioReactor() : io_(1), busy_(asio::make_work_guard(io_)) {}

  void run() override {
    while (!io_.stopped()) {
      try {
        io_.run();
      } catch (const std::exception& e) {
        // A callback that throws must not end the loop for other connections.
        log::error("an I/O callback threw", {{"what", e.what()}});
      }
    }
  }
  void stop() override { io_.stop(); }
  void post(std::function<void()> work) override { asio::post(io_, std::move(work)); }

  std::unique_ptr<Watch> watch(int fd, Listener& listener) override {
    return std::make_unique<AsioWatch>(std::make_shared<Socket>(io_, fd, listener));
  }

  void tick(std::chrono::milliseconds period, std::function<bool()> work) override {
    wait(std::make_shared<asio::steady_timer>(io_), period, std::move(work));
  }

 private:
  static void wait(const std::shared_ptr<asio::steady_timer>& timer,
                   std::chrono::milliseconds period, std::function<bool()> work) {
    timer->expires_after(period);
    timer->async_wait([timer, period, work = std::move(work)](error_code error) mutable {
      if (!error && work()) wait(timer, period, std::move(work));
    });
  }

  asio::io_context io_;
  asio::executor_work_guard<asio::io_context::executor_type> busy_;
};

}  // namespace

std::unique_ptr<Reactor> Reactor::create() { return std::make_unique<AsioReactor>(); }

}  // namespace varda::net::internal
