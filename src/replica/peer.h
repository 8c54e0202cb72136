// The way between two nodes: one shares files, the other asks for a snapshot and for the bytes it lacks.
//
//   GET /replica/v1/snapshot?key=KEY&id=ID       200 the encoded snapshot of that name; without id the newest
//   GET /replica/v1/file?key=KEY&path=PATH       206 the bytes of Range: bytes=FIRST-LAST, at most kRangeBytesMax
//
// Who asks is the common name of its certificate, which both sides have from the edge's CA. What is not shared with it is 404, as
// is what is not there. Nothing of what comes over the wire is trusted: every block has its digest in the snapshot, and the
// snapshot its name in the order that the control plane gave.
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

/// What this node gives to others. Thread-safe.
class Shares {
 public:
  struct Share {
    os::Path path;                // a file or a folder that may be read
    std::set<std::string> nodes;  // who may have it; names as in certificates
    /// Encoded, with their names, the newest first; empty: none is taken yet (503). A few, since who was told of one asks for it a
    /// moment later, when there may be a newer one.
    std::vector<std::pair<std::string, std::shared_ptr<const std::string>>> snapshots;
  };
  /// What may be read, asked for each request: a disk may be mounted later.
  using OpenTree = std::function<Result<std::unique_ptr<os::ReadableTree>>()>;
  explicit Shares(OpenTree tree) : tree_(std::move(tree)) {}

  void set(std::map<std::string, Share> shares);
  /// Opens and reads files on the caller's thread, 64 KiB at a time: a server of its own, with a thread of its own.
  net::Handler handler();

 private:
  net::Response answer(const net::Request& request);
  net::Response snapshot(const net::Query& query, const Share& share) const;
  net::Response file(const net::Request& request, const net::Query& query, const Share& share) const;

  const OpenTree tree_;
  mutable Mutex mutex_;
  std::map<std::string, Share> shares_ GUARDED_BY(mutex_);
};

/// A node that may have the files. `http` knows that node by its certificate, and outlives whoever is given the peer.
struct Peer {
  net::HttpClient* http = nullptr;
  std::string url;  // "https://192.168.1.7:10445"
};

/// The snapshot named `id` that the peer shares under the key; "" the newest. Its name is checked. kNotFound: it shares nothing of
/// the kind with us, or not that one. kUnavailable: it cannot be reached, has no snapshot yet, or is no peer of ours. kInvalid,
/// kExhausted: from Snapshot::decode().
Result<Snapshot> ask_snapshot(const Context& ctx, const Peer& peer, const std::string& key, const std::string& id,
                              const Limits& limits = {});

/// Reads from the first peer that answers; goes on at the next where one breaks off.
class PeerSource final : public BlockSource {
 public:
  PeerSource(std::vector<Peer> peers, std::string key) : peers_(std::move(peers)), key_(std::move(key)) {}
  Status read(const Context& ctx, const SnapshotFile& file, std::uint64_t offset, std::uint64_t length,
              const std::function<Status(std::string_view)>& sink) override;

 private:
  Status read_from(const Context& ctx, const Peer& peer, const SnapshotFile& file, std::uint64_t& offset, std::uint64_t end,
                   const std::function<Status(std::string_view)>& sink, bool& sink_failed);
  const std::vector<Peer> peers_;
  const std::string key_;
  std::size_t first_ = 0;  // who answered last
};

}  // namespace varda::replica
