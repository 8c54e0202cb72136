#include "worker/api.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "worker/model_directory.h"

namespace varda::worker {
namespace {

using Answer = net::HttpClient::Answer;

constexpr std::uint64_t kTokenBytesMax = 4096;
constexpr std::uint64_t kAnswerBytesMax = 256 << 10;

/// The agent's message, else the status alone.
std::string message_of(const Answer& answer) {
  const auto body = codec::parse_json(answer.body);
  const std::string text = body.ok() ? (*body)["message"].as_string() : "";
  return "the agent answered " + std::to_string(answer.status) + (text.empty() ? "" : ": " + text);
}

/// A retry helps after 401 too: the agent replaces the token.
bool may_pass(int status) {
  return status == 401 || status == 408 || status == 429 || status >= 500;
}

Error refusal(const Answer& answer) {
  return {may_pass(answer.status) ? Code::kUnavailable : Code::kInvalid, message_of(answer)};
}

std::optional<std::uint64_t> offset_of(const Answer& answer) {
  const auto text = answer.headers.find("Upload-Offset");
  return text ? parse_integer<std::uint64_t>(*text) : std::nullopt;
}

}  // namespace

Result<Answer> WorkerApi::ask(const Context& ctx, const std::string& method,
                              const std::string& path, std::string body, net::Headers headers,
                              std::chrono::milliseconds more_time) {
  auto token = read_regular(fs_, followed(options_.token_file), kTokenBytesMax);
  if (!token.ok())
    return Error(Code::kUnavailable, "token of the worker API: " + token.error().message());
  headers.add("Authorization", "Bearer " + std::string(trim(*token)));
  auto answer = http_.call(ctx.with_timeout(options_.request_timeout + more_time),
                           {.method = method,
                            .url = "http://localhost" + path,
                            .headers = std::move(headers),
                            .body = std::move(body),
                            .max_response_bytes = kAnswerBytesMax});
  if (answer.ok()) return answer;
  TRY_VOID(ctx.check());
  return Error(Code::kUnavailable, "worker API: " + answer.error().message());
}

Status WorkerApi::send(const Context& ctx, const std::string& method, const std::string& path,
                       const codec::Json& body) {
  TRY(const Answer answer,
      ask(ctx, method, path, codec::write_json(body), {{"Content-Type", "application/json"}}));
  if (answer.status / 100 == 2) return {};
  return refusal(answer);
}

Result<codec::Json> WorkerApi::fetch(const Context& ctx, const std::string& method,
                                     const std::string& path,
                                     const std::optional<codec::Json>& body,
                                     std::chrono::milliseconds more_time) {
  net::Headers headers;
  if (body) headers.add("Content-Type", "application/json");
  TRY(const Answer answer,
      ask(ctx, method, path, body ? codec::write_json(*body) : "", std::move(headers), more_time));
  if (answer.status / 100 != 2) return refusal(answer);
  return codec::parse_json(answer.body).context("answer of the agent");
}

Status WorkerApi::retry(const Context& ctx, const std::string& what,
                        const std::function<Status()>& attempt) {
  std::chrono::milliseconds pause = options_.first_pause;
  std::string logged;
  while (true) {
    const Status status = attempt();
    if (status.ok() || status.error().code() != Code::kUnavailable) return status;
    if (status.error().message() != logged) {
      logged = status.error().message();
      log::warn("report not delivered, retrying", {{"report", what}, {"error", logged}});
    }
    TRY_VOID(ctx.sleep_for(pause));
    pause = std::min(2 * pause, options_.longest_pause);
  }
}

Status WorkerApi::deliver(const Context& ctx, const std::string& method, const std::string& path,
                          const codec::Json& body) {
  return retry(ctx, path, [&] { return send(ctx, method, path, body); });
}

Status WorkerApi::upload(const Context& ctx, const os::Path& file, const std::string& name,
                         const std::string& hex) {
  const std::string path = "/v1/artifacts/" + name;
  TRY(const auto source, fs_.open(file, os::Open::kRead));
  TRY(const std::uint64_t total, source->size());
  std::optional<std::uint64_t> offset;  // unknown: the agent is asked
  bool done = false;
  const auto step = [&]() -> Status {
    if (!offset) {
      TRY(const Answer head, ask(ctx, "HEAD", path, "", {}));
      if (head.status != 200 && head.status != 404) return refusal(head);
      // A file with all bytes but without an answer is sent again from the start.
      offset = offset_of(head).value_or(0);
      if (*offset >= total) offset = 0;
    }
    const std::uint64_t first = *std::exchange(offset, std::nullopt);
    TRY_VOID(source->seek(first));
    TRY(std::string piece, source->read(static_cast<std::size_t>(
                               std::min<std::uint64_t>(options_.piece_bytes, total - first))));
    const std::uint64_t length = piece.size();
    if (length == 0) return Error(Code::kCorrupt, file.string() + " is empty or was cut");
    net::Headers headers{{"Content-Type", "application/octet-stream"}};
    if (length != total)
      headers.add("Content-Range", "bytes " + std::to_string(first) + "-" +
                                       std::to_string(first + length - 1) + "/" +
                                       std::to_string(total));
    TRY(const Answer answer, ask(ctx, "PUT", path, std::move(piece), std::move(headers)));
    if (answer.status == 200 || answer.status == 201) {
      const auto body = codec::parse_json(answer.body);
      const std::string theirs = body.ok() ? (*body)["sha256"].as_string() : "";
      if (theirs != hex)
        return Error(Code::kInvalid, "the agent has another file " + name + ": its SHA-256 is " +
                                         (theirs.empty() ? "unknown" : theirs) + ", not " + hex);
      done = true;
      return {};
    }
    const auto next = offset_of(answer);
    const bool moved = answer.status == 202 || (answer.status == 409 && next);
    if (!moved) return refusal(answer);
    if (!next || *next >= total || *next == first)
      return Error(Code::kUnavailable, message_of(answer));
    offset = next;
    return {};
  };
  while (!done) TRY_VOID(retry(ctx, path, step));
  return {};
}

}  // namespace varda::worker
