// The search for an order of one object's operations.
#include <algorithm>
#include <cstddef>
#include <optional>
#include <set>
#include <utility>

#include "checker.h"

namespace varda::linearizability {
namespace {

using Kind = Operation::Kind;
using Outcome = Operation::Outcome;

/// The model: one object, existing or not.
struct State {
  bool exists = false;
  std::string uid;
  Revision revision = 0;  // of the last write or removal
  Fields fields;
  friend auto operator<=>(const State&, const State&) = default;
};

Fields merged(Fields fields, const Fields& patch) {
  for (const auto& [name, value] : patch) fields[name] = value;
  return fields;
}

/// The state after `op` with its answer; nothing: a single map could not have answered that.
std::optional<State> apply(const State& state, const Operation& op) {
  const bool locked_out = (op.revision_lock != 0 && op.revision_lock != state.revision) ||
                          (!op.uid_lock.empty() && op.uid_lock != state.uid);
  const auto written = [&](const Fields& fields) -> std::optional<State> {
    if (op.object.fields != fields || op.object.revision <= state.revision) return std::nullopt;
    return State{
        .exists = true, .uid = op.object.uid, .revision = op.object.revision, .fields = fields};
  };
  switch (op.outcome) {
    case Outcome::kNotFound:
      return state.exists || op.kind == Kind::kCreate ? std::nullopt : std::optional(state);
    case Outcome::kExists:
      return state.exists && op.kind == Kind::kCreate ? std::optional(state) : std::nullopt;
    case Outcome::kConflict:
      return state.exists && locked_out ? std::optional(state) : std::nullopt;
    case Outcome::kOk:
      break;
  }
  if (op.kind == Kind::kCreate)
    return !state.exists && op.object.uid != state.uid ? written(op.wanted) : std::nullopt;
  if (!state.exists || locked_out || op.object.uid != state.uid) return std::nullopt;
  switch (op.kind) {
    case Kind::kReplace:
      return written(op.wanted);
    case Kind::kPatch:
      return written(merged(state.fields, op.wanted));
    case Kind::kDelete:
      // Keep the uid: the next object of that name must have another one.
      return State{.exists = false, .uid = state.uid, .revision = state.revision, .fields = {}};
    default:
      return op.object.revision == state.revision && op.object.fields == state.fields
                 ? std::optional(state)
                 : std::nullopt;
  }
}

/// Operations of one object in order of invocation. Depth first: the next operation is any that
/// began before the earliest return of those not yet placed.
class Search {
 public:
  explicit Search(std::vector<const Operation*> operations) : operations_(std::move(operations)) {
    std::sort(operations_.begin(), operations_.end(),
              [](const auto* a, const auto* b) { return a->invoked < b->invoked; });
  }

  bool found() {
    struct Step {
      std::size_t next = 0;  // candidate to try after backtracking
      State state;
    };
    std::vector<bool> placed(operations_.size());
    std::vector<Step> steps(1);
    std::vector<std::size_t> order;
    while (order.size() < operations_.size()) {
      Step& step = steps.back();
      if (order.size() >= deepest_) {
        deepest_ = order.size();
        stuck_.clear();
      }
      Tick earliest_end = INT64_MAX;
      for (std::size_t i = first_open(placed);
           i < operations_.size() && operations_[i]->invoked < earliest_end; ++i) {
        if (!placed[i]) earliest_end = std::min(earliest_end, operations_[i]->returned);
      }
      bool advanced = false;
      for (std::size_t i = std::max(step.next, first_open(placed));
           i < operations_.size() && operations_[i]->invoked <= earliest_end; ++i) {
        if (placed[i]) continue;
        if (order.size() == deepest_) stuck_.push_back(operations_[i]);
        auto after = apply(step.state, *operations_[i]);
        if (!after) continue;
        placed[i] = true;
        // If the same operations in another order led to the same state, the rest was tried
        // already.
        if (!seen_.emplace(key_of(placed), *after).second) {
          placed[i] = false;
          continue;
        }
        step.next = i + 1;
        order.push_back(i);
        steps.push_back({.next = 0, .state = std::move(*after)});
        advanced = true;
        break;
      }
      if (advanced) continue;
      if (order.empty()) return false;
      placed[order.back()] = false;
      order.pop_back();
      steps.pop_back();
    }
    return true;
  }
  /// Length of the longest explained order, for diagnosis.
  std::size_t deepest() const { return deepest_; }
  /// Operations that could have come next there.
  const std::vector<const Operation*>& stuck() const { return stuck_; }

