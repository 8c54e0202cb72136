#include "artifact/internal/http_source.h"

#include <algorithm>

#include "artifact/internal/delta.h"
#include "artifact/internal/http_date.h"
#include "base/text.h"

namespace varda::artifact {
namespace {

// Limit of immediate resumes in a row after connections with few bytes.
constexpr int kShortConnectionsMax = 64;

// The URL's digest precedes the validator: a validator belongs to one source, and a URL may hold a
// signature.
std::string notes_text(const std::string& url, std::string_view validator) {
  return codec::Sha256::of(url).hex() + " " + std::string(validator);
}

// Notes without validator: bytes from peer nodes have none.
constexpr std::string_view kPeerNotes = "neighbours";

// Extracts an S3 error code, such as <Code>NoSuchKey</Code>, if it consists of letters only.
std::string s3_code(std::string_view body) {
  const auto from = body.find("<Code>");
  if (from == std::string_view::npos) return "";
  const std::string_view after_code = body.substr(from + 6, 64);
  const std::string_view code = after_code.substr(0, after_code.find('<'));
  const bool letters_only = std::all_of(code.begin(), code.end(), [](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
  });
  return letters_only ? std::string(code) : "";
}

struct ContentRange {
  std::optional<std::uint64_t> start, total;
};

// "bytes 100-199/200", "bytes */200"
ContentRange parse_content_range(std::string_view text) {
  ContentRange range;
  if (!text.starts_with("bytes ")) return range;
  text.remove_prefix(6);
  range.start = parse_integer<std::uint64_t>(text.substr(0, text.find('-')));
  const auto slash = text.find('/');
  if (slash != std::string_view::npos)
    range.total = parse_integer<std::uint64_t>(text.substr(slash + 1));
  return range;
}

}  // namespace

os::Path notes_of(const os::Path& spool) { return os::Path(spool) += ".notes"; }

bool spool_has_peer_bytes(os::FileSystem& fs, const os::Path& spool) {
  const auto notes = os::read_file(fs, notes_of(spool), 4096);
  return notes.ok() && *notes == kPeerNotes;
}

StallGuard::StallGuard(const Context& ctx, Duration stall)
    : ctx_(ctx),
      stall_(stall),
      last_moved_(system_clock().now()),
      on_stop_(ctx.stop_token(),
               [this] {
                 std::stop_source connection;
                 {
                   const std::lock_guard lock(mutex_);
                   connection = connection_;
                 }
                 connection.request_stop();
               }),
      thread_([this](const std::stop_token& stop) {
        std::unique_lock lock(mutex_);
        while (!stop.stop_requested()) {
          const SteadyTime due = last_moved_ + stall_;
          changed_.wait_until(lock, stop, due, [this, due] { return last_moved_ + stall_ != due; });
          if (stop.stop_requested() || system_clock().now() < last_moved_ + stall_) continue;
          stalled_ = true;
          last_moved_ = system_clock().now();
          std::stop_source connection = connection_;
          lock.unlock();  // stopping runs other objects' callbacks
          connection.request_stop();
          lock.lock();
        }
      }) {}

Context StallGuard::context() {
  std::stop_source fresh;
  {
    const std::lock_guard lock(mutex_);
    connection_ = fresh;
    last_moved_ = system_clock().now();
    bytes_ = 0;
    stalled_ = false;
  }
  // If the caller was stopped between its last check and the swap above, on_stop_ stopped the old
  // connection.
  if (ctx_.stopped()) fresh.request_stop();
  return ctx_.with_stop(fresh.get_token());
}

void StallGuard::moved(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  bytes_ += bytes;
  if (bytes_ < kStallBytes) return;
  bytes_ = 0;
  last_moved_ = system_clock().now();
}

bool StallGuard::stalled() const {
  const std::lock_guard lock(mutex_);
  return stalled_;
}

Outcome<std::unique_ptr<Source>> HttpSource::open(const Context& ctx, os::FileSystem& fs,
                                                  net::HttpClient& http, SourceOptions options,
                                                  std::string address,
                                                  std::unique_ptr<Authorization> authorization) {
  auto source = std::make_unique<HttpSource>(ctx, fs, http, std::move(options), std::move(address),
                                             std::move(authorization));
  source->synced_ = source->clock_.now();
  if (!source->options_.spooled) return std::unique_ptr<Source>(std::move(source));
  auto spool = fs.open(source->options_.spool, os::Open::kCreate, 0600);
  if (!spool.ok()) return disk_failure(spool.error());
  const auto size = (*spool)->size();
  if (!size.ok()) return disk_failure(size.error());
  source->spool_ = std::move(*spool);
  source->replaying_ = source->resumed_ = source->replayed_ = *size > 0;
  return std::unique_ptr<Source>(std::move(source));
}

Failure HttpSource::failed(Error error) const {
  if (Status status = ctx_.check(); !status.ok()) return {Reason::kCancelled, status.error()};
  if (guard_.stalled())
    error = Error(Code::kUnavailable,
                  "the peer sent " +
                      std::string(connection_bytes_ == 0 ? "no bytes" : "too few bytes") +
                      " within the time limit");
  // The client refuses an address, or a redirect from https to http.
  const Reason reason =
      error.code() == Code::kForbidden ? Reason::kSourceForbidden : Reason::kDownloadFailed;
  return {reason, std::move(error).context(shown_url(options_.url))};
}

std::string HttpSource::remark() const {
  if (encoding_.empty() || encoding_ == "identity" || other_origin_) return "";
  return "the server sent content-encoding " + encoding_.substr(0, 64) +
         ", which was not requested";
}

std::string HttpSource::stored_validator() {
  if (!options_.spooled) return "";
  const auto notes = os::read_file(fs_, notes_of(options_.spool), 4096);
  const std::string own_notes = notes_text(options_.url, "");
  return notes.ok() && notes->starts_with(own_notes) ? notes->substr(own_notes.size()) : "";
}

Result<net::ClientResponse> HttpSource::send(std::uint64_t offset) {
  net::ClientRequest request;
  request.url = address_;
  request.headers.add("Accept", "*/*");
  // The digest is over the stored bytes, so no content coding is wanted.
  request.headers.add("Accept-Encoding", "identity");
  const bool peer = options_.kind == SourceKind::kPeer;
  if (offset > 0 || peer || delta_ != nullptr)
    request.headers.add("Range", "bytes=" + std::to_string(offset) + "-" +
                                     (delta_ != nullptr ? std::to_string(gap_end_ - 1) : ""));
  if (offset > 0 && !peer) {
    if (validator_.empty()) validator_ = stored_validator();
    if (!validator_.empty()) request.headers.add("If-Range", validator_);
  }
  if (authorization_ != nullptr) authorization_->add(request);
  return http_.send(guard_.context(), std::move(request));
}

// A refusal is final, except for the three statuses that invite a later attempt (RFC 9110, 6585,
// 8470).
Failure HttpSource::refused(net::ClientResponse& response) {
  const int status = response.status;
  const bool final =
      status >= 400 && status < 500 && status != 408 && status != 425 && status != 429;
  std::string text = "HTTP " + std::to_string(status);
  if (options_.url.starts_with("s3:") && response.body != nullptr && !response.other_origin) {
    if (const auto body = response.body->read(); body.ok() && *body)
      if (const std::string code = s3_code(**body); !code.empty()) text += " (" + code + ")";
  }
  if (status == 407) text += "; the proxy requires credentials: --proxy-credentials-file";
  if (status == 401 || status == 403) {
    const std::string& name = options_.request.credentials;
    if (name.empty()) text += "; the source requires credentials, and the model names none";
    if (!name.empty())
      text += options_.withheld.empty() ? "; sent with " + name
                                        : "; " + name + " is not sent: " + options_.withheld;
  }
  Failure failure = failed(Error(Code::kUnavailable, text).as_terminal(final));
  if (!final)
    failure.retry_after = retry_after_of(response.headers).value_or(std::chrono::seconds(0));
  return failure;
}

std::optional<Failure> HttpSource::await_peer(net::ClientResponse& response) {
  const SteadyTime now = clock_.now();
  const std::uint64_t done =
      parse_integer<std::uint64_t>(response.headers.find(kBytesDoneHeader).value_or(""))
          .value_or(0);
  if (!peer_waited_) {
    peer_waited_ = now;
    peer_since_ = 0;
  }
  if (!peer_moved_ || done != peer_done_) peer_moved_ = now;
  peer_done_ = done;
  const bool unaware = response.status == 404;
  const Duration patience = unaware ? Duration(kPeerUnawarePatience) : Duration(kPeerPatience);
  if (now - *peer_moved_ >= patience || now - *peer_waited_ >= kPeerPatienceMax) {
    return failed(Error(Code::kUnavailable, unaware ? "the peer does not have the archive"
                                                    : "the peer makes no progress with the archive")
                      .as_terminal(unaware));
  }
  for (int i = 0; i < 4 && response.body != nullptr;
       ++i) {  // reads the short error text, so that the connection can be reused
    const auto piece = response.body->read();
    if (!piece.ok() || !*piece) break;
  }
  const auto retry_after = retry_after_of(response.headers);
  const Duration pause = retry_after ? Duration(*retry_after) : Duration(std::chrono::seconds(1));
  const Status slept = ctx_.sleep_for(
      std::clamp<Duration>(pause, std::chrono::milliseconds(20), std::chrono::seconds(5)));
  if (!slept.ok()) return failed(slept.error());
  return std::nullopt;
}

bool HttpSource::drips(Duration took, std::uint64_t bytes) {
  if (options_.kind != SourceKind::kPeer) return false;
  if (peer_waited_) {
    // A byte now and then must not extend the wait by another hour.
    peer_since_ += bytes;
    const auto minutes =
        std::chrono::floor<std::chrono::minutes>(clock_.now() - *peer_waited_).count() + 1;
    if (peer_since_ >= kPeerFloorBytes * static_cast<std::uint64_t>(minutes)) peer_waited_.reset();
  }
  window_ += took;
  window_bytes_ += bytes;
  if (window_ < std::chrono::minutes(1)) return false;
  const bool little = window_bytes_ < kPeerFloorBytes;
  window_ = Duration(0);
  window_bytes_ = 0;
  return little;
}

std::optional<Failure> HttpSource::connect() {
  const std::uint64_t offset = hashed_.count();
  connection_bytes_ = 0;
  body_.reset();
  auto sent = send(offset);
  if (sent.ok() && sent->status == 403 && authorization_ != nullptr &&
      authorization_->refused(sent->headers))
    sent = send(offset);
  if (!sent.ok()) return failed(sent.error());
  net::ClientResponse& response = *sent;
  other_origin_ = other_origin_ || response.other_origin;
  guard_.moved(kStallBytes);
  encoding_ = response.headers.find("Content-Encoding").value_or("");
  const bool page = is_page_type(response.headers.find("Content-Type").value_or(""));
  const auto range = parse_content_range(response.headers.find("Content-Range").value_or(""));
  const bool peer = options_.kind == SourceKind::kPeer;
  if (peer && (response.status == 503 || response.status == 404)) return await_peer(response);
  if (response.status == 206) total_ = range.total.value_or(0);
  if (delta_ != nullptr && offset == 0 && response.status == 200)
    delta_ = nullptr;  // the server has no ranges, and its answer is the whole archive
  if (delta_ != nullptr && (response.status == 206 || response.status == 416)) {
    if (response.status == 416 || range.start != offset ||
        range.total.value_or(delta_->total()) != delta_->total()) {
      stale_ = true;
      return failed(Error(Code::kConflict, "the chunk list does not fit the archive"));
    }
    if (validator_.empty())
      if (auto failure = begin_whole(response, delta_->total())) return failure;
  } else if (peer && response.status == 206 && offset == 0 && range.start == offset && total_ > 0) {
    if (auto failure = begin_whole(response, total_)) return failure;
  } else if (offset > 0 && response.status == 206 && range.start == offset) {
    if (range.total) meter_.set_total(*range.total, hashed_.count());
  } else if (offset > 0 && response.status == 416 && range.total == offset) {
    complete_ = true;
    return std::nullopt;
  } else if (offset > 0 && response.status == 200 && (page || is_page(response))) {
    // A login page in place of every answer proves nothing about the archive, so the spool stays.
    return failed(Error(Code::kUnavailable, "an HTML page where the rest of an archive should be"));
  } else if (offset > 0 &&
             (response.status == 200 || response.status == 206 || response.status == 416)) {
    // The server does not support ranges, or its content changed. Bytes already returned cannot be
    // withdrawn, so start over.
    stale_ = true;
    return failed(Error(Code::kConflict,
                        (broke_ ? broke_->message() + "; it" : std::string("the download")) +
                            " cannot be resumed" +
                            (other_origin_ ? std::string() : " at byte " + std::to_string(offset)) +
                            " and starts over"));
  } else if (response.status != 200) {
    return refused(response);
  } else if (auto failure =
                 begin_whole(response, parse_integer<std::uint64_t>(
                                           response.headers.find("Content-Length").value_or("")))) {
    return failure;
  }
  body_ = std::move(response.body);
  return std::nullopt;
}

// Some portals send HTML pages without the Content-Type.
bool HttpSource::is_page(net::ClientResponse& response) {
  if (response.body == nullptr) return false;
  const auto first = response.body->read();
  return first.ok() && *first && begins_like_page(**first);
}

std::optional<Failure> HttpSource::begin_whole(const net::ClientResponse& response,
                                               std::optional<std::uint64_t> length) {
  page_type_ = is_page_type(response.headers.find("Content-Type").value_or(""));
  if (length) {
    meter_.set_total(*length, hashed_.count());
    if (*length > options_.limits.archive_bytes_max)
      return too_large(options_.limits.archive_bytes_max);
    const auto space = fs_.space(options_.spool.parent_path());
    if (options_.spooled && space.ok() && space->available_bytes < *length)
      return Failure{
          Reason::kDiskFull,
          Error(Code::kExhausted,
                "the archive has " +
                    (other_origin_ ? std::string("more") : std::to_string(*length)) +
                    " bytes, the disk " + std::to_string(space->available_bytes) + " free")};
  }
  if (options_.kind == SourceKind::kPeer) return std::nullopt;
  // A weak ETag does not promise equal bytes, so If-Range must not use it (RFC 9110, 13.1.5).
  std::string_view validator = response.headers.find("ETag").value_or("");
  if (validator.empty() || validator.starts_with("W/"))
    validator = response.headers.find("Last-Modified").value_or("");
  validator_ = validator;
  if (!validator.empty() && options_.spooled) {
    if (Status status = os::write_file_atomically(fs_, notes_of(options_.spool),
                                                  notes_text(options_.url, validator), 0600);
        !status.ok())
      return disk_failure(status.error());
  }
  return std::nullopt;
}

Outcome<std::string> HttpSource::take(std::string bytes) {
  hashed_.add(bytes);
  meter_.report(hashed_.count(), false);
  if (hashed_.count() > options_.limits.archive_bytes_max)
    return too_large(options_.limits.archive_bytes_max);
  return bytes;
}

Status HttpSource::keep(std::string_view bytes) {
  if (spool_ == nullptr) return {};
  TRY_VOID(room_.take(bytes.size()));
  if (options_.kind == SourceKind::kPeer && !noted_) {
    // Written before the first such byte: after a crash these bytes must not pass as the file
    // server's bytes.
    TRY_VOID(os::write_file_atomically(fs_, notes_of(options_.spool), kPeerNotes, 0600));
    noted_ = true;
  }
  TRY_VOID(spool_->write(bytes));
  unsynced_ += bytes.size();
  if (unsynced_ < kSpoolSyncBytes || clock_.now() < synced_ + kSpoolSyncPeriod) return {};
  TRY_VOID(spool_->sync());
  if (!named_) TRY_VOID(fs_.sync_directory(options_.spool.parent_path()));
  named_ = true;
  unsynced_ = 0;
  synced_ = clock_.now();
  return {};
}

Outcome<std::string> HttpSource::next_held() {
  if (Status status = ctx_.check(); !status.ok())
    return Failure{Reason::kCancelled, status.error()};
  std::string held = delta_->read(hashed_.count());
  if (held.empty()) return held;
  meter_.set_total(delta_->total(), hashed_.count());
  if (Status status = keep(held); !status.ok()) return disk_failure(status.error());
  return take(std::move(held));
}

Outcome<std::string> HttpSource::next() {
  if (replaying_) {
    if (Status status = ctx_.check(); !status.ok())
      return Failure{Reason::kCancelled, status.error()};
    Result<std::string> spooled = spool_->read(256 << 10);
    if (!spooled.ok()) return disk_failure(spooled.error());
    if (!spooled->empty()) return take(std::move(spooled).value());
    replaying_ = false;
  }
  while (!complete_) {
    if (delta_ != nullptr && !body_) {
      if (hashed_.count() >= delta_->total()) {
        complete_ = true;
        break;
      }
      Outcome<std::string> held = next_held();
      if (!held.ok() || !held->empty()) return held;
      gap_end_ = delta_->missing_until(hashed_.count());
    }
    const SteadyTime began = clock_.now();
    if (!body_) {
      if (auto failure = connect()) return *failure;
      if (complete_) break;
      if (!body_) continue;  // waited for a peer node
    }
    Result<std::optional<std::string>> piece = body_->read();
    // Counts only the time of the peer node, not of the disk and the unpacking.
    const bool drip = drips(clock_.now() - began, piece.ok() && *piece ? (*piece)->size() : 0);
    const auto drip_failure = [this] {
      return failed(Error(Code::kUnavailable, "the peer sends the archive too slowly"));
    };
    // A server may send less of a range than exists (RFC 9110, 14.2 and 15.3.7). The rest is
    // requested as after a break.
    const bool peer = options_.kind == SourceKind::kPeer;
    const std::uint64_t end = delta_ != nullptr ? gap_end_ : total_;
    if (piece.ok() && !*piece && hashed_.count() < end && !peer)
      piece = Error(Code::kUnavailable, other_origin_ ? std::string("the answer ended early")
                                                      : "the answer ended at byte " +
                                                            std::to_string(hashed_.count()) +
                                                            " of " + std::to_string(total_));
    if (!piece.ok()) {
      body_.reset();
      short_connections_ = connection_bytes_ < kStallBytes ? short_connections_ + 1 : 0;
      const bool moved = connection_bytes_ > 0 && !drip && !guard_.stalled() &&
                         short_connections_ <= kShortConnectionsMax;
      if (!moved || ctx_.done()) return failed(piece.error());
      resumed_ = true;
      broke_ = piece.error();
      continue;
    }
    if (delta_ != nullptr) {
      const std::uint64_t left = gap_end_ - hashed_.count();
      if (!*piece || left == 0) {
        body_.reset();  // the end of the gap, also of a server that sends more than the range
        continue;
      }
      (*piece)->resize(std::min<std::uint64_t>((*piece)->size(), left));
    }
    if (!*piece && hashed_.count() < total_) {
      // The peer node had no more bytes when it was asked.
      body_.reset();
      if (connection_bytes_ == 0)
        return failed(Error(Code::kUnavailable, "the peer announced bytes and sent none"));
      if (drip) return drip_failure();
      continue;
    }
    if (!*piece) {
      complete_ = true;
      break;
    }
    if ((*piece)->empty()) continue;
    guard_.moved((*piece)->size());
    connection_bytes_ += (*piece)->size();
    received_ += (*piece)->size();
    peer_moved_.reset();
    if (Status status = keep(**piece); !status.ok()) return disk_failure(status.error());
    if (drip) return drip_failure();
    return take(std::move(**piece));
  }
  body_.reset();
  meter_.report(hashed_.count(), true);
  return std::string();
}

}  // namespace varda::artifact
