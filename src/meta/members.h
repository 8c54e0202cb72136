// Members of one object, found fast however many there are. Json looks through its members one by one, which is best for the
// objects people write; what walks two large ones side by side (patches, comparisons) would take the square of their size.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "codec/json.h"

namespace varda::meta {

using codec::Json;

/// Reads. The object outlives it and does not change meanwhile.
class MemberIndex {
 public:
  explicit MemberIndex(const Json& object) : members_(object.as_object()) {}
  /// Null: there is none.
  const Json* find(std::string_view name);
  bool contains(std::string_view name) { return find(name) != nullptr; }

 private:
  const Json::Object& members_;
  std::unordered_map<std::string_view, std::size_t> places_;  // empty until it is worth it
};

/// Changes. The object outlives it, and nothing else changes it meanwhile; what is removed is gone when this ends.
class MemberEditor {
 public:
  explicit MemberEditor(Json& object) : members_(object.object_members()) {}
  ~MemberEditor();
  MemberEditor(const MemberEditor&) = delete;
  MemberEditor& operator=(const MemberEditor&) = delete;

  /// Null: there is none. Valid until the next set().
  Json* find(std::string_view name);
  void set(std::string_view name, Json value);
  void remove(std::string_view name);

 private:
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  std::size_t place_of(std::string_view name);

  Json::Object& members_;
  std::unordered_map<std::string, std::size_t> places_;
  bool indexed_ = false;
  std::vector<bool> removed_;  // by place; shorter: not removed
};

}  // namespace varda::meta
