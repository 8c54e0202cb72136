#include "network.h"

#include <algorithm>

#include "base/check.h"
#include "meta/status.h"

namespace varda::sim {
namespace {

using std::chrono::milliseconds;

bool is_write(const std::string& method) { return method != "GET"; }
// Methods that a transport may repeat after a broken connection (RFC 9110, 9.2.2).
bool idempotent(const std::string& method) {
  return method == "GET" || method == "PUT" || method == "DELETE";
}

class TextReader final : public net::BodyReader {
 public:
  explicit TextReader(std::string text) : text_(std::move(text)) {}
  Result<std::optional<std::string>> read() override {
    if (text_.empty()) return std::optional<std::string>();
    return std::optional<std::string>(std::exchange(text_, {}));
  }

 private:
  std::string text_;
};

net::Response error_response(int status) {
  const char* reason = status == 429   ? "TooManyRequests"
                       : status == 503 ? "ServiceUnavailable"
                                       : "InternalError";
  net::Response out;
  out.status = status;
  out.headers.add("Content-Type", "application/json");
  out.body =
      std::string(
          R"({"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"simulated","reason":")") +
      reason + R"(","code":)" + std::to_string(status) + "}";
  return out;
}

// Mutation url_at_once: publishes the URL before a server answers.
std::string with_url(const std::string& text) {
  auto body = codec::parse_json(text);
  CHECK(body.ok());
  const codec::Json& read = *body;
  if (read["kind"].as_string() == "InferenceModel" && read.at("status/url").is_null()) {
    const std::string url =
        "http://127.9.1.1:" + std::to_string(read.at("spec/servingPort").as_integer());
    const codec::Json version = read.at("spec/targetVersion");
    (*body)["status"].set("url", url);
    (*body)["status"].set("servingVersion", version);
  }
  return codec::write_json(read);
}

// Mutation tiers_are_lost: removes the addresses of tiers from a work list.
std::string without_tiers(const std::string& text) {
  auto body = codec::parse_json(text);
  CHECK(body.ok());
  const codec::Json& read = *body;
  if (read["kind"].as_string() != "EdgeNode" || !read["spec"]["models"].is_array()) return text;
  for (codec::Json& model : (*body)["spec"]["models"].array_items())
    if (codec::Json* joint = model.find("joint"))
      (*joint)["tiers"].array_items().back().set("url", "");
  return codec::write_json(read);
}

/// The method and URL of a request, for the trace.
std::string shown(const net::ClientRequest& request) { return request.method + " " + request.url; }

}  // namespace

/// One open watch: delivers one event at a time.
class WatchPipe final : public net::BodyReader {
 public:
  WatchPipe(Network::Link& link, std::unique_ptr<net::BodyStream> stream, SteadyTime end)
      : network_(link.network_), link_(&link), stream_(std::move(stream)), end_(end) {
    network_.watches_.push_back(this);
  }
  ~WatchPipe() override { std::erase(network_.watches_, this); }

  Result<std::optional<std::string>> read() override {
    TRY_VOID(network_.scheduler_.wait([this] { return due(); }));
    SeededRng& rng = network_.scheduler_.rng();
    if (broken_ || (!lines_.empty() && rng.chance(network_.rates_.watch_break))) {
      break_off();
      network_.scheduler_.note("watch breaks");
      return Error(Code::kUnavailable, "simulated: the connection broke");
    }
    if (!lines_.empty() && rng.chance(network_.rates_.watch_end)) {
      stream_.reset();
      lines_.clear();
      ended_ = true;
      network_.scheduler_.note("watch ends");
      return std::optional<std::string>();
    }
    if (lines_.empty()) return std::optional<std::string>();
    std::string line = std::move(lines_.front().text);
    lines_.pop_front();
    network_.scheduler_.note("event", line);
    return std::optional<std::string>(std::move(line));
  }

  /// Breaks the watch on both sides.
  void break_off() {
    broken_ = true;
    stream_.reset();
    lines_.clear();
  }
  const Network::Link* link() const { return link_; }
  void forget_link() {
    break_off();
    link_ = nullptr;
  }

 private:
  struct Line {
    std::string text;
    SteadyTime due;
  };

  std::optional<SteadyTime> due() {
    if (broken_ || ended_) return SteadyTime::min();
    if (!link_->up()) return std::nullopt;
    pump();
    if (!lines_.empty()) return lines_.front().due;
    if (ended_) return SteadyTime::min();
    return end_;
  }

  // Reads the server's pending output.
  void pump() {
    const store::Revision revision = network_.store_.revision();
    const SteadyTime now = network_.scheduler_.clock().now();
    if (revision == seen_ && now < end_) return;
    seen_ = revision;
    while (stream_) {
      auto bytes = stream_->read();
      if (!bytes) {
        stream_.reset();
        ended_ = true;
        return;
      }
      if (bytes->empty()) return;
      SeededRng& rng = network_.scheduler_.rng();
      std::size_t from = 0;
      while (from < bytes->size()) {
        const std::size_t to = bytes->find('\n', from);
        CHECK(to != std::string::npos);  // the server writes whole lines
        SteadyTime due = lines_.empty() ? SteadyTime::min() : lines_.back().due;
        if (rng.chance(network_.rates_.hold))
          due = std::max(due, now + milliseconds(1 + rng.below(5000)));
        std::string line = bytes->substr(from, to + 1 - from);
        if (!network_.mutations_.deletions_are_lost || !line.starts_with(R"({"type":"DELETED")"))
          lines_.push_back({std::move(line), due});
        from = to + 1;
      }
    }
  }

