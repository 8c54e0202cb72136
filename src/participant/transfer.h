// Files between the client and the aggregator, in pieces that continue after a cut.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/context.h"
#include "base/result.h"
#include "codec/digest.h"
#include "net/http.h"
#include "os/file_system.h"

namespace varda::participant {

/// Limits a rate by pauses after each piece. Not thread-safe.
class RateLimit {
 public:
  /// 0: no limit.
  explicit RateLimit(std::uint64_t bytes_per_second) : rate_(bytes_per_second) {}
  std::uint64_t bytes_per_second() const { return rate_; }
  /// Waits until `bytes` more fit. kCancelled, kTimeout: from `ctx`.
  Status wait(const Context& ctx, std::uint64_t bytes);
  /// The wait that wait() would begin at `now`.
  Duration delay(SteadyTime now, std::uint64_t bytes);

 private:
  const std::uint64_t rate_;
  SteadyTime free_at_{};
};

struct TransferOptions {
  std::string url;     // of the aggregator: "http://10.0.0.5:7363"
  std::string client;  // sent as Varda-Client; "": the stream has the name
  std::chrono::milliseconds request_timeout{60'000};
  std::size_t piece_bytes_max = std::size_t{8} << 20;  // of an upload
  std::size_t piece_bytes_min = std::size_t{64} << 10;
  std::uint64_t answer_bytes_max = 1 << 20;
};

/// The aggregator's answer to an update.
enum class Answer : std::uint8_t { kAccepted, kLate, kRefused };
struct UploadResult {
  Answer answer = Answer::kAccepted;
  int status = 0;
  std::string message;  // of the aggregator
};

/// Requests of one client. Each call tries once: kUnavailable means that another try may help, and
/// bytes that have passed stay passed. Not thread-safe; both collaborators outlive the object.
class Transfer {
 public:
  Transfer(TransferOptions options, net::HttpClient& http, os::FileSystem& fs, RateLimit limit)
      : options_(std::move(options)), http_(http), fs_(fs), limit_(limit) {}

  /// One request and its whole answer. kUnavailable: no answer.
  Result<net::HttpClient::Answer> call(const Context& ctx, const std::string& method,
                                       const std::string& target, std::string body,
                                       std::chrono::milliseconds more_time = {});

  /// Makes `path` the file with this digest. Bytes arrive in PATH.part, from where a later call
  /// continues. kUnavailable: cut, busy. kNotFound: the aggregator has no such file. kCorrupt:
  /// other bytes, which are removed. kForbidden: refused. kExhausted: the disk is full.
  Status download(const Context& ctx, const codec::Sha256& digest, std::uint64_t bytes,
                  const os::Path& path);

  /// Sends the file as the update of a task. kUnavailable: a later call continues. kCorrupt: the
  /// file on the disk is not the one of this digest.
  Result<UploadResult> upload(const Context& ctx, const std::string& task,
                              const codec::Sha256& digest, std::uint64_t bytes,
                              const os::Path& path);

  std::uint64_t received_bytes() const { return received_; }
  std::uint64_t sent_bytes() const { return sent_; }

 private:
  net::ClientRequest request(const std::string& method, const std::string& target) const;
  Result<std::optional<UploadResult>> send_piece(const Context& ctx, const std::string& target,
                                                 os::File& file, std::uint64_t total,
                                                 std::uint64_t& offset);
  Result<std::uint64_t> receive(const Context& ctx, const codec::Sha256& digest,
                                std::uint64_t bytes, const os::Path& part);

  const TransferOptions options_;
  net::HttpClient& http_;
  os::FileSystem& fs_;
  RateLimit limit_;
  std::size_t piece_ = 0;  // 0: piece_bytes_max; halves after a piece that timed out
  std::uint64_t received_ = 0, sent_ = 0;
};

/// The `message` of a JSON answer, cut to a line; else the status.
std::string message_of(int status, const std::string& body);
/// A later try may have another status.
bool may_pass(int status);

}  // namespace varda::participant
