#include "artifact/internal/install.h"

#include <algorithm>
#include <map>
#include <vector>

#include "artifact/internal/ahead_source.h"
#include "artifact/internal/authorization.h"
#include "artifact/internal/delta.h"
#include "artifact/internal/entry_rules.h"
#include "artifact/internal/plain_file.h"
#include "artifact/internal/tree_record.h"
#include "base/log.h"

namespace varda::artifact {
namespace {

Failure unsafe(Error error) { return {Reason::kUnsafeArchive, std::move(error)}; }

// Found while unpacking, so the download stays, and the next attempt reads it from the disk.
Failure no_room_for_tree(std::uint64_t max) {
  return {Reason::kDiskFull,
          Error(Code::kExhausted, "the artifact exceeds the " + std::to_string(max) +
                                      " bytes that artifacts in use leave free")
              .as_terminal()};
}

// Makes the tree of one artifact: extracts an archive, or stores a plain file. The caller must
// distinguish failures of the source, of the archive and of the disk.
class Extraction {
 public:
  Extraction(os::FileSystem& fs, Source& source, const os::Path& into, const Limits& limits,
             const ProgressSink& progress, TreeRecordWriter* record, std::uint64_t bytes_max)
      : fs_(fs),
        source_(source),
        into_(into),
        room_(fs, into),
        rules_(limits),
        progress_(progress),
        record_(record),
        bytes_max_(bytes_max) {}

  /// `plain_file` "": an archive.
  Outcome<Tree> run(const std::string& plain_file) {
    if (Status made = fs_.make_directories(into_, 0755); !made.ok())
      return disk_failure(made.error());
    if (auto failure = plain_file.empty() ? take_archive() : take_plain_file(plain_file))
      return *failure;
    if (Status status = rules_.finish(); !status.ok()) return unsafe(status.error());
    for (auto directory = rules_.directories().rbegin(); directory != rules_.directories().rend();
         ++directory)
      if (Status status = fs_.sync_directory(into_ / *directory); !status.ok())
        return disk_failure(status.error());
    if (Status status = fs_.sync_directory(into_); !status.ok())
      return disk_failure(status.error());
    if (record_ != nullptr)
      if (Status status = record_->end(rules_.single_top()); !status.ok())
        return disk_failure(status.error());
    if (progress_) progress_({Phase::kExtract, rules_.bytes(), rules_.bytes()});
    return Tree{rules_.single_top().empty() ? into_ : into_ / rules_.single_top(), rules_.bytes(),
                rules_.files()};
  }

 private:
  std::optional<Failure> take_archive() {
    auto reader = codec::ArchiveReader::open([this] { return next_bytes(); });
    if (!reader.ok()) return archive_failure(reader.error());
    while (true) {
      auto entry = (*reader)->next();
      if (!entry.ok()) return archive_failure(entry.error());
      if (!*entry) break;
      if (auto failure = take(**entry, [&] { return (*reader)->read(); })) return failure;
    }
    return std::nullopt;
  }

  std::optional<Failure> take_plain_file(const std::string& name) {
    return take({.path = name}, [this] { return next_bytes(); });
  }

  Result<std::string> next_bytes() {
    Outcome<std::string> bytes = source_.next();
    if (bytes.ok()) return std::move(bytes.value());
    source_failure_ = bytes.error();
    return bytes.error().error;
  }

  Failure archive_failure(const Error& error) {
    return source_failure_ ? *source_failure_ : unsafe(error);
  }

