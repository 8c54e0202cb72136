// Archives that this node gives to others, by the SHA-256 of their bytes.
//
//   GET /replica/v1/archive?sha256=HEX   with Range: bytes=FIRST-[LAST]
//     206  the bytes that are there of what was asked for, which may be less of it than there will be; Content-Range says the size
//          of the whole
//     503  none of those bytes are there yet; Varda-Bytes-Done says how far it is, Retry-After when to ask again
//     404  nothing is shared with who asks under that digest; perhaps not yet, since work lists reach nodes in any order
//     410  it is shared, and this node has no archive to give
//
// Who asks is the common name of its certificate. What is given of an archive that is still on its way is not verified: who asks
// verifies the whole, as he does with every source.
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

/// Where to ask a peer for an archive.
std::string archive_url(const std::string& peer_url, const codec::Sha256& digest);

/// Thread-safe.
class Archives {
 public:
  struct Share {
    std::set<std::string> nodes;  // who may have it; names as in certificates
    bool coming = false;          // where there is nothing of it yet: there will be
  };
  struct Content {
    std::unique_ptr<os::File> file;  // null: it cannot be read now
    std::uint64_t bytes = 0;         // that are there
    std::uint64_t total = 0;         // of the whole; 0: not known yet
  };
  /// What there is of one; called for each request on the server's thread: quick.
  using Open = std::function<std::optional<Content>(const codec::Sha256&)>;
  explicit Archives(Open open) : open_(std::move(open)) {}

  void set(std::map<codec::Sha256, Share> shares);
  /// Answers what begins with kArchivePath. Reads files on the caller's thread, 64 KiB at a time.
  net::Handler handler();

 private:
  net::Response answer(const net::Request& request);

  const Open open_;
  mutable Mutex mutex_;
  std::map<codec::Sha256, Share> shares_ GUARDED_BY(mutex_);
};

}  // namespace varda::replica
