#include "artifact/file_server.h"

#include <algorithm>
#include <charconv>
#include <deque>
#include <optional>
#include <vector>

#include "artifact/internal/http_date.h"
#include "net/url.h"

namespace varda::artifact {
namespace {

using os::FileInfo;
using os::FileKind;
using os::Path;

constexpr std::size_t kBodyPieceBytes = 256u << 10;
constexpr int kLinksMax = 40;

net::Response refuse(int status, const std::string& why) {
  return {.status = status,
          .headers = {{"Content-Type", "text/plain; charset=utf-8"}},
          .body = why + "\n"};
}

/// A range of a file. A file truncated meanwhile ends early; the client notices by the length.
class Piece final : public net::BodyStream {
 public:
  Piece(std::shared_ptr<os::File> file, std::uint64_t length)
      : file_(std::move(file)), left_(length) {}
  std::optional<std::string> read() override {
    if (left_ == 0) return std::nullopt;
    auto bytes =
        file_->read(static_cast<std::size_t>(std::min<std::uint64_t>(left_, kBodyPieceBytes)));
    if (!bytes.ok() || bytes->empty()) return std::nullopt;
    left_ -= bytes->size();
    return std::move(bytes).value();
  }
  void on_ready(std::function<void()>) override {}

 private:
  const std::shared_ptr<os::File> file_;
  std::uint64_t left_;
};

/// Puts the components of a path before `remaining`; false: the path is absolute or has a NUL.
bool put_before(const std::string& path, std::deque<std::string>& remaining) {
  if (path.starts_with('/') || path.find('\0') != std::string::npos) return false;
  std::size_t end = path.size();
  while (true) {
    const std::size_t slash = end == 0 ? std::string::npos : path.rfind('/', end - 1);
    const std::size_t begin = slash == std::string::npos ? 0 : slash + 1;
    if (begin < end) remaining.push_front(path.substr(begin, end - begin));
    if (slash == std::string::npos) return true;
    end = slash;
  }
}

struct Place {
  Path path;
  FileInfo info;
};

/// The regular file that `name` leads to without ever leaving `root`; absent: no such file.
std::optional<Place> find(os::FileSystem& fs, const Path& root, const std::string& name) {
  std::deque<std::string> remaining;
  if (!put_before(name, remaining)) return std::nullopt;
  std::vector<std::string> walked;
  const auto current_path = [&] {
    Path path = root;
    for (const std::string& part : walked) path /= part;
    return path;
  };
  for (int links = 0; !remaining.empty();) {
    const std::string part = remaining.front();
    remaining.pop_front();
    if (part == ".") continue;
    if (part == "..") {
      if (walked.empty()) return std::nullopt;
      walked.pop_back();
      continue;
    }
    const Path path = current_path() / part;
    const auto found = fs.stat(path);
    if (!found.ok() || !*found) return std::nullopt;
    const FileInfo& info = **found;
    if (info.kind == FileKind::kSymlink) {
      const auto target = fs.read_link(path);
      if (++links > kLinksMax || !target.ok() || !put_before(*target, remaining))
        return std::nullopt;
    } else if (info.kind == FileKind::kDirectory) {
      walked.push_back(part);
    } else if (info.kind == FileKind::kFile && remaining.empty()) {
      return Place{path, info};
    } else {
      return std::nullopt;
    }
  }
  return std::nullopt;
}

std::string entity_tag(const FileInfo& info) {
  char text[48] = "\"";
  char* end = text + 1;
  const auto changed =
      std::chrono::duration_cast<std::chrono::nanoseconds>(info.modified.time_since_epoch())
          .count();
  end = std::to_chars(end, text + 24, static_cast<std::uint64_t>(changed), 16).ptr;
  *end++ = '-';
  end = std::to_chars(end, text + 46, info.size_bytes, 16).ptr;
  *end++ = '"';
  return {text, end};
}

/// Matches If-None-Match: a list of tags, or '*'. Weak tags compare equal to strong ones (RFC 9110,
/// 13.1.2).
bool names_tag(std::string_view list, std::string_view tag) {
  while (!list.empty()) {
    const std::size_t comma = list.find(',');
    std::string_view one = list.substr(0, comma);
    while (one.starts_with(' ')) one.remove_prefix(1);
    while (one.ends_with(' ')) one.remove_suffix(1);
    if (one.starts_with("W/")) one.remove_prefix(2);
    if (one == tag || one == "*") return true;
    if (comma == std::string_view::npos) break;
    list.remove_prefix(comma + 1);
  }
  return false;
}

struct Range {
  std::uint64_t first = 0, last = 0;
};
enum class RangeKind { kWhole, kPart, kNothing };  // kNothing: the range is outside the file

/// Parses one range of bytes. Several ranges or a malformed header mean the whole file (RFC 9110,
/// 14.2).
RangeKind parse_range(std::string_view text, std::uint64_t size, Range& range) {
  constexpr std::string_view kUnit = "bytes=";
  if (!text.starts_with(kUnit)) return RangeKind::kWhole;
  text.remove_prefix(kUnit.size());
  const std::size_t dash = text.find('-');
  if (dash == std::string_view::npos) return RangeKind::kWhole;
  const auto number = [](std::string_view digits, std::uint64_t& out) {
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), out);
    return error == std::errc() && end == digits.data() + digits.size();
  };
  const std::string_view from = text.substr(0, dash), to = text.substr(dash + 1);
  if (from.empty()) {
    std::uint64_t tail = 0;
    if (!number(to, tail)) return RangeKind::kWhole;
    if (tail == 0 || size == 0) return RangeKind::kNothing;
    range = {size - std::min(tail, size), size - 1};
    return RangeKind::kPart;
  }
  Range bounds{0, UINT64_MAX};
  if (!number(from, bounds.first) || (!to.empty() && !number(to, bounds.last)) ||
      bounds.last < bounds.first)
    return RangeKind::kWhole;
  if (bounds.first >= size) return RangeKind::kNothing;
  range = {bounds.first, std::min(bounds.last, size - 1)};
  return RangeKind::kPart;
}

}  // namespace

