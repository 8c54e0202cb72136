#include "net/pair_slots.h"

#include <algorithm>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/mutex.h"

namespace varda::net {

struct PairSlots::State {
  Mutex mutex;
  Splicer* splicer GUARDED_BY(mutex) = nullptr;  // null: the PairSlots is gone
  std::size_t all GUARDED_BY(mutex) = 0;
  std::unordered_map<std::string, std::vector<SlotImpl*>> groups GUARDED_BY(mutex);
};

class PairSlots::SlotImpl final : public Slot {
 public:
  SlotImpl(std::shared_ptr<State> state, std::string group, std::string grant)
      : grant_(std::move(grant)), state_(std::move(state)), group_(std::move(group)) {}
  ~SlotImpl() override {
    const MutexLock lock(state_->mutex);
    const auto found = state_->groups.find(group_);
    std::erase(found->second, this);
    if (found->second.empty()) state_->groups.erase(found);
    --state_->all;
  }
  void attach(std::uint64_t pair) override {
    if (pair == 0) return;
    const MutexLock lock(state_->mutex);
    pair_ = pair;
    if (revoked_ && state_->splicer != nullptr) state_->splicer->close(pair);
  }
  bool revoked() const override {
    const MutexLock lock(state_->mutex);
    return revoked_;
  }
  /// Requires the state's lock, which only posts to the splicer.
  void revoke(Splicer& splicer) {
    revoked_ = true;
    if (pair_ != 0) splicer.close(pair_);
  }
  const std::string& grant() const { return grant_; }
  bool is_revoked() const { return revoked_; }

 private:
  const std::string grant_;
  const std::shared_ptr<State> state_;
  const std::string group_;
  std::uint64_t pair_ = 0;  // both under the state's lock
  bool revoked_ = false;
};

PairSlots::PairSlots(Splicer& splicer, Limits limits)
    : limits_(limits), state_(std::make_shared<State>()) {
  const MutexLock lock(state_->mutex);
  state_->splicer = &splicer;
}

PairSlots::~PairSlots() {
  const MutexLock lock(state_->mutex);
  state_->splicer = nullptr;
}

std::shared_ptr<PairSlots::Slot> PairSlots::reserve(const std::string& group,
                                                    const std::string& grant) {
  auto slot = std::make_unique<SlotImpl>(state_, group, grant);
  {
    const MutexLock lock(state_->mutex);
    auto& slots = state_->groups[group];
    if (state_->all < limits_.all && slots.size() < limits_.per_group) {
      slots.push_back(slot.get());
      ++state_->all;
      return slot;
    }
    // The destructor of the refused slot subtracts it.
    slots.push_back(slot.get());
    ++state_->all;
  }
  return nullptr;
}

std::size_t PairSlots::keep_only(const std::string& group, const std::set<std::string>& grants) {
  const MutexLock lock(state_->mutex);
  const auto found = state_->groups.find(group);
  if (found == state_->groups.end()) return 0;
  std::size_t count = 0;
  for (SlotImpl* slot : found->second) {
    if (slot->is_revoked() || grants.contains(slot->grant())) continue;
    slot->revoke(*state_->splicer);
    ++count;
  }
  return count;
}

bool PairSlots::has(const std::string& group) const {
  const MutexLock lock(state_->mutex);
  return state_->groups.contains(group);
}

std::size_t PairSlots::size() const {
  const MutexLock lock(state_->mutex);
  return state_->all;
}

}  // namespace varda::net
