// An edge worker of a JointInferenceService in C++: a small model answers, and the cloud worker
// gets the hard examples.
//
//   g++ -std=c++17 -O2 -pthread edge_worker.cpp -o edge-worker
//
//   POST /infer      an image as bytes, one a pixel ->
//                    {"label", "score", "tier", "hard", "version"}
//                    and "fallback" if the cloud was asked and did not answer
//   GET  /status     the current assignment, and the counts
//   GET  /healthz    200
//
// It needs only the C++ and the C library, and does the same as python/edge_worker.py.
// docs/guides/workers.md describes the environment, and the reports to the node's agent.
#include <atomic>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <optional>
#include <poll.h>
#include <random>
#include <signal.h>
#include <sstream>
#include <string>
#include <sys/socket.h>
#include <sys/un.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::size_t kBodyBytesMax = 16 << 20, kHeadBytesMax = 32 << 10;
constexpr int kConnectionsMax = 256;
constexpr milliseconds kCloudTimeout{2000}, kReportPeriod{1000};

// ---- JSON: the subset that this program needs

struct Json {
  enum class Type { kNull, kBool, kNumber, kString, kArray, kObject };
  Type type = Type::kNull;
  double number = 0;  // also for kBool
  std::string text;
  std::vector<Json> items;
  std::map<std::string, Json> members;

  const Json& operator[](const std::string& name) const {
    static const Json none;
    const auto found = members.find(name);
    return found == members.end() ? none : found->second;
  }
  double number_or(double otherwise) const { return type == Type::kNumber ? number : otherwise; }
};

class JsonReader {
 public:
  explicit JsonReader(const std::string& text) : at_(text.data()), end_(text.data() + text.size()) {}
  std::optional<Json> read() {
    Json out;
    return value(out, 0) && (blank(), at_ == end_) ? std::optional<Json>(std::move(out)) : std::nullopt;
  }

 private:
  void blank() {
    while (at_ != end_ && std::strchr(" \t\r\n", *at_) != nullptr && *at_ != 0) ++at_;
  }
  bool take(char c) {
    blank();
    if (at_ == end_ || *at_ != c) return false;
    ++at_;
    return true;
  }
  bool word(const char* text) {
    const std::size_t size = std::strlen(text);
    if (static_cast<std::size_t>(end_ - at_) < size || std::memcmp(at_, text, size) != 0) return false;
    at_ += size;
    return true;
  }
  bool value(Json& out, int depth) {
    blank();
    if (at_ == end_ || depth > 32) return false;
    if (*at_ == '"') return out.type = Json::Type::kString, string(out.text);
    if (*at_ == '{') return object(out, depth);
    if (*at_ == '[') return array(out, depth);
    if (word("null")) return true;
    if (const bool yes = word("true"); yes || word("false")) {
      out.type = Json::Type::kBool;
      out.number = yes ? 1 : 0;
      return true;
    }
    std::string digits;  // strtod needs a terminator
    while (at_ != end_ && std::strchr("+-.eE0123456789", *at_) != nullptr && *at_ != 0 && digits.size() < 64) digits += *at_++;
    char* rest = nullptr;
    out.type = Json::Type::kNumber;
    out.number = std::strtod(digits.c_str(), &rest);
    return !digits.empty() && *rest == 0;
  }
  bool object(Json& out, int depth) {
    out.type = Json::Type::kObject;
    ++at_;
    if (take('}')) return true;
    do {
      std::string name;
      blank();
      if (!string(name) || !take(':') || !value(out.members[name], depth + 1)) return false;
    } while (take(','));
    return take('}');
  }
  bool array(Json& out, int depth) {
    out.type = Json::Type::kArray;
    ++at_;
    if (take(']')) return true;
    do {
      if (!value(out.items.emplace_back(), depth + 1)) return false;
    } while (take(','));
    return take(']');
  }
  bool code_unit(unsigned& out) {
    if (end_ - at_ < 4) return false;
    out = 0;
    for (int i = 0; i < 4; ++i) {
      const char c = *at_++;
      const char* digits = "0123456789abcdefABCDEF";
      const char* found = c == 0 ? nullptr : std::strchr(digits, c);
      if (found == nullptr) return false;
      const auto digit = static_cast<unsigned>(found - digits);
      out = out * 16 + (digit < 16 ? digit : digit - 6);
    }
    return true;
  }
  bool string(std::string& out) {
    if (at_ == end_ || *at_++ != '"') return false;
    while (at_ != end_ && *at_ != '"') {
      if (*at_ != '\\') {
        out += *at_++;
        continue;
      }
      if (++at_ == end_) return false;
      const char* names = "\"\\/bfnrt";
      const char* found = std::strchr(names, *at_);
      if (*at_ != 'u') {
        if (found == nullptr || *found == 0) return false;
        out += "\"\\/\b\f\n\r\t"[found - names];
        ++at_;
        continue;
      }
      ++at_;
      unsigned code = 0, low = 0;
      if (!code_unit(code)) return false;
      if (code >= 0xd800 && code < 0xdc00 && word("\\u") && code_unit(low))
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
      if (code < 0x80) {
        out += static_cast<char>(code);
      } else {
        const int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
        out += static_cast<char>((more == 1 ? 0xc0 : more == 2 ? 0xe0 : 0xf0) | (code >> (6 * more)));
        for (int i = more - 1; i >= 0; --i) out += static_cast<char>(0x80 | ((code >> (6 * i)) & 0x3f));
      }
    }
    return at_ != end_ && *at_++ == '"';
  }

