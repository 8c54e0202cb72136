// An archive over HTTP, spooled on the way so that a broken download goes on where it stopped.
#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>

#include "artifact/internal/authorization.h"
#include "artifact/internal/source.h"

namespace varda::artifact {

/// What a browser would show: by the beginning of a body, or by its Content-Type.
bool begins_like_page(std::string_view body);
bool is_page_type(std::string_view content_type);

/// Digest, count and first bytes of what went by.
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
  explicit Meter(ProgressSink sink, std::uint64_t total = 0) : sink_(std::move(sink)), total_(total) {}
  /// Told at once: others may wait to hear how much it is.
  void set_total(std::uint64_t total, std::uint64_t done);
  void report(std::uint64_t done, bool last);

 private:
  ProgressSink sink_;
  std::uint64_t total_;
  std::uint64_t reported_ = 0;
};

Failure too_large(std::uint64_t max);
os::Path notes_of(const os::Path& spool);

/// Ends a connection on which (nearly) nothing moved for a while, or whose caller was stopped. One thread, one connection at a
/// time.
class StallGuard {
 public:
  StallGuard(const Context& ctx, Duration stall);
  /// For a new connection: ends with the caller's context or by stalling.
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
  std::size_t bytes_ = 0;        // since then; guarded by mutex_
  bool stalled_ = false;         // guarded by mutex_
  std::stop_callback<std::function<void()>> on_stop_;
  std::jthread thread_;  // last: it uses the rest
};

/// First what the spool holds from an earlier attempt, then the rest from the peer (Range, with If-Range where it gave a
/// validator). A connection that breaks after progress is continued at once; without progress it is a failure, for the caller's
/// back-off. The digest is what makes resuming safe: validators only save a useless download.
class HttpSource final : public Source {
 public:
  /// `address` is what is asked: that of the URL, or of what it stands for. `authorization` null: nothing is proven.
  static Outcome<std::unique_ptr<Source>> open(const Context& ctx, os::FileSystem& fs, net::HttpClient& http, SourceOptions options,
                                               std::string address, std::unique_ptr<Authorization> authorization);
  HttpSource(const Context& ctx, os::FileSystem& fs, net::HttpClient& http, SourceOptions options, std::string address,
             std::unique_ptr<Authorization> authorization)
      : ctx_(ctx),
        fs_(fs),
        http_(http),
        options_(std::move(options)),
        address_(std::move(address)),
        authorization_(std::move(authorization)),
        clock_(options_.transport.clock != nullptr ? *options_.transport.clock : system_clock()),
        room_(fs, options_.spool.parent_path()),
        meter_(options_.progress),
        guard_(ctx, options_.stall) {}

  Outcome<std::string> next() override;
  bool stale() const override { return stale_; }
  bool resumed() const override { return resumed_; }
  bool other_origin() const override { return other_origin_ || replayed_; }
  std::string remark() const override;
  bool looks_like_page() const override { return page_type_ || hashed_.page(); }
  std::uint64_t bytes() const override { return hashed_.count(); }
  codec::Sha256 digest() override { return hashed_.digest(); }

 private:
  std::optional<Failure> connect();
  /// It has nothing for us now: waits a little. Fails when that was long enough.
  std::optional<Failure> await_neighbour(net::ClientResponse& response);
  /// It took so long to give so much: whether too little came of it in a minute.
  bool drips(Duration took, std::uint64_t bytes);
  Result<net::ClientResponse> ask(std::uint64_t offset);
  Failure refused(net::ClientResponse& response);
  static bool is_page(net::ClientResponse& response);
  std::string kept_validator();
  Status keep(std::string_view bytes);
  std::optional<Failure> begin_whole(const net::ClientResponse& response, std::optional<std::uint64_t> length);
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
  std::uint64_t unsynced_ = 0;       // bytes of the spool
  SteadyTime synced_;
  bool named_ = false;         // the spool's name is on the disk
  bool noted_ = false;         // that the spool has bytes of a neighbour
  std::string encoding_;       // Content-Encoding of the last answer
  int short_connections_ = 0;  // in a row
  std::string validator_;      // of what this object downloads
  os::DiskRoom room_;
  HashedBytes hashed_;
  Meter meter_;
  StallGuard guard_;
  std::unique_ptr<net::BodyReader> body_;
  std::uint64_t connection_bytes_ = 0;
  std::optional<Error> broke_;                  // how the connection before ended
  std::uint64_t total_ = 0;                     // of the archive, where a range told; 0: not told
  std::uint64_t neighbour_done_ = 0;            // how far it said it is
  std::optional<SteadyTime> neighbour_moved_;   // when that changed, while it gives nothing
  std::optional<SteadyTime> neighbour_waited_;  // since when it gives nothing, or too little
  std::uint64_t neighbour_since_ = 0;           // bytes it gave since then
  Duration giving_{0};                          // how long it has been giving ...
  std::uint64_t given_ = 0;                     // ... these bytes: of the minute under way
  bool replaying_ = false;
  bool resumed_ = false;
  bool replayed_ = false;      // some of the bytes are an earlier attempt's, from an origin that is not known any more
  bool other_origin_ = false;  // a redirect led there
  bool stale_ = false;
  bool complete_ = false;
  bool page_type_ = false;
};

}  // namespace varda::artifact
