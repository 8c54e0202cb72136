// A source of an archive's bytes: every byte once, in order, hashed on the way.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "artifact/credentials.h"
#include "artifact/failure.h"
#include "artifact/internal/source_history.h"
#include "artifact/limits.h"
#include "artifact/request.h"
#include "artifact/transport.h"
#include "base/clock.h"
#include "base/context.h"
#include "net/http.h"
#include "os/disk_room.h"
#include "os/file_system.h"

namespace varda::artifact {

class Source {
 public:
  virtual ~Source() = default;
  /// The next bytes; empty at the end.
  virtual Outcome<std::string> next() = 0;
  /// The spool of an earlier download is useless: drop it and start again with a new Source.
  virtual bool stale() const { return false; }
  /// Some bytes came from an earlier attempt, which may have caused a wrong digest.
  virtual bool resumed() const { return false; }
  /// Some bytes may come from another origin than the URL's origin, so messages must not describe
  /// them.
  virtual bool other_origin() const { return false; }
  /// Explains a likely cause of a wrong digest; "" if unknown.
  virtual std::string remark() const { return ""; }
  /// The server's Content-Type or the bytes suggest an HTML page.
  virtual bool looks_like_page() const = 0;
  virtual std::uint64_t bytes() const = 0;
  /// Bytes received over the network, without those of earlier attempts.
  virtual std::uint64_t received() const { return 0; }
  /// SHA-256 of all bytes; call once, after the end.
  virtual codec::Sha256 digest() = 0;
};

/// The kind of source.
enum class SourceKind {
  kOrigin,  // a file server, which has the whole archive unless it is faulty
  kPeer,    // a peer node (request.h), which may have only a part so far, or none
  kStored,  // SourceOptions::archive, which was verified when it was stored
};

class Delta;

struct SourceOptions {
  Request request;
  SourceKind kind = SourceKind::kOrigin;
  std::string url;   // the request's source to use; "" the first
  os::Path spool;    // the partial download; "<spool>.notes" holds its validator, or marks bytes
                     // from peer nodes
  os::Path archive;  // destination of a complete, verified spool; none if empty or wants_archive
                     // returns false. An existing archive there is the first source.
  std::function<bool()> wants_archive;  // called when the spool is complete
  bool spooled = true;                  // false: no bytes are kept on disk, so a kill restarts the
                                        // download; a broken connection still resumes
  os::Path record;                      // file for the tree's record (tree_record.h); empty: none
  std::vector<os::Path> file_roots;     // file URLs are read below these only
  Limits limits;
  std::uint64_t tree_bytes_max =
      UINT64_MAX;  // room under the store's own limit, after all possible evictions
  Duration stall = std::chrono::seconds(
      60);  // a connection that brings less than kStallBytes in this time is closed
  ProgressSink progress;
  Transport transport;
  SourceHistory* history = nullptr;          // the store's history; null: none
  const Credentials* credentials = nullptr;  // values for request.credentials; install() sets it
  std::string withheld;                      // why they are not sent to it; open_source() sets it
  std::vector<os::Path> bases;  // held trees that may have parts of the archive (delta.h)
  Delta* delta = nullptr;       // the parts found there; outlives the source; install() sets it
};

/// Fewer bytes per minute count as a stalled connection.
inline constexpr std::size_t kStallBytes = 4 << 10;
/// The spool is synced after this many unsynced bytes, but at most once per period. A kill loses no
/// written bytes. A power cut loses at most this much, or the bytes of one period.
inline constexpr std::uint64_t kSpoolSyncBytes = 256 << 10;
inline constexpr std::chrono::seconds kSpoolSyncPeriod{5};

/// Opens `options.archive` for SourceKind::kStored, else by the scheme of `options.url`. Allowed
/// are http, https, s3 and permitted files; the rest is kSourceForbidden. `ctx`, `fs` and `http`
/// outlive the source.
Outcome<std::unique_ptr<Source>> open_source(const Context& ctx, os::FileSystem& fs,
                                             net::HttpClient& http, SourceOptions options);

/// The wait for a peer node without progress, and for one that does not know the archive yet.
inline constexpr std::chrono::seconds kPeerPatience{60}, kPeerUnawarePatience{30};
/// The longest wait for a peer node that progresses but gives fewer than kPeerFloorBytes per
/// minute.
inline constexpr std::chrono::hours kPeerPatienceMax{1};
/// Minimum per minute of receiving; waiting does not count. A peer node must send what it has at
/// once, because other sources have the rest. 256 KiB a minute is 35 kbit/s, so nodes behind the
/// slowest links still share.
inline constexpr std::uint64_t kPeerFloorBytes = 256 << 10;

/// Some spooled bytes came from untrusted peer nodes. They may be the fault, instead of the file
/// server.
bool spool_has_peer_bytes(os::FileSystem& fs, const os::Path& spool);

Status forget_notes(os::FileSystem& fs, const os::Path& spool);
/// Removes the spool and its notes.
Status drop_spool(os::FileSystem& fs, const os::Path& spool);

/// Converts an error of the local disk: kExhausted becomes kDiskFull, a cancelled context
/// kCancelled.
Failure disk_failure(Error error);

}  // namespace varda::artifact