  template <typename Read>
  std::optional<Failure> take(const codec::ArchiveEntry& entry, Read read) {
    const std::size_t known = rules_.directories().size();
    const auto admitted = rules_.admit(entry);
    if (!admitted.ok()) return unsafe(admitted.error());
    for (std::size_t i = known; i < rules_.directories().size(); ++i) {
      const std::string& directory = rules_.directories()[i];
      if (Status status = fs_.make_directories(into_ / directory, 0755); !status.ok())
        return disk_failure(status.error());
      if (Status status = record_ != nullptr ? record_->directory(directory) : Status();
          !status.ok())
        return disk_failure(status.error());
    }
    if (admitted->path.empty() || entry.kind == codec::EntryKind::kDirectory) return std::nullopt;
    const os::Path path = into_ / admitted->path;
    if (entry.kind == codec::EntryKind::kSymlink) {
      if (Status status = fs_.symlink(entry.link_target, path); !status.ok())
        return disk_failure(status.error());
      if (Status status =
              record_ != nullptr ? record_->link(admitted->path, entry.link_target) : Status();
          !status.ok())
        return disk_failure(status.error());
      return std::nullopt;
    }
    auto file = fs_.open(path, os::Open::kExclusive, (entry.mode & 0111) != 0 ? 0755 : 0644);
    if (!file.ok()) return disk_failure(file.error());
    const std::uint64_t before = rules_.bytes();
    if (record_ != nullptr) hash_.emplace();
    if (auto failure =
            admitted->link_source.empty() ? copy(**file, read) : repeat(**file, *admitted))
      return failure;
    if (Status status = (*file)->sync(); !status.ok()) return disk_failure(status.error());
    if (record_ == nullptr) return std::nullopt;
    if (Status status = record_->file(admitted->path, hash_->finish(), rules_.bytes() - before);
        !status.ok())
      return disk_failure(status.error());
    return std::nullopt;
  }

  // A hard link becomes a copy, because the link count of a stored file shows whether a model
  // exposes it.
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
      if (Status status = rules_.count(bytes->size(), source_.bytes()); !status.ok())
        return unsafe(status.error());
      if (rules_.bytes() > bytes_max_) return no_room_for_tree(bytes_max_);
      if (Status status = room_.take(bytes->size()); !status.ok())
        return disk_failure(status.error());
      if (Status status = file.write(*bytes); !status.ok()) return disk_failure(status.error());
      if (hash_) hash_->update(*bytes);
      if (progress_ && rules_.bytes() >= reported_ + (256 << 10)) {
        reported_ = rules_.bytes();
        progress_({Phase::kExtract, reported_, 0});
      }
    }
  }

  os::FileSystem& fs_;
  Source& source_;
  const os::Path& into_;
  os::DiskRoom room_;
  EntryRules rules_;
  const ProgressSink& progress_;
  TreeRecordWriter* const record_;           // null: no record is written
  const std::uint64_t bytes_max_;            // room for the tree
  std::optional<codec::Sha256Stream> hash_;  // of the current file
  std::optional<Failure> source_failure_;
  std::uint64_t reported_ = 0;
};

struct Attempt {
  Outcome<Tree> tree;
  bool verified = false;  // the digest matches, so other sources cannot do better
};

Attempt attempt(os::FileSystem& fs, Source& source, const SourceOptions& options,
                const os::Path& into) {
  Limits limits = options.limits;
  if (options.request.max_bytes != 0) limits.extracted_bytes_max = options.request.max_bytes;
  std::unique_ptr<TreeRecordWriter> record;
  if (!options.record.empty()) {
    auto made = TreeRecordWriter::create(fs, options.record);
    if (!made.ok()) return {disk_failure(made.error())};
    record = std::move(*made);
  }
  Outcome<Tree> tree = extract(fs, source, into, plain_file_name(options.request.url), limits,
                               options.progress, record.get(), options.tree_bytes_max);
  if (!tree.ok() && tree.error().reason != Reason::kUnsafeArchive) return {std::move(tree)};
  // The digest covers every byte, including bytes after the archive's end. A wrong digest takes
  // precedence over a refused archive, because the archive is then not the requested one.
  while (true) {
    Outcome<std::string> piece = source.next();
    if (!piece.ok()) return {piece.error()};
    if (piece->empty()) break;
  }
  const codec::Sha256 found = source.digest();
  if (found == options.request.digest) return {std::move(tree), true};
  const std::string shown = shown_url(options.url);
  const bool elsewhere = source.other_origin();
  if (source.looks_like_page())
    return {Failure{
        Reason::kDownloadFailed,
        Error(Code::kUnavailable,
              shown + ": an HTML page" +
                  (elsewhere ? std::string() : " of " + std::to_string(source.bytes()) + " bytes") +
                  " where an archive should be")}};
  // A redirect may lead into a network that the URL's author cannot reach, so the answer is not
  // described.
  if (elsewhere)
    return {Failure{
        Reason::kDigestMismatch,
        Error(Code::kCorrupt,
              "expected sha256 " + options.request.digest.hex() + ", and the bytes from " + shown +
                  " differ; they came by a redirect to another origin, so no more is shown")}};
  const std::string remark = source.remark();
  return {Failure{Reason::kDigestMismatch,
                  Error(Code::kCorrupt, "expected sha256 " + options.request.digest.hex() +
                                            ", found " + found.hex() + " (" +
                                            std::to_string(source.bytes()) + " bytes from " +
                                            shown + (remark.empty() ? "" : "; " + remark) + ")")}};
}

