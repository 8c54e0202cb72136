#include "agent/replicas/manager.h"

#include <algorithm>
#include <deque>
#include <tuple>
#include <utility>

#include "agent/replicas/relay.h"
#include "base/log.h"
#include "codec/digest.h"
#include "codec/text.h"

namespace varda::agent::replicas {
namespace {

constexpr std::size_t kSnapshotsMax = 3;
constexpr std::size_t kScanPauseFactor = 20;    // pause after a scan, in scan durations
constexpr std::size_t kMessageBytesMax = 2048;  // a registry may answer with a long text
constexpr int kUnreachableMin = 4;              // failed attempts before the node asks for a relay

std::string reason_of_share(const Error& error) {
  switch (error.code()) {
    case Code::kForbidden:
      return "PathForbidden";
    case Code::kNotFound:
      return "PathNotFound";
    case Code::kExhausted:
      return "TooLarge";
    default:
      return "ReadFailed";
  }
}

std::string reason_of_relay(const Error& error) {
  switch (error.code()) {
    case Code::kNotFound:
      return "RelayMissing";
    case Code::kExhausted:
      return "RelayFull";
    default:
      return "RelayFailed";
  }
}

std::string amount(const replica::Progress& progress) {
  return std::to_string(progress.done_bytes) + " of " + std::to_string(progress.total_bytes) +
         " bytes";
}

}  // namespace

struct Manager::Share {
  api::EdgeShare spec;
  api::EdgeShareReport report;
  os::Path path;                        // the served path
  std::optional<replica::Taken> taken;  // of files that are not a local replica
  bool record_read = false;
  std::deque<std::pair<std::string, std::shared_ptr<const std::string>>> snapshots;  // newest first
  std::optional<SteadyTime> due;   // nothing: a replica, or busy
  std::optional<SteadyTime> full;  // when every byte was read
  int failures = 0;
  std::optional<SteadyTime> relay_due;  // nothing: not asked for, or busy
  int relay_failures = 0;
  // Blocks that the registry has, since a time: each is asked for once in a while only. Used by
  // the relay's thread.
  std::shared_ptr<std::set<codec::Sha256>> stored = std::make_shared<std::set<codec::Sha256>>();
  std::optional<SteadyTime> stored_since;
};

struct Manager::Replica {
  api::EdgeReplica spec;
  api::EdgeReplicaReport report;
  std::optional<SteadyTime> due;
  int failures = 0;
  int unreachable = 0;  // attempts in a row in which no source could be reached
};

/// The result of an attempt to copy.
struct Manager::Attempt {
  std::string reason;  // of a failure
  bool asked_peers = false;
  bool reached_peers = false;  // and needed no registry
};

struct Manager::Relaying {
  std::string key, snapshot;
  std::stop_source stop;
  SteadyTime published;
};

struct Manager::Copying {
  std::string key, snapshot;
  std::stop_source stop;
  SteadyTime began;
  std::optional<SteadyTime> published;
};

Result<std::unique_ptr<Manager>> Manager::open(Options options, os::FileSystem& fs, OpenTree tree,
                                               replica::Shares& shares, ClientOf client_of,
                                               Rng& rng) {
  TRY(auto store, replica::Store::open({.root = options.copies, .limits = options.limits}, fs));
  TRY_VOID(fs.make_directories(options.records, 0700));
  return std::unique_ptr<Manager>(new Manager(std::move(options), fs, std::move(tree), shares,
                                              std::move(client_of), rng, std::move(store)));
}

Manager::Manager(Options options, os::FileSystem& fs, OpenTree tree, replica::Shares& shares,
                 ClientOf client_of, Rng& rng, std::unique_ptr<replica::Store> store)
    : options_(std::move(options)),
      clock_(options_.clock != nullptr ? *options_.clock : system_clock()),
      fs_(fs),
      tree_(std::move(tree)),
      served_(shares),
      client_of_(std::move(client_of)),
      rng_(rng),
      store_(std::move(store)) {}

Manager::~Manager() = default;

os::Path Manager::record_of(const std::string& key) const {
  return options_.records / codec::Sha256::of(key).hex();
}

void Manager::apply(const core::WorkList& list) {
  const std::vector<std::string> copies = store_->list();
  const MutexLock lock(mutex_);
  list_ = list.id;
  apply_shares(list.spec.shares);
  apply_replicas(list.spec.replicas);
  for (const std::string& key : copies)
    if (!replicas_.contains(key)) remove_.insert(key);
  serve();
  unpublished_ = true;
  wakeup_.notify();
}

void Manager::apply_shares(const std::vector<api::EdgeShare>& specs) {
  std::map<std::string, Share> shares;
  share_order_.clear();
  for (const api::EdgeShare& spec : specs) {
    share_order_.push_back(spec.key);
    Share& share = shares[spec.key];
    const auto before = shares_.find(spec.key);
    if (before != shares_.end() && before->second.spec.path == spec.path)
      share = std::move(before->second);
    const bool known = !share.spec.key.empty(), relayed = share.spec.relay;
    share.spec = spec;
    if (spec.relay && !relayed) share.relay_due = clock_.now();
    if (!spec.relay) {
      share.relay_due.reset();
      share.relay_failures = 0;
      share.report.relayed.clear();
      share.report.relay_reason.clear();
      share.report.relay_message.clear();
    }
    if (known) continue;
    share.report = {
        .key = spec.key, .path = spec.path, .state = std::string(api::EdgeShareReport::kPending)};
    share.path = spec.path;
    share.due = clock_.now();
  }
  shares_ = std::move(shares);
  if (!relaying_) return;
  const auto at = shares_.find(relaying_->key);
  const bool wanted = at != shares_.end() && at->second.spec.relay &&
                      !at->second.snapshots.empty() &&
                      at->second.snapshots.front().first == relaying_->snapshot;
  if (!wanted) relaying_->stop.request_stop();
}

void Manager::apply_replicas(const std::vector<api::EdgeReplica>& specs) {
  const auto same_source = [](const auto& a, const auto& b) {
    return a.node == b.node && a.url == b.url;
  };
  std::map<std::string, Replica> replicas;
  replica_order_.clear();
  for (const api::EdgeReplica& spec : specs) {
    replica_order_.push_back(spec.key);
    remove_.erase(spec.key);
    Replica& replica = replicas[spec.key];
    const auto before = replicas_.find(spec.key);
    if (before != replicas_.end()) replica = std::move(before->second);
    const auto &sources = spec.sources, &known = replica.spec.sources;
    const bool same =
        replica.spec.snapshot == spec.snapshot && replica.spec.uid == spec.uid &&
        replica.spec.metadata == spec.metadata && replica.spec.relay == spec.relay &&
        std::equal(sources.begin(), sources.end(), known.begin(), known.end(), same_source);
    replica.spec = spec;
    replica.report.key = spec.key;
    replica.report.uid = spec.uid;
    if (replica.report.state.empty()) {  // new here, or the agent has restarted
      replica.report.state = api::EdgeReplicaReport::kPending;
      replica.report.relay = spec.relay;
    }
    if (!same) {
      replica.due = clock_.now();
      replica.failures = 0;
    }
    if (copying_ && copying_->key == spec.key && copying_->snapshot != spec.snapshot)
      copying_->stop.request_stop();
  }
  if (copying_ && !replicas.contains(copying_->key)) copying_->stop.request_stop();
  replicas_ = std::move(replicas);
}

void Manager::share_copy(const std::string& key) {
  {
    const MutexLock lock(mutex_);
    const auto at = shares_.find(key);
    if (at == shares_.end()) return;
    at->second.due.reset();
  }
  auto copy = store_->find(key);
  const MutexLock lock(mutex_);
  const auto at = shares_.find(key);
  if (at == shares_.end() || !at->second.spec.path.empty()) return;
  Share& share = at->second;
  if (!copy.ok()) {  // being replaced, or damaged
    if (!share.due) share.due = clock_.now() + options_.scan_next;
    return;
  }
  share.report = {.key = key, .state = std::string(api::EdgeShareReport::kPending)};
  share.snapshots.clear();
  if (*copy) {
    share.path = (*copy)->path;
    set_snapshot(share, (*copy)->snapshot);
  }
  serve();
}

void Manager::set_snapshot(Share& share, const replica::Snapshot& snapshot) {
  std::string text = snapshot.encode();
  const std::string id = codec::Sha256::of(text).hex();
  share.report = {.key = share.spec.key,
                  .path = share.spec.path,
                  .state = std::string(api::EdgeShareReport::kReady),
                  .snapshot = id,
                  .bytes = static_cast<std::int64_t>(snapshot.bytes()),
                  .files = static_cast<std::int64_t>(snapshot.files.size()),
                  .relayed = share.report.relayed,
                  .relay_reason = share.report.relay_reason,
                  .relay_message = share.report.relay_message};
  if (!share.snapshots.empty() && share.snapshots.front().first == id) return;
  if (share.spec.relay) {
    share.relay_due = clock_.now();
    wakeup_.notify();
  }
  if (relaying_ && relaying_->key == share.spec.key) relaying_->stop.request_stop();
  std::erase_if(share.snapshots, [&](const auto& one) { return one.first == id; });
  share.snapshots.emplace_front(id, std::make_shared<const std::string>(std::move(text)));
  if (share.snapshots.size() > kSnapshotsMax) share.snapshots.pop_back();
}

void Manager::serve() {
  std::map<std::string, replica::Shares::Share> out;
  for (const auto& [key, share] : shares_) {
    replica::Shares::Share& one = out[key];
    one.path = share.path;
    one.nodes = {share.spec.nodes.begin(), share.spec.nodes.end()};
    one.snapshots = {share.snapshots.begin(), share.snapshots.end()};
  }
  served_.set(std::move(out));
}

std::optional<SteadyTime> Manager::scan_due() const {
  const MutexLock lock(mutex_);
  std::optional<SteadyTime> first;
  for (const auto& [key, share] : shares_) {
    if (share.due && (!first || *share.due < *first)) first = share.due;
  }
  return first;
}

void Manager::scan_next(const Context& ctx) {
  std::optional<std::string> next;
  bool copy = false;
  {
    const MutexLock lock(mutex_);
    const SteadyTime now = clock_.now();
    for (const auto& [key, share] : shares_) {
      if (!share.due || *share.due > now || (next && *share.due >= *shares_.at(*next).due))
        continue;
      next = key;
      copy = share.spec.path.empty();
    }
  }
  if (next && copy) {
    share_copy(*next);
  } else if (next) {
    scan_share(ctx, *next);
  }
  publish_reports();
}

void Manager::scan_share(const Context& ctx, const std::string& key) {
  std::optional<replica::Taken> before;
  os::Path path;
  bool full = false;
  const SteadyTime began = clock_.now();
  {
    const MutexLock lock(mutex_);
    const auto at = shares_.find(key);
    if (at == shares_.end() || at->second.spec.path.empty())
      return;  // the work list changed meanwhile
    Share& share = at->second;
    share.due.reset();
    path = share.path;
    full = share.full && began - *share.full >= options_.full;
    if (!std::exchange(share.record_read, true)) {
      if (const auto text = os::read_file(fs_, record_of(key), std::uint64_t{256} << 20); text.ok())
        share.taken = replica::decode_taken(*text, options_.limits);
    }
    before = share.taken;
  }
  auto tree = tree_();
  Result<replica::Taken> taken = Error(Code::kForbidden, "no path of this node may be shared");
  if (tree.ok())
    taken = replica::take_snapshot(ctx, **tree, path, before && !full ? &*before : nullptr,
                                   options_.limits);
  if (ctx.done()) return;
  const bool same =
      taken.ok() && before && taken->snapshot == before->snapshot && taken->facts == before->facts;
  std::string record;
  {
    const MutexLock lock(mutex_);
    const auto at = shares_.find(key);
    if (at == shares_.end() || at->second.path != path) return;  // the share changed meanwhile
    Share& share = at->second;
    const SteadyTime now = clock_.now();
    if (!taken.ok()) {
      share.report.state = api::EdgeShareReport::kFailed;
      share.report.reason = reason_of_share(taken.error());
      share.report.message = taken.error().message();
      const auto wait = std::min<Duration>(
          options_.retry_first * (1 << std::min(share.failures, 10)), options_.retry_max);
      ++share.failures;
      share.due = now + wait;
      return;
    }
    share.failures = 0;
    share.due = now + std::max<Duration>(options_.scan_next, kScanPauseFactor * (now - began));
    if (!before || full || !share.full) share.full = now;
    set_snapshot(share, taken->snapshot);
    serve();
    if (!same) record = replica::encode(*taken);
    share.taken = std::move(taken).value();
  }
  // The record only saves reading, so a failed write is harmless.
  if (!record.empty()) {
    if (const Status written = os::write_file_atomically(fs_, record_of(key), record, 0600);
        !written.ok())
      log::warn("share record not persisted", {{"key", key}, {"error", written.error()}});
  }
}

std::optional<SteadyTime> Manager::copy_due() const {
  const MutexLock lock(mutex_);
  if (!remove_.empty()) return SteadyTime::min();
  std::optional<SteadyTime> first;
  for (const auto& [key, replica] : replicas_) {
    if (replica.due && (!first || *replica.due < *first)) first = replica.due;
  }
  return first;
}

void Manager::copy(const Context& ctx) {
  std::set<std::string> remove;
  std::optional<api::EdgeReplica> spec;
  std::stop_token stop;
  {
    const MutexLock lock(mutex_);
    remove = std::exchange(remove_, {});
    const SteadyTime now = clock_.now();
    Replica* next = nullptr;
    for (auto& [key, replica] : replicas_) {
      if (replica.due && *replica.due <= now && (next == nullptr || *replica.due < *next->due))
        next = &replica;
    }
    if (next != nullptr) {
      next->due.reset();
      spec = next->spec;
      copying_ = std::make_unique<Copying>(Copying{
          .key = spec->key, .snapshot = spec->snapshot, .stop = {}, .began = now, .published = {}});
      stop = copying_->stop.get_token();
    }
  }
  for (const std::string& key : remove) {
    if (const Status removed = store_->remove(key); !removed.ok())
      log::warn("cannot remove an unwanted replica", {{"key", key}, {"error", removed.error()}});
  }
  if (spec) {
    // The agent's stop or a new work list cancels the copy.
    std::stop_source either;
    const std::stop_callback on_agent(ctx.stop_token(), [&either] { either.request_stop(); });
    const std::stop_callback on_cancel(stop, [&either] { either.request_stop(); });
    Attempt attempt;
    const Status status = bring(ctx.with_stop(either.get_token()), *spec, attempt);
    const std::string& reason = attempt.reason;
    const auto seen = store_->find(spec->key);
    if (seen.ok() && *seen && (*seen)->id.hex() == spec->snapshot) put_metadata(*spec);
    const MutexLock lock(mutex_);
    copying_.reset();
    const auto at = replicas_.find(spec->key);
    if (at == replicas_.end()) {
      remove_.insert(spec->key);  // removed from the list meanwhile
    } else {
      Replica& replica = at->second;
      replica.report.bytes_done = replica.report.bytes_total = 0;
      if (seen.ok() && *seen) {
        replica.report.snapshot = (*seen)->id.hex();
        replica.report.path = (*seen)->path.string();
        replica.report.bytes = static_cast<std::int64_t>((*seen)->snapshot.bytes());
      }
      const bool current =
          !replica.spec.snapshot.empty() && replica.report.snapshot == replica.spec.snapshot;
      if (!stop.stop_requested() && !ctx.done()) note_reach(replica, attempt, status);
      if (status.ok() || stop.stop_requested() || ctx.done()) {
        replica.report.state =
            current ? api::EdgeReplicaReport::kCurrent : api::EdgeReplicaReport::kPending;
        replica.report.reason.clear();
        replica.report.message.clear();
        replica.failures = 0;
      } else {
        replica.report.state = reason == "DiskFull" || reason == "Refused"
                                   ? api::EdgeReplicaReport::kFailed
                                   : api::EdgeReplicaReport::kCopying;
        replica.report.reason = reason;
        replica.report.message = codec::clipped(status.error().message(), kMessageBytesMax);
        const Duration wait = std::min<Duration>(
            options_.retry_first * (1 << std::min(replica.failures, 10)), options_.retry_max);
        ++replica.failures;
        if (!replica.due)
          replica.due =
              clock_.now() + std::chrono::duration_cast<Duration>(wait * (1 + rng_.unit() / 2));
      }
      if (const auto share = shares_.find(spec->key);
          share != shares_.end() && share->second.spec.path.empty())
        share->second.due = clock_.now();
    }
    wakeup_.notify();
  }
  publish_reports();
}

void Manager::put_metadata(const api::EdgeReplica& spec) {
  if (!spec.metadata.is_object()) return;
  codec::Json metadata = spec.metadata;
  metadata.set("snapshot", spec.snapshot);
  const Status written = store_->put_metadata(spec.key, codec::write_json(metadata) + "\n");
  if (!written.ok())
    log::warn("metadata of a replica not written", {{"key", spec.key}, {"error", written.error()}});
}

void Manager::note_reach(Replica& replica, const Attempt& attempt, const Status& status) {
  if (attempt.reached_peers) {
    replica.unreachable = 0;
    replica.report.relay = false;
  } else if (attempt.asked_peers) {
    if (!status.ok()) ++replica.unreachable;
    if (status.ok() || replica.unreachable >= kUnreachableMin) replica.report.relay = true;
  }
}

Status Manager::bring(const Context& ctx, const api::EdgeReplica& spec, Attempt& attempt) {
  const auto seen = store_->find(spec.key);
  if (spec.snapshot.empty() || (seen.ok() && *seen && (*seen)->id.hex() == spec.snapshot))
    return {};
  std::vector<replica::Peer> peers;
  for (const api::EdgeReplicaSource& source : spec.sources) {
    if (net::HttpClient* http = client_of_(source.node))
      peers.push_back({.http = http, .url = source.url});
  }
  attempt.asked_peers = true;
  attempt.reason = peers.empty() && !spec.sources.empty() ? "NoIdentity" : "SourceUnreachable";
  const bool relayed = spec.relay && options_.registry != nullptr;
  if (peers.empty() && !relayed)
    return Error(Code::kUnavailable,
                 spec.sources.empty()
                     ? "no source node is known yet"
                     : "this node has no certificate for other nodes: let it join by a gateway");
  {
    const MutexLock lock(mutex_);
    if (const auto at = replicas_.find(spec.key); at != replicas_.end())
      at->second.report.state = api::EdgeReplicaReport::kCopying;
  }
  publish_reports();
  const Status status = bring_from(ctx, spec, peers, attempt);
  if (status.ok()) return {};
  switch (status.error().code()) {
    case Code::kExhausted:
      if (attempt.reason != "Refused") attempt.reason = "DiskFull";
      break;
    case Code::kConflict:
    case Code::kNotFound:
      attempt.reason = "SourceChanged";
      break;
    case Code::kUnavailable:
      break;
    default:
      attempt.reason = "Refused";
  }
  return status;
}

Status Manager::bring_from(const Context& ctx, const api::EdgeReplica& spec,
                           const std::vector<replica::Peer>& peers, Attempt& attempt) {
  const bool relayed = spec.relay && options_.registry != nullptr;
  Result<replica::Snapshot> wanted = Error(Code::kUnavailable, "no source node is known yet");
  for (const replica::Peer& peer : peers) {
    wanted = replica::fetch_snapshot(ctx, peer, spec.key, spec.snapshot, options_.limits);
    if (wanted.ok() || ctx.done()) break;
  }
  attempt.reached_peers = wanted.ok() || wanted.error().code() != Code::kUnavailable;
  const bool from_registry = !attempt.reached_peers && relayed;
  if (from_registry)
    wanted = fetch_relayed(ctx, *options_.registry, spec.snapshot, options_.limits);
  if (!wanted.ok()) {
    if (wanted.error().code() == Code::kExhausted) attempt.reason = "Refused";
    return wanted.error();
  }
  if (wanted->bytes() > options_.copy_bytes_max) {
    attempt.reason = "Refused";
    return Error(Code::kExhausted, "the share has " + std::to_string(wanted->bytes()) +
                                       " bytes; this node copies at most " +
                                       std::to_string(options_.copy_bytes_max) +
                                       " (--replica-bytes-max)");
  }
  const auto progressed = [&](const replica::Progress& progress) {
    {
      const MutexLock lock(mutex_);
      const SteadyTime now = clock_.now();
      const auto at = replicas_.find(spec.key);
      if (at == replicas_.end() || !copying_ ||
          now - copying_->published.value_or(copying_->began) < options_.progress_period)
        return;
      copying_->published = now;
      at->second.report.bytes_done = static_cast<std::int64_t>(progress.done_bytes);
      at->second.report.bytes_total = static_cast<std::int64_t>(progress.total_bytes);
    }
    publish_reports();
  };
  RelayedSource source(replica::PeerSource(peers, spec.key), relayed ? options_.registry : nullptr,
                       wanted->block_bytes);
  if (from_registry) source.skip_peers();
  Status status = store_->bring(ctx, spec.key, *wanted, source, progressed);
  const bool lost = !status.ok() && status.error().code() == Code::kUnavailable;
  attempt.reached_peers = !source.skips_peers() && !lost;
  return status;
}

std::optional<SteadyTime> Manager::relay_due() const {
  const MutexLock lock(mutex_);
  std::optional<SteadyTime> first;
  if (options_.registry == nullptr) return first;
  for (const auto& [key, share] : shares_) {
    if (share.relay_due && !share.snapshots.empty() && (!first || *share.relay_due < *first))
      first = share.relay_due;
  }
  return first;
}

void Manager::relay(const Context& ctx) {
  std::string key, id;
  os::Path path;
  std::shared_ptr<const std::string> encoded;
  std::shared_ptr<std::set<codec::Sha256>> stored;
  std::stop_token stop;
  {
    const MutexLock lock(mutex_);
    const SteadyTime now = clock_.now();
    Share* next = nullptr;
    for (auto& [name, share] : shares_) {
      if (share.relay_due && *share.relay_due <= now && !share.snapshots.empty() &&
          (next == nullptr || *share.relay_due < *next->relay_due))
        next = &share;
    }
    if (next == nullptr) return;
    next->relay_due.reset();
    key = next->spec.key;
    path = next->path;
    std::tie(id, encoded) = next->snapshots.front();
    if (!next->stored_since || now - *next->stored_since >= options_.relay_again) {
      next->stored->clear();
      next->stored_since = now;
    }
    stored = next->stored;
    relaying_ = std::make_unique<Relaying>(
        Relaying{.key = key, .snapshot = id, .stop = {}, .published = now});
    stop = relaying_->stop.get_token();
  }
  // The agent's stop, a new work list or a new snapshot ends the upload.
  std::stop_source either;
  const std::stop_callback on_agent(ctx.stop_token(), [&either] { either.request_stop(); });
  const std::stop_callback on_cancel(stop, [&either] { either.request_stop(); });
  Status status;
  if (const auto tree = tree_(); tree.ok()) {
    status = send_relayed(
        ctx.with_stop(either.get_token()), *options_.registry, **tree, path, *encoded, *stored,
        [this](const replica::Progress& progress) { note_relay_progress(progress); });
  } else {
    status = tree.error();
  }
  finish_relay(key, id, status);
  publish_reports();
}

void Manager::note_relay_progress(const replica::Progress& progress) {
  {
    const MutexLock lock(mutex_);
    const SteadyTime now = clock_.now();
    const auto at = relaying_ ? shares_.find(relaying_->key) : shares_.end();
    if (at == shares_.end() || at->second.report.relayed == relaying_->snapshot ||
        now - relaying_->published < options_.progress_period)
      return;
    relaying_->published = now;
    at->second.report.relay_reason = "Relaying";
    at->second.report.relay_message = amount(progress) + " are in the registry";
  }
  publish_reports();
}

void Manager::finish_relay(const std::string& key, const std::string& snapshot,
                           const Status& status) {
  const MutexLock lock(mutex_);
  const bool stopped = relaying_->stop.stop_requested();
  relaying_.reset();
  const auto at = shares_.find(key);
  if (at == shares_.end() || !at->second.spec.relay) return;
  Share& share = at->second;
  if (status.ok()) {
    share.relay_failures = 0;
    share.report.relayed = snapshot;
    share.report.relay_reason.clear();
    share.report.relay_message.clear();
    if (!share.relay_due) share.relay_due = clock_.now() + options_.relay_again;
    return;
  }
  // After a change of the files, the next snapshot is relayed.
  const Code code = status.error().code();
  if (!stopped && code != Code::kConflict && code != Code::kCancelled) {
    share.report.relay_reason = reason_of_relay(status.error());
    share.report.relay_message = codec::clipped(status.error().message(), kMessageBytesMax);
    log::warn("relay interrupted, retrying", {{"key", key}, {"error", status.error()}});
  }
  if (share.relay_due) return;
  const Duration wait = std::min<Duration>(
      options_.retry_first * (1 << std::min(share.relay_failures, 10)), options_.retry_max);
  ++share.relay_failures;
  share.relay_due =
      clock_.now() + std::chrono::duration_cast<Duration>(wait * (1 + rng_.unit() / 2));
}

void Manager::publish_reports() {
  {
    const MutexLock lock(mutex_);
    unpublished_ = false;  // before the report is read, so that no later change is missed
  }
  api::EdgeNodeStatus status;
  const core::ListId list = put_report(status, status);
  std::string text =
      list.uid + " " + std::to_string(list.generation) + codec::write_json(status.to_json());
  {
    const MutexLock lock(mutex_);
    if (published_ == text) return;
    published_ = std::move(text);
  }
  publish();
}

core::ListId Manager::put_report(api::EdgeNodeStatus& status,
                                 const api::EdgeNodeStatus& /*live*/) const {
  if (options_.url) status.peer_url = options_.url();
  const MutexLock lock(mutex_);
  for (const std::string& key : share_order_) status.shares.push_back(shares_.at(key).report);
  for (const std::string& key : replica_order_) status.replicas.push_back(replicas_.at(key).report);
  return list_;
}

std::vector<runtime::Task> Manager::tasks() {
  std::vector<runtime::Task> out;
  out.push_back({.name = "shares",
                 .due = [this] { return scan_due(); },
                 .step = [this](const Context& ctx) { scan_next(ctx); },
                 .wakeup = &wakeup_});
  out.push_back({.name = "replica reports",
                 .due = [this]() -> std::optional<SteadyTime> {
                   const MutexLock lock(mutex_);
                   return unpublished_ ? std::optional(SteadyTime::min()) : std::nullopt;
                 },
                 .step = [this](const Context&) { publish_reports(); },
                 .wakeup = &wakeup_});
  out.push_back({.name = "copies",
                 .due = [this] { return copy_due(); },
                 .step = [this](const Context& ctx) { copy(ctx); },
                 .wakeup = &wakeup_});
  out.push_back({.name = "relays",
                 .due = [this] { return relay_due(); },
                 .step = [this](const Context& ctx) { relay(ctx); },
                 .wakeup = &wakeup_});
  return out;
}

}  // namespace varda::agent::replicas
