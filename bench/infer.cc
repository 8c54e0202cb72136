// The overhead of the model server: one digit at a time over loopback. References are the engine
// called in a loop, and a plain TCP echo server (the cost of the round trip).
//
// The rounds of all contenders alternate, so that a busy moment of the machine affects all equally.
#include <algorithm>
#include <arpa/inet.h>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "base/clock.h"
#include "infer/engine.h"
#include "net/client.h"
#include "oip/client.h"
#include "os/file_system.h"
#include "os/process.h"

namespace varda {
namespace {

constexpr int kRounds = 40;
constexpr int kCallsPerRound = 250;
constexpr int kWarmup = 500;

[[noreturn]] void die(const std::string& what) {
  std::fprintf(stderr, "varda_bench_infer: %s\n", what.c_str());
  std::exit(1);
}

template <typename T>
T need(Result<T> result, const char* what) {
  if (!result.ok()) die(std::string(what) + ": " + result.error().message());
  return std::move(result).value();
}

// A minimal client with a blocking connection.
class Connection {
 public:
  explicit Connection(int port) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
      die("cannot connect");
    const int one = 1;
    ::setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  }
  ~Connection() { ::close(socket_); }

  void send(const std::string& bytes) {
    if (::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL) !=
        static_cast<ssize_t>(bytes.size()))
      die("short write");
  }
  std::string receive() {
    char buffer[65536];
    const ssize_t count = ::recv(socket_, buffer, sizeof buffer, 0);
    if (count <= 0) die("the peer closed the connection");
    return {buffer, static_cast<std::size_t>(count)};
  }
  // Reads one response with a Content-Length; dies on any status except 200.
  void receive_response() {
    std::string all = receive();
    std::size_t header = 0;
    while ((header = all.find("\r\n\r\n")) == std::string::npos) all += receive();
    if (all.compare(0, 12, "HTTP/1.1 200") != 0) die("not 200: " + all);
    const std::size_t at = all.find("Content-Length: ");
    if (at == std::string::npos || at > header) die("no Content-Length: " + all);
    const std::size_t length = std::strtoul(all.c_str() + at + 16, nullptr, 10);
    while (all.size() < header + 4 + length) all += receive();
  }

 private:
  const int socket_;
};

// Sends back every byte, on a separate thread.
class Echo {
 public:
  Echo() : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    if (::bind(listener_, reinterpret_cast<const sockaddr*>(&address), size) != 0 ||
        ::listen(listener_, 1) != 0)
      die("cannot listen");
    ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] {
      const int peer = ::accept(listener_, nullptr, nullptr);
      const int one = 1;
      ::setsockopt(peer, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
      char buffer[65536];
      for (ssize_t count = 0; (count = ::recv(peer, buffer, sizeof buffer, 0)) > 0;) {
        if (::send(peer, buffer, static_cast<std::size_t>(count), MSG_NOSIGNAL) != count) break;
      }
      ::close(peer);
    });
  }
  ~Echo() {
    thread_.join();
    ::close(listener_);
  }
  int port() const { return port_; }

 private:
  const int listener_;
  int port_ = 0;
  std::thread thread_;
};

// Runs varda-serve beside this program, over a directory with the digits of examples/.
class Server {
 public:
  /// `samples`: content of samples.json; "": no request is kept.
  explicit Server(const std::string& samples = "") {
    std::string scratch = (std::filesystem::temp_directory_path() / "bench.XXXXXX").string();
    if (::mkdtemp(scratch.data()) == nullptr) die("no temporary directory");
    directory_ = scratch;
    std::filesystem::create_directories(directory_ / "models" / "digits");
    std::filesystem::copy(VARDA_DIGITS "/models/4", directory_ / "models" / "digits" / "4");
    std::filesystem::create_directories(directory_ / "samples");
    if (!samples.empty())
      (void)os::write_file_atomically(os::real_file_system(),
                                      directory_ / "models" / "digits" / "samples.json", samples);
    os::ProcessOptions options;
    options.program = (os::self_path().parent_path() / "varda-serve").string();
    options.arguments = {"--model-repository",
                         (directory_ / "models").string(),
                         "--http",
                         "127.0.0.1:0",
                         "--drain-delay",
                         "0",
                         "--samples-directory",
                         (directory_ / "samples").string()};
    if (const char* library = std::getenv("VARDA_ONNXRUNTIME"))
      options.environment["VARDA_ONNXRUNTIME"] = library;
    options.standard_output = directory_ / "log";
    options.die_with_parent = true;
    process_ = need(os::real_processes().start(options), "varda-serve");
    for (int i = 0; i < 2000 && port_ == 0; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      const std::string log =
          os::read_file(os::real_file_system(), directory_ / "log").value_or("");
      const std::size_t at = log.find("http=127.0.0.1:");
      if (at != std::string::npos && log.find("model version serves") != std::string::npos)
        port_ = std::atoi(log.c_str() + at + 15);
    }
    if (port_ == 0) die("varda-serve does not serve; see " + (directory_ / "log").string());
  }
  ~Server() {
    (void)os::signal_process(process_, SIGTERM, true);
    (void)os::wait_for_exit(Context::background().with_timeout(std::chrono::seconds(10)), process_);
    std::filesystem::remove_all(directory_);
  }
  int port() const { return port_; }

 private:
  std::filesystem::path directory_;
  os::ProcessId process_;
  int port_ = 0;
};

