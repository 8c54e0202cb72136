// Relay: files on their way through the registry, between nodes that do not reach each other
// (docs/design/015).
//
// The encoded snapshot and each block are blobs. The name of a snapshot is the digest of its blob,
// so a node that knows the name can fetch everything.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>

#include "base/context.h"
#include "codec/digest.h"
#include "net/http.h"
#include "os/readable_tree.h"
#include "replica/peer.h"
#include "replica/store.h"

namespace varda::agent::replicas {

/// Uploads the snapshot and the blocks that the registry lacks, the snapshot first: the registry's
/// collector then knows the blocks. `encoded` is the snapshot of the files at `path`. `stored` has
/// the blocks that the registry is known to have, and grows. kConflict: the files have changed.
/// Other errors are those of registry::upload().
Status send_relayed(const Context& ctx, net::HttpClient& registry, os::ReadableTree& tree,
                    const os::Path& path, const std::string& encoded,
                    std::set<codec::Sha256>& stored,
                    const std::function<void(const replica::Progress&)>& progress);

/// kNotFound: the registry lacks the snapshot. kUnavailable: retry. kInvalid, kExhausted: from
/// Snapshot::decode().
Result<replica::Snapshot> fetch_relayed(const Context& ctx, net::HttpClient& registry,
                                        const std::string& id, const replica::Limits& limits);

/// Reads from peers until none is reachable, then from the registry.
class RelayedSource final : public replica::BlockSource {
 public:
  /// `registry` outlives the source. Null: peers only.
  RelayedSource(replica::PeerSource peers, net::HttpClient* registry, std::uint64_t block_bytes)
      : peers_(std::move(peers)), registry_(registry), block_bytes_(block_bytes) {}
  Status read(const Context& ctx, const replica::SnapshotFile& file, std::uint64_t offset,
              std::uint64_t length, const std::function<Status(std::string_view)>& sink) override;
  /// Asks peers no more.
  void skip_peers() { skips_peers_ = true; }
  /// True: the registry was asked, or will be.
  bool skips_peers() const { return skips_peers_; }

 private:
  replica::PeerSource peers_;
  net::HttpClient* const registry_;
  const std::uint64_t block_bytes_;
  bool skips_peers_ = false;
};

}  // namespace varda::agent::replicas
