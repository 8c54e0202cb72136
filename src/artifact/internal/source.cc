#include "artifact/internal/source.h"

#include <algorithm>
#include <cctype>

#include "artifact/internal/authorization.h"
#include "artifact/internal/http_source.h"
#include "artifact/s3.h"
#include "base/text.h"
#include "net/url.h"

namespace varda::artifact {

std::string shown_url(std::string_view url) {
  std::string shown(url.substr(0, url.find('?')));
  const auto scheme = shown.find("://");
  if (scheme == std::string::npos) return shown;
  const auto authority_end = std::min(shown.find('/', scheme + 3), shown.size());
  const auto at = shown.rfind('@', authority_end);
  if (at != std::string::npos && at > scheme && at < authority_end)
    shown.erase(scheme + 3, at + 1 - (scheme + 3));
  return shown;
}

Status forget_notes(os::FileSystem& fs, const os::Path& spool) {
  return fs.remove(notes_of(spool));
}

Status drop_spool(os::FileSystem& fs, const os::Path& spool) {
  TRY_VOID(forget_notes(fs, spool));
  return fs.remove(spool);
}

Failure disk_failure(Error error) {
  Reason reason = Reason::kDownloadFailed;
  if (error.code() == Code::kExhausted) reason = Reason::kDiskFull;
  if (error.code() == Code::kCancelled || error.code() == Code::kTimeout)
    reason = Reason::kCancelled;
  return {reason, std::move(error)};
}

bool begins_like_page(std::string_view body) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (body.starts_with(kByteOrderMark)) body.remove_prefix(kByteOrderMark.size());
  while (!body.empty() && std::isspace(static_cast<unsigned char>(body.front())))
    body.remove_prefix(1);
  const std::string text = lower(body.substr(0, 32));
  return text.starts_with("<!doctype html") || text.starts_with("<html");
}

bool is_page_type(std::string_view content_type) {
  const std::string text = lower(content_type.substr(0, 32));
  return text.starts_with("text/html") || text.starts_with("application/xhtml+xml");
}

bool HashedBytes::page() const { return begins_like_page(head_); }

void HashedBytes::add(std::string_view bytes) {
  if (head_.size() < 256) head_ += bytes.substr(0, 256 - head_.size());
  hash_.update(bytes);
  count_ += bytes.size();
}

namespace {

class FileSource final : public Source {
 public:
  FileSource(const Context& ctx, std::unique_ptr<os::File> file, std::uint64_t total,
             SourceOptions options)
      : ctx_(ctx),
        file_(std::move(file)),
        meter_(options.progress, total),
        archive_bytes_max_(options.limits.archive_bytes_max) {}

  Outcome<std::string> next() override {
    if (Status status = ctx_.check(); !status.ok())
      return Failure{Reason::kCancelled, status.error()};
    Result<std::string> bytes = file_->read(256 << 10);
    if (!bytes.ok())
      return Failure{Reason::kDownloadFailed, bytes.error().context("reading the source file")};
    hashed_.add(*bytes);
    meter_.report(hashed_.count(), bytes->empty());
    if (hashed_.count() > archive_bytes_max_) return too_large(archive_bytes_max_);
    return std::move(bytes).value();
  }
  bool looks_like_page() const override { return hashed_.page(); }
  std::uint64_t bytes() const override { return hashed_.count(); }
  codec::Sha256 digest() override { return hashed_.digest(); }