/// The result of one source.
struct Turn {
  Outcome<Tree> tree;
  bool final = false;            // no other source can do better
  bool claimed = false;          // an untrusted peer node gave or promised more than fits
  bool blame_the_spool = false;  // an attempt without the spool may succeed
  SourceHistory::Trouble trouble = SourceHistory::Trouble::kRefused;
};

Result<std::uint64_t> spooled_bytes(os::FileSystem& fs, const SourceOptions& options) {
  if (!options.spooled) return std::uint64_t{0};
  TRY(const auto info, fs.stat(options.spool));
  return info ? info->size_bytes : 0;
}

Status cut_spool(os::FileSystem& fs, const os::Path& spool, std::uint64_t bytes) {
  if (bytes == 0) return drop_spool(fs, spool);
  TRY(const auto file, fs.open(spool, os::Open::kCreate, 0600));
  return file->truncate(bytes);
}

/// Keeps the complete spool as archive. A local file has no spool.
Status keep_archive(os::FileSystem& fs, const SourceOptions& options) {
  if (options.archive.empty() || !options.wants_archive || !options.wants_archive()) return {};
  TRY(const auto info, fs.stat(options.spool));
  if (!info || info->size_bytes == 0) return {};
  {
    TRY(const auto file, fs.open(options.spool, os::Open::kCreate, 0600));
    TRY_VOID(file->sync());
  }
  TRY_VOID(fs.make_directories(options.archive.parent_path(), 0700));
  TRY_VOID(fs.rename(options.spool, options.archive));
  return fs.sync_directory(options.archive.parent_path());
}

Turn take_turn(const Context& ctx, os::FileSystem& fs, net::HttpClient& http, SourceOptions options,
               const os::Path& into) {
  if (Status status = fs.remove_all(into); !status.ok())
    return {disk_failure(status.error()), true};
  const auto spooled = spooled_bytes(fs, options);
  if (!spooled.ok()) return {disk_failure(spooled.error()), true};
  const bool tainted = options.spooled && spool_has_peer_bytes(fs, options.spool);
  // The reading thread must also stop when only this side ends: on a full disk, or at a refused
  // entry.
  std::stop_source enough;
  const std::stop_callback linked(ctx.stop_token(), [&enough] { enough.request_stop(); });
  const Context reading = ctx.with_stop(enough.get_token());
  const std::unique_ptr<Delta> delta = Delta::find(reading, fs, http, options);
  options.delta = delta.get();
  auto source = open_source(reading, fs, http, options);
  if (!source.ok()) return {source.error(), source.error().reason == Reason::kDiskFull};
  AheadSource bytes(std::move(source.value()), enough, {});
  Attempt tried = attempt(fs, bytes, options, into);
  bytes.end();
  const bool downloads = options.kind != SourceKind::kStored;
  if (tried.tree.ok()) {
    if (Status status = downloads ? keep_archive(fs, options) : Status(); !status.ok())
      log::warn("cannot keep archive for peers", {{"error", status.error()}});
    if (Status status = drop_spool(fs, options.spool); !status.ok())
      return {disk_failure(status.error()), true};
    tried.tree->received = bytes.received() + (delta != nullptr ? delta->list_bytes() : 0);
    return {std::move(tried.tree), true};
  }
  if (Status status = fs.remove_all(into); !status.ok())
    log::warn("cannot clear scratch", {{"error", status.error()}});
  Turn turn{std::move(tried.tree)};
  const Failure& failure = turn.tree.error();
  const bool page = bytes.looks_like_page();
  // Unverified bytes that fill the disk may not be an archive at all. A peer node's bytes and
  // claimed size end only its own turn. Spooled bytes from peer nodes are dropped for another
  // attempt.
  const bool full = failure.reason == Reason::kDiskFull;
  const bool suspect_spool = bytes.resumed() && (tainted || delta != nullptr);
  turn.claimed =
      full && options.kind == SourceKind::kPeer && (*spooled == 0 || bytes.bytes() > *spooled);
  turn.final = tried.verified || (full && !turn.claimed && !suspect_spool) ||
               failure.reason == Reason::kCancelled;
  turn.blame_the_spool = bytes.stale() ||
                         (bytes.resumed() && failure.reason == Reason::kDigestMismatch) ||
                         (full && suspect_spool);
  if (failure.reason == Reason::kDigestMismatch || failure.reason == Reason::kUnsafeArchive ||
      page) {
    turn.trouble = SourceHistory::Trouble::kWrong;
  } else if (!failure.error.terminal() && !bytes.stale()) {
    turn.trouble = bytes.bytes() > *spooled ? SourceHistory::Trouble::kBroke
                                            : SourceHistory::Trouble::kNoResponse;
  }
  // After a transient failure the spool is kept if it holds archive bytes. A failed source must not
  // destroy the bytes that were there before.
  const bool keep = (failure.reason == Reason::kDownloadFailed || (full && !turn.claimed) ||
                     failure.reason == Reason::kCancelled) &&
                    (bytes.stale() || !page);
  if (!keep && downloads) {
    if (Status status = cut_spool(fs, options.spool, tried.verified ? 0 : *spooled); !status.ok())
      return {disk_failure(status.error()), true};
    // The remaining bytes do not come from a peer node.
    if (options.kind == SourceKind::kPeer && !tainted && *spooled > 0)
      if (Status status = forget_notes(fs, options.spool); !status.ok())
        return {disk_failure(status.error()), true};
  }
  return turn;
}

