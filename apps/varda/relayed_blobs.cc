#include "relayed_blobs.h"

#include <cstdint>

#include "replica/snapshot.h"

namespace varda::app {
namespace {

constexpr std::uint64_t kSnapshotBytesMax = 256u << 20;
// 16 GiB in blocks of 1 MiB, and a last block for each of 200,000 files. So a node cannot fill the
// memory.
constexpr std::uint64_t kBlocksMax = 250'000;

void add_digest(const codec::Json& text, std::set<codec::Sha256>& out) {
  if (const auto digest = codec::Sha256::parse(text.as_string()); digest.ok()) out.insert(*digest);
}

/// A node may name a missing, large or damaged blob. That must not stop the collection.
bool is_no_snapshot(const Error& error) {
  return error.code() == Code::kNotFound || error.code() == Code::kExhausted ||
         error.code() == Code::kCorrupt || error.code() == Code::kInvalid;
}

}  // namespace

void add_relayed_snapshots(const codec::Json& edge_node, std::set<codec::Sha256>& snapshots) {
  std::set<std::string> relayed;
  for (const codec::Json& share : edge_node.at("spec/shares").as_array()) {
    if (share["relay"].as_bool()) relayed.insert(share["key"].as_string());
  }
  for (const codec::Json& share : edge_node.at("status/shares").as_array()) {
    if (!relayed.contains(share["key"].as_string())) continue;
    add_digest(share["snapshot"], snapshots);
    add_digest(share["relayed"], snapshots);
  }
  std::set<std::string> wanted;
  for (const codec::Json& replica : edge_node.at("spec/replicas").as_array())
    wanted.insert(replica["key"].as_string());
  for (const codec::Json& replica : edge_node.at("status/replicas").as_array()) {
    if (replica["relay"].as_bool() && wanted.contains(replica["key"].as_string()))
      add_digest(replica["snapshot"], snapshots);
  }
}

Result<std::set<codec::Sha256>> blocks_of(const Context& ctx, net::HttpClient& http,
                                          const registry::Target& registry,
                                          const std::set<codec::Sha256>& snapshots) {
  std::set<codec::Sha256> out;
  for (const codec::Sha256& id : snapshots) {
    const auto text = registry::download(ctx, http, registry, id, kSnapshotBytesMax);
    if (!text.ok() && is_no_snapshot(text.error())) continue;
    if (!text.ok()) return text.error().context("snapshot " + id.hex());
    const auto snapshot = replica::Snapshot::decode(*text, {.blocks_max = kBlocksMax});
    if (!snapshot.ok()) continue;  // a node named another blob
    for (const replica::SnapshotFile& file : snapshot->files)
      out.insert(file.blocks.begin(), file.blocks.end());
  }
  return out;
}

}  // namespace varda::app
