#include "support/child.h"

#include <arpa/inet.h>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <dirent.h>
#include <fstream>
#include <iterator>
#include <netinet/in.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

#include "apiserver/bootstrap.h"
#include "apiserver/server.h"
#include "apiserver/standalone.h"
#include "base/metrics.h"
#include "net/server.h"
#include "store/store.h"
#include "support/slow_disk.h"

namespace varda::bench {
namespace {

namespace fs = std::filesystem;

std::string read(const fs::path& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

template <typename T>
T need(Result<T> result, const char* what) {
  if (!result.ok()) die(std::string(what) + ": " + result.error().message());
  return std::move(result).value();
}

// nginx cannot report a port that it chose: use one that was free a moment ago.
int free_port() {
  const int probe = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  if (::bind(probe, reinterpret_cast<const sockaddr*>(&address), size) != 0) die("no free port");
  ::getsockname(probe, reinterpret_cast<sockaddr*>(&address), &size);
  ::close(probe);
  return ntohs(address.sin_port);
}

apiserver::Credentials credentials(const fs::path& data_dir) {
  return need(
      apiserver::load_or_create_credentials(
          os::real_file_system(), {.data_dir = data_dir, .nodes = {}, .hosts = {}}, system_rng()),
      "credentials");
}

constexpr const char* kNginx = "/usr/sbin/nginx";

}  // namespace

Scratch::Scratch() {
  std::string name = (os::self_path().parent_path().parent_path() / "bench.XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) die("cannot make " + name);
  path_ = name;
}

Scratch::~Scratch() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

Child::Child(std::string program, std::vector<std::string> arguments, const fs::path& log)
    : log_(log) {
  os::ProcessOptions options;
  options.program = std::move(program);
  options.arguments = std::move(arguments);
  options.standard_output = log;
  options.limits = {{"nofile", 8192}};
  options.die_with_parent = true;
  process_ = need(os::real_processes().start(options), "start");
}

void Child::stop() {
  if (process_.pid == 0) return;
  (void)os::signal_process(process_, SIGTERM, true);
  if (!os::wait_for_exit(Context::background().with_timeout(std::chrono::seconds(20)), process_)
           .ok())
    (void)os::signal_process(process_, SIGKILL, true);
  process_ = {};
}

double Child::cpu_seconds() const {
  // Nanoseconds on a processor: the first number of schedstat
  // (Documentation/scheduler/sched-stats). `stat` has only 10 ms units.
  double total = 0;
  for (const auto& thread :
       fs::directory_iterator("/proc/" + std::to_string(process_.pid) + "/task"))
    total += std::strtod(read(thread.path() / "schedstat").c_str(), nullptr) / 1e9;
  return total;
}

double Child::rss_bytes() const {
  const std::string status = read("/proc/" + std::to_string(process_.pid) + "/status");
  const std::size_t at = status.find("VmRSS:");
  return at == std::string::npos ? 0 : std::strtod(status.c_str() + at + 6, nullptr) * 1024;
}

std::string Child::wait_for(const std::string& text) const {
  for (int i = 0; i < 60000; ++i) {
    const std::string log = read(log_);
    const std::size_t at = log.find(text);
    const std::size_t end =
        at == std::string::npos ? at : log.find_first_of(" \n", at + text.size());
    if (end != std::string::npos) return log.substr(at + text.size(), end - at - text.size());
    if (!os::alive(process_)) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  die("no \"" + text + "\" in " + log_.string() + ":\n" + read(log_));
}

namespace {

Child start_api(const fs::path& data_dir, Security security, std::chrono::microseconds sync) {
  fs::create_directories(data_dir);
  const fs::path log =
      data_dir /
      ("log" + std::to_string(std::chrono::steady_clock::now().time_since_epoch().count()));
  return Child(os::self_path().string(),
               {security == Security::kPlain ? "serve-plain" : "serve-tls", data_dir.string(),
                std::to_string(sync.count())},
               log);
}

}  // namespace

ApiServer::ApiServer(const fs::path& data_dir, Security security, std::chrono::microseconds sync)
    : child_(start_api(data_dir, security, sync)) {
  endpoint_.security = security;
  endpoint_.port = std::atoi(child_.wait_for("listens on port ").c_str());
  endpoint_.token = credentials(data_dir).token(apiserver::kAdmin);
}

namespace {

void write_port(int port) {
  std::printf("listens on port %d \n", port);
  std::fflush(stdout);
}

void wait_for_termination() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  int signal = 0;
  sigwait(&signals, &signal);
}

int serve_tls(const fs::path& data_dir) {
  std::stop_source stop;
  std::jthread waiter([&] {
    wait_for_termination();
    stop.request_stop();
  });
  apiserver::StandaloneOptions options;
  options.data_dir = data_dir;
  options.listen = "127.0.0.1:0";
  options.ready = [](const std::string& url, const os::Path&) {
    write_port(std::atoi(url.c_str() + url.rfind(':') + 1));
  };
  const Status served = apiserver::run_standalone(Context(stop.get_token()), std::move(options));
  if (!served.ok()) die(served.error().message());
  return 0;
}

int serve_plain(const fs::path& data_dir) {
  const apiserver::Credentials keys = credentials(data_dir);
  metrics::Registry metrics;
  const auto store =
      need(store::open_sqlite(data_dir / "store.db", {.metrics = &metrics}), "store");
  const auto tokens = apiserver::token_authenticator(keys.tokens);
  const auto rules = apiserver::node_authorizer();
  apiserver::Server::Options options;
  options.store = store.get();
  options.authenticator = tokens.get();
  options.authorizer = rules.get();
  options.metrics = &metrics;
  const auto server = need(apiserver::Server::create(std::move(options)), "server");
  const auto front = need(
      net::Server::create({.listen = "127.0.0.1:0", .tls = std::nullopt}, server->pool_handler()),
      "listen");
  write_port(front->port());
  wait_for_termination();
  front->drain();
  server->stop();
  front->stop(std::chrono::seconds(5));
  return 0;
}

}  // namespace

int serve(const fs::path& data_dir, Security security, std::chrono::microseconds sync) {
  if (sync.count() > 0) slow_disk(sync);
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  return security == Security::kPlain ? serve_plain(data_dir) : serve_tls(data_dir);
}

bool Nginx::installed() { return fs::exists(kNginx); }

namespace {

Child start_nginx(const fs::path& dir, const std::string& body, Security security,
                  const fs::path& pki, int port) {
  fs::create_directories(dir / "www");
  std::ofstream(dir / "www" / "object") << body;
  const std::string tls = security == Security::kPlain
                              ? ""
                              : "ssl_certificate " + (pki / "server.crt").string() +
                                    ";\nssl_certificate_key " + (pki / "server.key").string() +
                                    ";\n";
  std::string text = "daemon off;\nmaster_process off;\nworker_processes 1;\npid " +
                     (dir / "pid").string() + ";\nerror_log " + (dir / "error.log").string() +
                     ";\nevents { worker_connections 512; }\nhttp {\n access_log off;\n";
  for (const char* kind : {"client_body", "proxy", "fastcgi", "uwsgi", "scgi"})
    text += std::string(kind) + "_temp_path " + (dir / kind).string() + ";\n";
  text +=
      "sendfile on; tcp_nopush on; tcp_nodelay on; keepalive_requests 1000000000; open_file_cache "
      "max=16 inactive=1h;\n"
      "server { listen 127.0.0.1:" +
      std::to_string(port) + (security == Security::kTls ? " ssl" : "") + ";\n" + tls +
      "default_type application/json;\n" + "root " + (dir / "www").string() +
      ";\nlocation / { try_files /object =404; }\n";
  // A literal in nginx's configuration is limited to 4 KiB; `$` would start a variable.
  if (body.size() < 4000 && body.find_first_of("$'\\") == std::string::npos)
    text += "location = /memory { return 200 '" + body.substr(0, body.find('\n')) + "\n'; }\n";
  std::ofstream(dir / "nginx.conf") << text + "}\n}\n";
  return Child(
      kNginx,
      {"-c", (dir / "nginx.conf").string(), "-p", dir.string(), "-e", (dir / "error.log").string()},
      dir / "log");
}

}  // namespace

Nginx::Nginx(const fs::path& dir, const std::string& body, Security security, const fs::path& pki)
    : endpoint_{.port = free_port(), .security = security, .token = {}},
      child_(start_nginx(dir, body, security, pki, endpoint_.port)) {
  for (int i = 0; i < 5000; ++i) {
    const int probe = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(endpoint_.port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const bool up =
        ::connect(probe, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
    ::close(probe);
    if (up) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  die("nginx does not answer: " + read(dir / "error.log") + read(dir / "log"));
}

}  // namespace varda::bench
