// Where the bytes of an archive come from: every byte once, in order, hashed on the way.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "artifact/failure.h"
#include "artifact/limits.h"
#include "artifact/request.h"
#include "base/context.h"
#include "net/http.h"
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
  /// The peer said, or the bytes look as if, this is a page for a browser.
  virtual bool looks_like_page() const = 0;
  virtual std::uint64_t bytes() const = 0;
  /// Of all bytes; once, after the end.
  virtual codec::Sha256 digest() = 0;
};

/// Leaves some of the disk to whoever else lives on it: a model that does not fit must not keep the agent's records, logs and a
/// control plane on the same disk from being written.
class DiskRoom {
 public:
  DiskRoom(os::FileSystem& fs, os::Path place) : fs_(fs), place_(std::move(place)) {}
  /// Before so many bytes are written. kExhausted: they would not leave the reserve, 64 MiB or a twentieth of the disk.
  Status take(std::uint64_t bytes);

 private:
  os::FileSystem& fs_;
  const os::Path place_;
  std::uint64_t left_ = 0;  // may be taken before the disk is asked again
};

struct SourceOptions {
  Request request;
  os::Path spool;                    // the part on disk; "<spool>.notes" holds its validator
  bool spooled = true;               // false: nothing is kept on disk, so a kill starts over; a connection that breaks goes on
  std::vector<os::Path> file_roots;  // file URLs are read below these only
  Limits limits;
  Duration stall = std::chrono::seconds(60);  // a connection silent for so long is given up
  ProgressSink progress;
};

/// By the URL's scheme; anything but http, https and an allowed file is kSourceForbidden. `ctx`, `fs` and `http` outlive it.
Outcome<std::unique_ptr<Source>> open_source(const Context& ctx, os::FileSystem& fs, net::HttpClient& http, SourceOptions options);

/// The spool and its notes.
Status drop_spool(os::FileSystem& fs, const os::Path& spool);

/// An error of the local disk as a failure: kExhausted is kDiskFull, a cancelled context kCancelled.
Failure disk_failure(Error error);

}  // namespace varda::artifact
