// Serves archives to peers, by the SHA-256 of their bytes.
//
//   GET /replica/v1/archive?sha256=HEX   with Range: bytes=FIRST-[LAST]
//     206  the available bytes of the range, possibly fewer than requested; Content-Range has the
//          total size
//     503  none of those bytes are available yet; Varda-Bytes-Done has the progress, Retry-After
//          the time of the next request
//     404  not shared with the requester; perhaps not yet: work lists reach nodes in any order
//     410  shared, but this node does not have the archive
//
// The requester is identified by the common name of its certificate. Bytes of an incomplete archive
// are not verified here; the requester verifies the whole, as with every source.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "base/mutex.h"
#include "codec/digest.h"
#include "net/http.h"
#include "os/file_system.h"

namespace varda::replica {

inline constexpr std::string_view kArchivePath = "/replica/v1/archive";
inline constexpr std::string_view kBytesDoneHeader = "Varda-Bytes-Done";

/// The URL of an archive on a peer.
std::string archive_url(const std::string& peer_url, const codec::Sha256& digest);

/// Thread-safe.
class Archives {
 public:
  struct Share {
    std::set<std::string> nodes;  // nodes that may read it, by certificate name
    bool coming = false;          // the archive will arrive, even if no bytes exist yet
  };
  struct Content {
    std::unique_ptr<os::File> file;  // null: unreadable now
    std::uint64_t bytes = 0;         // available bytes
    std::uint64_t total = 0;         // size of the whole; 0: unknown yet
  };
  /// Opens an archive. Called for each request on the server's thread, so it must be quick.
  using Open = std::function<std::optional<Content>(const codec::Sha256&)>;
  explicit Archives(Open open) : open_(std::move(open)) {}

  void set(std::map<codec::Sha256, Share> shares);
  /// Handles paths that begin with kArchivePath. Reads files on the caller's thread, 64 KiB at a
  /// time.
  net::Handler handler();

 private:
  net::Response answer(const net::Request& request);

  const Open open_;
  mutable Mutex mutex_;
  std::map<codec::Sha256, Share> shares_ GUARDED_BY(mutex_);
};

}  // namespace varda::replica
