#include "artifact/internal/http_source.h"

#include <charconv>

namespace varda::artifact {
namespace {

std::optional<std::uint64_t> number(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

struct ContentRange {
  std::optional<std::uint64_t> start, total;
};

// "bytes 100-199/200", "bytes */200"
ContentRange parse_content_range(std::string_view text) {
  ContentRange range;
  if (!text.starts_with("bytes ")) return range;
  text.remove_prefix(6);
  range.start = number(text.substr(0, text.find('-')));
  const auto slash = text.find('/');
  if (slash != std::string_view::npos) range.total = number(text.substr(slash + 1));
  return range;
}

}  // namespace

os::Path notes_of(const os::Path& spool) { return os::Path(spool) += ".notes"; }

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
          lock.unlock();  // stopping runs callbacks of others
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
    stalled_ = false;
  }
  // The caller may have been stopped between its last check and the line above; on_stop_ then stopped the old connection.
  if (ctx_.stopped()) fresh.request_stop();
  return ctx_.with_stop(fresh.get_token());
}

void StallGuard::moved() {
  const std::lock_guard lock(mutex_);
  last_moved_ = system_clock().now();
}

bool StallGuard::stalled() const {
  const std::lock_guard lock(mutex_);
  return stalled_;
}

Outcome<std::unique_ptr<Source>> HttpSource::open(const Context& ctx, os::FileSystem& fs, net::HttpClient& http,
                                                  SourceOptions options) {
  auto source = std::make_unique<HttpSource>(ctx, fs, http, std::move(options));
  if (!source->options_.spooled) return std::unique_ptr<Source>(std::move(source));
  auto spool = fs.open(source->options_.spool, os::Open::kCreate, 0600);
  if (!spool.ok()) return disk_failure(spool.error());
  const auto size = (*spool)->size();
  if (!size.ok()) return disk_failure(size.error());
  source->spool_ = std::move(*spool);
  source->replaying_ = source->resumed_ = *size > 0;
  return std::unique_ptr<Source>(std::move(source));
}

Failure HttpSource::failed(Error error) const {
  if (Status status = ctx_.check(); !status.ok()) return {Reason::kCancelled, status.error()};
  if (guard_.stalled()) error = Error(Code::kUnavailable, "the peer sent nothing for a while");
  return {Reason::kDownloadFailed, std::move(error).context(shown_url(options_.request.url))};
}

std::optional<Failure> HttpSource::connect() {
  const std::uint64_t offset = hashed_.count();
  net::ClientRequest request;
  request.url = options_.request.url;
  request.headers.add("Accept", "*/*");
  if (offset > 0) {
    request.headers.add("Range", "bytes=" + std::to_string(offset) + "-");
    if (validator_.empty() && options_.spooled) {
      if (const auto notes = os::read_file(fs_, notes_of(options_.spool), 4096); notes.ok()) validator_ = *notes;
    }
    if (!validator_.empty()) request.headers.add("If-Range", validator_);
  }
  connection_bytes_ = 0;
  body_.reset();
  auto sent = http_.send(guard_.context(), std::move(request));
  if (!sent.ok()) return failed(sent.error());
  net::ClientResponse& response = *sent;
  guard_.moved();
  const auto range = parse_content_range(response.headers.find("Content-Range").value_or(""));
  if (offset > 0 && response.status == 206 && range.start == offset) {
    if (range.total) meter_.set_total(*range.total);
  } else if (offset > 0 && response.status == 416 && range.total == offset) {
    complete_ = true;
    return std::nullopt;
  } else if (offset > 0 && (response.status == 200 || response.status == 206 || response.status == 416)) {
    // The peer knows no ranges, or what it has now is something else. The bytes given out cannot be taken back: start over.
    stale_ = true;
    return failed(Error(Code::kConflict, (broke_ ? broke_->message() + "; it" : std::string("the download")) +
                                             " cannot be continued at byte " + std::to_string(offset) + " and starts over"));
  } else if (response.status != 200) {
    const int status = response.status;
    // The peer understood and refuses; only these three say themselves that later may be better (RFC 9110, 6585, 8470).
    const bool refused = status >= 400 && status < 500 && status != 408 && status != 425 && status != 429;
    return failed(Error(Code::kUnavailable, "HTTP " + std::to_string(status)).as_terminal(refused));
  } else if (auto failure = begin_whole(response)) {
    return failure;
  }
  body_ = std::move(response.body);
  return std::nullopt;
}

std::optional<Failure> HttpSource::begin_whole(const net::ClientResponse& response) {
  page_type_ = response.headers.find("Content-Type").value_or("").starts_with("text/html");
  if (const auto length = number(response.headers.find("Content-Length").value_or(""))) {
    meter_.set_total(*length);
    if (*length > options_.limits.archive_bytes_max) return too_large(options_.limits.archive_bytes_max);
    const auto space = fs_.space(options_.spool.parent_path());
    if (options_.spooled && space.ok() && space->available_bytes < *length)
      return Failure{Reason::kDiskFull, Error(Code::kExhausted, "the archive has " + std::to_string(*length) + " bytes, the disk " +
                                                                    std::to_string(space->available_bytes) + " free")};
  }
  // A weak ETag does not promise equal bytes, so it is no use for If-Range (RFC 9110, 13.1.5).
  std::string_view validator = response.headers.find("ETag").value_or("");
  if (validator.empty() || validator.starts_with("W/")) validator = response.headers.find("Last-Modified").value_or("");
  validator_ = validator;
  if (!validator.empty() && options_.spooled) {
    if (Status status = os::write_file_atomically(fs_, notes_of(options_.spool), validator, 0600); !status.ok())
      return disk_failure(status.error());
  }
  return std::nullopt;
}

Outcome<std::string> HttpSource::take(std::string bytes) {
  hashed_.add(bytes);
  meter_.report(hashed_.count(), false);
  if (hashed_.count() > options_.limits.archive_bytes_max) return too_large(options_.limits.archive_bytes_max);
  return bytes;
}

Outcome<std::string> HttpSource::next() {
  if (replaying_) {
    if (Status status = ctx_.check(); !status.ok()) return Failure{Reason::kCancelled, status.error()};
    Result<std::string> kept = spool_->read(256 << 10);
    if (!kept.ok()) return disk_failure(kept.error());
    if (!kept->empty()) return take(std::move(kept).value());
    replaying_ = false;
  }
  while (!complete_) {
    if (!body_) {
      if (auto failure = connect()) return *failure;
      if (complete_) break;
    }
    Result<std::optional<std::string>> piece = body_->read();
    if (!piece.ok()) {
      body_.reset();
      if (connection_bytes_ == 0 || ctx_.done()) return failed(piece.error());
      resumed_ = true;
      broke_ = piece.error();
      continue;
    }
    if (!*piece) {
      complete_ = true;
      break;
    }
    if ((*piece)->empty()) continue;
    guard_.moved();
    connection_bytes_ += (*piece)->size();
    if (spool_ != nullptr) {
      if (Status status = room_.take((*piece)->size()); !status.ok()) return disk_failure(status.error());
      if (Status status = spool_->write(**piece); !status.ok()) return disk_failure(status.error());
    }
    return take(std::move(**piece));
  }
  body_.reset();
  meter_.report(hashed_.count(), true);
  return std::string();
}

}  // namespace varda::artifact