/// Installs from the kept archive, if a crash or damage lost the tree. Absent: no usable archive,
/// and a download replaces it.
std::optional<Outcome<Tree>> install_from_archive(const Context& ctx, os::FileSystem& fs,
                                                  net::HttpClient& http, SourceOptions options,
                                                  const os::Path& into) {
  if (options.archive.empty()) return std::nullopt;
  const auto info = fs.stat(options.archive);
  if (!info.ok() || !*info || (*info)->kind != os::FileKind::kFile) return std::nullopt;
  options.kind = SourceKind::kStored;
  options.spooled = false;
  options.url = options.archive.string();
  Turn turn = take_turn(ctx, fs, http, options, into);
  if (turn.tree.ok() || turn.final) return std::move(turn.tree);
  log::warn("kept archive unusable, downloading again", {{"error", turn.tree.error().error}});
  return std::nullopt;
}

/// Reads the request's credentials. Absent: it names none, or only file URLs.
Outcome<std::optional<Credentials>> read_credentials(const Context& ctx,
                                                     const SourceOptions& options) {
  const Request& request = options.request;
  const auto is_file = [](const std::string& url) { return url.starts_with("file:"); };
  if (request.credentials.empty() ||
      (is_file(request.url) &&
       std::all_of(request.mirrors.begin(), request.mirrors.end(), is_file)))
    return std::optional<Credentials>();
  if (options.transport.credentials == nullptr)
    return Failure{
        Reason::kCredentialsMissing,
        Error(Code::kNotFound, "this program has no access to credentials " + request.credentials)};
  Outcome<Credentials> found = options.transport.credentials->read(ctx, request.credentials);
  if (!found.ok()) return found.error();
  return std::optional<Credentials>(std::move(found.value()));
}

/// Fails if the credentials may be sent to none of the sources that need them. The fault is in the
/// Secret, not at the sources.
std::optional<Failure> credentials_problem(const SourceOptions& options) {
  std::vector<std::string> urls{options.request.url};
  urls.insert(urls.end(), options.request.mirrors.begin(), options.request.mirrors.end());
  std::string why;
  for (const std::string& text : urls) {
    const auto url = net::Url::parse(text);
    if (!url.ok()) return std::nullopt;
    const Sending sending = sending_of(*options.credentials, *url, options.request.url);
    if (sending.kind != Sending::Kind::kWithheld) return std::nullopt;
    if (why.empty())
      why = options.request.credentials + " is not sent to " + shown_url(text) + ": " + sending.why;
  }
  return Failure{Reason::kCredentialsInvalid, Error(Code::kInvalid, why)};
}