 private:
  const Context& ctx_;
  std::unique_ptr<os::File> file_;
  HashedBytes hashed_;
  Meter meter_;
  std::uint64_t archive_bytes_max_;
};

Failure forbidden(std::string message) {
  return {Reason::kSourceForbidden, Error(Code::kForbidden, std::move(message)).as_terminal()};
}

// The path must be below a root. No component may be a link, except to a name in the same
// directory. Otherwise a link below an allowed root would expose the whole machine.
Outcome<os::Path> allowed_file(os::FileSystem& fs, const std::vector<os::Path>& roots,
                               const std::string& target, const std::string& url) {
  const auto decoded = net::percent_decode(target);
  if (!decoded.ok()) return forbidden(url + ": " + decoded.error().message());
  const os::Path path(*decoded);
  if (!path.is_absolute() || path.lexically_normal() != path ||
      decoded->find('\0') != std::string::npos)
    return forbidden(url + ": not a plain absolute path");
  for (const os::Path& root : roots) {
    const os::Path below = path.lexically_relative(root.lexically_normal());
    if (below.empty() || *below.begin() == ".." || *below.begin() == ".") continue;
    os::Path at = root;
    for (auto part = below.begin(); part != below.end(); ++part) {
      at /= *part;
      const auto info = fs.stat(at);
      if (!info.ok()) return Failure{Reason::kDownloadFailed, info.error()};
      if (!*info)
        return Failure{Reason::kDownloadFailed, Error(Code::kNotFound, url + ": no such file")};
      if ((*info)->kind != os::FileKind::kSymlink) continue;
      // A name in the same directory is below the root too: "current" of a replica leads to the
      // newest one.
      const auto leads_to = fs.read_link(at);
      const bool extra_files = leads_to.ok() && !leads_to->empty() && *leads_to != "." &&
                               *leads_to != ".." && leads_to->find('/') == std::string::npos;
      if (!extra_files) return forbidden(url + ": \"" + at.string() + "\" is a link");
      at.replace_filename(*leads_to);
      const auto existing = fs.stat(at);
      if (!existing.ok()) return Failure{Reason::kDownloadFailed, existing.error()};
      if (!*existing)
        return Failure{Reason::kDownloadFailed, Error(Code::kNotFound, url + ": no such file")};
      if ((*existing)->kind == os::FileKind::kSymlink)
        return forbidden(url + ": \"" + at.string() + "\" is a link");
    }
    return at;
  }
  return forbidden(url + ": file URLs are read only below directories this node allows" +
                   (roots.empty() ? " (it allows none; --allow-files-below DIR allows one)" : ""));
}

}  // namespace

Failure too_large(std::uint64_t max) {
  return {Reason::kUnsafeArchive,
          Error(Code::kInvalid, "the archive is larger than " + std::to_string(max) + " bytes")};
}

void Meter::set_total(std::uint64_t total, std::uint64_t done) {
  if (total == total_) return;
  total_ = total;
  report(done, true);
}

void Meter::report(std::uint64_t done, bool last) {
  if (!sink_ || (!last && done < reported_ + (256 << 10))) return;
  reported_ = done;
  sink_({Phase::kDownload, done, total_});
}

Outcome<std::unique_ptr<Source>> open_source(const Context& ctx, os::FileSystem& fs,
                                             net::HttpClient& http, SourceOptions options) {
  static const Credentials kNone;
  if (options.kind == SourceKind::kStored) {
    auto file = fs.open(options.archive, os::Open::kRead);
    if (!file.ok()) return Failure{Reason::kDownloadFailed, file.error()};
    const auto size = (*file)->size();
    return std::unique_ptr<Source>(std::make_unique<FileSource>(
        ctx, std::move(*file), size.ok() ? *size : 0, std::move(options)));
  }
  if (options.url.empty()) options.url = options.request.url;
  const std::string shown = shown_url(options.url);
  const auto url = net::Url::parse(options.url);
  if (!url.ok()) {
    // Without the URL, which the error quotes whole.
    const std::string& why = url.error().message();
    const auto at = why.rfind("\": ");
    return forbidden(shown + ": " + (at == std::string::npos ? "no URL" : why.substr(at + 3)));
  }
  const Credentials& credentials = options.credentials != nullptr ? *options.credentials : kNone;
  Sending sending = sending_of(credentials, *url, options.request.url);
  const bool sent = sending.kind == Sending::Kind::kSent;
  options.withheld = std::move(sending.why);
  if (url->scheme == "http" || url->scheme == "https") {
    std::string address = options.url;
    return HttpSource::open(ctx, fs, http, std::move(options), std::move(address),
                            sent ? http_authorization(credentials) : nullptr);
  }
  if (url->scheme == "s3") {
    const auto address = s3_address(*url, credentials);
    if (!address.ok()) return forbidden(shown + ": " + address.error().message());
    const Clock& clock =
        options.transport.clock != nullptr ? *options.transport.clock : system_clock();
    return HttpSource::open(ctx, fs, http, std::move(options), address->origin() + address->target,
                            sent ? s3_authorization(*address, credentials, clock) : nullptr);
  }
  if (url->scheme != "file")
    return forbidden(shown + ": scheme \"" + url->scheme + "\"; use http, https, s3 or file");
  if (!url->host.empty() && url->host != "localhost")
    return forbidden(shown + ": a file URL names no host: file:///path");
  Outcome<os::Path> path = allowed_file(fs, options.file_roots, url->target, shown);
  if (!path.ok()) return path.error();
  auto file = fs.open(*path, os::Open::kRead);
  if (!file.ok()) return Failure{Reason::kDownloadFailed, file.error().context(shown)};
  const auto size = (*file)->size();
  return std::unique_ptr<Source>(std::make_unique<FileSource>(
      ctx, std::move(*file), size.ok() ? *size : 0, std::move(options)));
}

}  // namespace varda::artifact
