#include "gateway/view.h"

#include <algorithm>

#include "base/log.h"
#include "base/text.h"
#include "codec/json.h"

namespace varda::gateway {
namespace {

using codec::Json;
using runtime::Informer;
using runtime::Stored;
using runtime::StoredPtr;

/// Versions of API servers are growing numbers; Kubernetes guarantees it since 1.35.
std::optional<std::uint64_t> number(std::string_view version) {
  return parse_integer<std::uint64_t>(version);
}

std::string line(std::string_view type, std::string_view object) {
  std::string out;
  out.reserve(object.size() + 40);
  out.append("{\"type\":\"").append(type).append("\",\"object\":").append(object).append("}\n");
  return out;
}

/// The DELETED event of an object: its identity, and the version of the deletion.
std::string deletion(const Stored& object, const std::string& node, std::uint64_t version) {
  const auto whole = codec::parse_json(object.text);
  Json metadata = Json::object({{"name", object.metadata.name}, {"uid", object.metadata.uid}});
  if (!object.metadata.ns.empty()) metadata.set("namespace", object.metadata.ns);
  metadata.set("resourceVersion", std::to_string(version));
  Json out = Json::object({{"apiVersion", whole.ok() ? (*whole)["apiVersion"] : Json()},
                           {"kind", whole.ok() ? (*whole)["kind"] : Json()},
                           {"metadata", std::move(metadata)}});
  if (!object.metadata.ns.empty()) out.set("spec", Json::object({{"nodeName", node}}));
  return line("DELETED", codec::write_json(out));
}

}  // namespace

std::string bookmark_line(const meta::Resource& resource, std::uint64_t version) {
  return line("BOOKMARK",
              codec::write_json(Json::object(
                  {{"kind", resource.kind},
                   {"apiVersion", resource.api_version()},
                   {"metadata", Json::object({{"resourceVersion", std::to_string(version)}})}})));
}

void View::follow(Informer& informer) {
  informer.on_change([this](const runtime::Change& change) { changed(change); });
  informer.on_progress(
      [this](const std::string& version, Informer::Progress how) { progressed(version, how); });
}

void View::changed(const runtime::Change& change) {
  Staged staged{.change = change, .version = 0};
  if (change.now) staged.version = number(change.now->metadata.resource_version).value_or(0);
  staged_.push_back(std::move(staged));
}

void View::progressed(const std::string& resource_version, Informer::Progress how) {
  const std::set<std::string> touched = advance(resource_version, how);
  if (how == Informer::Progress::kListed && options_.on_listed) options_.on_listed();
  if (!options_.on_change) return;
  for (const std::string& node : touched) options_.on_change(node);
}

std::set<std::string> View::advance(const std::string& resource_version, Informer::Progress how) {
  const auto version = number(resource_version);
  std::vector<Staged> staged = std::exchange(staged_, {});
  for (Staged& one : staged) {
    if (!one.change.now) one.version = version.value_or(0);
  }
  std::stable_sort(staged.begin(), staged.end(),
                   [](const Staged& a, const Staged& b) { return a.version < b.version; });
  if (!version)
    log::error("the API server's versions are not numbers; watches cannot be served",
               {{"version", resource_version}});
  MutexLock lock(mutex_);
  const bool listed = how == Informer::Progress::kListed;
  if (listed) {
    // Objects that came and went between the lists are unknown here. A client may know them from
    // another server.
    floor_version_ = version.value_or(0);
    complete_ = version.has_value();
  }
  version_ = version.value_or(version_);
  for (const Staged& one : staged) apply(one);
  for (const std::string& node : touched_) {
    const auto found = nodes_.find(node);
    if (found == nodes_.end()) continue;
    for (Watcher* watcher : found->second.watchers) watcher->notify();
    if (found->second.empty()) nodes_.erase(found);
  }
  return std::exchange(touched_, {});
}

void View::apply(const Staged& staged) {
  const auto& [key, old, now] = staged.change;
  const std::string before = old ? options_.node_of(*old) : std::string();
  const std::string after = now ? options_.node_of(*now) : std::string();
  if (!before.empty() && before != after) bury(before, *old, staged.version);
  // A recreated object is sent as a change; the uid shows the difference.
  if (!after.empty()) put(after, now, staged.version);
}

void View::put(const std::string& node, const StoredPtr& object, std::uint64_t version) {
  ++sequence_;
  Node& of_node = nodes_[node];
  const meta::ObjectKey key = object->metadata.key();
  const auto at = std::lower_bound(
      of_node.items.begin(), of_node.items.end(), key,
      [](const Item& item, const meta::ObjectKey& k) { return item.object->metadata.key() < k; });
  if (at != of_node.items.end() && at->object->metadata.key() == key) {
    at->object = object;
    at->version = version;
    at->sequence = sequence_;
  } else {
    of_node.items.insert(at, Item{object, version, sequence_, version, sequence_});
  }
  touched_.insert(node);
}

void View::bury(const std::string& node, const Stored& object, std::uint64_t version) {
  const auto found = nodes_.find(node);
  if (found == nodes_.end()) return;
  const meta::ObjectKey key = object.metadata.key();
  if (std::erase_if(found->second.items,
                    [&](const Item& item) { return item.object->metadata.key() == key; }) == 0)
    return;
  ++sequence_;
  found->second.tombstones.push_back({deletion(object, node, version), version, sequence_});
  graves_.push_back(node);
  touched_.insert(node);
  while (graves_.size() > options_.tombstones_max) {
    const std::string oldest = std::move(graves_.front());
    graves_.pop_front();
    Node& oldest_node = nodes_[oldest];
    floor_version_ = std::max(floor_version_, oldest_node.tombstones.front().version);
    floor_sequence_ = std::max(floor_sequence_, oldest_node.tombstones.front().sequence);
    oldest_node.tombstones.erase(oldest_node.tombstones.begin());
    if (oldest_node.empty()) touched_.insert(oldest);
  }
}

std::optional<View::Listing> View::list(const std::string& node) const {
  MutexLock lock(mutex_);
  if (!complete_) return std::nullopt;
  Listing out;
  out.resource_version = std::to_string(version_);
  if (const auto found = nodes_.find(node); found != nodes_.end()) {
    for (const Item& item : found->second.items) out.items.push_back(item.object);
  }
  return out;
}

StoredPtr View::get(const std::string& node, const meta::ObjectKey& key) const {
  MutexLock lock(mutex_);
  const auto found = nodes_.find(node);
  if (found == nodes_.end()) return nullptr;
  for (const Item& item : found->second.items) {
    if (item.object->metadata.key() == key) return item.object;
  }
  return nullptr;
}

bool View::complete() const {
  MutexLock lock(mutex_);
  return complete_;
}

std::uint64_t View::version() const {
  MutexLock lock(mutex_);
  return version_;
}

std::size_t View::nodes() const {
  MutexLock lock(mutex_);
  return nodes_.size();
}

Result<View::Cursor> View::begin(const std::string& node, std::string_view resource_version) const {
  Cursor cursor{.node = node};
  MutexLock lock(mutex_);
  if (!complete_)
    return Error(Code::kUnavailable, "the gateway has not read the API server's objects yet");
  if (resource_version.empty() || resource_version == "0") return cursor;
  const auto version = number(resource_version);
  if (!version)
    return Error(Code::kInvalid, "resourceVersion \"" +
                                     std::string(resource_version.substr(0, 40)) +
                                     "\": must be an integer");
  const auto expired = [&, newest = version_](const char* why) {
    return Error(Code::kGone, "resourceVersion " + std::string(resource_version) + " " + why +
                                  " (" + std::to_string(newest) + ")");
  };
  if (*version > version_) return expired("is newer than the gateway's copy");
  if (*version < floor_version_) {
    const auto found = nodes_.find(node);
    const bool present = found != nodes_.end() && !found->second.items.empty();
    if (!options_.one_each || !present) return expired("is too old");
  }
  cursor.version = *version;
  return cursor;
}

Result<std::string> View::read(Cursor& cursor) const {
  MutexLock lock(mutex_);
  std::string out;
  if (const auto found = nodes_.find(cursor.node); found != nodes_.end()) {
    TRY(out, changes_since(found->second, cursor));
  }
  cursor.sequence = sequence_;
  cursor.version = version_;
  cursor.first = false;
  return out;
}

Result<std::string> View::changes_since(const Node& node, const Cursor& cursor) const {
  // The first read compares versions. Later reads compare the view's own count, which has no gaps
  // and no ties.
  if (!cursor.first && cursor.sequence < floor_sequence_)
    return Error(Code::kGone, "the watch is too far behind");
  struct Piece {
    std::uint64_t sequence;
    std::string text;
  };
  std::vector<Piece> pieces;
  for (const Item& item : node.items) {
    if (cursor.first ? item.version <= cursor.version : item.sequence <= cursor.sequence) continue;
    const bool entered = cursor.first ? item.entered_version > cursor.version
                                      : item.entered_sequence > cursor.sequence;
    pieces.push_back({cursor.first ? item.version : item.sequence,
                      line(entered ? "ADDED" : "MODIFIED", item.object->text)});
  }
  for (const Tombstone& tombstone : node.tombstones) {
    const bool all =
        cursor.first && cursor.version == 0;  // a watch of present objects needs no deletions
    if (all || (cursor.first ? tombstone.version <= cursor.version
                             : tombstone.sequence <= cursor.sequence))
      continue;
    pieces.push_back({cursor.first ? tombstone.version : tombstone.sequence, tombstone.line});
  }
  std::stable_sort(pieces.begin(), pieces.end(),
                   [](const Piece& a, const Piece& b) { return a.sequence < b.sequence; });
  std::string out;
  for (Piece& piece : pieces) out += piece.text;
  return out;
}

void View::add(const std::string& node, Watcher& watcher) {
  MutexLock lock(mutex_);
  nodes_[node].watchers.push_back(&watcher);
}

void View::wake(const std::string& node) {
  MutexLock lock(mutex_);
  const auto found = nodes_.find(node);
  if (found == nodes_.end()) return;
  for (Watcher* watcher : found->second.watchers) watcher->notify();
}

void View::remove(const std::string& node, Watcher& watcher) {
  MutexLock lock(mutex_);
  const auto found = nodes_.find(node);
  if (found == nodes_.end()) return;
  std::erase(found->second.watchers, &watcher);
  if (found->second.empty()) nodes_.erase(found);
}

}  // namespace varda::gateway