  const char* at_;
  const char* const end_;
};

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    char escape[8];
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      std::snprintf(escape, sizeof(escape), "\\u%04x", c);
      out += escape;
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::string env(const char* name, const char* otherwise = "") {
  const char* value = std::getenv(name);
  return value != nullptr && *value != 0 ? value : otherwise;
}

void log(const std::string& message, const std::string& fields = "") {
  std::printf("{\"message\": %s%s%s}\n", quoted(message).c_str(), fields.empty() ? "" : ", ", fields.c_str());
  std::fflush(stdout);
}

// ---- sockets

class Socket {
 public:
  explicit Socket(int fd = -1) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Socket() {
    if (fd_ >= 0) ::close(fd_);
  }
  int fd() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_;
};

/// Reads and writes until a deadline. False: the deadline passed, or the peer closed.
class Stream {
 public:
  Stream(int fd, Clock::time_point until) : fd_(fd), until_(until) {}
  bool wait(short events) const {
    const auto left = std::chrono::duration_cast<milliseconds>(until_ - Clock::now()).count();
    pollfd one{fd_, events, 0};
    return left > 0 && ::poll(&one, 1, static_cast<int>(left)) == 1;
  }
  bool write(const std::string& bytes) {
    for (std::size_t done = 0; done < bytes.size();) {
      const ssize_t n = ::send(fd_, bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n > 0) {
        done += static_cast<std::size_t>(n);
      } else if ((errno != EAGAIN && errno != EINTR) || !wait(POLLOUT)) {
        return false;
      }
    }
    return true;
  }
  /// Appends bytes to `to`. False: the stream ended, or the time is over.
  bool read(std::string& to) {
    char piece[16 << 10];
    for (;;) {
      const ssize_t n = ::recv(fd_, piece, sizeof(piece), MSG_DONTWAIT);
      if (n > 0) return to.append(piece, static_cast<std::size_t>(n)), true;
      if (n == 0 || (errno != EAGAIN && errno != EINTR) || !wait(POLLIN)) return false;
    }
  }

 private:
  const int fd_;
  const Clock::time_point until_;
};

/// A request or an answer of HTTP/1.1 with a body of a known length.
struct Message {
  std::string start;  // the first line
  std::map<std::string, std::string> headers;
  std::string body;

