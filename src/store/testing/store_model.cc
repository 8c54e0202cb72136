#include "store/testing/store_model.h"

#include <algorithm>
#include <set>

namespace varda::store::testing {
namespace {

std::string text(const std::shared_ptr<const std::string>& value) {
  if (value == nullptr) return "none";
  return std::to_string(value->size()) + " bytes \"" + value->substr(0, 12) + "\"";
}

std::string text(const Entry& entry) {
  return entry.key + " created " + std::to_string(entry.created) + " modified " +
         std::to_string(entry.modified) + " value " + text(entry.value);
}

std::string text(const Event& event) {
  return (event.type == EventType::kPut ? "put " : "delete ") + text(event.entry) + " previous " +
         text(event.previous) + " of " + std::to_string(event.previous_modified);
}

bool same(const std::shared_ptr<const std::string>& a,
          const std::shared_ptr<const std::string>& b) {
  return a == nullptr || b == nullptr ? a == b : *a == *b;
}

bool same(const Entry& a, const Entry& b) {
  return a.key == b.key && a.created == b.created && a.modified == b.modified &&
         same(a.value, b.value);
}

bool same(const Event& a, const Event& b) {
  return a.type == b.type && same(a.entry, b.entry) && same(a.previous, b.previous) &&
         a.previous_modified == b.previous_modified;
}

template <typename Item>
std::string compare(const std::vector<Item>& wanted, const std::vector<Item>& found,
                    const std::string& what) {
  for (std::size_t i = 0; i < std::max(wanted.size(), found.size()); ++i) {
    if (i < wanted.size() && i < found.size() && same(wanted[i], found[i])) continue;
    return what + ": item " + std::to_string(i) + " is " +
           (i < found.size() ? text(found[i]) : "missing") + ", wanted " +
           (i < wanted.size() ? text(wanted[i]) : "nothing");
  }
  return "";
}

const std::string& key_of(const Op& op) {
  return std::visit([](const auto& some) -> const std::string& { return some.key; }, op);
}

}  // namespace

Result<StoreModel::Events> StoreModel::plan(const std::vector<Op>& ops) const {
  Events events;
  const Revision next = revision() + 1;
  for (const Op& op : ops) {
    const auto old = entries_.find(key_of(op));
    const bool exists = old != entries_.end();
    const auto expected = std::visit([](const auto& some) { return some.expected; }, op);
    if (expected && *expected != (exists ? old->second.modified : 0))
      return Error(Code::kConflict, key_of(op));
    Event event;
    if (const Put* put = std::get_if<Put>(&op)) {
      event.entry = {.key = put->key,
                     .value = std::make_shared<const Value>(put->value),
                     .created = exists ? old->second.created : next,
                     .modified = next};
    } else {
      if (!exists) continue;
      event.type = EventType::kDelete;
      event.entry = old->second;
      event.entry.modified = next;
    }
    if (exists) {
      event.previous = old->second.value;
      event.previous_modified = old->second.modified;
    }
    events.push_back(std::move(event));
  }
  return events;
}

void StoreModel::apply(const Events& events) {
  if (events.empty()) return;
  for (const Event& event : events) {
    if (event.type == EventType::kPut) {
      entries_[event.entry.key] = event.entry;
    } else {
      entries_.erase(event.entry.key);
    }
  }
  history_.push_back(events);
}

Revision StoreModel::trimmed(std::size_t history_events_max) const {
  std::size_t events = 0;
  for (std::size_t revision = history_.size(); revision > 0; --revision) {
    events += history_[revision - 1].size();
    if (events > history_events_max) return static_cast<Revision>(revision);
  }
  return 0;
}

std::string StoreModel::difference(Store& store, Revision oldest_min, Revision oldest_max,
                                   Rng& rng) const {
  if (store.revision() != revision())
    return "revision " + std::to_string(store.revision()) + ", wanted " +
           std::to_string(revision());
  const Revision oldest = store.oldest();
  if (oldest < oldest_min || oldest > oldest_max)
    return "oldest revision " + std::to_string(oldest) + ", wanted " + std::to_string(oldest_min) +
           " to " + std::to_string(oldest_max);

  std::vector<Entry> wanted;
  for (const auto& [key, entry] : entries_) wanted.push_back(entry);
  const auto all = store.list({});
  if (!all.ok()) return "list: " + all.error().message();
  if (std::string wrong = compare(wanted, all->entries, "list"); !wrong.empty()) return wrong;

  const auto events_after = [&](Revision after, const std::string& prefix) {
    Events events;
    for (auto revision = static_cast<std::size_t>(after); revision < history_.size(); ++revision)
      for (const Event& event : history_[revision])
        if (event.entry.key.starts_with(prefix)) events.push_back(event);
    return events;
  };
  const Revision past =
      oldest +
      static_cast<Revision>(rng.below(static_cast<std::uint64_t>(revision() - oldest) + 1));
  using From = std::pair<Revision, std::string>;
  for (const auto& [after, prefix] : {From(oldest, ""), From(past, "/a/")}) {
    const auto watch = store.watch(prefix, after);
    if (!watch.ok()) return "watch from " + std::to_string(after) + ": " + watch.error().message();
    const auto found = (*watch)->poll(1'000'000);
    if (!found.ok()) return "poll: " + found.error().message();
    if (std::string wrong = compare(events_after(after, prefix), *found,
                                    "watch of '" + prefix + "' from " + std::to_string(after));
        !wrong.empty())
      return wrong;
  }
  if (past > 0) {
    StoreModel then;
    for (std::size_t i = 0; i < static_cast<std::size_t>(past); ++i) then.apply(history_[i]);
    std::vector<Entry> were;
    for (const auto& [key, entry] : then.entries_) were.push_back(entry);
    const auto page = store.list({.prefix = "", .start_after = "", .limit = 0, .at = past});
    if (!page.ok()) return "list at " + std::to_string(past) + ": " + page.error().message();
    if (std::string wrong = compare(were, page->entries, "list at " + std::to_string(past));
        !wrong.empty())
      return wrong;
  }
  if (oldest > 0) {
    const auto watch = store.watch("", oldest - 1);
    if (watch.ok() || watch.error().code() != Code::kGone)
      return "a watch from before " + std::to_string(oldest) + " is not told kGone";
  }
  return "";
}

std::vector<Op> draw_transaction(const StoreModel& model, Rng& rng) {
  static constexpr std::size_t kSizes[] = {0, 1, 40, 40, 300, 300, 900, 2500, 6000};
  std::vector<Op> ops;
  std::set<std::string> keys;
  const std::uint64_t count = rng.below(3) > 0 ? 1 : 1 + rng.below(4);
  while (ops.size() < count) {
    const std::uint64_t number = rng.below(12);
    const std::string key = (number % 2 == 0 ? "/a/k" : "/b/k") + std::to_string(number);
    if (!keys.insert(key).second) continue;
    const auto old = model.entries().find(key);
    const Revision modified = old == model.entries().end() ? 0 : old->second.modified;
    std::optional<Revision> expected;
    if (rng.below(2) == 0) expected = modified;
    if (rng.below(25) == 0) expected = modified + 1;
    if (modified != 0 && rng.below(3) == 0) {
      ops.emplace_back(Delete{.key = key, .expected = expected});
    } else {
      const std::size_t size = kSizes[rng.below(std::size(kSizes))];
      std::string value = std::to_string(model.revision() + 1) + ".";
      value.resize(size, static_cast<char>('a' + rng.below(26)));
      ops.emplace_back(Put{.key = key, .value = std::move(value), .expected = expected});
    }
  }
  return ops;
}

}  // namespace varda::store::testing