  Network& network_;
  Network::Link* link_;
  std::unique_ptr<net::BodyStream> stream_;
  const SteadyTime end_;
  store::Revision seen_ = -1;
  std::deque<Line> lines_;
  bool ended_ = false;
  bool broken_ = false;
};

void Network::serve(apiserver::Server* server) {
  server_ = server;
  for (WatchPipe* watch : watches_) watch->break_off();
}

Network::Link::~Link() {
  for (WatchPipe* watch : network_.watches_)
    if (watch->link() == this) watch->forget_link();
}

void Network::Link::set_up(bool up) {
  if (up && !up_)
    for (WatchPipe* watch : network_.watches_)
      if (watch->link() == this) watch->break_off();
  up_ = up;
}

Status Network::Link::maybe_delay() {
  Scheduler& scheduler = network_.scheduler_;
  if (!scheduler.rng().chance(network_.rates_.delay)) return scheduler.pause();
  const SteadyTime until = scheduler.clock().now() + milliseconds(1 + scheduler.rng().below(3000));
  return scheduler.wait([until] { return std::optional(until); });
}

Result<net::Response> Network::Link::deliver(const net::ClientRequest& request) {
  if (network_.server_ == nullptr || !up_)
    return Error(Code::kUnavailable, "simulated: no way to the server");
  if (served_by_ != network_.server_) {
    served_by_ = network_.server_;
    handler_ = served_by_->handler_as(identity_);
  }
  ++network_.requests_;
  if (is_write(request.method)) ++network_.writes_;
  std::optional<net::Response> out;
  const auto forward = [&](const std::string& method, std::string body) {
    handler_({.method = method,
              .target = request.url,
              .headers = request.headers,
              .body = std::move(body),
              .peer = {}},
             net::Responder([&out](net::Response response) { out = std::move(response); }));
  };
  const bool put = request.method == "PUT";
  const Mutations& mutations = network_.mutations_;
  std::string sent = request.body;
  if (put && mutations.url_at_once) sent = with_url(sent);
  if (put && mutations.tiers_are_lost) sent = without_tiers(sent);
  forward(request.method, std::move(sent));
  if (put && network_.mutations_.versions_ignored && out->status == 409) {
    forward("GET", "");
    auto body = codec::parse_json(request.body);
    const auto live = codec::parse_json(out->body);
    CHECK(body.ok() && live.ok());
    (*body)["metadata"].set("resourceVersion", live->at("metadata/resourceVersion"));
    forward("PUT", codec::write_json(*body));
  }
  CHECK(out.has_value());  // handler_as() answers on the caller's thread
  return std::move(*out);
}

Result<net::ClientResponse> Network::Link::send(const Context& ctx, net::ClientRequest request) {
  if (ctx.stopped() || !process_.alive) return Error(Code::kCancelled, "the process ends");
  Scheduler& scheduler = network_.scheduler_;
  SeededRng& rng = scheduler.rng();
  const FaultRates& rates = network_.rates_;
  TRY_VOID(maybe_delay());
  if (rng.chance(rates.refuse)) {
    scheduler.note("refused", shown(request));
    return Error(Code::kUnavailable, "simulated: connection refused");
  }
  net::Response response;
  if (rng.chance(rates.server_error)) {
    static constexpr int kStatuses[] = {429, 500, 503};
    response = error_response(kStatuses[rng.below(3)]);
  } else {
    auto delivered = deliver(request);
    if (delivered.ok() && idempotent(request.method) && rng.chance(rates.repeat)) {
      scheduler.note("repeated", shown(request));
      delivered = deliver(request);
    }
    if (!delivered.ok()) {
      scheduler.note("unreachable", shown(request));
      return std::move(delivered).error();
    }
    response = std::move(*delivered);
  }
  scheduler.note(std::to_string(response.status),
                 shown(request) + (is_write(request.method) ? " " + request.body : ""));
  net::ClientResponse out;
  out.status = response.status;
  out.headers = std::move(response.headers);
  if (response.stream) {
    long seconds = 300;
    if (const auto at = request.url.find("timeoutSeconds="); at != std::string::npos)
      seconds = std::stol(request.url.substr(at + 15));
    out.body = std::make_unique<WatchPipe>(*this, std::move(response.stream),
                                           scheduler.clock().now() + std::chrono::seconds(seconds));
    return out;
  }
  if (is_write(request.method))
    TRY_VOID(maybe_delay());  // a read needs no delay: others may run before its answer is used
  if (rng.chance(rates.lose_answer)) {
    scheduler.note("answer lost", shown(request));
    return Error(Code::kUnavailable, "simulated: the connection broke before the answer");
  }
  out.body = std::make_unique<TextReader>(std::move(response.body));
  return out;
}

}  // namespace varda::sim
