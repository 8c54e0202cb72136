#include "serving/joint/upstream.h"

#include <utility>

#include "codec/json.h"
#include "net/url.h"

namespace varda::serving::joint {
namespace {

constexpr std::size_t kAnswerBytesMax = std::size_t{64} << 20;
constexpr std::size_t kWordsMax = 200;  // of a server, in a message of ours

Called failed(CallFailure failure, std::string message) {
  Called out;
  out.failure = failure;
  out.message = std::move(message);
  return out;
}

std::string model_url(const std::string& url, const std::string& model) {
  std::string out = url;
  while (!out.empty() && out.back() == '/') out.pop_back();
  return out + "/v2/models/" + net::percent_encode(model);
}

// What the server says itself is most of what a user has to go by.
std::string words(const net::HttpClient::Answer& answer) {
  std::string out = "HTTP " + std::to_string(answer.status);
  const auto json = codec::parse_json(answer.body);
  if (!json.ok()) return out;
  std::string said = (*json)["error"].as_string();
  if (said.empty()) said = (*json)["reason"].as_string();
  if (said.size() > kWordsMax) {
    std::size_t end = kWordsMax;
    while (end > 0 && (static_cast<unsigned char>(said[end]) & 0xC0) == 0x80) --end;  // not within a character
    said = said.substr(0, end) + "…";
  }
  return said.empty() ? out : out + ": " + said;
}

CallFailure failure_of(int status) {
  if (status == 200) return CallFailure::kNone;
  if (status == 429 || status == 503) return CallFailure::kOverloaded;
  return status >= 400 && status < 500 ? CallFailure::kRefused : CallFailure::kFailed;
}

}  // namespace

Called Upstream::exchange(const Context& ctx, net::ClientRequest request, net::HttpClient::Answer& answer) const {
  auto response = http_.send(ctx, std::move(request));
  if (!response.ok()) {
    const Code code = response.error().code();
    return failed(code == Code::kTimeout       ? CallFailure::kTimeout
                  : code == Code::kUnavailable ? CallFailure::kUnreachable
                                               : CallFailure::kFailed,
                  response.error().message());
  }
  answer.status = response->status;
  answer.headers = std::move(response->headers);
  for (;;) {
    auto bytes = response->body->read();
    if (!bytes.ok()) {
      return failed(bytes.error().code() == Code::kTimeout ? CallFailure::kTimeout : CallFailure::kFailed,
                    "the answer broke off: " + bytes.error().message());
    }
    if (!bytes->has_value()) break;
    if (answer.body.size() + (*bytes)->size() > kAnswerBytesMax) {
      return failed(CallFailure::kFailed, "the answer is larger than " + std::to_string(kAnswerBytesMax >> 20) + " MiB");
    }
    if (answer.body.empty()) {
      answer.body = std::move(**bytes);
    } else {
      answer.body += **bytes;
    }
  }
  const CallFailure failure = failure_of(answer.status);
  return failure == CallFailure::kNone ? Called{} : failed(failure, words(answer));
}

Called Upstream::infer(const Context& ctx, const std::string& url, const std::string& model, const InferCall& call) const {
  net::ClientRequest request{.method = "POST", .url = model_url(url, model) + "/infer", .body = *call.body};
  if (!call.content_type.empty()) request.headers.add("Content-Type", call.content_type);
  if (call.json_length) request.headers.add(std::string(oip::kJsonLengthHeader), *call.json_length);
  net::HttpClient::Answer answer;
  Called out = exchange(ctx, std::move(request), answer);
  out.bytes_sent = call.bytes();
  if (out.failure != CallFailure::kNone) return out;
  const auto length = answer.headers.find(oip::kJsonLengthHeader);
  auto opened = oip::open_infer_response(std::make_shared<const std::string>(std::move(answer.body)), length, limits_);
  if (opened.ok()) {
    out.answer = std::move(opened).value();
  } else {
    out.failure = CallFailure::kFailed;
    out.message = "no answer of the protocol: " + opened.error().message();
  }
  return out;
}

Called Upstream::ready(const Context& ctx, const std::string& url, const std::string& model) const {
  net::HttpClient::Answer answer;
  return exchange(ctx, {.url = model_url(url, model) + "/ready"}, answer);
}

}  // namespace varda::serving::joint