/// Combines failures: the reason most likely to heal, and each source's message.
Failure sum_up(const std::vector<Failure>& failures) {
  if (failures.size() == 1) return failures.front();
  constexpr std::size_t kEachMax = 380;
  const Failure* best = &failures.front();
  std::string text =
      "none of " + std::to_string(failures.size()) + " sources delivered the archive";
  bool terminal = true;
  std::optional<std::chrono::seconds> wait;
  for (const Failure& failure : failures) {
    if (retry_of(failure.reason) < retry_of(best->reason)) best = &failure;
    text +=
        (&failure == &failures.front() ? ": " : "; ") + failure.error.message().substr(0, kEachMax);
    terminal = terminal && failure.error.terminal();
    wait = wait ? std::min(*wait, failure.retry_after) : failure.retry_after;
  }
  return {best->reason, Error(best->error.code(), std::move(text)).as_terminal(terminal), *wait};
}

/// Installs from the request's file servers, in the order of the history.
Outcome<Tree> install_from_origins(const Context& ctx, os::FileSystem& fs, net::HttpClient& client,
                                   SourceOptions options, SourceHistory& history,
                                   const os::Path& into) {
  constexpr std::chrono::milliseconds kPauseMax{
      250};  // spreads many nodes that move on to the next source
  std::vector<std::string> urls{options.request.url};
  urls.insert(urls.end(), options.request.mirrors.begin(), options.request.mirrors.end());
  urls = history.order(urls);
  std::map<std::string, Failure> failures;
  // At most two rounds: first with the spool, then without it for sources that may then succeed.
  for (int round = 0; round < 2; ++round) {
    std::vector<std::string> again;
    for (const std::string& url : urls) {
      if (const auto closed = history.closed_for(url); closed.count() > 0) {
        failures.insert_or_assign(
            url, Failure{Reason::kDownloadFailed,
                         Error(Code::kUnavailable, shown_url(url) +
                                                       ": the source asked for a pause of " +
                                                       std::to_string(closed.count()) + " s"),
                         closed});
        continue;
      }
      if (!failures.empty() && round == 0 && options.transport.rng != nullptr) {
        const auto pause =
            std::chrono::duration_cast<Duration>(kPauseMax * options.transport.rng->unit());
        if (Status status = ctx.sleep_for(pause); !status.ok())
          return Failure{Reason::kCancelled, status.error()};
      }
      options.url = url;
      Turn turn = take_turn(ctx, fs, client, options, into);
      if (turn.tree.ok()) {
        history.worked(url);
        return std::move(turn.tree);
      }
      if (turn.final) return turn.tree.error();
      if (turn.blame_the_spool && round == 0) {
        again.push_back(url);
      } else {
        history.failed(url, turn.trouble, turn.tree.error().retry_after);
      }
      log::debug("download from source failed",
                 {{"url", shown_url(url)}, {"error", turn.tree.error().error}});
      failures.insert_or_assign(url, turn.tree.error());
    }
    if (again.empty()) break;
    if (Status status = drop_spool(fs, options.spool); !status.ok())
      return disk_failure(status.error());
    urls = std::move(again);
    options.bases.clear();  // the chunk list may be at fault
  }
  // In the order of the request, which users know.
  std::vector<Failure> all;
  const auto add = [&](const std::string& url) {
    if (const auto found = failures.find(url); found != failures.end())
      all.push_back(found->second);
    failures.erase(url);
  };
  add(options.request.url);
  for (const std::string& mirror : options.request.mirrors) add(mirror);
  return sum_up(all);
}

/// The results of peer nodes when none gave the archive.
struct PeerFailures {
  std::string message;                // message of the last peer node
  std::vector<std::string> too_much;  // peer nodes that claimed more than fits
};

