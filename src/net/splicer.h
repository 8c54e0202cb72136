// Splicer: copies bytes between pairs of tunnels, in both directions, on few threads.
//
//   Splicer splicer({});
//   splicer.dial("10.42.0.7:7363", 5s, [&](auto target) {
//     splicer.splice({.first = std::move(client), .second = std::move(*target)});
//   });
//
// A pair holds no buffer while it is idle. If a receiver is slower than its sender, the pair holds
// at most Options::buffer_bytes_max for that direction, and the sender waits. The end of one
// direction is passed on. A broken tunnel breaks the pair; the peer of the other tunnel sees a
// reset, not an end, so that it cannot take the bytes for complete.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "net/tunnel.h"

namespace varda::net {

/// Thread-safe. Callbacks run on a thread of the splicer: they must not block, and they may call
/// the splicer, except stop() and the destructor.
class Splicer {
 public:
  struct Options {
    std::size_t threads = 1;
    std::size_t pairs_max = 4096;
    std::size_t buffer_bytes_max = 64 << 10;         // of one direction
    std::chrono::milliseconds idle_timeout{600000};  // without a byte in either direction
  };
  explicit Splicer(Options options);
  ~Splicer();

  enum class End {
    kFinished,  // both sides ended their bytes
    kBroken,
    kIdle,
    kExpired,  // Pair::until
    kClosed,   // close() or stop()
  };
  struct Report {
    End end = End::kFinished;
    std::uint64_t forward_bytes = 0;   // from `first` to `second`, without the preamble
    std::uint64_t backward_bytes = 0;  // from `second` to `first`
    std::string error;                 // with kBroken
  };
  struct Pair {
    std::unique_ptr<Tunnel> first, second;
    std::string preamble = {};  // written to `second` before the bytes of `first`
    std::optional<SteadyTime> until = {};
    std::function<void(const Report&)> on_end = {};  // called once, unless splice() returned 0
  };
  /// The number of the pair; 0: too many pairs, or stopped. Then both tunnels are closed.
  std::uint64_t splice(Pair pair);
  /// Ends the pair soon. Ignored if unknown.
  void close(std::uint64_t pair);
  std::size_t pairs() const;

  using OnDialed = std::function<void(Result<std::unique_ptr<Tunnel>>)>;
  /// Connects to a numeric "HOST:PORT". `then` is called once. kUnavailable: refused, no answer, or
  /// stopped. kInvalid: no such address.
  void dial(const std::string& address, std::chrono::milliseconds timeout, OnDialed then);

  /// Accepts connections until it is destroyed.
  class Listener {
   public:
    virtual ~Listener() = default;
    virtual std::string address() const = 0;
  };
  using OnAccepted = std::function<void(std::unique_ptr<Tunnel>)>;
  /// Listens on a numeric "HOST:PORT"; port 0: any free one. kUnavailable: in use, or not an
  /// address of this machine. The splicer outlives the listener. No call to `then` follows the
  /// listener's destruction, which waits for a running call.
  Result<std::unique_ptr<Listener>> listen(const std::string& address, OnAccepted then);

  /// Closes all pairs, dials and listeners. Idempotent.
  void stop();

 private:
  class Lane;
  struct Shared;
  Lane& next_lane();

  const std::unique_ptr<Shared> shared_;
};

std::string_view to_string(Splicer::End end);

}  // namespace varda::net
