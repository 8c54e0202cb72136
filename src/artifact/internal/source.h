// Where the bytes of an archive come from: every byte once, in order, hashed on the way.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "artifact/credentials.h"
#include "artifact/failure.h"
#include "artifact/internal/source_book.h"
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
  /// The kept part of an earlier download proved useless: drop the spool and begin with a new Source.
  virtual bool stale() const { return false; }
  /// Some of the bytes came from an earlier attempt, so a wrong digest may be its fault.
  virtual bool resumed() const { return false; }
  /// Some of the bytes may come from another origin than the URL's: messages say nothing of them.
  virtual bool other_origin() const { return false; }
  /// What makes a wrong digest less of a riddle; "" nothing.
  virtual std::string remark() const { return ""; }
  /// The peer said, or the bytes look as if, this is a page for a browser.
  virtual bool looks_like_page() const = 0;
  virtual std::uint64_t bytes() const = 0;
  /// Of all bytes; once, after the end.
  virtual codec::Sha256 digest() = 0;
};

/// What is expected of a source.
enum class SourceKind {
  kOrigin,     // a file server: it has the archive, or something is wrong
  kNeighbour,  // request.h: it may have a part of it so far, or none yet
  kKept,       // SourceOptions::archive: it was right when it was put there
};

struct SourceOptions {
  Request request;
  SourceKind kind = SourceKind::kOrigin;
  std::string url;   // the one of the request's sources that is meant; "" the first
  os::Path spool;    // the part on disk; "<spool>.notes": its validator, or that neighbours gave some
  os::Path archive;  // where the spool goes when it is whole and right; empty, or if wants_archive says no: nowhere. If there is
                     // one from before, it is the first source.
  std::function<bool()> wants_archive;  // asked then
  bool spooled = true;                  // false: nothing is kept on disk, so a kill starts over; a connection that breaks goes on
  os::Path record;                      // what the tree holds is written there (tree_record.h); empty: nowhere
  std::vector<os::Path> file_roots;     // file URLs are read below these only
  Limits limits;
  std::uint64_t tree_bytes_max = UINT64_MAX;  // what the store has room for by its own limit, whatever may still be evicted gone
  Duration stall = std::chrono::seconds(60);  // a connection that brings less than kStallBytes in so long is given up
  ProgressSink progress;
  Transport transport;
  SourceBook* book = nullptr;                // of the store; null: nothing is known of any source
  const Credentials* credentials = nullptr;  // of request.credentials; install() sets it
  std::string withheld;                      // why they are not sent to this source; open_source() sets it
};

/// Less than this in a minute is no download but a connection held open.
inline constexpr std::size_t kStallBytes = 4 << 10;
/// A spool goes to the disk when so much of it is only in the machine's memory, but not more often than every so long: a kill loses
/// nothing that was written, a power cut this much, or what came in that time.
inline constexpr std::uint64_t kSpoolSyncBytes = 256 << 10;
inline constexpr std::chrono::seconds kSpoolSyncPeriod{5};

/// `options.archive` where that is meant; else by the scheme of `options.url`: anything but http, https, s3 and an allowed file is
/// kSourceForbidden. `ctx`, `fs` and `http` outlive it.
Outcome<std::unique_ptr<Source>> open_source(const Context& ctx, os::FileSystem& fs, net::HttpClient& http, SourceOptions options);

/// A neighbour that gets on no further is waited for so long; one that does not know of the archive may only know later than we.
inline constexpr std::chrono::seconds kNeighbourPatience{60}, kNeighbourUnawarePatience{30};
/// However much it gets on, when it gives no bytes, or fewer than kNeighbourFloorBytes for each minute since.
inline constexpr std::chrono::hours kNeighbourPatienceMax{1};
/// In a minute of giving, which is not that of waiting: what it has, it is to give at once, since others have the rest. Of no more
/// than a link of 35 kbit/s carries, so that those behind the slowest ones still share.
inline constexpr std::uint64_t kNeighbourFloorBytes = 256 << 10;

/// Some of the spool came from neighbours, who are not believed: it may be what is wrong, and be none of the file server's.
bool spool_has_neighbours_bytes(os::FileSystem& fs, const os::Path& spool);

Status forget_notes(os::FileSystem& fs, const os::Path& spool);
/// The spool and its notes.
Status drop_spool(os::FileSystem& fs, const os::Path& spool);

/// An error of the local disk as a failure: kExhausted is kDiskFull, a cancelled context kCancelled.
Failure disk_failure(Error error);

}  // namespace varda::artifact
