#include "replica/peer.h"

#include <algorithm>
#include <optional>

#include "net/url.h"
#include "replica/internal/wire.h"

namespace varda::replica {
namespace {

constexpr std::string_view kRoot = "/replica/v1/";
constexpr std::uint64_t kSlowestBytesPerSecond = 4u << 10;  // slower peers are abandoned
constexpr auto kPatience = std::chrono::seconds(30);

/// A range of a file. Ends early if the file is shorter; the peer notices by the length.
class FileStream final : public net::BodyStream {
 public:
  FileStream(std::unique_ptr<os::ReadableFile> file, std::uint64_t first, std::uint64_t last)
      : file_(std::move(file)), next_(first), end_(last + 1), buffer_(kPieceBytes, '\0') {}
  std::optional<std::string> read() override {
    if (next_ == end_) return std::nullopt;
    const auto got = file_->read(
        next_, std::span(buffer_.data(), static_cast<std::size_t>(
                                             std::min<std::uint64_t>(kPieceBytes, end_ - next_))));
    if (!got.ok() || *got == 0) return std::nullopt;
    next_ += *got;
    return buffer_.substr(0, *got);
  }
  void on_ready(std::function<void()>) override {}

 private:
  const std::unique_ptr<os::ReadableFile> file_;
  std::uint64_t next_;
  const std::uint64_t end_;
  std::string buffer_;
};

Error unreachable(const Peer& peer, const Error& error) {
  const bool cancelled = error.code() == Code::kCancelled;
  return Error(cancelled ? Code::kCancelled : Code::kUnavailable,
               "peer " + peer.url + ": " + error.message());
}

}  // namespace

Result<std::unique_ptr<os::ReadableFile>> open_below(os::ReadableTree& tree, const os::Path& root,
                                                     std::string_view path) {
  if (path.empty()) return tree.open(root);
  TRY(auto folder, tree.list(root));
  while (true) {
    const auto end = path.find('/');
    if (end == std::string_view::npos) return folder->open(std::string(path));
    TRY(auto next, folder->descend(std::string(path.substr(0, end))));
    folder = std::move(next);
    path.remove_prefix(end + 1);
  }
}

void Shares::set(std::map<std::string, Share> shares) {
  const MutexLock lock(mutex_);
  shares_ = std::move(shares);
}

net::Handler Shares::handler() {
  return net::inline_handler([this](const net::Request& request) { return answer(request); });
}

net::Response Shares::answer(const net::Request& request) {
  const std::string& node = request.peer.certificate_common_name;
  if (node.empty()) return refuse(401, "the client must present the certificate of its node");
  if (!request.path().starts_with(kRoot)) return refuse(404, "no such path");
  if (request.method != "GET") return refuse(405, "only GET");
  const std::string_view what = request.path().substr(kRoot.size());
  if (what != "snapshot" && what != "file") return refuse(404, "no such path");
  const net::Query query = net::Query::parse(request.query());
  std::optional<Share> share;
  {
    const MutexLock lock(mutex_);
    const auto at = shares_.find(std::string(query.get("key")));
    if (at != shares_.end() && at->second.nodes.contains(node)) share = at->second;
  }
  if (!share) return refuse(404, "nothing is shared with " + node + " under that key");
  return what == "snapshot" ? snapshot(query, *share) : file(request, query, *share);
}

net::Response Shares::snapshot(const net::Query& query, const Share& share) const {
  if (share.snapshots.empty()) {
    net::Response out = refuse(503, "the snapshot is not complete yet");
    out.headers.add("Retry-After", "2");
    return out;
  }
  const std::string_view id = query.get("id");
  for (const auto& [name, text] : share.snapshots) {
    if (!id.empty() && name != id) continue;
    net::Response out;
    out.headers.add("Content-Type", "application/octet-stream");
    out.body = *text;
    return out;
  }
  return refuse(404, "unknown snapshot");
}

net::Response Shares::file(const net::Request& request, const net::Query& query,
                           const Share& share) const {
  const std::string path(query.get("path"));
  if (const std::string wrong = check_path(path); !wrong.empty())
    return refuse(400, "path: " + wrong);
  const auto header = request.headers.find("Range");
  const auto range = header ? parse_range(*header) : std::nullopt;
  if (!range || !range->last) return refuse(416, "expected Range: bytes=FIRST-LAST");
  const std::uint64_t last = *range->last;
  if (last - range->first >= kRangeBytesMax)
    return refuse(416, "a range is at most " + std::to_string(kRangeBytesMax) + " bytes");
  const auto tree = tree_();
  if (!tree.ok()) return refuse(404, "the file cannot be read");
  auto opened = open_below(**tree, share.path, path);
  if (!opened.ok()) return refuse(404, "the file cannot be read");
  const auto facts = (*opened)->facts();
  if (!facts.ok() || last >= facts->size_bytes) return refuse(416, "the file is shorter");
  net::Response out;
  out.status = 206;
  out.headers.add("Content-Type", "application/octet-stream");
  out.headers.add("Content-Range", "bytes " + std::to_string(range->first) + "-" +
                                       std::to_string(last) + "/" +
                                       std::to_string(facts->size_bytes));
  out.stream = std::make_unique<FileStream>(std::move(opened).value(), range->first, last);
  return out;
}

Result<Snapshot> fetch_snapshot(const Context& ctx, const Peer& peer, const std::string& key,
                                const std::string& id, const Limits& limits) {
  net::ClientRequest request;
  request.url = peer.url + std::string(kRoot) + "snapshot?key=" + net::percent_encode(key);
  if (!id.empty()) request.url += "&id=" + net::percent_encode(id);
  // The size of a snapshot at its limits.
  request.max_response_bytes = std::min<std::uint64_t>(
      limits.files_max * (limits.path_bytes_max + 12) + limits.blocks_max * 32 + 64,
      std::uint64_t{256} << 20);
  const auto answer =
      peer.http->call(ctx.with_timeout(kPatience + std::chrono::seconds(60)), std::move(request));
  if (!answer.ok()) return unreachable(peer, answer.error());
  if (answer->status == 404)
    return Error(Code::kNotFound,
                 "peer " + peer.url + " does not share the snapshot with this node");
  if (answer->status != 200)
    return Error(Code::kUnavailable,
                 "peer " + peer.url + " answered " + std::to_string(answer->status));
  if (!id.empty() && codec::Sha256::of(answer->body).hex() != id)
    return Error(Code::kUnavailable,
                 "peer " + peer.url + " sent bytes that do not match snapshot " + id);
  auto snapshot = Snapshot::decode(answer->body, limits);
  if (!snapshot.ok()) return std::move(snapshot).error().context("peer " + peer.url);
  return snapshot;
}

Status PeerSource::read(const Context& ctx, const SnapshotFile& file, std::uint64_t offset,
                        std::uint64_t length, const std::function<Status(std::string_view)>& sink) {
  Error last(Code::kUnavailable, "no peer has the files");
  std::uint64_t next = offset;
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    TRY_VOID(ctx.check());
    const std::size_t index = (first_ + i) % peers_.size();
    bool sink_failed = false;
    const Status status =
        read_from(ctx, peers_[index], file, next, offset + length, sink, sink_failed);
    if (status.ok()) {
      first_ = index;
      return {};
    }
    if (sink_failed) return status;
    last = status.error();
  }
  return last;
}