  /// Removes a message from the start of `bytes` and reads missing bytes. Empty if malformed.
  static std::optional<Message> read(Stream& stream, std::string& bytes) {
    std::size_t head = 0;
    while ((head = bytes.find("\r\n\r\n")) == std::string::npos)
      if (bytes.size() > kHeadBytesMax || !stream.read(bytes)) return std::nullopt;
    Message out;
    std::istringstream lines(bytes.substr(0, head));
    bytes.erase(0, head + 4);
    for (std::string line; std::getline(lines, line);) {
      if (!line.empty() && line.back() == '\r') line.pop_back();
      const std::size_t colon = line.find(':');
      if (out.start.empty()) {
        out.start = line;
      } else if (colon != std::string::npos) {
        std::string name = line.substr(0, colon);
        for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
        out.headers[name] = line.substr(std::min(line.find_first_not_of(" \t", colon + 1), line.size()));
      }
    }
    const std::string length = out.headers.count("content-length") != 0 ? out.headers["content-length"] : "0";
    if (out.headers.count("transfer-encoding") != 0 || length.empty() || length.size() > 9 ||
        length.find_first_not_of("0123456789") != std::string::npos || std::stoul(length) > kBodyBytesMax)
      return std::nullopt;
    while (bytes.size() < std::stoul(length))
      if (!stream.read(bytes)) return std::nullopt;
    out.body = bytes.substr(0, std::stoul(length));
    bytes.erase(0, out.body.size());
    return out;
  }
};

struct Answer {
  int status = 0;  // 0: no answer, with the reason in `body`
  std::string body;
};

Answer ask(const Socket& socket, const std::string& head, const std::string& body, Clock::time_point until) {
  Stream stream(socket.fd(), until);
  const std::string length = "Content-Length: " + std::to_string(body.size()) + "\r\nConnection: close\r\n\r\n";
  if (!socket || !stream.write(head + length + body)) return {0, "there is no connection"};
  std::string bytes;
  const auto message = Message::read(stream, bytes);
  if (!message || message->start.size() < 12) return {0, "there was no answer"};
  return {std::atoi(message->start.c_str() + 9), message->body};
}

/// The addresses of a name; empty after a failure or the deadline. getaddrinfo() blocks for the
/// resolver, so it runs on a separate thread, and the caller stops waiting at the deadline.
using Addresses = std::shared_ptr<addrinfo>;
Addresses addresses_of(const std::string& host, const std::string& port, Clock::time_point until) {
  auto promise = std::make_shared<std::promise<Addresses>>();
  std::future<Addresses> found = promise->get_future();
  try {
    std::thread([promise, host, port] {
      addrinfo hints{}, *first = nullptr;
      hints.ai_socktype = SOCK_STREAM;
      const bool resolved = ::getaddrinfo(host.c_str(), port.c_str(), &hints, &first) == 0;
      promise->set_value(resolved ? Addresses(first, ::freeaddrinfo) : nullptr);
    }).detach();
  } catch (const std::system_error&) {
    return nullptr;  // the system has no thread left
  }
  return found.wait_until(until) == std::future_status::ready ? found.get() : nullptr;
}

Socket connect_to(const std::string& host, const std::string& port, Clock::time_point until) {
  const Addresses all = addresses_of(host, port, until);
  for (const addrinfo* one = all.get(); one != nullptr; one = one->ai_next) {
    Socket socket(::socket(one->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!socket) continue;
    int error = ::connect(socket.fd(), one->ai_addr, one->ai_addrlen) == 0 ? 0 : errno;
    if (error == EINPROGRESS && Stream(socket.fd(), until).wait(POLLOUT)) {
      socklen_t size = sizeof(error);
      ::getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &size);
    }
    if (error == 0) return socket;
  }
  return Socket();
}

