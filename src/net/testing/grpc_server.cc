#include "net/testing/grpc_server.h"

#include <algorithm>
#include <cstring>
#include <list>
#include <map>
#include <nghttp2/nghttp2.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "base/check.h"
#include "base/mutex.h"

namespace varda::net::testing {
namespace {

using Answer = std::function<GrpcReply(const CannedGrpcCall&)>;

nghttp2_nv header(std::string_view name, const std::string& value) {
  const auto bytes = [](std::string_view from) {
    return const_cast<std::uint8_t*>(reinterpret_cast<const std::uint8_t*>(from.data()));
  };
  return {bytes(name), bytes(value), name.size(), value.size(), NGHTTP2_NV_FLAG_NONE};
}

class Connection {
 public:
  Connection(int fd, const Answer& answer) : fd_(fd), answer_(answer) {
    nghttp2_session_callbacks* callbacks = nullptr;
    CHECK(nghttp2_session_callbacks_new(&callbacks) == 0);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
    CHECK(nghttp2_session_server_new(&session_, callbacks, this) == 0);
    nghttp2_session_callbacks_del(callbacks);
    CHECK(nghttp2_submit_settings(session_, NGHTTP2_FLAG_NONE, nullptr, 0) == 0);
  }
  ~Connection() { nghttp2_session_del(session_); }

  void serve() {
    while (!closed_ && flush() && (nghttp2_session_want_read(session_) != 0)) {
      std::uint8_t piece[16384];
      const ssize_t count = ::recv(fd_, piece, sizeof(piece), 0);
      if (count <= 0) return;
      if (nghttp2_session_mem_recv(session_, piece, static_cast<std::size_t>(count)) < 0) return;
    }
  }

 private:
  struct Stream {
    CannedGrpcCall call;
    GrpcReply reply;
    std::size_t sent = 0;
    std::string status;
  };

  static Connection& of(void* user) { return *static_cast<Connection*>(user); }

  bool flush() {
    while (true) {
      const std::uint8_t* bytes = nullptr;
      const ssize_t size = nghttp2_session_mem_send(session_, &bytes);
      if (size <= 0) return size == 0;
      for (ssize_t sent = 0; sent < size;) {
        const ssize_t count =
            ::send(fd_, bytes + sent, static_cast<std::size_t>(size - sent), MSG_NOSIGNAL);
        if (count <= 0) return false;
        sent += count;
      }
    }
  }

  static int on_header(nghttp2_session*, const nghttp2_frame* frame, const std::uint8_t* name,
                       std::size_t name_size, const std::uint8_t* value, std::size_t value_size,
                       std::uint8_t, void* user) {
    CannedGrpcCall& call = of(user).streams_[frame->hd.stream_id].call;
    const std::string_view key(reinterpret_cast<const char*>(name), name_size);
    const std::string_view text(reinterpret_cast<const char*>(value), value_size);
    if (key == ":path") call.method = text;
    if (key == "grpc-timeout") call.timeout = text;
    return 0;
  }

  static int on_data(nghttp2_session*, std::uint8_t, std::int32_t stream, const std::uint8_t* data,
                     std::size_t size, void* user) {
    of(user).streams_[stream].call.message.append(reinterpret_cast<const char*>(data), size);
    return 0;
  }