std::string http_request(const std::string& body, const std::string& headers) {
  return "POST /v2/models/digits/infer HTTP/1.1\r\nHost: 127.0.0.1\r\n" + headers +
         "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

struct Contender {
  std::string name;
  std::function<void()> call;
  std::vector<double> microseconds;
};

double percentile(std::vector<double>& sorted, double share) {
  return sorted[std::min(sorted.size() - 1,
                         static_cast<std::size_t>(share * static_cast<double>(sorted.size())))];
}

int run() {
  const std::string file = need(
      os::read_file(os::real_file_system(), VARDA_DIGITS "/test-images.idx3-ubyte"), "test images");
  const oip::Images images = need(oip::parse_images(file), "test images");
  infer::Engines engines({os::self_path().parent_path().parent_path() / "lib" / "varda"});
  infer::Engine* engine = need(engines.get("onnxruntime"), "engine");
  const auto model = need(engine->load({.file = VARDA_DIGITS "/models/4/model.onnx"}), "model");
  const tensor::Spec spec = model->inputs().at(0);
  const std::vector<tensor::Named> inputs = {
      {spec.name, need(oip::image_tensor(images, 0, 1, spec), "image")}};

  const Server server;
  const Server easy(
      R"({"version": 1, "policy": {"name": "Margin", "parameters": {"threshold_margin": "0"}}})");
  const Server hard(R"({"version": 1, "policy": {"name": "AlwaysCloud"}})");
  oip::InferRequest request;
  request.inputs = inputs;
  request.encoding = oip::Encoding::kBinary;
  const oip::Message binary = oip::write_infer_request(request);
  const std::string binary_request =
      http_request(binary.body, "Content-Type: application/octet-stream\r\n" +
                                    std::string(oip::kJsonLengthHeader) + ": " +
                                    std::to_string(*binary.json_length) + "\r\n");
  std::string json = R"({"inputs":[{"name":"images","shape":[1,8,8],"datatype":"FP32","data":[)";
  for (std::size_t i = 0; i < 64; ++i)
    json += (i > 0 ? "," : "") + std::to_string(images.pixels[i]);
  const std::string json_request =
      http_request(json + "]}]}", "Content-Type: application/json\r\n");

  Echo echo;
  {
    Connection echo_connection(echo.port()), binary_connection(server.port()),
        json_connection(server.port()), easy_connection(easy.port()), hard_connection(hard.port());
    const auto http = net::make_client({});
    const oip::Client client(*http, "http://127.0.0.1:" + std::to_string(server.port()));
    std::vector<Contender> contenders = {
        {"engine, called in a loop", [&] { (void)need(model->run(inputs, {}), "run"); }, {}},
        {"TCP echo of the same bytes",
         [&] {
           echo_connection.send(binary_request);
           for (std::size_t got = 0; got < binary_request.size();)
             got += echo_connection.receive().size();
         },
         {}},
        {"varda-serve, binary tensors",
         [&] {
           binary_connection.send(binary_request);
           binary_connection.receive_response();
         },
         {}},
        {"the same, with samples, all requests easy",
         [&] {
           easy_connection.send(binary_request);
           easy_connection.receive_response();
         },
         {}},
        {"the same, with samples, all requests hard",
         [&] {
           hard_connection.send(binary_request);
           hard_connection.receive_response();
         },
         {}},
        {"varda-serve, JSON",
         [&] {
           json_connection.send(json_request);
           json_connection.receive_response();
         },
         {}},
        {"varda-serve, through our own client",
         [&] { (void)need(client.infer(Context::background(), "digits", request), "infer"); },
         {}},
    };
    for (Contender& contender : contenders) {
      for (int i = 0; i < kWarmup; ++i) contender.call();
    }
    for (int round = 0; round < kRounds; ++round) {
      for (Contender& contender : contenders) {
        for (int i = 0; i < kCallsPerRound; ++i) {
          const SteadyTime start = system_clock().now();
          contender.call();
          contender.microseconds.push_back(
              std::chrono::duration<double, std::micro>(system_clock().now() - start).count());
        }
      }
    }
    std::printf(
        "| digits 4, batch 1, %d calls each | p50 µs | p99 µs | p50 added to the engine | p99 "
        "added | p50 against the echo |\n",
        kRounds * kCallsPerRound);
    std::printf("|---|---:|---:|---:|---:|---:|\n");
    for (Contender& contender : contenders)
      std::sort(contender.microseconds.begin(), contender.microseconds.end());
    const double engine50 = percentile(contenders[0].microseconds, 0.5),
                 engine99 = percentile(contenders[0].microseconds, 0.99);
    const double echo50 = percentile(contenders[1].microseconds, 0.5);
    for (Contender& contender : contenders) {
      const double p50 = percentile(contender.microseconds, 0.5),
                   p99 = percentile(contender.microseconds, 0.99);
      std::printf("| %s | %.1f | %.1f | %+.1f | %+.1f | %.2fx |\n", contender.name.c_str(), p50,
                  p99, p50 - engine50, p99 - engine99, p50 / echo50);
    }
    std::printf(
        "\nAim: varda-serve with binary tensors adds less than 60 µs at p50 and less than 250 µs "
        "at p99. Kept samples add at most 5 µs at p50.\n");
  }
  return 0;
}

}  // namespace
}  // namespace varda

int main() { return varda::run(); }