Socket connect_to_file(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  Socket socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket || path.size() >= sizeof(address.sun_path)) return Socket();
  std::memcpy(address.sun_path, path.data(), path.size());
  return ::connect(socket.fd(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0 ? std::move(socket) : Socket();
}

/// "http://HOST:PORT/PATH"; https is not for an example.
struct Url {
  std::string host, port = "80", path;
  static std::optional<Url> parse(const std::string& text) {
    if (text.rfind("http://", 0) != 0) return std::nullopt;
    Url out;
    std::string rest = text.substr(7);
    const std::size_t slash = std::min(rest.find('/'), rest.size());
    out.path = rest.substr(slash);
    rest.resize(slash);
    while (!out.path.empty() && out.path.back() == '/') out.path.pop_back();
    const std::size_t colon = rest.rfind(':');
    if (colon != std::string::npos && rest.find(']', colon) == std::string::npos) {
      out.port = rest.substr(colon + 1);
      rest.resize(colon);
    }
    out.host = rest.size() > 2 && rest.front() == '[' ? rest.substr(1, rest.size() - 2) : rest;
    return out.host.empty() || out.port.empty() ? std::nullopt : std::optional<Url>(out);
  }
};

// ---- the model: how bright an image is. Put your own here.

/// MODEL_PATH/model.json contains {"labels": [dark, bright], "middle": 128, "spread": 40}. These
/// are also the defaults without the file.
struct Model {
  std::string labels[2] = {"dark", "bright"};
  double middle = 128, spread = 40;

  static std::optional<Model> load(const std::string& path) {
    Model out;
    std::ifstream file(path + "/model.json");
    if (path.empty() || !file) return out;
    std::stringstream text;
    text << file.rdbuf();
    const auto said = JsonReader(text.str()).read();
    if (!said) return std::nullopt;
    const auto& labels = (*said)["labels"].items;
    for (std::size_t i = 0; i < 2 && labels.size() == 2; ++i) out.labels[i] = labels[i].text;
    out.middle = (*said)["middle"].number_or(out.middle);
    out.spread = (*said)["spread"].number_or(out.spread);
    return out;
  }
  std::vector<double> probabilities(const std::string& image) const {
    double sum = 0;
    for (const char pixel : image) sum += static_cast<unsigned char>(pixel);
    const double mean = image.empty() ? middle : sum / static_cast<double>(image.size());
    const double bright = (1 + std::tanh((mean - middle) / spread / 2)) / 2;
    return {1 - bright, bright};
  }
};

// ---- the policy: decides which answers are hard. It gets probabilities. Policies for boxes find
// no boxes here, so nothing is hard.

struct Policy {
  std::string name;
  std::map<std::string, std::string> parameters;

  double parameter(const char* key, double otherwise) const {
    const auto found = parameters.find(key);
    return found == parameters.end() ? otherwise : std::strtod(found->second.c_str(), nullptr);
  }
  bool is_hard(const std::vector<double>& p) const {
    if (name == "AlwaysCloud" || name == "CloudOnly") return true;
    if (name == "Margin") return std::abs(p[0] - p[1]) < parameter("threshold_margin", 0.5);
    if (name == "Random") {
      thread_local std::mt19937 random{std::random_device{}()};
      return std::uniform_real_distribution<>()(random) < parameter("random_ratio", 0.3);
    }
    if (name != "CrossEntropy") return false;
    double confidence = 1;
    for (const double x : p)
      if (x > 0) confidence += x * std::log(x) / std::log(static_cast<double>(p.size()));
    return confidence < parameter("threshold_cross_entropy", 0.5);
  }
};

// ---- the current work; replaced as a whole when the assignment changes

struct Work {
  std::string model_name, version, path, cloud_url;
  Model model;
  Policy policy;

  /// Empty if the model cannot be read.
  static std::shared_ptr<const Work> of(const Json& model, const Json& mining, const std::string& cloud_url) {
    const auto loaded = Model::load(model["path"].text);
    if (!loaded) return nullptr;
    auto out = std::make_shared<Work>();
    *out = {model["name"].text, model["version"].text, model["path"].text, cloud_url, *loaded, {mining["name"].text, {}}};
    for (const Json& one : mining["parameters"].items) out->policy.parameters[one["key"].text] = one["value"].text;
    return out;
  }
  static std::shared_ptr<const Work> of_environment() {
    Json model, mining;
    for (const auto& [name, variable] : {std::pair("name", "MODEL_NAME"), {"version", "MODEL_VERSION"}, {"path", "MODEL_PATH"}})
      model.members[name].text = env(variable);
    mining.members["name"].text = env("HEM_NAME");
    mining.members["parameters"] = JsonReader(env("HEM_PARAMETERS", "[]")).read().value_or(Json());
    std::string cloud = env("CLOUD_URL");
    if (cloud.empty() && !env("BIG_MODEL_IP").empty())
      cloud = "http://" + env("BIG_MODEL_IP") + ":" + env("BIG_MODEL_PORT", "5000");
    return of(model, mining, cloud);
  }
  std::string describe() const {
    return "\"model\": " + quoted(model_name) + ", \"version\": " + quoted(version) + ", \"path\": " + quoted(path) +
           ", \"policy\": " + quoted(policy.name) + ", \"cloud\": " + quoted(cloud_url);
  }
};

struct Counts {
  long inferences = 0, hard = 0, uploaded = 0;
  std::string json() const {
    return "\"inferenceNumber\": " + std::to_string(inferences) + ", \"hardExampleNumber\": " + std::to_string(hard) +
           ", \"uploadCloudNumber\": " + std::to_string(uploaded);
  }
};

/// Thread-safe.
class Worker {
 public:
  explicit Worker(std::shared_ptr<const Work> work) : work_(std::move(work)) {}

  void take(std::shared_ptr<const Work> work) {
    log("assignment", work->describe());
    const std::lock_guard<std::mutex> lock(mutex_);
    work_ = std::move(work);
  }
  std::string status() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return "{" + work_->describe() + ", " + counts_.json() + "}";
  }
  std::string infer(const std::string& image) {
    std::shared_ptr<const Work> work;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      work = work_;
    }
    const std::vector<double> p = work->model.probabilities(image);
    const std::size_t best = p[1] > p[0] ? 1 : 0;
    const bool hard = work->policy.is_hard(p);
    std::string answer = "{\"label\": " + quoted(work->model.labels[best]) + ", \"score\": " + std::to_string(p[best]) +
                         ", \"tier\": \"edge\", \"hard\": " + (hard ? "true" : "false") + ", \"version\": " + quoted(work->version);
    bool uploaded = false;
    if (hard) {
      std::string why;
      if (const auto better = ask_cloud(*work, image, why)) {
        answer = *better;
        uploaded = true;
      } else {
        answer += ", \"fallback\": " + quoted(why);  // with the small model's label
      }
    }
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      ++counts_.inferences;
      counts_.hard += hard ? 1 : 0;
      counts_.uploaded += uploaded ? 1 : 0;
    }
    changed_.notify_all();
    return answer + "}";
  }

  /// Waits until the counts differ from `told` and the agent has registered this worker (`there`).
  std::string wait_for_counts(const std::string& told, const std::atomic<bool>& there) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return there && counts_.json() != told; });
    return counts_.json();
  }
  std::string counts() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return counts_.json();
  }
  void wake() {
    const std::lock_guard<std::mutex> lock(mutex_);
    changed_.notify_all();
  }

 private:
  static std::optional<std::string> ask_cloud(const Work& work, const std::string& image, std::string& why) {
    const auto url = Url::parse(work.cloud_url);
    if (!url) return why = "the cloud has no address yet", std::nullopt;
    const auto until = Clock::now() + kCloudTimeout;
    const Answer answer =
        ask(connect_to(url->host, url->port, until),
            "POST " + url->path + "/infer HTTP/1.1\r\nHost: " + url->host + "\r\nContent-Type: application/octet-stream\r\n", image,
            until);
    if (answer.status != 200) return why = answer.status == 0 ? answer.body : "HTTP " + std::to_string(answer.status), std::nullopt;
    const auto said = JsonReader(answer.body).read();
    const auto is = [&](const char* name, Json::Type type) { return (*said)[name].type == type; };
    const bool whole =
        said && is("label", Json::Type::kString) && is("score", Json::Type::kNumber) && is("version", Json::Type::kString);
    if (!whole || !std::isfinite((*said)["score"].number)) return why = "the cloud's answer is none", std::nullopt;
    return "{\"label\": " + quoted((*said)["label"].text) + ", \"score\": " + std::to_string((*said)["score"].number) +
           ", \"tier\": \"cloud\", \"hard\": true, \"version\": " + quoted((*said)["version"].text);
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::shared_ptr<const Work> work_;
  Counts counts_;
};