  static int on_frame(nghttp2_session*, const nghttp2_frame* frame, void* user) {
    const bool ends = (frame->hd.type == NGHTTP2_DATA || frame->hd.type == NGHTTP2_HEADERS) &&
                      (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;
    if (ends) of(user).reply(frame->hd.stream_id);
    return 0;
  }

  void reply(std::int32_t id) {
    Stream& stream = streams_[id];
    stream.call.message.erase(0, std::min<std::size_t>(5, stream.call.message.size()));
    stream.reply = answer_(stream.call);
    const GrpcReply& reply = stream.reply;
    if (reply.go_away)
      CHECK(nghttp2_submit_goaway(session_, NGHTTP2_FLAG_NONE, id, NGHTTP2_NO_ERROR, nullptr, 0) ==
            0);
    if (reply.close) closed_ = true;
    if (reply.close || reply.no_answer) return;
    if (reply.reset) {
      CHECK(nghttp2_submit_rst_stream(session_, NGHTTP2_FLAG_NONE, id, *reply.reset) == 0);
      return;
    }
    const std::string http = std::to_string(reply.http_status);
    stream.status = std::to_string(reply.status.value_or(0));
    std::vector<nghttp2_nv> headers = {header(":status", http),
                                       header("content-type", reply.content_type)};
    if (reply.body.empty()) {
      if (reply.status) {
        headers.push_back(header("grpc-status", stream.status));
        headers.push_back(header("grpc-message", reply.message));
      }
      CHECK(nghttp2_submit_response(session_, id, headers.data(), headers.size(), nullptr) == 0);
      return;
    }
    nghttp2_data_provider body{};
    body.read_callback = read_body;
    CHECK(nghttp2_submit_response(session_, id, headers.data(), headers.size(), &body) == 0);
  }

  static ssize_t read_body(nghttp2_session* session, std::int32_t id, std::uint8_t* to,
                           std::size_t room, std::uint32_t* flags, nghttp2_data_source*,
                           void* user) {
    Stream& stream = of(user).streams_[id];
    const std::size_t piece = std::min(room, stream.reply.body.size() - stream.sent);
    std::memcpy(to, stream.reply.body.data() + stream.sent, piece);
    stream.sent += piece;
    if (stream.sent < stream.reply.body.size()) return static_cast<ssize_t>(piece);
    *flags |= NGHTTP2_DATA_FLAG_EOF;
    if (stream.reply.status) {
      *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
      const nghttp2_nv trailers[] = {header("grpc-status", stream.status),
                                     header("grpc-message", stream.reply.message)};
      CHECK(nghttp2_submit_trailer(session, id, trailers, 2) == 0);
    }
    return static_cast<ssize_t>(piece);
  }

  const int fd_;
  const Answer& answer_;
  nghttp2_session* session_ = nullptr;
  std::map<std::int32_t, Stream> streams_;
  bool closed_ = false;
};

}  // namespace

struct CannedGrpcServer::State {
  Answer answer;
  int listener = -1;
  std::atomic<int> taken{0};
  Mutex mutex;
  std::list<int> open GUARDED_BY(mutex);
  std::list<std::jthread> threads;  // the accepting thread, until it has ended
  std::jthread accepting;

  void serve(int fd) {
    { Connection(fd, answer).serve(); }
    MutexLock lock(mutex);
    open.remove(fd);
    ::close(fd);
  }

  void accept_all() {
    while (true) {
      const int fd = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
      if (fd < 0) return;
      ++taken;
      {
        MutexLock lock(mutex);
        open.push_back(fd);
      }
      threads.emplace_back([this, fd] { serve(fd); });
    }
  }
};

GrpcReply GrpcReply::of(std::string_view message) {
  GrpcReply reply;
  const std::size_t size = message.size();
  reply.body = {'\0', static_cast<char>(size >> 24), static_cast<char>(size >> 16),
                static_cast<char>(size >> 8), static_cast<char>(size)};
  reply.body += message;
  return reply;
}

GrpcReply GrpcReply::error(int status, std::string message) {
  GrpcReply reply;
  reply.status = status;
  reply.message = std::move(message);
  return reply;
}

CannedGrpcServer::CannedGrpcServer(const std::string& unix_path, Answer answer)
    : state_(std::make_unique<State>()) {
  state_->answer = std::move(answer);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  CHECK(unix_path.size() < sizeof(address.sun_path));
  std::memcpy(address.sun_path, unix_path.data(), unix_path.size());
  ::unlink(unix_path.c_str());
  state_->listener = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  CHECK(::bind(state_->listener, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
  CHECK(::listen(state_->listener, 64) == 0);
  state_->accepting = std::jthread([state = state_.get()] { state->accept_all(); });
}

CannedGrpcServer::~CannedGrpcServer() {
  ::shutdown(state_->listener, SHUT_RDWR);
  state_->accepting.join();
  drop_connections();
  state_->threads.clear();
  ::close(state_->listener);
}

int CannedGrpcServer::connections() const { return state_->taken; }
int CannedGrpcServer::open_connections() const {
  MutexLock lock(state_->mutex);
  return static_cast<int>(state_->open.size());
}

void CannedGrpcServer::drop_connections() {
  MutexLock lock(state_->mutex);
  for (const int fd : state_->open) ::shutdown(fd, SHUT_RDWR);
}

}  // namespace varda::net::testing