Status PeerSource::read_from(const Context& ctx, const Peer& peer, const SnapshotFile& file,
                             std::uint64_t& offset, std::uint64_t end,
                             const std::function<Status(std::string_view)>& sink,
                             bool& sink_failed) {
  while (offset < end) {
    const std::uint64_t stop = std::min(end, offset + kRangeBytesMax);
    const Context one = ctx.with_timeout(
        kPatience + std::chrono::seconds((stop - offset) / kSlowestBytesPerSecond));
    net::ClientRequest request;
    request.url = peer.url + std::string(kRoot) + "file?key=" + net::percent_encode(key_) +
                  "&path=" + net::percent_encode(file.path);
    request.headers.add("Range",
                        "bytes=" + std::to_string(offset) + "-" + std::to_string(stop - 1));
    auto response = peer.http->send(one, std::move(request));
    if (!response.ok()) return unreachable(peer, response.error());
    if (response->status == 404)
      return Error(Code::kNotFound, "peer " + peer.url + " no longer has the file");
    if (response->status == 416)
      return Error(Code::kConflict, "peer " + peer.url + ": the file has become shorter");
    const std::string range =
        "bytes " + std::to_string(offset) + "-" + std::to_string(stop - 1) + "/";
    const auto reported = response->headers.find("Content-Range");
    if (response->status != 206 || !reported || !reported->starts_with(range))
      return Error(Code::kUnavailable, "peer " + peer.url + " answered " +
                                           std::to_string(response->status) +
                                           " to a range request");
    while (offset < stop) {
      const auto piece = response->body->read();
      if (!piece.ok()) return unreachable(peer, piece.error());
      if (!*piece) return Error(Code::kUnavailable, "peer " + peer.url + " ended the answer early");
      if ((*piece)->size() > stop - offset)
        return Error(Code::kUnavailable, "peer " + peer.url + " sent more bytes than requested");
      offset += (*piece)->size();
      if (const Status taken = sink(**piece); !taken.ok()) {
        sink_failed = true;
        return taken;
      }
    }
  }
  return {};
}

}  // namespace varda::replica