net::Response serve_file(os::FileSystem& fs, const Path& root, const net::Request& request) {
  if (request.method != "GET" && request.method != "HEAD") {
    net::Response out = refuse(405, "this server is read-only");
    out.headers.add("Allow", "GET, HEAD");
    return out;
  }
  const auto name = net::percent_decode(request.path());
  if (!name.ok() || !name->starts_with('/')) return refuse(400, "the path cannot be read");
  const std::size_t first = name->find_first_not_of('/');
  const auto place = find(fs, root, first == std::string::npos ? "" : name->substr(first));
  if (!place) return refuse(404, "there is no such file");
  auto file = fs.open(place->path, os::Open::kRead);
  if (!file.ok()) return refuse(404, "the file cannot be read");
  // Sizes the open file, not a file that has just replaced it.
  const auto size = (*file)->size();
  if (!size.ok() || *size != place->info.size_bytes) {
    net::Response out = refuse(503, "the file is being replaced");
    out.headers.add("Retry-After", "1");
    return out;
  }

  return serve_content({.size_bytes = *size,
                        .tag = entity_tag(place->info),
                        .modified = place->info.modified,
                        .open = bytes_of_file(std::move(*file))},
                       request);
}

OpenBytes bytes_of_file(std::unique_ptr<os::File> file) {
  return
      [file = std::shared_ptr<os::File>(std::move(file))](
          std::uint64_t first, std::uint64_t length) -> Result<std::unique_ptr<net::BodyStream>> {
        TRY_VOID(file->seek(first));
        return std::unique_ptr<net::BodyStream>(std::make_unique<Piece>(file, length));
      };
}

net::Response serve_content(const Content& content, const net::Request& request) {
  const std::uint64_t size = content.size_bytes;
  const std::string& tag = content.tag;
  const std::string modified = write_http_date(content.modified);
  net::Response out{
      .headers = {{"Accept-Ranges", "bytes"}, {"ETag", tag}, {"Last-Modified", modified}}};
  if (const auto known = request.headers.find("If-None-Match")) {
    if (names_tag(*known, tag)) out.status = 304;
  } else if (const auto since =
                 parse_http_date(request.headers.find("If-Modified-Since").value_or(""))) {
    if (std::chrono::floor<std::chrono::seconds>(content.modified) <= *since) out.status = 304;
  }
  if (out.status == 304) return out;
  Range range{0, size == 0 ? 0 : size - 1};
  std::uint64_t length = size;
  const auto header = request.headers.find("Range");
  const auto condition = request.headers.find("If-Range");
  if (header && request.method == "GET" &&
      (!condition || *condition == tag || *condition == modified)) {
    const RangeKind range_kind = parse_range(*header, size, range);
    if (range_kind == RangeKind::kNothing) {
      out.headers.add("Content-Range", "bytes */" + std::to_string(size));
      out.status = 416;
      return out;
    }
    if (range_kind == RangeKind::kPart) {
      out.status = 206;
      length = range.last - range.first + 1;
      out.headers.add("Content-Range", "bytes " + std::to_string(range.first) + "-" +
                                           std::to_string(range.last) + "/" + std::to_string(size));
    }
  }
  out.headers.add("Content-Type", "application/octet-stream");
  out.headers.add("Content-Length", std::to_string(length));
  if (request.method == "HEAD") return out;
  auto stream = content.open(range.first, length);
  if (!stream.ok()) return refuse(500, "the bytes cannot be read");
  out.stream = std::move(*stream);
  return out;
}

}  // namespace varda::artifact
