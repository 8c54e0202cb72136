#include "broker.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <netdb.h>
#include <sstream>
#include <string_view>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>

#include "access.h"

namespace varda::serve {
namespace {

// A request is one message: a letter and an argument, and the end of a pipe for the answer.
// An answer is "CODE\n" and the result, or the message of an error. CODE is a Code, or kOk.
constexpr char kRead = 'r', kLookUp = 'l', kSacrifice = 's';
constexpr int kOk = -1;
constexpr std::size_t kRequestBytesMax = 8192;

std::string ok_answer(const std::string& result) { return std::to_string(kOk) + "\n" + result; }
std::string answer_of(const Error& error) {
  return std::to_string(static_cast<int>(error.code())) + "\n" + error.message();
}

net::HostAddresses addresses_of(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_ADDRCONFIG;
  addrinfo* found = nullptr;
  net::HostAddresses out{.error = ::getaddrinfo(host.c_str(), nullptr, &hints, &found)};
  if (out.error != 0) return out;
  for (const addrinfo* item = found; item; item = item->ai_next) {
    char text[NI_MAXHOST] = "";
    if (::getnameinfo(item->ai_addr, item->ai_addrlen, text, sizeof(text), nullptr, 0,
                      NI_NUMERICHOST) == 0)
      out.numeric.emplace_back(text);
  }
  ::freeaddrinfo(found);
  return out;
}

bool write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(fd, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
  return true;
}

// ---- in the broker's process

struct Request {
  std::string text;
  int reply = -1;
};

/// False: the server ended.
bool receive(int socket, Request& request) {
  std::array<char, kRequestBytesMax> bytes;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control;
  iovec part{bytes.data(), bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  ssize_t count = 0;
  do {
    count = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  } while (count < 0 && errno == EINTR);
  if (count <= 0) return false;
  request = {std::string(bytes.data(), static_cast<std::size_t>(count)), -1};
  const cmsghdr* const header = CMSG_FIRSTHDR(&message);
  if (header != nullptr && header->cmsg_type == SCM_RIGHTS)
    std::memcpy(&request.reply, CMSG_DATA(header), sizeof(int));
  return true;
}

void reply_and_close(int reply, const std::string& answer) {
  (void)write_all(reply, answer);
  ::close(reply);
}

std::string looked_up(const std::string& host) {
  const net::HostAddresses found = addresses_of(host);
  std::string out = std::to_string(found.error) + "\n";
  for (const std::string& address : found.numeric) out += address + "\n";
  return ok_answer(out);
}

// A silent name server must not delay other requests.
void start_look_up(int reply, const std::string& host) {
  try {
    std::thread([reply, host] { reply_and_close(reply, looked_up(host)); }).detach();
  } catch (const std::system_error&) {  // no threads left
    ::close(reply);
  }
}

bool is_child(const std::string& pid, pid_t server) {
  std::ifstream status("/proc/" + pid + "/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("PPid:")) return std::atol(line.c_str() + 5) == server;
  return false;
}

std::string sacrificed(const std::string& pid, pid_t server) {
  const bool number = !pid.empty() && pid.find_first_not_of("0123456789") == std::string::npos;
  if (!number || !is_child(pid, server))
    return answer_of(Error(Code::kForbidden, pid + " is not a child of the server"));
  std::ofstream score("/proc/" + pid + "/oom_score_adj");
  score << "1000\n" << std::flush;
  if (!score)
    return answer_of(Error(Code::kUnavailable, "oom_score_adj of " + pid + " cannot be written"));
  return ok_answer("");
}

std::string file_read(const std::string& path, const std::vector<os::Path>& files) {
  if (std::find(files.begin(), files.end(), os::Path(path)) == files.end())
    return answer_of(Error(Code::kForbidden, path + " is not a file of the server's flags"));
  const Result<std::string> text = read_through_links(os::real_file_system(), path);
  return text.ok() ? ok_answer(*text) : answer_of(text.error());
}

[[noreturn]] void run_broker(int socket, const std::vector<os::Path>& files, pid_t server) {
  // Signals to the process group are for the server. The broker ends when the server closes the
  // socket, and is still needed while the server drains.
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGPIPE}) (void)std::signal(signal, SIG_IGN);
  (void)::prctl(PR_SET_PDEATHSIG, SIGKILL);
  (void)::prctl(PR_SET_NAME, "serve-broker");
  if (const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC); null >= 0) {
    for (int fd = 0; fd <= 2; ++fd) (void)::dup2(null, fd);
    if (null > 2) ::close(null);
  }
  for (Request request; receive(socket, request);) {
    if (request.reply < 0) continue;
    const std::string argument = request.text.substr(1);
    switch (request.text.front()) {
      case kRead:
        reply_and_close(request.reply, file_read(argument, files));
        break;
      case kSacrifice:
        reply_and_close(request.reply, sacrificed(argument, server));
        break;
      case kLookUp:
        start_look_up(request.reply, argument);
        break;
      default:
        ::close(request.reply);
    }
  }
  ::_exit(0);
}

}  // namespace