 private:
  static std::size_t first_open(const std::vector<bool>& placed) {
    return static_cast<std::size_t>(std::find(placed.begin(), placed.end(), false) -
                                    placed.begin());
  }
  /// The completely placed prefix, and the placed operations after it: short, because few
  /// operations overlap.
  static std::vector<std::size_t> key_of(const std::vector<bool>& placed) {
    std::vector<std::size_t> out{first_open(placed)};
    std::size_t left = static_cast<std::size_t>(
        std::count(placed.begin() + static_cast<std::ptrdiff_t>(out[0]), placed.end(), true));
    for (std::size_t i = out[0]; left > 0; ++i) {
      if (!placed[i]) continue;
      out.push_back(i);
      --left;
    }
    return out;
  }

  std::vector<const Operation*> operations_;
  std::set<std::pair<std::vector<std::size_t>, State>> seen_;
  std::size_t deepest_ = 0;
  std::vector<const Operation*> stuck_;
};

std::string text(const Operation& op) {
  static constexpr const char* kKinds[] = {"create", "replace", "patch", "delete", "get", "list"};
  static constexpr const char* kOutcomes[] = {"ok", "exists", "conflict", "not found"};
  std::string out = std::string(kKinds[static_cast<int>(op.kind)]) + " of client " +
                    std::to_string(op.client) + " in [" + std::to_string(op.invoked) + "," +
                    std::to_string(op.returned) + "]";
  if (op.revision_lock != 0) out += " if at " + std::to_string(op.revision_lock);
  if (!op.uid_lock.empty()) out += " if " + op.uid_lock;
  return out + ": " + kOutcomes[static_cast<int>(op.outcome)] + " " +
         std::to_string(op.object.revision) + " " + op.object.uid;
}

}  // namespace

std::vector<std::string> check_keys(const History& history) {
  std::map<std::string, std::vector<Operation>> by_key;
  std::set<std::string> keys;
  for (const Operation& op : history.operations) {
    if (op.kind != Kind::kList) keys.insert(op.key);
    for (const Object& item : op.items) keys.insert(item.key);
  }
  for (const Operation& op : history.operations) {
    if (op.kind != Kind::kList) {
      by_key[op.key].push_back(op);
      continue;
    }
    // A list is a read of every object of its namespace.
    for (const std::string& key : keys) {
      if (!op.key.empty() && !key.starts_with(op.key + "/")) continue;
      Operation read = op;
      read.kind = Kind::kGet;
      read.key = key;
      read.items.clear();
      const auto found = std::find_if(op.items.begin(), op.items.end(),
                                      [&](const Object& item) { return item.key == key; });
      read.outcome = found == op.items.end() ? Outcome::kNotFound : Outcome::kOk;
      if (found != op.items.end()) read.object = *found;
      by_key[key].push_back(std::move(read));
    }
  }
  std::vector<std::string> out;
  for (const auto& [key, operations] : by_key) {
    std::vector<const Operation*> pointers;
    for (const Operation& op : operations) pointers.push_back(&op);
    Search search(std::move(pointers));
    if (!search.found()) {
      out.push_back(key + ": no order of its " + std::to_string(operations.size()) +
                    " operations explains their answers (at most " +
                    std::to_string(search.deepest()) + " of them); stuck at:");
      for (const Operation* op : search.stuck()) out.back() += " " + text(*op) + ";";
    }
  }
  return out;
}

}  // namespace varda::linearizability
