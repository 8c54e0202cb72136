// Downloads an archive over HTTP and spools it, so that a broken download resumes where it stopped.
#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>

#include "artifact/internal/authorization.h"
#include "artifact/internal/source.h"

namespace varda::artifact {

/// Detects HTML pages, by the beginning of a body or by its Content-Type.
bool begins_like_page(std::string_view body);
bool is_page_type(std::string_view content_type);

/// Digest, count and first bytes of the data passed so far.
class HashedBytes {
 public:
  void add(std::string_view bytes);
  std::uint64_t count() const { return count_; }
  bool page() const;
  codec::Sha256 digest() { return hash_.finish(); }

 private:
  codec::Sha256Stream hash_;
  std::string head_;
  std::uint64_t count_ = 0;
};

class Meter {
 public:
  explicit Meter(ProgressSink sink, std::uint64_t total = 0)
      : sink_(std::move(sink)), total_(total) {}
  /// Reports at once, because others may wait for the size.
  void set_total(std::uint64_t total, std::uint64_t done);
  void report(std::uint64_t done, bool last);

 private:
  ProgressSink sink_;
  std::uint64_t total_;
  std::uint64_t reported_ = 0;
};

Failure too_large(std::uint64_t max);
os::Path notes_of(const os::Path& spool);

/// Ends a connection that is nearly silent for a while, or that belongs to a stopped caller. One
/// thread, one connection at a time.
class StallGuard {
 public:
  StallGuard(const Context& ctx, Duration stall);
  /// A context for a new connection; ends with the caller's context or on a stall.
  Context context();
  void moved(std::size_t bytes);
  bool stalled() const;

 private:
  const Context& ctx_;
  const Duration stall_;
  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  std::stop_source connection_;  // guarded by mutex_
  SteadyTime last_moved_;        // guarded by mutex_
  std::size_t bytes_ = 0;        // since last_moved_; guarded by mutex_
  bool stalled_ = false;         // guarded by mutex_
  std::stop_callback<std::function<void()>> on_stop_;
  std::jthread thread_;  // last, because it uses the other members
};

/// Yields the spool of an earlier attempt first, then the rest from the server (Range, with
/// If-Range if a validator is known). A connection that breaks after progress is resumed at once.
/// Without progress it is a failure, and the caller backs off. The digest makes resuming safe;
/// validators only avoid useless downloads. With `options.delta`, parts that held trees have are
/// read from there, and each gap between them is one request.
class HttpSource final : public Source {
 public:
  /// `address` is the URL to request: the source's URL, or the address that it stands for.
  /// `authorization` null: none is sent.
  static Outcome<std::unique_ptr<Source>> open(const Context& ctx, os::FileSystem& fs,
                                               net::HttpClient& http, SourceOptions options,
                                               std::string address,
                                               std::unique_ptr<Authorization> authorization);
  HttpSource(const Context& ctx, os::FileSystem& fs, net::HttpClient& http, SourceOptions options,
             std::string address, std::unique_ptr<Authorization> authorization)
      : ctx_(ctx),
        fs_(fs),
        http_(http),
        options_(std::move(options)),
        address_(std::move(address)),
        authorization_(std::move(authorization)),
        clock_(options_.transport.clock != nullptr ? *options_.transport.clock : system_clock()),
        room_(fs, options_.spool.parent_path()),
        meter_(options_.progress),
        guard_(ctx, options_.stall),
        delta_(options_.delta) {}

  Outcome<std::string> next() override;
  bool stale() const override { return stale_; }
  // The chunk list of a delta may be at fault too, so the next attempt starts without either.
  bool resumed() const override { return resumed_ || delta_ != nullptr; }
  bool other_origin() const override { return other_origin_ || replayed_; }
  std::string remark() const override;
  bool looks_like_page() const override { return page_type_ || hashed_.page(); }
  std::uint64_t bytes() const override { return hashed_.count(); }
  std::uint64_t received() const override { return received_; }
  codec::Sha256 digest() override { return hashed_.digest(); }

 private:
  std::optional<Failure> connect();
  /// Bytes from a held tree at the current offset; empty: they must be downloaded.
  Outcome<std::string> next_held();
  /// The peer node has no bytes now: waits a little. Fails after the patience has run out.
  std::optional<Failure> await_peer(net::ClientResponse& response);
  /// Records `bytes` received in `took`. True: too few arrived within a minute.
  bool drips(Duration took, std::uint64_t bytes);
  Result<net::ClientResponse> send(std::uint64_t offset);
  Failure refused(net::ClientResponse& response);
  static bool is_page(net::ClientResponse& response);
  std::string stored_validator();
  Status keep(std::string_view bytes);
  std::optional<Failure> begin_whole(const net::ClientResponse& response,
                                     std::optional<std::uint64_t> length);
  Outcome<std::string> take(std::string bytes);
  Failure failed(Error error) const;

  const Context& ctx_;
  os::FileSystem& fs_;
  net::HttpClient& http_;
  const SourceOptions options_;
  const std::string address_;
  const std::unique_ptr<Authorization> authorization_;
  const Clock& clock_;
  std::unique_ptr<os::File> spool_;  // null: not spooled
  std::uint64_t unsynced_ = 0;       // bytes of the spool not synced yet
  SteadyTime synced_;
  bool named_ = false;         // the spool's directory entry is synced
  bool noted_ = false;         // the notes record that the spool has bytes from a peer node
  std::string encoding_;       // Content-Encoding of the last answer
  int short_connections_ = 0;  // in a row
  std::string validator_;      // validator of this download
  os::DiskRoom room_;
  HashedBytes hashed_;
  Meter meter_;
  StallGuard guard_;
  std::unique_ptr<net::BodyReader> body_;
  Delta* delta_ = nullptr;      // null: no delta, or the server gives no ranges
  std::uint64_t gap_end_ = 0;   // with delta_: end of the requested range
  std::uint64_t received_ = 0;  // bytes from the network
  std::uint64_t connection_bytes_ = 0;
  std::optional<Error> broke_;   // the error that ended the previous connection
  std::uint64_t total_ = 0;      // size of the archive, from a Content-Range; 0: unknown
  std::uint64_t peer_done_ = 0;  // progress reported by the peer node
  std::optional<SteadyTime>
      peer_moved_;  // time of the last reported progress, while it gives no bytes
  std::optional<SteadyTime> peer_waited_;  // start of the time with no or too few bytes
  std::uint64_t peer_since_ = 0;           // bytes given since then
  Duration window_{0};                     // time spent receiving in the current minute ...
  std::uint64_t window_bytes_ = 0;         // ... and the bytes received in it
  bool replaying_ = false;
  bool resumed_ = false;
  bool replayed_ = false;      // some bytes are from an earlier attempt, of unknown origin
  bool other_origin_ = false;  // a redirect led to another origin
  bool stale_ = false;
  bool complete_ = false;
  bool page_type_ = false;
};

}  // namespace varda::artifact
