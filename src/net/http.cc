#include "net/http.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>

#include "base/log.h"
#include "base/text.h"
#include "net/url.h"

namespace varda::net {
namespace {

/// Shared by the handler's thread and the waiting caller of loopback(). Outlives both.
struct Exchange {
  std::mutex mutex;
  std::condition_variable_any changed;
  bool answered = false;
  bool abandoned = false;  // the caller gave up; a late answer is dropped
  bool woken = false;      // the stream reported that it may have bytes
  Response response;

  void wake() {
    {
      std::lock_guard lock(mutex);
      woken = true;
    }
    changed.notify_all();
  }

  /// Waits until `ready` holds (with the mutex held by `lock`) or the context is done.
  template <typename Ready>
  Status wait(std::unique_lock<std::mutex>& lock, const Context& ctx, Ready ready) {
    if (ctx.deadline()) {
      changed.wait_until(lock, ctx.stop_token(), *ctx.deadline(), ready);
    } else {
      changed.wait(lock, ctx.stop_token(), ready);
    }
    if (ready()) return {};
    TRY_VOID(ctx.check());
    return Error(Code::kTimeout, "deadline exceeded");
  }
};

class TextReader final : public BodyReader {
 public:
  explicit TextReader(std::string text) : text_(std::move(text)) {}
  Result<std::optional<std::string>> read() override {
    if (text_.empty()) return std::optional<std::string>();
    return std::optional<std::string>(std::exchange(text_, {}));
  }

 private:
  std::string text_;
};

class StreamReader final : public BodyReader {
 public:
  StreamReader(Context ctx, std::shared_ptr<Exchange> exchange, std::unique_ptr<BodyStream> stream)
      : ctx_(std::move(ctx)), exchange_(std::move(exchange)), stream_(std::move(stream)) {
    stream_->on_ready([exchange = exchange_] { exchange->wake(); });
  }

  Result<std::optional<std::string>> read() override {
    while (stream_) {
      TRY_VOID(ctx_.check());
      {
        std::lock_guard lock(exchange_->mutex);
        exchange_->woken = false;
      }
      auto bytes = stream_->read();
      if (!bytes) {
        stream_.reset();
        break;
      }
      if (!bytes->empty()) return std::optional<std::string>(std::move(*bytes));
      std::unique_lock lock(exchange_->mutex);
      TRY_VOID(exchange_->wait(lock, ctx_, [this] { return exchange_->woken; }));
    }
    return std::optional<std::string>();
  }

 private:
  const Context ctx_;
  const std::shared_ptr<Exchange> exchange_;
  std::unique_ptr<BodyStream> stream_;
};

class Loopback final : public HttpClient {
 public:
  Loopback(Handler handler, Peer peer) : handler_(std::move(handler)), peer_(std::move(peer)) {}

  Result<ClientResponse> send(const Context& ctx, ClientRequest request) override {
    TRY_VOID(ctx.check());
    Request out;
    out.method = std::move(request.method);
    out.headers = std::move(request.headers);
    out.body = std::move(request.body);
    out.peer = peer_;
    if (request.url.starts_with('/')) {
      out.target = std::move(request.url);
    } else {
      TRY(Url url, Url::parse(request.url));
      out.target = std::move(url.target);
    }
    const bool head = out.method == "HEAD";

    auto exchange = std::make_shared<Exchange>();
    const auto on_disconnect = std::make_shared<Responder::OnDisconnect>();
    handler_(std::move(out), Responder(
                                 [exchange](Response response) {
                                   {
                                     std::lock_guard lock(exchange->mutex);
                                     if (exchange->abandoned) return;
                                     exchange->response = std::move(response);
                                     exchange->answered = true;
                                   }
                                   exchange->changed.notify_all();
                                 },
                                 [on_disconnect](Responder::OnDisconnect callback) {
                                   *on_disconnect = std::move(callback);
                                 }));
    // Other holders of the responder do not keep this callback.
    const Responder::OnDisconnect reported = std::exchange(*on_disconnect, nullptr);
    std::unique_lock lock(exchange->mutex);
    if (Status status = exchange->wait(lock, ctx, [&] { return exchange->answered; });
        !status.ok()) {
      exchange->abandoned = true;
      lock.unlock();
      if (reported) reported();
      return status.error();
    }
    Response response = std::move(exchange->response);
    lock.unlock();

    ClientResponse answer;
    answer.status = response.status;
    answer.headers = std::move(response.headers);
    if (response.stream && !head) {
      answer.body =
          std::make_unique<StreamReader>(ctx, std::move(exchange), std::move(response.stream));
    } else {
      answer.body = std::make_unique<TextReader>(head ? std::string() : std::move(response.body));
    }
    return answer;
  }

 private:
  const Handler handler_;
  const Peer peer_;
};

}  // namespace

std::optional<std::string_view> Headers::find(std::string_view name) const {
  for (const auto& [key, value] : fields_) {
    if (equal_ignoring_case(key, name)) return value;
  }
  return std::nullopt;
}

void Headers::set(std::string_view name, std::string value) {
  remove(name);
  fields_.emplace_back(std::string(name), std::move(value));
}

void Headers::remove(std::string_view name) {
  std::erase_if(fields_, [&](const auto& field) { return equal_ignoring_case(field.first, name); });
}

std::string_view Request::path() const {
  return std::string_view(target).substr(0, target.find('?'));
}

std::string_view Request::query() const {
  const auto mark = target.find('?');
  return mark == std::string::npos ? std::string_view() : std::string_view(target).substr(mark + 1);
}

Responder::~Responder() {
  if (!complete_) return;
  Response response;
  response.status = 500;
  response.headers.add("Content-Type", "text/plain; charset=utf-8");
  response.body = "the request was dropped\n";
  (*this)(std::move(response));
}

Handler inline_handler(SyncHandler handler) {
  return [handler = std::move(handler)](Request request, Responder respond) {
    try {
      respond(handler(request));
    } catch (const std::exception& e) {
      // The responder answers 500 on destruction.
      log::error("a request handler threw",
                 {{"method", request.method}, {"target", request.target}, {"what", e.what()}});
    }
  };
}

Result<HttpClient::Answer> HttpClient::call(const Context& ctx, ClientRequest request) {
  const std::uint64_t limit = request.max_response_bytes;
  const std::string url = request.url;
  TRY(ClientResponse response, send(ctx, std::move(request)));
  Answer answer;
  answer.status = response.status;
  answer.headers = std::move(response.headers);
  while (true) {
    TRY(auto bytes, response.body->read());
    if (!bytes) return answer;
    if (answer.body.size() + bytes->size() > limit) {
      return Error(Code::kExhausted, "the response of " + url + " is larger than " +
                                         std::to_string(limit) + " bytes");
    }
    if (answer.body.empty()) {
      answer.body = std::move(*bytes);
    } else {
      answer.body += *bytes;
    }
  }
}

std::unique_ptr<HttpClient> loopback(Handler handler, Peer peer) {
  return std::make_unique<Loopback>(std::move(handler), std::move(peer));
}

}  // namespace varda::net
