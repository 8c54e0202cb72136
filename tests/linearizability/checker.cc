// The check against the order of revisions.
#include "checker.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>

namespace varda::linearizability {
namespace {

using Kind = Operation::Kind;
using Outcome = Operation::Outcome;
using Type = Event::Type;

std::string text(const Object& object) {
  return object.key + "@" + std::to_string(object.revision);
}
std::string name_of(Type type) {
  return type == Type::kAdded      ? "ADDED"
         : type == Type::kModified ? "MODIFIED"
         : type == Type::kDeleted  ? "DELETED"
                                   : "BOOKMARK";
}

/// The state of an object from one revision on.
struct Version {
  Revision from = 0;
  bool exists = false;
  Object object;
};

class RevisionCheck {
 public:
  explicit RevisionCheck(const History& history) : history_(history) {}

  std::vector<std::string> run() {
    read_log();
    match_writes();
    place_operations();
    for (const Watch& watch : history_.watches) check_watch(watch);
    return std::move(problems_);
  }

 private:
  void complain(std::string what) { problems_.push_back(std::move(what)); }

  /// The log must be consistent by itself: growing revisions, and types that match the previous
  /// state.
  void read_log() {
    Revision last = history_.begin;
    std::set<std::string> uids;
    for (const Event& event : history_.log) {
      if (event.type == Type::kBookmark) continue;
      const Object& object = event.object;
      if (object.revision <= last)
        complain("log: " + text(object) + " comes after revision " + std::to_string(last));
      last = std::max(last, object.revision);
      auto& versions = versions_[object.key];
      const Version* before =
          versions.empty() || !versions.back().exists ? nullptr : &versions.back();
      const Type expected = event.type == Type::kDeleted ? Type::kDeleted
                            : before                     ? Type::kModified
                                                         : Type::kAdded;
      if (event.type != expected || (event.type == Type::kDeleted && !before))
        complain("log: " + name_of(event.type) + " of " + text(object) + " does not fit");
      if (before && before->object.uid != object.uid)
        complain("log: " + text(object) + " changed its uid");
      if (!before && !uids.insert(object.uid).second)
        complain("log: " + text(object) + " has the uid of an earlier object");
      versions.push_back(
          {.from = object.revision, .exists = event.type != Type::kDeleted, .object = object});
      if (!events_.emplace(object.revision, &event).second)
        complain("log: two events at revision " + std::to_string(object.revision));
    }
  }

  const Event* deletion_of(const std::string& key, const std::string& uid) const {
    for (const Event& event : history_.log) {
      if (event.type == Type::kDeleted && event.object.key == key && event.object.uid == uid)
        return &event;
    }
    return nullptr;
  }

  /// Every acknowledged write matches one event, and every event one write.
  void match_writes() {
    std::set<const Event*> claimed;
    for (const Operation& op : history_.operations) {
      if (op.outcome != Outcome::kOk || op.kind == Kind::kGet || op.kind == Kind::kList) continue;
      const Event* event = nullptr;
      if (op.kind == Kind::kDelete) {
        event = deletion_of(op.key, op.object.uid);
      } else if (const auto found = events_.find(op.object.revision); found != events_.end()) {
        event = found->second;
      }
      if (!event) {
        complain("lost: the write of " + text(op.object) + " to " + op.key +
                 " was acknowledged and is not in the log");
        continue;
      }
      const Type type = op.kind == Kind::kCreate   ? Type::kAdded
                        : op.kind == Kind::kDelete ? Type::kDeleted
                                                   : Type::kModified;
      if (event->type != type || event->object.key != op.key)
        complain("log: revision " + std::to_string(event->object.revision) + " is " +
                 name_of(event->type) + " of " + event->object.key +
                 ", not what was acknowledged for " + op.key);
      if (type != Type::kDeleted && event->object != op.object)
        complain("log: " + text(op.object) + " is not what its writer was told");
      if (!claimed.insert(event).second)
        complain("two writes were acknowledged with revision " +
                 std::to_string(event->object.revision));
      if (event->received < op.invoked)
        complain("log: " + text(event->object) + " was seen before anybody wrote it");
      revision_of_[&op] = event->object.revision;
    }
    for (const Event& event : history_.log) {
      if (event.type != Type::kBookmark && !claimed.contains(&event))
        complain("phantom: nobody wrote " + text(event.object));
    }
  }

  /// The first revision from `least` on that explains the answer of `op`; nothing: no such
  /// revision.
  std::optional<Revision> earliest(const Operation& op, Revision least) const {
    if (const auto write = revision_of_.find(&op); write != revision_of_.end()) {
      // Not the same revision: it belongs to another write, or was seen before this one began.
      return write->second > least ? std::optional(write->second) : std::nullopt;
    }
    const auto found = versions_.find(op.key);
    static const std::vector<Version> kNone;
    const std::vector<Version>& versions = found == versions_.end() ? kNone : found->second;
    // Before the first version, the object does not exist.
    Revision from = history_.begin;
    for (std::size_t i = 0; i <= versions.size(); ++i) {
      const bool exists = i > 0 && versions[i - 1].exists;
      if (i > 0) from = versions[i - 1].from;
      const Revision until = i < versions.size() ? versions[i].from : INT64_MAX;  // exclusive
      const Revision point = std::max(from, least);
      if (point >= until) continue;
      if (op.outcome == Outcome::kNotFound ? !exists
                                           : exists && versions[i - 1].object == op.object)
        return point;
    }
    return std::nullopt;
  }

