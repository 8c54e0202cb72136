// One writer, 1,000 watchers: bytes per second to all watchers, compared with a process that only
// writes the same bytes to as many sockets.
#include <arpa/inet.h>
#include <charconv>
#include <chrono>
#include <cstring>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "apiserver/cases.h"

namespace varda::bench {
namespace {

constexpr int kWatchers = 1000;
constexpr int kEvents = 400;
constexpr int kRounds = 3;

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Reads the events of all watchers and checks that each gets every event once, in order.
class Readers {
 public:
  Readers() : epoll_(::epoll_create1(EPOLL_CLOEXEC)), buffer_(256 << 10) {}
  ~Readers() { ::close(epoll_); }

  void add(int fd) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = streams_.size();
    streams_.push_back({.fd = fd, .tail = {}, .next = 0});
    if (::epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) != 0) die("epoll");
  }
  /// Waits until every stream has received the events up to `until`.
  void read_to(int until) {
    std::size_t ready = 0;
    for (const Stream& stream : streams_) ready += stream.next >= until ? 1 : 0;
    epoll_event events[256];
    while (ready < streams_.size()) {
      const int count = ::epoll_wait(epoll_, events, 256, 30000);
      if (count <= 0) {
        lost = true;
        return;
      }
      for (int i = 0; i < count; ++i) {
        Stream& stream = streams_[events[i].data.u64];
        const bool before = stream.next >= until;
        const ssize_t size = ::recv(stream.fd, buffer_.data(), buffer_.size(), MSG_DONTWAIT);
        if (size <= 0) die("a watch ended");
        bytes += static_cast<std::size_t>(size);
        scan(stream, {buffer_.data(), static_cast<std::size_t>(size)});
        ready += !before && stream.next >= until ? 1 : 0;
      }
    }
  }
  std::size_t bytes = 0;
  bool lost = false;

 private:
  struct Stream {
    int fd;
    std::string tail;  // start of a marker that is split over two reads
    int next;          // number of the next event
  };
  static constexpr std::string_view kMark = "\"sequence\":\"";
  static constexpr std::size_t kMarkBytes = kMark.size() + 8;

  void scan(Stream& stream, std::string_view bytes_read) {
    std::string joined;
    std::string_view text = bytes_read;
    if (!stream.tail.empty()) {
      joined = stream.tail + std::string(bytes_read.substr(0, kMarkBytes - 1));
      look(stream, joined);
      text = bytes_read;
    }
    look(stream, text);
    stream.tail = std::string(text.substr(text.size() - std::min(text.size(), kMarkBytes - 1)));
  }
  void look(Stream& stream, std::string_view text) {
    for (const char* at = text.data();;) {
      const std::size_t left = static_cast<std::size_t>(text.data() + text.size() - at);
      at = static_cast<const char*>(::memmem(at, left, kMark.data(), kMark.size()));
      if (at == nullptr) return;
      at += kMark.size();
      if (static_cast<std::size_t>(text.data() + text.size() - at) < 8)
        return;  // the next read completes it
      int number = -1;
      std::from_chars(at, at + 8, number);
      if (number == stream.next) {
        ++stream.next;
      } else {
        lost = true;
      }
    }
  }

  int epoll_;
  std::vector<char> buffer_;
  std::vector<Stream> streams_;
};

std::string numbered(const std::string& object, int number) {
  char digits[16];
  std::snprintf(digits, sizeof digits, "%08d", number);
  std::string out = object;
  out.insert(out.find("\"data\":{") + 8, "\"sequence\":\"" + std::string(digits) + "\",");
  return out;
}

struct Flow {
  double bytes_per_second = 0;
  double cpu_us = 0;  // of the sender, per event and watcher
  bool lost = false;
};

Flow api_flow(const ApiServer& api, int round) {
  const Endpoint& endpoint = api.endpoint();
  const std::string name = "watched-" + std::to_string(round);
  const std::string object = config_map(name);
  const std::string watch =
      request("GET", std::string(kConfigMaps) + "?watch=1&fieldSelector=metadata.name%3D" + name,
              endpoint.token);
  std::vector<std::unique_ptr<Wire>> wires;
  Readers readers;
  for (int i = 0; i < kWatchers; ++i) {
    wires.push_back(std::make_unique<Wire>(endpoint.port, Security::kPlain));
    wires.back()->send(watch);
  }
  for (auto& wire : wires) {
    if (wire->some().find(" 200 ") == std::string_view::npos) die("a watch was refused");
    readers.add(wire->fd());
  }
  Wire writer(endpoint.port, Security::kPlain);
  (void)writer.exchange(request("POST", kConfigMaps, endpoint.token, numbered(object, 0)), 201);
  readers.read_to(1);
  readers.bytes = 0;
  const double cpu = api.process().cpu_seconds();
  const auto begin = Clock::now();
  std::jthread writing([&] {
    for (int i = 1; i <= kEvents; ++i)
      (void)writer.exchange(request("PUT", std::string(kConfigMaps) + "/" + name, endpoint.token,
                                    numbered(object, i)),
                            200);
  });
  readers.read_to(kEvents + 1);
  const double seconds = seconds_since(begin);
  return {.bytes_per_second = static_cast<double>(readers.bytes) / seconds,
          .cpu_us = 1e6 * (api.process().cpu_seconds() - cpu) / (kEvents * kWatchers),
          .lost = readers.lost};
}