// ---- the node's agent

/// Reports to the agent and follows the assignment. Without an agent only the environment counts.
class Agent {
 public:
  explicit Agent(Worker& worker)
      : worker_(worker), socket_(env("VARDA_WORKER_SOCKET")), token_file_(env("VARDA_WORKER_TOKEN_FILE")) {
    std::random_device random;
    char text[20];
    std::snprintf(text, sizeof(text), "%08x%08x", random(), random());
    instance_ = text;
  }
  void start() {
    if (socket_.empty() || token_file_.empty()) return log("there is no agent to ask; the environment counts");
    std::thread([this] { follow(); }).detach();
    std::thread([this] { report(); }).detach();
  }
  void last_report() {
    if (!registered_) return;
    const std::string now = worker_.counts();
    std::unique_lock<std::mutex> lock(mutex_);
    if (now == told_) return;
    lock.unlock();
    call("PUT", "/v1/metrics", "{\"metrics\": {" + now + "}}", milliseconds(500));
  }

 private:
  Answer call(const std::string& method, const std::string& path, const std::string& body, milliseconds patience) const {
    std::ifstream file(token_file_);  // read each time: the agent may replace it
    std::string token;
    std::getline(file, token);
    return ask(connect_to_file(socket_),
               method + " " + path + " HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + token + "\r\n", body,
               Clock::now() + patience);
  }
  void set_registered(bool registered) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (registered) told_.clear();  // the agent may have lost the former reports
      registered_ = registered;
    }
    worker_.wake();
  }
  /// Sends one request and applies the answer. False after a failure, with the reason in `why`.
  bool follow_once(std::string& revision, std::string& why) {
    const bool anew = revision.empty();
    const Answer answer =
        anew ? call("POST", "/v1/register",
                    "{\"version\": \"1.0\", \"instance\": " + quoted(instance_) + ", \"capabilities\": [\"assignment\"]}",
                    milliseconds(10000))
             : call("GET", "/v1/assignment?timeoutSeconds=60&after=" + revision, "", milliseconds(90000));
    if (answer.status == 401) set_registered(false);
    if (answer.status == 200 && anew) set_registered(true);
    const auto said = answer.status == 200 ? JsonReader(answer.body).read() : std::nullopt;
    if (!said) return why = std::to_string(answer.status) + " " + answer.body, false;
    if ((*said)["revision"].text == revision) return true;
    const Json& assignment = (*said)["assignment"];
    if (assignment.type == Json::Type::kObject) {
      auto work = Work::of(assignment["model"], assignment["hardExampleMining"], assignment["cloud"]["url"].text);
      if (!work) return why = "the model cannot be read", false;
      worker_.take(std::move(work));
    }
    revision = (*said)["revision"].text;
    return true;
  }
  void follow() {
    std::string revision, why;
    for (int pause_s = 1;; pause_s = std::min(pause_s * 2, 30)) {
      const auto began = Clock::now();
      if (follow_once(revision, why)) {
        pause_s = 1;
        if (Clock::now() - began > milliseconds(500)) continue;  // the agent held the request: no pause
      } else {
        // The current work continues, and the loop tries again.
        log("the agent could not be followed", "\"error\": " + quoted(why) + ", \"again_in_s\": " + std::to_string(pause_s));
        revision.clear();
      }
      std::this_thread::sleep_for(std::chrono::seconds(pause_s));
    }
  }
  void report() {
    for (;;) {
      std::string told;
      {
        const std::lock_guard<std::mutex> lock(mutex_);
        told = told_;
      }
      const std::string now = worker_.wait_for_counts(told, registered_);
      if (const Answer answer = call("PUT", "/v1/metrics", "{\"metrics\": {" + now + "}}", milliseconds(10000));
          answer.status / 100 == 2) {
        const std::lock_guard<std::mutex> lock(mutex_);
        told_ = now;
      }  // otherwise the agent is away; the next report has all counts
      std::this_thread::sleep_for(kReportPeriod);
    }
  }

  Worker& worker_;
  const std::string socket_, token_file_;
  std::string instance_;
  std::atomic<bool> registered_{false};
  std::mutex mutex_;
  std::string told_;  // last report since the registration
};