  std::vector<Object> state_at(Revision revision, const std::string& ns) const {
    std::vector<Object> out;
    for (const auto& [key, versions] : versions_) {
      if (!ns.empty() && !key.starts_with(ns + "/")) continue;
      const auto next = std::find_if(versions.begin(), versions.end(),
                                     [&](const Version& v) { return v.from > revision; });
      if (next != versions.begin() && std::prev(next)->exists)
        out.push_back(std::prev(next)->object);
    }
    return out;
  }

  /// Assigns the earliest possible revision to every operation. Later operations in real time must
  /// not come before it, so the earliest is best.
  void place_operations() {
    std::vector<const Operation*> by_begin, by_end;
    for (const Operation& op : history_.operations) {
      const bool write = op.kind != Kind::kGet && op.kind != Kind::kList;
      if (write && op.outcome != Outcome::kOk) continue;  // check_keys() covers rejected writes
      by_begin.push_back(&op);
    }
    by_end = by_begin;
    std::sort(by_begin.begin(), by_begin.end(),
              [](const auto* a, const auto* b) { return a->invoked < b->invoked; });
    std::sort(by_end.begin(), by_end.end(),
              [](const auto* a, const auto* b) { return a->returned < b->returned; });
    std::map<const Operation*, Revision> points;
    Revision least = history_.begin;  // lower bound for operations that begin now
    auto ended = by_end.begin();
    for (const Operation* op : by_begin) {
      for (; ended != by_end.end() && (*ended)->returned < op->invoked; ++ended)
        least = std::max(least, points[*ended]);
      points[op] = least;
      if (op->kind == Kind::kList) {
        place_list(*op, least);
        points[op] = std::max(least, op->revision);
      } else if (const auto point = earliest(*op, least)) {
        points[op] = *point;
      } else {
        complain("client " + std::to_string(op->client) + ": the answer about " + op->key + " (" +
                 text(op->object) + ") fits to no state since revision " + std::to_string(least) +
                 ", which was there when it asked");
      }
    }
  }

  void place_list(const Operation& op, Revision least) {
    const std::string what = "client " + std::to_string(op.client) + ": the list at revision " +
                             std::to_string(op.revision);
    if (op.revision < least)
      complain(what + " is older than " + std::to_string(least) +
               ", which was there when it asked");
    std::vector<Object> items = op.items;
    std::sort(items.begin(), items.end(),
              [](const Object& a, const Object& b) { return a.key < b.key; });
    if (items != state_at(op.revision, op.key))
      complain(what + " is not the state at that revision");
  }

  /// The log as a watch must deliver it: objects that enter or leave the selection appear as added
  /// or deleted.
  std::vector<Event> expected(const Watch& watch) const {
    std::vector<Event> out;
    std::map<std::string, bool> selected;
    for (const Event& event : history_.log) {
      if (event.type == Type::kBookmark) continue;
      const Object& object = event.object;
      if (!watch.ns.empty() && !object.key.starts_with(watch.ns + "/")) continue;
      const auto phase = object.fields.find("phase");
      const bool matches =
          watch.phase.empty() || (phase != object.fields.end() && phase->second == watch.phase);
      bool& before = selected[object.key];
      const bool after = matches && event.type != Type::kDeleted;
      if (object.revision > watch.after && (before || after))
        out.push_back({.type = !after   ? Type::kDeleted
                               : before ? Type::kModified
                                        : Type::kAdded,
                       .object = object,
                       .received = 0});
      before = after;
    }
    return out;
  }

  void check_watch(const Watch& watch) {
    const std::vector<Event> wanted = expected(watch);
    const std::string what = "watch after " + std::to_string(watch.after) +
                             (watch.phase.empty() ? "" : " of phase " + watch.phase) + ": ";
    std::size_t next = 0;
    Revision last = watch.after;
    for (const Event& event : watch.events) {
      if (event.type == Type::kBookmark) {
        if (event.object.revision < last)
          complain(what + "a bookmark goes back to " + std::to_string(event.object.revision));
        if (next < wanted.size() && wanted[next].object.revision <= event.object.revision)
          complain(what + "a bookmark at " + std::to_string(event.object.revision) +
                   " passes over " + text(wanted[next].object));
        last = std::max(last, event.object.revision);
        continue;
      }
      if (next == wanted.size()) {
        complain(what + name_of(event.type) + " of " + text(event.object) + " is one too many");
        return;
      }
      const Event& want = wanted[next++];
      // An object that leaves a selection may appear in its old or new state.
      const bool same = watch.phase.empty() || event.type != Type::kDeleted
                            ? event.object == want.object
                            : event.object.key == want.object.key &&
                                  event.object.revision == want.object.revision;
      if (event.type != want.type || !same) {
        complain(what + name_of(event.type) + " of " + text(event.object) + " where " +
                 name_of(want.type) + " of " + text(want.object) + " is due");
        return;
      }
      last = event.object.revision;
    }
  }

  const History& history_;
  std::map<std::string, std::vector<Version>> versions_;
  std::map<Revision, const Event*> events_;
  std::map<const Operation*, Revision> revision_of_;
  std::vector<std::string> problems_;
};

}  // namespace

std::vector<std::string> check_revisions(const History& history) {
  return RevisionCheck(history).run();
}

std::vector<std::string> check(const History& history) {
  std::vector<std::string> out = check_revisions(history);
  for (std::string& problem : check_keys(history)) out.push_back(std::move(problem));
  return out;
}

}  // namespace varda::linearizability