// ---- in the server's process

Result<std::unique_ptr<Broker>> Broker::start(std::vector<os::Path> files) {
  int sockets[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0)
    return Error(Code::kUnavailable, std::string("socketpair: ") + std::strerror(errno));
  const pid_t server = ::getpid();
  const pid_t process = ::fork();
  if (process == 0) {
    ::close(sockets[0]);
    run_broker(sockets[1], files, server);
  }
  const int error = errno;
  ::close(sockets[1]);
  if (process < 0) {
    ::close(sockets[0]);
    return Error(Code::kUnavailable, std::string("fork: ") + std::strerror(error));
  }
  return std::unique_ptr<Broker>(new Broker(sockets[0], process));
}

Broker::~Broker() {
  ::close(socket_);
  while (::waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

Result<std::string> Broker::query(const std::string& request) const {
  const auto failed = [](const char* what) {
    return Error(Code::kUnavailable, std::string("broker: ") + what);
  };
  if (request.size() > kRequestBytesMax) return failed("the request is too long");
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return failed(std::strerror(errno));
  iovec part{const_cast<char*>(request.data()), request.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &ends[1], sizeof(int));
  ssize_t count = 0;
  do {
    count = ::sendmsg(socket_, &message, MSG_NOSIGNAL);
  } while (count < 0 && errno == EINTR);
  ::close(ends[1]);
  std::string answer;
  std::array<char, 4096> bytes;
  while (count > 0) {
    count = ::read(ends[0], bytes.data(), bytes.size());
    if (count > 0) answer.append(bytes.data(), static_cast<std::size_t>(count));
    if (count < 0 && errno == EINTR) count = 1;
  }
  ::close(ends[0]);
  const std::size_t line = answer.find('\n');
  if (line == std::string::npos) return failed("the process ended");
  const int code = std::atoi(answer.c_str());
  std::string value = answer.substr(line + 1);
  if (code != kOk) return Error(static_cast<Code>(code), std::move(value));
  return value;
}

Result<std::string> Broker::read(const os::Path& file) const {
  return query(kRead + file.string());
}

net::HostAddresses Broker::look_up(const std::string& host) const {
  const Result<std::string> answer = query(kLookUp + host);
  if (!answer.ok()) return addresses_of(host);  // works until the files of /etc are replaced
  std::istringstream lines(*answer);
  net::HostAddresses out;
  lines >> out.error;
  for (std::string address; lines >> address;) out.numeric.push_back(address);
  return out;
}

Status Broker::sacrifice(pid_t child) const {
  const Result<std::string> answer = query(kSacrifice + std::to_string(child));
  return answer.ok() ? Status() : Status(answer.error());
}

}  // namespace varda::serve
