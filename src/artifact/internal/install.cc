#include "artifact/internal/install.h"

#include "artifact/internal/ahead_source.h"
#include "artifact/internal/entry_rules.h"
#include "base/log.h"

namespace varda::artifact {
namespace {

Failure unsafe(Error error) { return {Reason::kUnsafeArchive, std::move(error)}; }

// One archive being extracted. Failures come from three sides, which the caller must be able to tell apart: the source, the
// archive, and the disk.
class Extraction {
 public:
  Extraction(os::FileSystem& fs, Source& source, const os::Path& into, const Limits& limits, const ProgressSink& progress)
      : fs_(fs), source_(source), into_(into), room_(fs, into), rules_(limits), progress_(progress) {}

  Outcome<Tree> run() {
    if (Status made = fs_.make_directories(into_, 0755); !made.ok()) return disk_failure(made.error());
    auto reader = codec::ArchiveReader::open([this]() -> Result<std::string> {
      Outcome<std::string> bytes = source_.next();
      if (bytes.ok()) return std::move(bytes.value());
      source_failure_ = bytes.failure();
      return bytes.failure().error;
    });
    if (!reader.ok()) return archive_failure(reader.error());
    while (true) {
      auto entry = (*reader)->next();
      if (!entry.ok()) return archive_failure(entry.error());
      if (!*entry) break;
      if (auto failure = take(**reader, **entry)) return *failure;
    }
    if (Status status = rules_.finish(); !status.ok()) return unsafe(status.error());
    for (auto directory = rules_.directories().rbegin(); directory != rules_.directories().rend(); ++directory)
      if (Status status = fs_.sync_directory(into_ / *directory); !status.ok()) return disk_failure(status.error());
    if (Status status = fs_.sync_directory(into_); !status.ok()) return disk_failure(status.error());
    if (progress_) progress_({Phase::kExtract, rules_.bytes(), rules_.bytes()});
    return Tree{rules_.single_top().empty() ? into_ : into_ / rules_.single_top(), rules_.bytes(), rules_.files()};
  }

 private:
  Failure archive_failure(const Error& error) { return source_failure_ ? *source_failure_ : unsafe(error); }

  std::optional<Failure> take(codec::ArchiveReader& reader, const codec::ArchiveEntry& entry) {
    const std::size_t known = rules_.directories().size();
    const auto admitted = rules_.admit(entry);
    if (!admitted.ok()) return unsafe(admitted.error());
    for (std::size_t i = known; i < rules_.directories().size(); ++i)
      if (Status status = fs_.make_directories(into_ / rules_.directories()[i], 0755); !status.ok())
        return disk_failure(status.error());
    if (admitted->path.empty() || entry.kind == codec::EntryKind::kDirectory) return std::nullopt;
    const os::Path path = into_ / admitted->path;
    if (entry.kind == codec::EntryKind::kSymlink) {
      if (Status status = fs_.symlink(entry.link_target, path); !status.ok()) return disk_failure(status.error());
      return std::nullopt;
    }
    auto file = fs_.open(path, os::Open::kExclusive, (entry.mode & 0111) != 0 ? 0755 : 0644);
    if (!file.ok()) return disk_failure(file.error());
    if (auto failure = admitted->link_source.empty() ? copy(**file, [&] { return reader.read(); }) : repeat(**file, *admitted))
      return failure;
    if (Status status = (*file)->sync(); !status.ok()) return disk_failure(status.error());
    return std::nullopt;
  }

  // A hard link becomes a copy: the number of links of a stored file tells whether a model shows it, and must stay ours.
  std::optional<Failure> repeat(os::File& file, const EntryRules::Admitted& admitted) {
    auto original = fs_.open(into_ / admitted.link_source, os::Open::kRead);
    if (!original.ok()) return disk_failure(original.error());
    return copy(file, [&] { return (*original)->read(256 << 10); });
  }

