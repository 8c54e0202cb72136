// Finds members of one object quickly, whatever their number. Json searches members linearly, which
// is best for objects that people write. Code that walks two large objects side by side (patches,
// comparisons) would take quadratic time.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "codec/json.h"

namespace varda::meta {

using codec::Json;

/// Reads members. The object outlives it and must not change meanwhile.
class MemberIndex {
 public:
  explicit MemberIndex(const Json& object) : members_(object.as_object()) {}
  /// Null: no such member.
  const Json* find(std::string_view name);
  bool contains(std::string_view name) { return find(name) != nullptr; }

 private:
  const Json::Object& members_;
  std::unordered_map<std::string_view, std::size_t> places_;  // empty until the index pays off
};

/// Changes members. The object outlives it, and no other code may change it meanwhile. Removed
/// members disappear when the editor ends.
class MemberEditor {
 public:
  explicit MemberEditor(Json& object) : members_(object.object_members()) {}
  ~MemberEditor();
  MemberEditor(const MemberEditor&) = delete;
  MemberEditor& operator=(const MemberEditor&) = delete;

  /// Null: no such member. Valid until the next set().
  Json* find(std::string_view name);
  void set(std::string_view name, Json value);
  void remove(std::string_view name);

 private:
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  std::size_t place_of(std::string_view name);

  Json::Object& members_;
  std::unordered_map<std::string, std::size_t> places_;
  bool indexed_ = false;
  std::vector<bool> removed_;  // by place; places beyond the end: not removed
};

}  // namespace varda::meta
