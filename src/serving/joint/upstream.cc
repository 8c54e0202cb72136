#include "serving/joint/upstream.h"

#include <utility>

#include "codec/json.h"
#include "codec/text.h"
#include "net/url.h"

namespace varda::serving::joint {
namespace {

constexpr std::size_t kOneAnswerBytesMax = std::size_t{64} << 20;
constexpr std::size_t kErrorTextMax = 200;  // length of a server's text in our messages

Called failed(tiers::Failure failure) {
  Called out;
  out.failure = std::move(failure);
  return out;
}

tiers::Failure timeout(std::string message) {
  return {.reason = tiers::Reason::kTimeout, .message = std::move(message)};
}

// Cancelled on this side: no evidence about the other server.
tiers::Failure cancelled() { return {.message = "the call was cancelled", .tier_at_fault = false}; }

// Whether the other server may have the whole request. Only the text separates the client's errors
// from errors of connecting. Other texts are errors of connecting, after which the request is sent
// once more.
bool may_have_arrived(const std::string& error) {
  for (const std::string_view after_sending : {"the connection broke ", "malformed response: "}) {
    if (error.find(after_sending) != std::string::npos) return true;
  }
  return false;
}

// Whether nothing was sent because no connection was made.
bool was_not_sent(const Error& error) {
  if (error.code() == Code::kUnavailable) return !may_have_arrived(error.message());
  return error.code() == Code::kInvalid || error.message().starts_with("connecting to ");
}

std::string model_url(const std::string& url, const std::string& model) {
  std::string out = url;
  while (!out.empty() && out.back() == '/') out.pop_back();
  return out + "/v2/models/" + net::percent_encode(model);
}

// The server's own error text, the most useful part for the user.
std::string error_text(const net::HttpClient::Answer& answer) {
  std::string out = "HTTP " + std::to_string(answer.status);
  const auto json = codec::parse_json(answer.body);
  if (!json.ok()) return out;
  std::string reason = (*json)["error"].as_string();
  if (reason.empty()) reason = (*json)["reason"].as_string();
  if (reason.size() > kErrorTextMax) reason = codec::clipped(reason, kErrorTextMax) + "…";
  return reason.empty() ? out : out + ": " + reason;
}

}  // namespace

Called Upstream::exchange(const Context& ctx, net::HttpClient& http, net::ClientRequest request,
                          net::HttpClient::Answer& answer, ByteBudget::Share& share,
                          std::uint64_t& bytes_sent) {
  const std::uint64_t whole = request.body.size();
  auto response = http.send(ctx, std::move(request));
  bytes_sent = response.ok() || !was_not_sent(response.error()) ? whole : 0;
  if (!response.ok()) {
    const Error& error = response.error();
    switch (error.code()) {
      case Code::kTimeout:
        return failed(timeout(error.message()));
      case Code::kCancelled:
        return failed(cancelled());
      case Code::kUnavailable: {
        tiers::Failure failure = tiers::unreachable(error.message());
        failure.surely_unanswered = !may_have_arrived(error.message());
        return failed(std::move(failure));
      }
      default:
        return failed(tiers::unreadable(error.message()));
    }
  }
  answer.status = response->status;
  answer.headers = std::move(response->headers);
  for (;;) {
    auto bytes = response->body->read();
    if (!bytes.ok()) {
      if (bytes.error().code() == Code::kCancelled) return failed(cancelled());
      const std::string message = "the answer broke off: " + bytes.error().message();
      return failed(bytes.error().code() == Code::kTimeout ? timeout(message)
                                                           : tiers::unreadable(message));
    }
    if (!bytes->has_value()) break;
    if (answer.body.size() + (*bytes)->size() > kOneAnswerBytesMax) {
      return failed(tiers::unreadable("the answer is larger than " +
                                      std::to_string(kOneAnswerBytesMax >> 20) + " MiB"));
    }
    if (!share.grow((*bytes)->size())) {
      return failed({.reason = tiers::Reason::kInFlightLimit,
                     .message = "the memory limit leaves no space for an answer of this size",
                     .tier_at_fault = false});
    }
    if (answer.body.empty()) {
      answer.body = std::move(**bytes);
    } else {
      answer.body += **bytes;
    }
  }
  if (answer.status == 200) return {};
  // A status below 400 other than 200 is no answer of the protocol.
  return failed(answer.status < 400 ? tiers::unreadable(error_text(answer))
                                    : tiers::of_status(answer.status, error_text(answer)));
}

Called Upstream::infer(const Context& ctx, const std::string& url, const std::string& model,
                       const InferCall& call, Connection connection) const {
  net::ClientRequest request{
      .method = "POST", .url = model_url(url, model) + "/infer", .body = *call.body};
  if (!call.content_type.empty()) request.headers.add("Content-Type", call.content_type);
  if (call.json_length) request.headers.add(std::string(oip::kJsonLengthHeader), *call.json_length);
  // The answer and its share of the budget end together, on any thread.
  struct Shared {
    explicit Shared(std::shared_ptr<ByteBudget> budget) : share(std::move(budget)) {}
    ByteBudget::Share share;
    net::HttpClient::Answer answer;
  };
  const auto shared = std::make_shared<Shared>(answers_);
  net::HttpClient::Answer& answer = shared->answer;
  std::uint64_t bytes_sent = 0;
  Called out = exchange(ctx, connection == Connection::kNew ? clients_.fresh : clients_.pooled,
                        std::move(request), answer, shared->share, bytes_sent);
  out.bytes_sent = bytes_sent;
  if (out.failure) return out;
  const auto length = answer.headers.find(oip::kJsonLengthHeader);
  auto opened = oip::open_infer_response(std::shared_ptr<const std::string>(shared, &answer.body),
                                         length, limits_);
  if (opened.ok()) {
    out.answer = std::move(opened).value();
  } else {
    out.failure =
        tiers::unreadable("the answer violates the protocol: " + opened.error().message());
  }
  return out;
}

Called Upstream::ready(const Context& ctx, const std::string& url, const std::string& model) const {
  net::HttpClient::Answer answer;
  ByteBudget::Share share(answers_);
  std::uint64_t bytes_sent = 0;
  Called ready = exchange(ctx, clients_.pooled, {.url = model_url(url, model) + "/ready"}, answer,
                          share, bytes_sent);
  if (ready.failure) return ready;
  net::HttpClient::Answer about;
  Called metadata =
      exchange(ctx, clients_.pooled, {.url = model_url(url, model)}, about, share, bytes_sent);
  return metadata.failure && (about.status == 401 || about.status == 403) ? metadata : ready;
}

}  // namespace varda::serving::joint
