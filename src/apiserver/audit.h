// The audit log: who asked what of the API server and what came of it, one JSON line an event, in the shape of audit.k8s.io/v1.
//
//   TRY(auto audit, AuditLog::open(os::real_file_system(), {.file = "/var/log/varda/audit.jsonl", .metrics = &registry}));
//   auto server = Server::create({.store = store.get(), .audit = audit.get()});
//
// Requests never wait for it. Events go through a bounded queue to one writer; those that find it full, or whose writing fails (a
// full disk), are dropped and counted in apiserver_audit_error_total. Lines are whole or not there. What a power loss takes from
// the last seconds is not written again: nothing is synced but a file that is put away.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "apiserver/identity.h"
#include "base/metrics.h"
#include "base/mutex.h"
#include "base/result.h"
#include "codec/json.h"
#include "net/http.h"
#include "os/file_system.h"

namespace varda::apiserver {

/// How much an event says, each with all of the one before.
enum class AuditLevel {
  kNone,      // nothing is written
  kMetadata,  // who, what, when, the outcome
  kRequest,   // and the body that was sent; never of secrets and tokens
};
/// "None", "Metadata", "Request". kInvalid: another word.
Result<AuditLevel> parse_audit_level(std::string_view text);

/// Thread-safe. Owns a thread and the file.
class AuditLog {
 public:
  struct Options {
    os::Path file;  // 0600; FILE.1 is the one before, FILE.2 that before it ...
    AuditLevel level = AuditLevel::kMetadata;
    std::uint64_t bytes_max = 100u << 20;  // of one file: beyond, a new one begins
    std::size_t files_max = 10;            // that are kept beside the one that is written
    std::size_t queue_max = 10'000;        // events that wait
    metrics::Registry* metrics = nullptr;  // outlives the log
  };
  /// Goes on in the file that is there. Errors as of FileSystem::open(). `fs` outlives the log.
  static Result<std::unique_ptr<AuditLog>> open(os::FileSystem& fs, Options options);
  /// Writes what waits.
  ~AuditLog();
  AuditLog(const AuditLog&) = delete;
  AuditLog& operator=(const AuditLog&) = delete;

  AuditLevel level() const { return options_.level; }
  /// Never blocks.
  void add(const codec::Json& event);
  /// Waits until what was added so far is written or dropped: for tests.
  void flush();

 private:
  AuditLog(os::FileSystem& fs, Options options);
  Status reopen();
  Status write(const std::string& lines);
  Status rotate();
  void run(const std::stop_token& stop);
  void dropped(std::size_t events);

  os::FileSystem& fs_;
  const Options options_;
  metrics::Counter* written_ = nullptr;
  metrics::Counter* failed_ = nullptr;
  // Of the writer alone.
  std::unique_ptr<os::File> file_;
  std::uint64_t size_ = 0;
  bool failing_ = false;

  Mutex mutex_;
  CondVar changed_;
  std::deque<std::string> queue_ GUARDED_BY(mutex_);
  bool writing_ GUARDED_BY(mutex_) = false;
  bool closing_ GUARDED_BY(mutex_) = false;
  std::jthread thread_;
};

/// The event of a request that is answered now, beside the API: for handlers that share its port and matter as much. Nothing at
/// kNone.
std::optional<codec::Json> audit_event(const net::Request& request, const Identity& who, const net::Response& response,
                                       AuditLevel level, std::string id);

}  // namespace varda::apiserver
