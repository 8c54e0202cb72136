// The audit log: one JSON line per event (audit.k8s.io/v1) with the client, the request and the
// outcome.
//
//   TRY(auto audit, AuditLog::open(os::real_file_system(),
//                                 {.file = "/var/log/varda/audit.jsonl", .metrics = &registry}));
//   auto server = Server::create({.store = store.get(), .audit = audit.get()});
//
// Requests never wait for the log. Events go through a bounded queue to one writer thread. An event
// is dropped if the queue is full or the write fails (full disk). apiserver_audit_error_total
// counts dropped events. The file holds whole lines only. Only a rotated file is synced, so a power
// loss may lose the last seconds.
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

/// Detail of an event; each level includes the level before.
enum class AuditLevel {
  kNone,      // nothing is written
  kMetadata,  // client, request, time, outcome
  kRequest,   // also the request body, except for secrets and tokens
};
/// Accepts "None", "Metadata" and "Request". kInvalid: any other text.
Result<AuditLevel> parse_audit_level(std::string_view text);

/// Thread-safe. Owns a thread and the file.
class AuditLog {
 public:
  struct Options {
    os::Path file;  // mode 0600; FILE.1 is the newest rotated file, FILE.2 the next ...
    AuditLevel level = AuditLevel::kMetadata;
    std::uint64_t bytes_max = 100u << 20;  // per file; a larger file is rotated
    std::size_t files_max = 10;            // rotated files kept
    std::size_t queue_max = 10'000;        // queued events
    metrics::Registry* metrics = nullptr;  // outlives the log
  };
  /// Appends to an existing file. Returns the errors of FileSystem::open(). `fs` outlives the log.
  static Result<std::unique_ptr<AuditLog>> open(os::FileSystem& fs, Options options);
  /// Writes all queued events.
  ~AuditLog();
  AuditLog(const AuditLog&) = delete;
  AuditLog& operator=(const AuditLog&) = delete;

  AuditLevel level() const { return options_.level; }
  /// Never blocks.
  void add(const codec::Json& event);
  /// Waits until every event added so far is written or dropped. For tests.
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
  // Used by the writer thread only.
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

/// The event of a request served beside the API on the same port, answered now. nullopt at kNone.
std::optional<codec::Json> audit_event(const net::Request& request, const Identity& caller,
                                       const net::Response& response, AuditLevel level,
                                       std::string id);

}  // namespace varda::apiserver
