#include "agent/replicas/relay.h"

#include <algorithm>
#include <memory>
#include <span>
#include <utility>

#include "registry/client.h"

namespace varda::agent::replicas {
namespace {

constexpr std::uint64_t kPieceBytes = 1 << 20;           // the most that a gateway forwards
constexpr std::uint64_t kSnapshotBytesMax = 256u << 20;  // as between peers
const registry::Target kBehindTheApi{.url = "", .token = ""};

/// One attempt: the caller waits and tries again.
Status send_blob(const Context& ctx, net::HttpClient& http, std::string_view bytes,
                 const codec::Sha256& digest) {
  const registry::ReadAt read = [bytes](std::uint64_t offset,
                                        std::uint64_t length) -> Result<std::string> {
    return std::string(bytes.substr(offset, length));
  };
  return registry::upload(ctx, http, kBehindTheApi, read, bytes.size(), digest,
                          {.piece_bytes = kPieceBytes, .attempts_max = 1, .progress = {}});
}

/// Everything except a missing blob is retried, like an unreachable peer.
Error not_relayed(const Error& error) {
  const bool keeps = error.code() == Code::kNotFound || error.code() == Code::kCancelled;
  return {keeps ? error.code() : Code::kUnavailable, error.message()};
}

Error changed(const replica::SnapshotFile& file) {
  return {Code::kConflict, file.path + ": the file has changed since the snapshot"};
}

Result<std::unique_ptr<os::ReadableFile>> open_shared(os::ReadableTree& tree, const os::Path& path,
                                                      const replica::SnapshotFile& file) {
  auto opened = replica::open_below(tree, path, file.path);
  if (!opened.ok()) return changed(file);
  return opened;
}

Result<std::string> read_block(os::ReadableFile& opened, const replica::SnapshotFile& file,
                               std::uint64_t block, std::uint64_t block_bytes) {
  std::string out(static_cast<std::size_t>(replica::length_of(block, file.size, block_bytes)),
                  '\0');
  TRY(const std::size_t got, opened.read(block * block_bytes, std::span(out.data(), out.size())));
  if (got != out.size() || codec::Sha256::of(out) != file.blocks[block]) return changed(file);
  return out;
}

}  // namespace

Status send_relayed(const Context& ctx, net::HttpClient& registry, os::ReadableTree& tree,
                    const os::Path& path, const std::string& encoded,
                    std::set<codec::Sha256>& stored,
                    const std::function<void(const replica::Progress&)>& progress) {
  TRY(const replica::Snapshot snapshot, replica::Snapshot::decode(encoded));
  TRY_VOID(send_blob(ctx, registry, encoded, codec::Sha256::of(encoded)));
  replica::Progress done{.done_bytes = 0, .total_bytes = snapshot.bytes()};
  for (const replica::SnapshotFile& file : snapshot.files) {
    std::unique_ptr<os::ReadableFile> opened;
    for (std::uint64_t block = 0; block < file.blocks.size(); ++block) {
      TRY_VOID(ctx.check());
      if (!stored.contains(file.blocks[block])) {
        if (!opened) {
          TRY(opened, open_shared(tree, path, file));
        }
        TRY(const std::string bytes, read_block(*opened, file, block, snapshot.block_bytes));
        TRY_VOID(send_blob(ctx, registry, bytes, file.blocks[block]));
        stored.insert(file.blocks[block]);
      }
      done.done_bytes += replica::length_of(block, file.size, snapshot.block_bytes);
      progress(done);
    }
  }
  return {};
}

Result<replica::Snapshot> fetch_relayed(const Context& ctx, net::HttpClient& registry,
                                        const std::string& id, const replica::Limits& limits) {
  TRY(const codec::Sha256 digest, codec::Sha256::parse(id));
  const auto text = registry::download(ctx, registry, kBehindTheApi, digest, kSnapshotBytesMax);
  if (!text.ok()) return not_relayed(text.error());
  return replica::Snapshot::decode(*text, limits);
}

Status RelayedSource::read(const Context& ctx, const replica::SnapshotFile& file,
                           std::uint64_t offset, std::uint64_t length,
                           const std::function<Status(std::string_view)>& sink) {
  const std::uint64_t end = offset + length;
  if (!skips_peers_) {
    bool sink_failed = false;
    const Status status = peers_.read(ctx, file, offset, length, [&](std::string_view piece) {
      Status taken = sink(piece);
      sink_failed = !taken.ok();
      offset += piece.size();
      return taken;
    });
    if (status.ok() || sink_failed || registry_ == nullptr ||
        status.error().code() != Code::kUnavailable)
      return status;
    skips_peers_ = true;
  }
  while (offset < end) {
    TRY_VOID(ctx.check());
    const std::uint64_t block = offset / block_bytes_, begin = block * block_bytes_;
    const auto bytes =
        registry::download(ctx, *registry_, kBehindTheApi, file.blocks[block], block_bytes_);
    if (!bytes.ok()) return not_relayed(bytes.error());
    const std::uint64_t stop = std::min(end, begin + bytes->size());
    if (stop <= offset) return Error(Code::kCorrupt, "a block of the registry is too short");
    TRY_VOID(sink(std::string_view(*bytes).substr(offset - begin, stop - offset)));
    offset = stop;
  }
  return {};
}

}  // namespace varda::agent::replicas