// ---- the server: one thread per connection

class Server {
 public:
  explicit Server(Worker& worker) : worker_(worker) {}

  bool listen(const std::string& host, const std::string& port) {
    addrinfo hints{}, *found = nullptr;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_PASSIVE;
    if (::getaddrinfo(host.empty() ? nullptr : host.c_str(), port.c_str(), &hints, &found) != 0) return false;
    const std::unique_ptr<addrinfo, void (*)(addrinfo*)> all(found, ::freeaddrinfo);
    listener_ = Socket(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int on = 1;
    if (!listener_) return false;
    ::setsockopt(listener_.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    return ::bind(listener_.fd(), found->ai_addr, found->ai_addrlen) == 0 && ::listen(listener_.fd(), 128) == 0;
  }
  /// The bound port, also after a request for port 0.
  int port() const {
    sockaddr_storage address{};
    socklen_t size = sizeof(address);
    if (::getsockname(listener_.fd(), reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
    return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6*>(&address)->sin6_port
                                               : reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
  }
  void serve() {
    for (;;) {
      const int fd = ::accept4(listener_.fd(), nullptr, nullptr, SOCK_CLOEXEC);
      if (fd < 0) {
        if (errno != EINTR && errno != ECONNABORTED) std::this_thread::sleep_for(milliseconds(100));  // no descriptors are left
        continue;
      }
      Socket socket(fd);
      if (++connections_ > kConnectionsMax) {
        --connections_;
        continue;  // the socket closes here
      }
      std::thread([this, fd = std::make_shared<Socket>(std::move(socket))] {
        serve(*fd);
        --connections_;
      }).detach();
    }
  }

 private:
  void serve(const Socket& socket) {
    const int on = 1;
    ::setsockopt(socket.fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    std::string bytes;
    for (bool more = true; more;) {
      Stream stream(socket.fd(), Clock::now() + std::chrono::seconds(30));
      const auto request = Message::read(stream, bytes);
      if (!request) return;
      const auto connection = request->headers.find("connection");
      more = request->start.find("HTTP/1.1") != std::string::npos &&
             (connection == request->headers.end() || connection->second != "close");
      int status = 200;
      std::string body = answer(*request, status) + "\n";
      Stream out(socket.fd(), Clock::now() + std::chrono::seconds(30));
      if (!out.write("HTTP/1.1 " + std::to_string(status) + (status == 200 ? " OK" : " Not Found") +
                     "\r\nContent-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) +
                     (more ? "" : "\r\nConnection: close") + "\r\n\r\n" + body))
        return;
    }
  }
  std::string answer(const Message& request, int& status) {
    const std::string what = request.start.substr(0, request.start.rfind(' '));
    if (what == "POST /infer") return worker_.infer(request.body);
    if (what == "GET /status") return worker_.status();
    if (what == "GET /healthz") return "{\"ok\": true}";
    status = 404;
    return "{\"error\": \"there are POST /infer, GET /status, GET /healthz\"}";
  }

  Worker& worker_;
  Socket listener_;
  std::atomic<int> connections_{0};
};

}  // namespace

int main() {
  // All other threads block the signals; this thread waits for them.
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  sigaddset(&ends, SIGINT);
  pthread_sigmask(SIG_BLOCK, &ends, nullptr);

  auto work = Work::of_environment();
  if (!work) {
    log("the model cannot be read", "\"path\": " + quoted(env("MODEL_PATH")));
    return 1;
  }
  Worker worker(work);
  Server server(worker);
  const std::string host = env("POD_IP"), port = env("LISTEN_PORT", "8080");
  if (!server.listen(host, port)) {
    log("cannot listen",
        "\"address\": " + quoted(host) + ", \"port\": " + quoted(port) + ", \"error\": " + quoted(std::strerror(errno)));
    return 1;
  }
  log("edge worker listens",
      "\"address\": " + quoted(host) + ", \"port\": " + std::to_string(server.port()) + ", " + work->describe());
  Agent agent(worker);
  agent.start();
  std::thread([&server] { server.serve(); }).detach();
  int number = 0;
  sigwait(&ends, &number);
  agent.last_report();
  std::_Exit(0);
}
