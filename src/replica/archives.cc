#include "replica/archives.h"

#include <algorithm>

#include "net/url.h"
#include "replica/internal/wire.h"

namespace varda::replica {
namespace {

/// Ends early if the file is shorter; the peer notices by the length.
class ArchiveStream final : public net::BodyStream {
 public:
  ArchiveStream(std::unique_ptr<os::File> file, std::uint64_t bytes)
      : file_(std::move(file)), left_(bytes) {}
  std::optional<std::string> read() override {
    if (left_ == 0) return std::nullopt;
    auto piece = file_->read(static_cast<std::size_t>(std::min<std::uint64_t>(kPieceBytes, left_)));
    if (!piece.ok() || piece->empty()) return std::nullopt;
    left_ -= piece->size();
    return std::move(piece).value();
  }
  void on_ready(std::function<void()>) override {}

 private:
  const std::unique_ptr<os::File> file_;
  std::uint64_t left_;
};

net::Response not_yet(std::uint64_t done) {
  net::Response out = refuse(503, "the archive is not on this node yet");
  out.headers.add("Retry-After", "1");
  out.headers.add(std::string(kBytesDoneHeader), std::to_string(done));
  return out;
}

net::Response beyond(std::uint64_t total) {
  net::Response out = refuse(416, "the archive is shorter");
  out.headers.add("Content-Range", "bytes */" + std::to_string(total));
  return out;
}

}  // namespace

std::string archive_url(const std::string& peer_url, const codec::Sha256& digest) {
  return peer_url + std::string(kArchivePath) + "?sha256=" + digest.hex();
}

void Archives::set(std::map<codec::Sha256, Share> shares) {
  const MutexLock lock(mutex_);
  shares_ = std::move(shares);
}

net::Handler Archives::handler() {
  return net::inline_handler([this](const net::Request& request) { return answer(request); });
}

net::Response Archives::answer(const net::Request& request) {
  const std::string& node = request.peer.certificate_common_name;
  if (node.empty()) return refuse(401, "the client must present the certificate of its node");
  if (request.path() != kArchivePath) return refuse(410, "no such path");
  if (request.method != "GET") return refuse(405, "only GET");
  const auto digest = codec::Sha256::parse(net::Query::parse(request.query()).get("sha256"));
  if (!digest.ok()) return refuse(400, "sha256: " + digest.error().message());
  const auto header = request.headers.find("Range");
  const auto range = header ? parse_range(*header) : std::nullopt;
  if (!range) return refuse(416, "expected Range: bytes=FIRST- or bytes=FIRST-LAST");
  bool coming = false;
  {
    const MutexLock lock(mutex_);
    const auto at = shares_.find(*digest);
    if (at == shares_.end() || !at->second.nodes.contains(node))
      return refuse(404, "nothing is shared with " + node + " under that digest");
    coming = at->second.coming;
  }
  std::optional<Content> found = open_(*digest);
  if (!found) return coming ? not_yet(0) : refuse(410, "this node does not have the archive");
  Content& content = *found;
  if (content.total != 0 && range->first >= content.total) return beyond(content.total);
  // If the size is unknown, no requester could detect the end.
  if (content.file == nullptr || content.total == 0 || range->first >= content.bytes)
    return not_yet(content.bytes);
  const std::uint64_t last = std::min(range->last.value_or(content.total - 1), content.bytes - 1);
  if (const Status sought = content.file->seek(range->first); !sought.ok())
    return not_yet(content.bytes);
  net::Response out;
  out.status = 206;
  out.headers.add("Content-Type", "application/octet-stream");
  out.headers.add("Content-Range", "bytes " + std::to_string(range->first) + "-" +
                                       std::to_string(last) + "/" + std::to_string(content.total));
  out.stream = std::make_unique<ArchiveStream>(std::move(content.file), last - range->first + 1);
  return out;
}

}  // namespace varda::replica
