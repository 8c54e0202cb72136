#include "meta/members.h"

#include <algorithm>

namespace varda::meta {

namespace {

// Up to this size a linear search is as fast.
constexpr std::size_t kLinear = 16;

}  // namespace

const Json* MemberIndex::find(std::string_view name) {
  if (members_.size() <= kLinear) {
    for (const Json::Member& member : members_) {
      if (member.first == name) return &member.second;
    }
    return nullptr;
  }
  if (places_.empty()) {
    places_.reserve(members_.size());
    for (std::size_t i = 0; i < members_.size(); ++i) places_.emplace(members_[i].first, i);
  }
  const auto found = places_.find(name);
  return found == places_.end() ? nullptr : &members_[found->second].second;
}

MemberEditor::~MemberEditor() {
  if (removed_.empty()) return;
  std::size_t place = 0;
  std::erase_if(members_, [&](const Json::Member&) {
    const std::size_t at = place++;
    return at < removed_.size() && removed_[at];
  });
}

std::size_t MemberEditor::place_of(std::string_view name) {
  if (!indexed_ && members_.size() <= kLinear) {
    for (std::size_t i = 0; i < members_.size(); ++i) {
      if (members_[i].first == name && !(i < removed_.size() && removed_[i])) return i;
    }
    return kNone;
  }
  if (!indexed_) {
    indexed_ = true;
    places_.reserve(members_.size());
    for (std::size_t i = 0; i < members_.size(); ++i) {
      if (!(i < removed_.size() && removed_[i])) places_.emplace(members_[i].first, i);
    }
  }
  const auto found = places_.find(std::string(name));
  return found == places_.end() ? kNone : found->second;
}

Json* MemberEditor::find(std::string_view name) {
  const std::size_t place = place_of(name);
  return place == kNone ? nullptr : &members_[place].second;
}

void MemberEditor::set(std::string_view name, Json value) {
  const std::size_t place = place_of(name);
  if (place != kNone) {
    members_[place].second = std::move(value);
    return;
  }
  if (indexed_) places_.emplace(name, members_.size());
  members_.emplace_back(std::string(name), std::move(value));
}

void MemberEditor::remove(std::string_view name) {
  const std::size_t place = place_of(name);
  if (place == kNone) return;
  if (removed_.size() <= place) removed_.resize(place + 1);
  removed_[place] = true;
  if (indexed_) places_.erase(std::string(name));
}

}  // namespace varda::meta
