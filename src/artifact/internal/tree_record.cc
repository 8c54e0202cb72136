#include "artifact/internal/tree_record.h"

#include <set>

#include "artifact/internal/tree.h"
#include "base/text.h"
#include "net/url.h"

namespace varda::artifact {
namespace {

constexpr std::size_t kBufferBytes = 32 << 10;
constexpr std::size_t kDifferencesMax = 20;

// Reads a file line by line without loading it whole.
class Lines {
 public:
  explicit Lines(os::File& file) : file_(file) {}
  /// Absent: the end. A last line without line break is ignored.
  Result<std::optional<std::string>> next() {
    while (true) {
      if (const auto end = text_.find('\n', at_); end != std::string::npos) {
        std::string line = text_.substr(at_, end - at_);
        at_ = end + 1;
        return std::optional(std::move(line));
      }
      text_.erase(0, at_);
      at_ = 0;
      TRY(std::string more, file_.read(kBufferBytes));
      if (more.empty()) return std::optional<std::string>();
      text_ += more;
    }
  }

 private:
  os::File& file_;
  std::string text_;
  std::size_t at_ = 0;
};

struct Entry {
  std::string kind, path, target;
  codec::Sha256 digest;
  std::uint64_t bytes = 0;
};

Result<Entry> parse(const std::string& line) {
  std::vector<std::string> fields;
  for (std::size_t at = 0; at <= line.size();) {
    const auto space = std::min(line.find(' ', at), line.size());
    fields.push_back(line.substr(at, space - at));
    at = space + 1;
  }
  const Error wrong(Code::kCorrupt,
                    "the record of the tree has an invalid line: " + line.substr(0, 100));
  Entry entry;
  entry.kind = fields.front();
  const std::size_t wanted = entry.kind == "file" ? 4 : entry.kind == "link" ? 3 : 2;
  if (fields.size() != wanted) return wrong;
  if (entry.kind == "end" && fields.back() == "-") return entry;
  TRY(entry.path, net::percent_decode(fields.back()));
  if (entry.kind == "link") {
    TRY(entry.target, net::percent_decode(fields[1]));
  } else if (entry.kind == "file") {
    TRY(entry.digest, codec::Sha256::parse(fields[1]));
    const auto bytes = parse_integer<std::uint64_t>(fields[2]);
    if (!bytes) return wrong;
    entry.bytes = *bytes;
  } else if (entry.kind != "directory" && entry.kind != "end") {
    return wrong;
  }
  return entry;
}

/// Passes every line to `take`, including the end line; kCorrupt if that is missing.
template <typename Take>
Status each(os::FileSystem& fs, const os::Path& record, Take take) {
  TRY(const auto existing, fs.stat(record));
  if (!existing) return Error(Code::kNotFound, "the artifact was installed without a record");
  TRY(const auto file, fs.open(record, os::Open::kRead));
  Lines lines(*file);
  while (true) {
    TRY(const auto line, lines.next());
    if (!line) return Error(Code::kCorrupt, "the record of the tree has no end");
    TRY(const Entry entry, parse(*line));
    TRY_VOID(take(entry));
    if (entry.kind == "end") return {};
  }
}

Result<std::string> difference(const Context& ctx, os::FileSystem& fs, const os::Path& place,
                               const Entry& entry) {
  TRY(const auto info, fs.stat(place));
  if (!info) return std::string("is missing");
  const os::FileKind kind = entry.kind == "file"   ? os::FileKind::kFile
                            : entry.kind == "link" ? os::FileKind::kSymlink
                                                   : os::FileKind::kDirectory;
  if (info->kind != kind) return "is no " + entry.kind;
  if (kind == os::FileKind::kSymlink) {
    TRY(const std::string target, fs.read_link(place));
    return target == entry.target ? "" : std::string("points elsewhere");
  }
  if (kind == os::FileKind::kDirectory) return std::string();
  if (info->size_bytes != entry.bytes)
    return "has " + std::to_string(info->size_bytes) + " bytes instead of " +
           std::to_string(entry.bytes);
  TRY(const auto file, fs.open(place, os::Open::kRead));
  codec::Sha256Stream hash;
  while (true) {
    TRY_VOID(ctx.check());
    Result<std::string> bytes = file->read(256 << 10);
    // A disk that cannot read its blocks is one of the faults to find.
    if (!bytes.ok()) return "cannot be read: " + bytes.error().message();
    if (bytes->empty()) break;
    hash.update(*bytes);
  }
  return hash.finish() == entry.digest ? "" : std::string("has other bytes");
}

}  // namespace

Result<std::unique_ptr<TreeRecordWriter>> TreeRecordWriter::create(os::FileSystem& fs,
                                                                   const os::Path& file) {
  TRY(auto out, fs.open(file, os::Open::kTruncate, 0600));
  return std::unique_ptr<TreeRecordWriter>(
      new TreeRecordWriter(std::move(out)));  // NOLINT: private constructor
}

Status TreeRecordWriter::line(std::string text) {
  buffer_ += text + "\n";
  if (buffer_.size() < kBufferBytes) return {};
  TRY_VOID(out_->write(buffer_));
  buffer_.clear();
  return {};
}

Status TreeRecordWriter::file(const std::string& path, const codec::Sha256& digest,
                              std::uint64_t bytes) {
  return line("file " + digest.hex() + " " + std::to_string(bytes) + " " +
              net::percent_encode(path));
}
Status TreeRecordWriter::link(const std::string& path, const std::string& target) {
  return line("link " + net::percent_encode(target) + " " + net::percent_encode(path));
}
Status TreeRecordWriter::directory(const std::string& path) {
  return line("directory " + net::percent_encode(path));
}

Status TreeRecordWriter::end(const std::string& top) {
  TRY_VOID(line("end " + (top.empty() ? "-" : top == "-" ? "%2D" : net::percent_encode(top))));
  TRY_VOID(out_->write(buffer_));
  buffer_.clear();
  return out_->sync();
}

Result<std::vector<std::string>> compare_with_record(const Context& ctx, os::FileSystem& fs,
                                                     const os::Path& tree, const os::Path& record) {
  std::string top;
  TRY_VOID(each(fs, record, [&](const Entry& entry) -> Status {
    top = entry.path;  // the last entry's path remains
    return {};
  }));
  std::vector<std::string> differences;
  std::set<std::string> known;
  const auto add_difference = [&](const std::string& path, const std::string& what) {
    if (differences.size() < kDifferencesMax) differences.push_back(path + " " + what);
  };
  TRY_VOID(each(fs, record, [&](const Entry& entry) -> Status {
    if (entry.kind == "end" || entry.path == top) return {};
    const bool stripped = !top.empty() && entry.path.starts_with(top + "/");
    const std::string path = stripped ? entry.path.substr(top.size() + 1) : entry.path;
    known.insert(path);
    TRY(const std::string what, difference(ctx, fs, tree / path, entry));
    if (!what.empty()) add_difference(path, what);
    return {};
  }));
  TRY_VOID(walk(fs, tree, [&](const os::Path& path, const os::FileInfo&) {
    if (!known.contains(path.string())) add_difference(path.string(), "was not in the archive");
    return ok_status();
  }));
  return differences;
}

}  // namespace varda::artifact
