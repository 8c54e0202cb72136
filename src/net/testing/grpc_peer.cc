#include "net/testing/grpc_peer.h"

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <cstring>
#include <map>
#include <netinet/in.h>
#include <nghttp2/nghttp2.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"

namespace varda::net::testing {
namespace {

constexpr std::chrono::seconds kPeerPatience{60};

struct PeerStream {
  std::string out;
  std::size_t out_sent = 0;
  bool ended = false;  // after `out`
  bool deferred = false;
  std::string in;
  GrpcEnd end;
  bool closed = false;
};

nghttp2_nv peer_field(const std::string& name, const std::string& value) {
  const auto bytes = [](const std::string& from) {
    return const_cast<std::uint8_t*>(reinterpret_cast<const std::uint8_t*>(from.data()));
  };
  return {bytes(name), bytes(value), name.size(), value.size(), NGHTTP2_NV_FLAG_NONE};
}

}  // namespace

struct GrpcPeer::State {
  State(int port, Options o) : options(o) {
    fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    nghttp2_session_callbacks* callbacks = nullptr;
    CHECK(nghttp2_session_callbacks_new(&callbacks) == 0);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_close);
    nghttp2_option* option = nullptr;
    CHECK(nghttp2_option_new(&option) == 0);
    if (!options.reads) nghttp2_option_set_no_auto_window_update(option, 1);
    CHECK(nghttp2_session_client_new2(&session, callbacks, this, option) == 0);
    nghttp2_option_del(option);
    nghttp2_session_callbacks_del(callbacks);
    const nghttp2_settings_entry window = {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE,
                                           static_cast<std::uint32_t>(options.window)};
    CHECK(nghttp2_submit_settings(session, NGHTTP2_FLAG_NONE, &window,
                                  options.window > 0 ? 1 : 0) == 0);
  }
  ~State() {
    nghttp2_session_del(session);
    if (fd >= 0) ::close(fd);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  static State& of(void* user) { return *static_cast<State*>(user); }

  static int on_header(nghttp2_session*, const nghttp2_frame* frame, const std::uint8_t* name,
                       std::size_t name_size, const std::uint8_t* value, std::size_t value_size,
                       std::uint8_t, void* user) {
    GrpcEnd& end = of(user).streams[frame->hd.stream_id].end;
    const std::string key(reinterpret_cast<const char*>(name), name_size);
    const std::string text(reinterpret_cast<const char*>(value), value_size);
    if (key == ":status") end.http_status = std::stoi(text);
    if (key == "grpc-status") end.grpc_status = std::stoi(text);
    if (key == "grpc-message") end.grpc_message = text;
    return 0;
  }
  static int on_data(nghttp2_session*, std::uint8_t, std::int32_t id, const std::uint8_t* data,
                     std::size_t size, void* user) {
    of(user).streams[id].in.append(reinterpret_cast<const char*>(data), size);
    return 0;
  }
  static int on_frame(nghttp2_session*, const nghttp2_frame* frame, void* user) {
    if (frame->hd.type == NGHTTP2_GOAWAY) of(user).goaway = frame->goaway.error_code;
    if (frame->hd.type == NGHTTP2_PING && (frame->hd.flags & NGHTTP2_FLAG_ACK) == 0)
      ++of(user).pings;
    return 0;
  }
  static int on_close(nghttp2_session*, std::int32_t id, std::uint32_t error, void* user) {
    PeerStream& stream = of(user).streams[id];
    stream.closed = true;
    if (error != NGHTTP2_NO_ERROR) stream.end.reset = error;
    return 0;
  }
  static ssize_t read_body(nghttp2_session*, std::int32_t, std::uint8_t* to, std::size_t room,
                           std::uint32_t* flags, nghttp2_data_source* source, void*) {
    PeerStream& stream = *static_cast<PeerStream*>(source->ptr);
    const std::size_t count = std::min(room, stream.out.size() - stream.out_sent);
    std::memcpy(to, stream.out.data() + stream.out_sent, count);
    stream.out_sent += count;
    if (stream.out_sent == stream.out.size()) {
      stream.out.clear();
      stream.out_sent = 0;
    }
    if (stream.out.empty() && stream.ended) {
      *flags |= NGHTTP2_DATA_FLAG_EOF;
    } else if (count == 0) {
      stream.deferred = true;
      return NGHTTP2_ERR_DEFERRED;
    }
    return static_cast<ssize_t>(count);
  }

  /// Moves bytes both ways once. False: nothing happened within the time.
  bool step(std::chrono::milliseconds wait) {
    bool moved = false;
    while (!disconnected && unsent.size() < (1u << 20)) {
      const std::uint8_t* bytes = nullptr;
      const ssize_t size = nghttp2_session_mem_send(session, &bytes);
      if (size <= 0) break;
      unsent.append(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(size));
    }
    if (disconnected) return false;
    pollfd state{.fd = fd,
                 .events = static_cast<short>(POLLIN | (unsent.empty() ? 0 : POLLOUT)),
                 .revents = 0};
    if (::poll(&state, 1, static_cast<int>(wait.count())) <= 0) return false;
    if (!unsent.empty() && (state.revents & (POLLOUT | POLLERR | POLLHUP)) != 0) {
      const ssize_t count = ::send(fd, unsent.data(), unsent.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (count > 0) unsent.erase(0, static_cast<std::size_t>(count));
      if (count < 0 && errno != EAGAIN) unsent.clear();  // the input shows the end
      moved = true;
    }
    if ((state.revents & (POLLIN | POLLERR | POLLHUP)) != 0) {
      std::array<std::uint8_t, 65536> piece;
      const ssize_t count = ::recv(fd, piece.data(), piece.size(), MSG_DONTWAIT);
      if (count == 0 || (count < 0 && errno != EAGAIN)) {
        disconnected = true;
        for (auto& [id, stream] : streams) {
          if (!stream.closed) stream.end.disconnected = true;
          stream.closed = true;
        }
      }
      if (count > 0) {
        CHECK(nghttp2_session_mem_recv(session, piece.data(), static_cast<std::size_t>(count)) ==
              count);
      }
      moved = true;
    }
    return moved;
  }

  template <typename Done>
  void until(const Done& done) {
    const auto give_up = std::chrono::steady_clock::now() + kPeerPatience;
    while (!done()) {
      CHECK(std::chrono::steady_clock::now() < give_up);
      step(std::chrono::milliseconds(100));
    }
    flush();
  }
  void flush() {
    const auto give_up = std::chrono::steady_clock::now() + kPeerPatience;
    while (!disconnected && (nghttp2_session_want_write(session) != 0 || !unsent.empty()) &&
           step(std::chrono::milliseconds(0)))
      CHECK(std::chrono::steady_clock::now() < give_up);
  }

  const Options options;
  int fd = -1;
  nghttp2_session* session = nullptr;
  std::map<std::int32_t, PeerStream> streams;
  std::string unsent;
  std::optional<std::uint32_t> goaway;
  int pings = 0;
  bool disconnected = false;
};

GrpcPeer::GrpcPeer(int port, Options options) : state_(std::make_unique<State>(port, options)) {}
GrpcPeer::~GrpcPeer() = default;

std::int32_t GrpcPeer::open(const std::string& method, const Fields& fields) {
  Fields all = {{":method", "POST"},    {":scheme", "http"}, {":path", method},
                {":authority", "peer"}, {"te", "trailers"},  {"content-type", "application/grpc"}};
  for (const auto& [name, value] : fields) {
    // clang 14 captures no structured bindings.
    const auto same = std::find_if(
        all.begin(), all.end(), [&wanted = name](const auto& one) { return one.first == wanted; });
    if (same == all.end()) {
      all.emplace_back(name, value);
    } else {
      same->second = value;
    }
  }
  std::vector<nghttp2_nv> list;
  for (const auto& [name, value] : all) list.push_back(peer_field(name, value));
  const std::int32_t id =
      static_cast<std::int32_t>(nghttp2_session_get_next_stream_id(state_->session));
  nghttp2_data_provider body{};
  body.source.ptr = &state_->streams[id];
  body.read_callback = State::read_body;
  CHECK(nghttp2_submit_request(state_->session, nullptr, list.data(), list.size(), &body,
                               nullptr) == id);
  state_->flush();
  return id;
}

void GrpcPeer::send(std::int32_t stream, std::string_view message) {
  const auto size = static_cast<std::uint32_t>(message.size());
  std::string framed = {'\0', static_cast<char>(size >> 24), static_cast<char>(size >> 16),
                        static_cast<char>(size >> 8), static_cast<char>(size)};
  framed += message;
  send_raw(stream, framed);
}

void GrpcPeer::send_raw(std::int32_t stream, std::string_view bytes) {
  PeerStream& to = state_->streams[stream];
  to.out += bytes;
  if (std::exchange(to.deferred, false)) nghttp2_session_resume_data(state_->session, stream);
  state_->flush();
}

void GrpcPeer::end(std::int32_t stream) {
  state_->streams[stream].ended = true;
  send_raw(stream, "");
}

void GrpcPeer::reset(std::int32_t stream) {
  nghttp2_submit_rst_stream(state_->session, NGHTTP2_FLAG_NONE, stream, NGHTTP2_CANCEL);
  state_->flush();
}

std::optional<std::string> GrpcPeer::read(std::int32_t stream) {
  PeerStream& from = state_->streams[stream];
  const auto size = [&]() -> std::size_t {
    const auto byte = [&](std::size_t i) {
      return static_cast<std::size_t>(static_cast<unsigned char>(from.in[i]));
    };
    return byte(1) << 24 | byte(2) << 16 | byte(3) << 8 | byte(4);
  };
  const auto complete = [&] { return from.in.size() >= 5 && from.in.size() >= 5 + size(); };
  state_->until([&] { return from.closed || complete(); });
  if (!complete()) return std::nullopt;
  const std::size_t count = size();
  std::string out = from.in.substr(5, count);
  from.in.erase(0, 5 + count);
  return out;
}

GrpcEnd GrpcPeer::wait_end(std::int32_t stream) {
  PeerStream& from = state_->streams[stream];
  state_->until([&] { return from.closed; });
  return from.end;
}

std::pair<std::string, GrpcEnd> GrpcPeer::call(const std::string& method, std::string_view message,
                                               const Fields& fields) {
  const std::int32_t stream = open(method, fields);
  send(stream, message);
  end(stream);
  const std::optional<std::string> answer = read(stream);
  return {answer.value_or(""), wait_end(stream)};
}

void GrpcPeer::ping() {
  nghttp2_submit_ping(state_->session, NGHTTP2_FLAG_NONE, nullptr);
  state_->flush();
}

void GrpcPeer::write_raw(std::string_view bytes) {
  state_->unsent += bytes;
  state_->flush();
}

std::optional<std::uint32_t> GrpcPeer::wait_closed() {
  state_->until([&] { return state_->disconnected; });
  return state_->goaway;
}

std::optional<std::uint32_t> GrpcPeer::wait_goaway() {
  state_->until([&] { return state_->disconnected || state_->goaway; });
  return state_->goaway;
}

void GrpcPeer::run_for(std::chrono::milliseconds time) {
  const auto end = std::chrono::steady_clock::now() + time;
  while (std::chrono::steady_clock::now() < end && !state_->disconnected)
    state_->step(std::chrono::milliseconds(10));
}

int GrpcPeer::pings_received() const { return state_->pings; }

bool GrpcPeer::open_to_calls() const {
  return nghttp2_session_check_request_allowed(state_->session) != 0;
}

}  // namespace varda::net::testing
