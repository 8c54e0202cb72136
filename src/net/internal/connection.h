// One connection of a server: HTTP/1.1 requests in order, one at a time, answered in order.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "net/http.h"
#include "net/internal/bodies.h"
#include "net/internal/mailbox.h"
#include "net/internal/parser.h"
#include "net/internal/reactor.h"
#include "net/internal/stream.h"
#include "net/server.h"

namespace varda::net::internal {

class Loop;

/// Belongs to its loop's thread. close() takes it out of the loop; it is destroyed a little later.
class Connection final : public Reactor::Listener {
 public:
  Connection(Loop& loop, std::uint64_t id, int fd, std::string peer);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  void start();
  void answer(std::uint64_t request, Response response);
  void wake(std::uint64_t request);
  void close_if_idle();
  /// Gives the socket to the handler that answered 101.
  void hand_over();
  /// While the peer sends nothing, its handshake place goes to other peers.
  void yield_handshake(SteadyTime quiet_since);
  bool shaking() const { return shaking_; }
  void close();

  SteadyTime deadline() const { return deadline_; }
  /// The start of the wait for the client; absent while the client waits for the server.
  std::optional<SteadyTime> waiting_since() const;
  /// Refuses a body that lost its room to another body.
  void refuse_body();
  void on_deadline();

  void on_readable() override;
  void on_writable() override;
  void on_broken() override { close(); }

 private:
  enum class Phase {
    kProxyHeader,  // before everything else
    kHandshake,
    kIdle,    // between requests: no byte of the next one is here
    kHeader,  // some bytes are
    kBody,
    kHandling,   // the handler runs or will answer later
    kWriting,    // a response with a known body is being written
    kStreaming,  // a streamed response is being written
    kUpgrading,  // the answer 101 is written; the connection leaves this server soon
    kLingering,  // done: input is discarded so that the client can read our last response
    kClosed,
  };

  void begin();
  void read_proxy_header();
  /// False: the connection is closed.
  bool take_proxy_header(const ParsedProxyHeader& parsed);
  void refuse_proxy_header(const Error& error);
  void handshake();
  void handshake_done();
  void handshake_over();
  bool nameless() const;
  void expire_idle();
  /// Parses and serves as much as has arrived; returns the number of bytes used.
  std::size_t consume(std::string_view bytes);
  /// True: the bytes are the preface of HTTP/2, or its beginning, and the connection has carried
  /// nothing else.
  bool is_http2(std::string_view bytes) const;
  void begin_http2();
  void header_arrived();
  void dispatch();
  void refuse(int status, const std::string& text);
  void refuse(Response response);
  /// Asks the server's options for a receiver. False: the request is refused.
  bool choose_receiver();
  /// Passes the bytes so far to the receiver.
  void receive_body();
  void end_receiver();
  std::size_t body_bytes() const { return received_ + parser_->message().body.size(); }
  void begin_response(Response response);
  void pump_stream();
  /// Writes what is pending. False: it must wait for the socket, or the connection is closed.
  bool flush();
  void response_done();
  void serve_buffered();
  void peer_closed();
  void detect_disconnect();
  void read_on();
  void linger();
  bool paused() const;
  /// The body waits for its receiver, not for the client.
  bool receiver_full() const;
  void expire_in(std::chrono::milliseconds timeout);
  /// From now on the server waits for its client.
  void wait_from_now();
  /// Lets a client that waits for a place have this one.
  void offer_place();
  void begin_body_window();
  void expect_body_bytes();
  /// Counts the body's bytes; refuses it if there is no room.
  void hold_body();
  void release_body();
  Bodies::Place place() { return {.loop = &loop_, .connection = id_}; }
  std::string refusal() const;

  Loop& loop_;
  const std::uint64_t id_;
  std::unique_ptr<Reactor::Watch> watch_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Parser> parser_;
  Peer peer_;
  Phase phase_ = Phase::kHandshake;
  SteadyTime deadline_ = SteadyTime::max();
  SteadyTime waiting_since_;                // start of the wait for the client
  std::size_t held_ = 0;                    // bytes of this body, counted in the server's sum
  std::size_t window_bytes_ = 0;            // bytes of this body at the start of its body_window
  std::size_t body_bytes_max_ = 0;          // limit for the request being read
  std::unique_ptr<BodyReceiver> receiver_;  // of the request being read
  std::shared_ptr<StreamWake> receiver_wake_;
  std::size_t received_ = 0;  // bytes that the receiver has taken
  SteadyTime shaken_at_;      // time of the last handshake progress
  bool shaking_ = true;       // counts as a running handshake
  bool has_place_ = false;    // counts among the connections of its name

  std::string in_;             // bytes read and not used yet
  std::uint64_t request_ = 0;  // number of the current request
  bool head_ = false;          // the current request is a HEAD
  bool http10_ = false;
  bool close_after_ = false;
  bool peer_closed_ = false;
  std::function<void(std::unique_ptr<Tunnel>)> upgrade_;  // takes the connection after 101
  Responder::OnDisconnect on_disconnect_;  // disconnect callback of the request being handled
  bool write_blocked_ = false;
  bool write_wants_read_ = false;  // TLS: the write needs bytes from the peer first
  bool read_wants_write_ = false;
  std::size_t lingered_bytes_ = 0;

  std::string out_;   // header, interim responses, chunks
  std::string body_;  // the rest of a response with a known body
  std::size_t out_sent_ = 0, body_sent_ = 0;
  std::unique_ptr<BodyStream> body_stream_;
  std::shared_ptr<StreamWake> stream_wake_;
  bool chunked_ = false;
  bool stream_ended_ = false;
  std::uint64_t stream_left_ = UINT64_MAX;  // of a stream with a declared length
};

}  // namespace varda::net::internal