// A child process that only writes each event to each socket, as one chunk.
Flow bare(const std::string& event) {
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  if (::bind(listener, reinterpret_cast<const sockaddr*>(&address), size) != 0 ||
      ::listen(listener, kWatchers) != 0)
    die("listen");
  ::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size);
  std::vector<std::unique_ptr<Wire>> wires;
  std::vector<int> peers;
  const int one = 1;
  for (int i = 0; i < kWatchers; ++i) {
    wires.push_back(std::make_unique<Wire>(ntohs(address.sin_port), Security::kPlain));
    peers.push_back(::accept(listener, nullptr, nullptr));
    ::setsockopt(peers.back(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  }
  int go[2];
  if (::pipe(go) != 0) die("pipe");
  const pid_t child = ::fork();
  if (child == 0) {
    char byte = 0;
    if (::read(go[0], &byte, 1) != 1) ::_exit(1);
    for (int i = 0; i < kEvents; ++i) {
      const std::string text = numbered(event, i);
      for (const int peer : peers) {
        for (std::string_view left = text; !left.empty();) {
          const ssize_t count = ::send(peer, left.data(), left.size(), MSG_NOSIGNAL);
          if (count <= 0) ::_exit(1);
          left.remove_prefix(static_cast<std::size_t>(count));
        }
      }
    }
    ::_exit(0);
  }
  Readers readers;
  for (const auto& wire : wires) readers.add(wire->fd());
  const auto begin = Clock::now();
  if (::write(go[1], "x", 1) != 1) die("pipe");
  readers.read_to(kEvents);
  const double seconds = seconds_since(begin);
  int status = 0;
  rusage used{};
  ::wait4(child, &status, 0, &used);
  if (status != 0) die("the bare sender failed");
  for (const int fd : peers) ::close(fd);
  for (const int fd : {go[0], go[1], listener}) ::close(fd);
  const auto micro = [](const timeval& t) {
    return 1e6 * static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec);
  };
  return {.bytes_per_second = static_cast<double>(readers.bytes) / seconds,
          .cpu_us = (micro(used.ru_utime) + micro(used.ru_stime)) / (kEvents * kWatchers),
          .lost = readers.lost};
}

}  // namespace

void measure_watches(Report& report) {
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = std::min<rlim_t>(files.rlim_max, 8192);
  ::setrlimit(RLIMIT_NOFILE, &files);
  if (files.rlim_cur < 2 * kWatchers + 100)
    die("the limit of open files is too low for 1,000 watchers");

  const Scratch scratch;
  const ApiServer api(scratch.path() / "api", Security::kPlain);
  // One event on the wire: chunk size, line, chunk end.
  fill(api.endpoint(), "sample-", 1);
  std::string line;
  {
    Wire wire(api.endpoint().port, Security::kPlain);
    const std::string path = std::string(kConfigMaps) + "/sample-0";
    line = R"({"type":"MODIFIED","object":)" +
           std::string(wire.exchange(request("GET", path, api.endpoint().token), 200)) + "}";
  }
  const std::string event = "4f0\r\n" + line + "\r\n";
  std::vector<double> measured, bare_rate, measured_cpu, bare_cpu;
  bool lost = false;
  for (int round = 0; round < kRounds; ++round) {
    const Flow a = api_flow(api, round);
    const Flow b = bare(event);
    measured.push_back(a.bytes_per_second / (1 << 20));
    bare_rate.push_back(b.bytes_per_second / (1 << 20));
    measured_cpu.push_back(a.cpu_us);
    bare_cpu.push_back(b.cpu_us);
    lost = lost || a.lost;
    if (b.lost) die("the bare sender lost events: the measurement is wrong");
  }
  report.add({.what = "1 writer, 1,000 watchers, 1 KiB events, all received",
              .measured = median(measured),
              .reference = median(bare_rate),
              .unit = "MiB/s",
              .against = "socket writes of the same bytes",
              .ratio = median(measured) / median(bare_rate),
              .aim = "≥ 0.3x",
              .met = median(measured) >= 0.3 * median(bare_rate)});
  report.add({.what = "  events lost or out of order",
              .measured = lost ? 1.0 : 0.0,
              .unit = "(1: some)",
              .aim = "0",
              .met = !lost});
  report.add({.what = "  server CPU for one event to one watcher",
              .measured = median(measured_cpu),
              .reference = median(bare_cpu),
              .unit = "µs",
              .against = "socket write",
              .ratio = median(measured_cpu) / median(bare_cpu)});
}

}  // namespace varda::bench
