// The protocol between two nodes: one shares files, the other requests a snapshot and the missing
// bytes.
//
//   GET /replica/v1/snapshot?key=KEY&id=ID       200 that encoded snapshot; without id the newest
//   GET /replica/v1/file?key=KEY&path=PATH       206 the bytes of Range: bytes=FIRST-LAST, at most
//                                                kRangeBytesMax
//
// The requester is identified by the common name of its certificate; both sides have certificates
// from the edge's CA. Files that are not shared with it give 404, like missing ones. No received
// byte is trusted. Every block has its digest in the snapshot, and the control plane names the
// snapshot.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "net/http.h"
#include "net/url.h"
#include "os/readable_tree.h"
#include "replica/store.h"

namespace varda::replica {

inline constexpr std::uint64_t kRangeBytesMax = 64u << 20;

/// Opens a file of the share at `root`, component by component, so that links inside cannot leave
/// the share. `path` is safe (check_path()); "": the share is the file.
Result<std::unique_ptr<os::ReadableFile>> open_below(os::ReadableTree& tree, const os::Path& root,
                                                     std::string_view path);

/// The files that this node shares. Thread-safe.
class Shares {
 public:
  struct Share {
    os::Path path;                // a readable file or folder
    std::set<std::string> nodes;  // nodes that may read it, by certificate name
    /// Encoded snapshots with names, newest first; empty: none taken yet (503). A few are kept,
    /// because a newer one may appear between the announcement and the request.
    std::vector<std::pair<std::string, std::shared_ptr<const std::string>>> snapshots;
  };
  /// Opens the readable tree. Called for each request, because a disk may be mounted later.
  using OpenTree = std::function<Result<std::unique_ptr<os::ReadableTree>>()>;
  explicit Shares(OpenTree tree) : tree_(std::move(tree)) {}

  void set(std::map<std::string, Share> shares);
  /// Opens and reads files on the caller's thread, 64 KiB at a time. Needs a separate server with a
  /// separate thread.
  net::Handler handler();

 private:
  net::Response answer(const net::Request& request);
  net::Response snapshot(const net::Query& query, const Share& share) const;
  net::Response file(const net::Request& request, const net::Query& query,
                     const Share& share) const;

  const OpenTree tree_;
  mutable Mutex mutex_;
  std::map<std::string, Share> shares_ GUARDED_BY(mutex_);
};

/// A node that may have the files. `http` checks that node's certificate and outlives all users of
/// the peer.
struct Peer {
  net::HttpClient* http = nullptr;
  std::string url;  // "https://192.168.1.7:10445"
};

/// Requests the snapshot named `id` that the peer shares under the key; "": the newest. Checks its
/// name. kNotFound: the peer does not share it with this node. kUnavailable: the peer is
/// unreachable, has no snapshot yet, or is not an accepted peer. kInvalid, kExhausted: from
/// Snapshot::decode().
Result<Snapshot> fetch_snapshot(const Context& ctx, const Peer& peer, const std::string& key,
                                const std::string& id, const Limits& limits = {});

/// Reads from the first peer that answers; continues at the next peer after a break.
class PeerSource final : public BlockSource {
 public:
  PeerSource(std::vector<Peer> peers, std::string key)
      : peers_(std::move(peers)), key_(std::move(key)) {}
  Status read(const Context& ctx, const SnapshotFile& file, std::uint64_t offset,
              std::uint64_t length, const std::function<Status(std::string_view)>& sink) override;

 private:
  Status read_from(const Context& ctx, const Peer& peer, const SnapshotFile& file,
                   std::uint64_t& offset, std::uint64_t end,
                   const std::function<Status(std::string_view)>& sink, bool& sink_failed);
  const std::vector<Peer> peers_;
  const std::string key_;
  std::size_t first_ = 0;  // index of the peer that answered last
};

}  // namespace varda::replica
