#include "participant/transfer.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/text.h"
#include "codec/json.h"
#include "codec/text.h"

namespace varda::participant {
namespace {

using HttpAnswer = net::HttpClient::Answer;

constexpr std::size_t kMessageBytesMax = 512;
constexpr std::size_t kReadAtOnce = 1 << 20;

std::optional<std::uint64_t> offset_of(const HttpAnswer& answer) {
  const auto text = answer.headers.find("Upload-Offset");
  return text ? parse_integer<std::uint64_t>(*text) : std::nullopt;
}

Error unavailable(std::string message) { return {Code::kUnavailable, std::move(message)}; }

/// The first byte of a 206: "bytes 5-9/10".
std::optional<std::uint64_t> first_byte(const net::Headers& headers) {
  const auto text = headers.find("Content-Range");
  if (!text || !text->starts_with("bytes ")) return std::nullopt;
  const std::string_view range = text->substr(6);
  return parse_integer<std::uint64_t>(range.substr(0, range.find('-')));
}

Result<codec::Sha256> digest_of(os::FileSystem& fs, const Context& ctx, const os::Path& path) {
  TRY(const auto file, fs.open(path, os::Open::kRead));
  codec::Sha256Stream digest;
  for (;;) {
    TRY_VOID(ctx.check());
    TRY(const std::string piece, file->read(kReadAtOnce));
    if (piece.empty()) return digest.finish();
    digest.update(piece);
  }
}

}  // namespace

std::string message_of(int status, const std::string& body) {
  std::string out = "the aggregator answered " + std::to_string(status);
  const auto json = codec::parse_json(body, {.depth_max = 8, .nodes_max = 1000});
  if (!json.ok()) return out;
  std::string text = (*json)["message"].as_string();
  if (text.empty()) text = (*json)["error"].as_string();
  std::ranges::replace_if(
      text, [](char c) { return static_cast<unsigned char>(c) < ' ' || c == '\x7f'; }, ' ');
  return text.empty() ? out : out + ": " + codec::clipped(text, kMessageBytesMax);
}

bool may_pass(int status) {
  return status == 401 || status == 408 || status == 425 || status == 429 || status >= 500 ||
         status < 200 || status / 100 == 3;
}

Duration RateLimit::delay(SteadyTime now, std::uint64_t bytes) {
  if (rate_ == 0) return {};
  const double seconds = static_cast<double>(bytes) / static_cast<double>(rate_);
  free_at_ = std::max(free_at_, now) +
             std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
  return free_at_ - now;
}

Status RateLimit::wait(const Context& ctx, std::uint64_t bytes) {
  if (rate_ == 0) return {};
  return ctx.sleep_for(delay(system_clock().now(), bytes));
}

net::ClientRequest Transfer::request(const std::string& method, const std::string& target) const {
  net::ClientRequest out{.method = method,
                         .url = options_.url + target,
                         .max_response_bytes = options_.answer_bytes_max};
  if (!options_.client.empty()) out.headers.add("Varda-Client", options_.client);
  return out;
}

Result<HttpAnswer> Transfer::call(const Context& ctx, const std::string& method,
                                  const std::string& target, std::string body,
                                  std::chrono::milliseconds more_time) {
  net::ClientRequest out = request(method, target);
  if (!body.empty()) out.headers.add("Content-Type", "application/json");
  out.body = std::move(body);
  auto answer = http_.call(ctx.with_timeout(options_.request_timeout + more_time), std::move(out));
  if (answer.ok()) return answer;
  TRY_VOID(ctx.check());
  if (answer.error().code() == Code::kForbidden) return answer;  // a refused address
  return unavailable(answer.error().message());
}

/// Returns the length of the part after the attempt.
Result<std::uint64_t> Transfer::receive(const Context& ctx, const codec::Sha256& digest,
                                        std::uint64_t bytes, const os::Path& part) {
  TRY(const auto file, fs_.open(part, os::Open::kCreate));
  TRY(std::uint64_t length, file->size());
  if (length > bytes) {
    TRY_VOID(file->truncate(0));
    length = 0;
  }
  if (length == bytes) return length;
  net::ClientRequest out = request("GET", "/v1/models/sha256:" + digest.hex());
  if (length > 0) out.headers.add("Range", "bytes=" + std::to_string(length) + "-");
  // A slow link needs several attempts, and each one continues. A stalled link costs one timeout.
  const Context attempt = ctx.with_timeout(options_.request_timeout);
  auto answer = http_.send(attempt, std::move(out));
  if (!answer.ok()) {
    TRY_VOID(ctx.check());
    return unavailable(answer.error().message());
  }
  const int status = answer->status;
  if (status == 404 || status == 410) return Error(Code::kNotFound, message_of(status, ""));
  if (status == 416) {
    TRY_VOID(file->truncate(0));
    return unavailable("the aggregator has fewer bytes of this file");
  }
  if (status != 200 && status != 206)
    return may_pass(status) ? unavailable(message_of(status, ""))
                            : Error(Code::kForbidden, message_of(status, ""));
  if (status == 200) {
    TRY_VOID(file->truncate(0));
    length = 0;
  } else if (first_byte(answer->headers) != length) {
    return unavailable("the aggregator sent another range");
  }
  TRY_VOID(file->seek(length));
  for (;;) {
    const auto piece = answer->body->read();
    if (!piece.ok()) {
      TRY_VOID(ctx.check());
      break;  // the part stays; a later attempt continues
    }
    if (!*piece) break;
    if ((*piece)->size() > bytes - length) {
      TRY_VOID(file->truncate(0));
      return Error(Code::kCorrupt, "the file is longer than " + std::to_string(bytes) + " bytes");
    }
    TRY_VOID(file->write(**piece));
    length += (*piece)->size();
    received_ += (*piece)->size();
    if (length < bytes) TRY_VOID(limit_.wait(ctx, (*piece)->size()));
  }
  if (length == bytes) TRY_VOID(file->sync());
  return length;
}

Status Transfer::download(const Context& ctx, const codec::Sha256& digest, std::uint64_t bytes,
                          const os::Path& path) {
  TRY(const auto present, fs_.stat(path));
  if (present && present->size_bytes == bytes) {
    TRY(const codec::Sha256 found, digest_of(fs_, ctx, path));
    if (found == digest) return {};
    TRY_VOID(fs_.remove(path));
  }
  os::Path part = path;
  part += ".part";
  TRY(const std::uint64_t length, receive(ctx, digest, bytes, part));
  if (length < bytes)
    return unavailable("the connection broke after " + std::to_string(length) + " of " +
                       std::to_string(bytes) + " bytes");
  TRY(const codec::Sha256 found, digest_of(fs_, ctx, part));
  if (found != digest) {
    TRY_VOID(fs_.remove(part));
    return Error(Code::kCorrupt,
                 "the file has the SHA-256 " + found.hex() + ", not " + digest.hex());
  }
  TRY_VOID(fs_.rename(part, path));
  return fs_.sync_directory(path.parent_path());
}

/// Sends one piece from `offset`, and sets `offset` to the aggregator's. A result ends the upload.
Result<std::optional<UploadResult>> Transfer::send_piece(const Context& ctx,
                                                         const std::string& target, os::File& file,
                                                         std::uint64_t total,
                                                         std::uint64_t& offset) {
  if (piece_ == 0) piece_ = options_.piece_bytes_max;
  std::uint64_t size = std::min<std::uint64_t>(piece_, total - offset);
  if (limit_.bytes_per_second() > 0)
    size = std::min(size, std::max<std::uint64_t>(limit_.bytes_per_second(), 1));
  TRY_VOID(file.seek(offset));
  TRY(std::string piece, file.read(static_cast<std::size_t>(size)));
  if (piece.size() != size) return Error(Code::kCorrupt, "the update on the disk was cut");
  net::ClientRequest out = request("PUT", target);
  out.headers.add("Content-Type", "application/octet-stream");
  if (size != total)
    out.headers.add("Content-Range", "bytes " + std::to_string(offset) + "-" +
                                         std::to_string(offset + size - 1) + "/" +
                                         std::to_string(total));
  out.body = std::move(piece);
  const auto answer = http_.call(ctx.with_timeout(options_.request_timeout), std::move(out));
  if (!answer.ok()) {
    TRY_VOID(ctx.check());
    if (answer.error().code() == Code::kTimeout)
      piece_ = std::max(piece_ / 2, options_.piece_bytes_min);
    return unavailable(answer.error().message());
  }
  sent_ += size;
  const int status = answer->status;
  if (status == 200 || status == 201) return std::optional(UploadResult{Answer::kAccepted, status});
  const auto next = offset_of(*answer);
  if (status == 202 || ((status == 409 || status == 416) && next)) {
    // Without progress another try may help, after a pause.
    if (!next || *next > total || *next == offset)
      return unavailable(message_of(status, answer->body));
    offset = *next;
    if (size == piece_) piece_ = std::min(piece_ * 2, options_.piece_bytes_max);
    if (offset < total) TRY_VOID(limit_.wait(ctx, size));
    return std::optional<UploadResult>();
  }
  if (may_pass(status)) return unavailable(message_of(status, answer->body));
  return std::optional(UploadResult{status == 409 ? Answer::kLate : Answer::kRefused, status,
                                    message_of(status, answer->body)});
}

Result<UploadResult> Transfer::upload(const Context& ctx, const std::string& task,
                                      const codec::Sha256& digest, std::uint64_t bytes,
                                      const os::Path& path) {
  TRY(const codec::Sha256 found, digest_of(fs_, ctx, path));
  if (found != digest) return Error(Code::kCorrupt, "the update on the disk is damaged");
  const std::string target = "/v1/updates/" + task + "/sha256:" + digest.hex();
  TRY(const HttpAnswer head, call(ctx, "HEAD", target, ""));
  if (head.status == 200) return UploadResult{Answer::kAccepted, 200};
  if (head.status != 404) {
    if (may_pass(head.status)) return unavailable(message_of(head.status, ""));
    return UploadResult{head.status == 409 ? Answer::kLate : Answer::kRefused, head.status,
                        message_of(head.status, "")};
  }
  std::uint64_t offset = offset_of(head).value_or(0);
  // An aggregator with all bytes but without a record gets the last one again.
  if (offset >= bytes) offset = 0;
  TRY(const auto file, fs_.open(path, os::Open::kRead));
  while (offset < bytes) {
    TRY(auto result, send_piece(ctx, target, *file, bytes, offset));
    if (result) return std::move(*result);
  }
  return unavailable("the aggregator has all bytes, but did not accept the update");
}

}  // namespace varda::participant