  template <typename Read>
  std::optional<Failure> copy(os::File& file, Read read) {
    while (true) {
      Result<std::string> bytes = read();
      if (!bytes.ok()) return archive_failure(bytes.error());
      if (bytes->empty()) return std::nullopt;
      if (Status status = rules_.count(bytes->size(), source_.bytes()); !status.ok()) return unsafe(status.error());
      if (Status status = room_.take(bytes->size()); !status.ok()) return disk_failure(status.error());
      if (Status status = file.write(*bytes); !status.ok()) return disk_failure(status.error());
      if (progress_ && rules_.bytes() >= reported_ + (256 << 10)) {
        reported_ = rules_.bytes();
        progress_({Phase::kExtract, reported_, 0});
      }
    }
  }

  os::FileSystem& fs_;
  Source& source_;
  const os::Path& into_;
  DiskRoom room_;
  EntryRules rules_;
  const ProgressSink& progress_;
  std::optional<Failure> source_failure_;
  std::uint64_t reported_ = 0;
};

Outcome<Tree> attempt(os::FileSystem& fs, Source& source, const SourceOptions& options, const os::Path& into) {
  Limits limits = options.limits;
  if (options.request.max_bytes != 0) limits.extracted_bytes_max = options.request.max_bytes;
  Outcome<Tree> tree = extract(fs, source, into, limits, options.progress);
  if (!tree.ok() && tree.failure().reason != Reason::kUnsafeArchive) return tree;
  // The digest is over every byte, also what follows the archive's end. It goes before what the archive looked like: a refused
  // archive with a wrong digest is not the one that was asked for.
  while (true) {
    Outcome<std::string> rest = source.next();
    if (!rest.ok()) return rest.failure();
    if (rest->empty()) break;
  }
  const codec::Sha256 found = source.digest();
  if (found == options.request.digest) return tree;
  const std::string shown = shown_url(options.request.url);
  if (source.looks_like_page())
    return Failure{Reason::kDownloadFailed,
                   Error(Code::kUnavailable,
                         shown + ": an HTML page of " + std::to_string(source.bytes()) + " bytes where an archive should be")};
  return Failure{Reason::kDigestMismatch,
                 Error(Code::kCorrupt, "expected sha256 " + options.request.digest.hex() + ", found " + found.hex() + " (" +
                                           std::to_string(source.bytes()) + " bytes from " + shown + ")")};
}

}  // namespace

Outcome<Tree> extract(os::FileSystem& fs, Source& source, const os::Path& into, const Limits& limits,
                      const ProgressSink& progress) {
  return Extraction(fs, source, into, limits, progress).run();
}

Outcome<Tree> install(const Context& ctx, os::FileSystem& fs, net::HttpClient& http, const SourceOptions& options,
                      const os::Path& into) {
  // Twice at most: what an earlier attempt left in the spool may be unusable, what a fresh one brings is final.
  for (int round = 0;; ++round) {
    if (Status status = fs.remove_all(into); !status.ok()) return disk_failure(status.error());
    // The thread that reads ahead must also stop when only we have had enough: on a full disk, or an entry that is refused.
    std::stop_source enough;
    const std::stop_callback linked(ctx.stop_token(), [&enough] { enough.request_stop(); });
    const Context reading = ctx.with_stop(enough.get_token());
    auto source = open_source(reading, fs, http, options);
    if (!source.ok()) return source.failure();
    AheadSource bytes(std::move(source.value()), enough, {});
    Outcome<Tree> tree = attempt(fs, bytes, options, into);
    bytes.end();
    if (tree.ok()) {
      if (Status status = drop_spool(fs, options.spool); !status.ok()) return disk_failure(status.error());
      return tree;
    }
    if (Status status = fs.remove_all(into); !status.ok()) log::warn("cannot clear scratch", {{"error", status.error()}});
    // The bytes of a transient failure are worth keeping, as far as they are an archive's.
    const Reason reason = tree.failure().reason;
    const bool keep = (reason == Reason::kDownloadFailed || reason == Reason::kDiskFull || reason == Reason::kCancelled) &&
                      !bytes.stale() && !bytes.looks_like_page();
    if (keep) return tree;
    if (Status status = drop_spool(fs, options.spool); !status.ok()) return disk_failure(status.error());
    if (round > 0 || !(bytes.stale() || (bytes.resumed() && reason == Reason::kDigestMismatch))) return tree;
  }
}

}  // namespace varda::artifact
