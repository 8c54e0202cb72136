#include "codec/json.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_map>

#include "base/check.h"

namespace varda::codec {
namespace {

const Json kNull;
const std::string kEmptyString;
const Json::Array kEmptyArray;
const Json::Object kEmptyObject;

std::string_view next_segment(std::string_view& path) {
  const auto slash = path.find('/');
  const std::string_view segment = path.substr(0, slash);
  path = slash == std::string_view::npos ? std::string_view() : path.substr(slash + 1);
  return segment;
}

}  // namespace

Json::Json(std::uint64_t value) {
  if (value <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
    value_ = static_cast<std::int64_t>(value);
  } else {
    value_ = static_cast<double>(value);
  }
}

Json Json::object(std::initializer_list<Member> members) {
  Json out;
  out.value_ = Object();
  for (const Member& member : members) out.set(member.first, member.second);
  return out;
}

bool Json::as_bool(bool otherwise) const {
  const bool* value = std::get_if<bool>(&value_);
  return value ? *value : otherwise;
}

std::int64_t Json::as_integer(std::int64_t otherwise) const {
  if (const auto* value = std::get_if<std::int64_t>(&value_)) return *value;
  // 2^63 is exact as a double, and the first value out of range.
  if (const auto* value = std::get_if<double>(&value_);
      value && std::trunc(*value) == *value && std::fabs(*value) < 0x1p63) {
    return static_cast<std::int64_t>(*value);
  }
  return otherwise;
}

double Json::as_double(double otherwise) const {
  if (const auto* value = std::get_if<double>(&value_)) return *value;
  if (const auto* value = std::get_if<std::int64_t>(&value_)) return static_cast<double>(*value);
  return otherwise;
}

const std::string& Json::as_string() const& {
  const auto* value = std::get_if<std::string>(&value_);
  return value ? *value : kEmptyString;
}

std::string Json::string_or(std::string_view otherwise) const {
  return is_string() ? as_string() : std::string(otherwise);
}

const Json::Array& Json::as_array() const& {
  const auto* value = std::get_if<Array>(&value_);
  return value ? *value : kEmptyArray;
}

const Json::Object& Json::as_object() const& {
  const auto* value = std::get_if<Object>(&value_);
  return value ? *value : kEmptyObject;
}

std::string Json::as_string() && {
  auto* value = std::get_if<std::string>(&value_);
  return value ? std::move(*value) : std::string();
}

Json::Array Json::as_array() && {
  auto* value = std::get_if<Array>(&value_);
  return value ? std::move(*value) : Array();
}

Json::Object Json::as_object() && {
  auto* value = std::get_if<Object>(&value_);
  return value ? std::move(*value) : Object();
}

Json::Array& Json::array_items() {
  if (is_null()) value_ = Array();
  CHECK(is_array());
  return std::get<Array>(value_);
}

Json::Object& Json::object_members() {
  if (is_null()) value_ = Object();
  CHECK(is_object());
  return std::get<Object>(value_);
}

const Json* Json::find(std::string_view name) const {
  for (const Member& member : as_object()) {
    if (member.first == name) return &member.second;
  }
  return nullptr;
}

Json* Json::find(std::string_view name) {
  return const_cast<Json*>(std::as_const(*this).find(name));
}

const Json& Json::operator[](std::string_view name) const& {
  const Json* member = find(name);
  return member ? *member : kNull;
}

Json Json::operator[](std::string_view name) && {
  Json* member = find(name);
  return member ? std::move(*member) : Json();
}

Json& Json::operator[](std::string_view name) & {
  Object& members = object_members();
  for (Member& member : members) {
    if (member.first == name) return member.second;
  }
  return members.emplace_back(std::string(name), Json()).second;
}

bool Json::erase(std::string_view name) {
  auto* members = std::get_if<Object>(&value_);
  return members &&
         std::erase_if(*members, [&](const Member& member) { return member.first == name; }) > 0;
}

const Json& Json::at(std::string_view path) const& {
  const Json* node = this;
  while (!path.empty()) {
    const std::string_view segment = next_segment(path);
    if (node->is_array()) {
      const Array& items = node->as_array();
      std::size_t index = 0;
      for (const char c : segment) {
        if (c < '0' || c > '9' || index > items.size()) return kNull;
        index = index * 10 + static_cast<std::size_t>(c - '0');
      }
      if (segment.empty() || index >= items.size()) return kNull;
      node = &items[index];
    } else {
      node = node->find(segment);
      if (!node) return kNull;
    }
  }
  return *node;
}

Json Json::at(std::string_view path) && { return std::as_const(*this).at(path); }

Json& Json::make(std::string_view path) {
  Json* node = this;
  while (!path.empty()) node = &(*node)[next_segment(path)];
  return *node;
}

std::size_t Json::size() const { return is_array() ? as_array().size() : as_object().size(); }

bool operator==(const Json& a, const Json& b) {
  if (a.type() != b.type()) return false;
  if (!a.is_object()) {
    return std::visit(
        [&](const auto& value) -> bool {
          using T = std::remove_cvref_t<decltype(value)>;
          if constexpr (std::is_same_v<T, Json::Object> || std::is_same_v<T, std::monostate>) {
            return true;
          } else {
            return value == std::get<T>(b.value_);
          }
        },
        a.value_);
  }
  const Json::Object& left = a.as_object();
  const Json::Object& right = b.as_object();
  if (left.size() != right.size()) return false;
  constexpr std::size_t kLinear = 16;  // linear search is as fast up to here
  std::unordered_map<std::string_view, const Json*>
      by_name;  // index of `right`, built on demand for large objects
  const auto find = [&](const std::string& name) -> const Json* {
    if (right.size() <= kLinear) return b.find(name);
    if (by_name.empty()) {
      by_name.reserve(right.size());
      for (const Json::Member& member : right) by_name.emplace(member.first, &member.second);
    }
    const auto found = by_name.find(name);
    return found == by_name.end() ? nullptr : found->second;
  };
  for (std::size_t i = 0; i < left.size(); ++i) {
    // Trees from the same writer have the same order, so check the same index first.
    const Json* other = right[i].first == left[i].first ? &right[i].second : find(left[i].first);
    if (!other || !(left[i].second == *other)) return false;
  }
  return true;
}

Json sorted(const Json& value) {
  if (value.is_array()) {
    Json::Array items;
    items.reserve(value.size());
    for (const Json& item : value.as_array()) items.push_back(sorted(item));
    return Json(std::move(items));
  }
  if (!value.is_object()) return value;
  std::vector<const Json::Member*> members;
  for (const Json::Member& member : value.as_object()) members.push_back(&member);
  std::sort(members.begin(), members.end(),
            [](const auto* a, const auto* b) { return a->first < b->first; });
  Json out = Json::object();
  for (const Json::Member* member : members)
    out.object_members().emplace_back(member->first, sorted(member->second));
  return out;
}

std::string_view type_name(Json::Type type) {
  constexpr std::string_view kNames[] = {"null",   "boolean", "integer", "number",
                                         "string", "array",   "object"};
  return kNames[static_cast<std::size_t>(type)];
}

}  // namespace varda::codec