/// Installs from the first peer node that gives the archive. Absent: none does.
std::optional<Outcome<Tree>> install_from(const std::vector<Peer>& peers, const Context& ctx,
                                          os::FileSystem& fs, SourceOptions options,
                                          SourceHistory& history, const os::Path& into,
                                          PeerFailures& failures) {
  options.kind = SourceKind::kPeer;
  options.credentials = nullptr;
  for (const Peer& peer : peers) {
    options.url = peer.url;
    // A second round without the spool, if the spool may be at fault.
    for (int round = 0; round < 2; ++round) {
      Turn turn = take_turn(ctx, fs, *peer.http, options, into);
      if (turn.tree.ok()) {
        history.worked(peer.url);
        return std::move(turn.tree);
      }
      if (turn.final) return std::move(turn.tree);
      log::debug("download from peer failed", {{"error", turn.tree.error().error}});
      failures.message = "; peers failed too: " + turn.tree.error().error.message().substr(0, 380);
      if (turn.blame_the_spool && round == 0) {
        if (Status status = drop_spool(fs, options.spool); !status.ok())
          return Outcome<Tree>(disk_failure(status.error()));
        continue;
      }
      if (turn.claimed) {
        failures.too_much.push_back(peer.url);
      } else {
        history.failed(peer.url, turn.trouble, std::chrono::seconds(0));
      }
      break;
    }
  }
  return std::nullopt;
}

}  // namespace

Outcome<Tree> extract(os::FileSystem& fs, Source& source, const os::Path& into,
                      const std::string& plain_file, const Limits& limits,
                      const ProgressSink& progress, TreeRecordWriter* record,
                      std::uint64_t bytes_max) {
  return Extraction(fs, source, into, limits, progress, record, bytes_max).run(plain_file);
}

Outcome<Tree> install(const Context& ctx, os::FileSystem& fs, net::HttpClient& http,
                      const SourceOptions& input_options, const os::Path& into) {
  SourceOptions options = input_options;
  SourceHistory nothing_known(options.transport.clock != nullptr ? *options.transport.clock
                                                                 : system_clock());
  SourceHistory& history = options.history != nullptr ? *options.history : nothing_known;
  const auto credentials = read_credentials(ctx, options);
  if (!credentials.ok()) return credentials.error();
  std::unique_ptr<net::HttpClient> trusting;
  if (credentials->has_value()) {
    options.credentials = &**credentials;
    if (auto failure = credentials_problem(options)) return *failure;
    if (!(*credentials)->ca_pem.empty()) {
      if (options.transport.trusting) trusting = options.transport.trusting((*credentials)->ca_pem);
      if (trusting == nullptr)
        return Failure{Reason::kCredentialsMissing,
                       Error(Code::kInvalid,
                             "ca.crt of " + options.request.credentials + " cannot be used here")};
    }
  }
  net::HttpClient& client = trusting != nullptr ? *trusting : http;
  if (auto tree = install_from_archive(ctx, fs, http, options, into)) return std::move(*tree);
  std::vector<Peer> healthy, failing;
  for (const Peer& one : options.request.peers)
    (history.is_healthy(one.url) ? healthy : failing).push_back(one);
  PeerFailures failures;
  // If the file server's archive is as large, the peer nodes may be right. Then they come first
  // again once there is room.
  const auto blame_unless_right = [&](const Outcome<Tree>& tree) {
    if (!tree.ok() &&
        (tree.error().reason == Reason::kDiskFull || tree.error().reason == Reason::kCancelled))
      return;
    for (const std::string& url : failures.too_much)
      history.failed(url, SourceHistory::Trouble::kWrong, std::chrono::seconds(0));
    failures.too_much.clear();
  };
  if (auto tree = install_from(healthy, ctx, fs, options, history, into, failures)) {
    blame_unless_right(*tree);
    return std::move(*tree);
  }
  Outcome<Tree> tree = install_from_origins(ctx, fs, client, options, history, into);
  blame_unless_right(tree);
  if (tree.ok() || tree.error().reason == Reason::kCancelled ||
      tree.error().reason == Reason::kDiskFull || retry_of(tree.error().reason) == Retry::kOnChange)
    return tree;
  auto second_attempt = install_from(failing, ctx, fs, options, history, into, failures);
  blame_unless_right(second_attempt ? *second_attempt : tree);
  if (second_attempt) return std::move(*second_attempt);
  if (failures.message.empty()) return tree;
  Failure failure = tree.error();
  failure.error = Error(failure.error.code(), failure.error.message() + failures.message)
                      .as_terminal(failure.error.terminal());
  return failure;
}

}  // namespace varda::artifact
