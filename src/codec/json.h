// Json: a JSON value as a tree, with the parser and the writer.
//
// Integers stay integers: 1 and 1.0 differ, as in the Kubernetes API. Objects keep insertion order;
// equality ignores it. Names are unique: the last duplicate wins, as in Go's decoder.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.h"

namespace varda::codec {

class Json {
 public:
  using Array = std::vector<Json>;
  using Member = std::pair<std::string, Json>;
  using Object = std::vector<Member>;  // unique names, ensured by the member functions below

  enum class Type { kNull, kBool, kInteger, kNumber, kString, kArray, kObject };

  Json() = default;
  Json(std::nullptr_t) {}                                       // NOLINT: conversions are the point
  Json(bool value) : value_(value) {}                           // NOLINT
  Json(std::int64_t value) : value_(value) {}                   // NOLINT
  Json(int value) : value_(std::int64_t{value}) {}              // NOLINT
  Json(unsigned value) : value_(std::int64_t{value}) {}         // NOLINT
  Json(std::uint64_t value);                                    // a double above the int64 range
  Json(double value) : value_(value) {}                         // NOLINT
  Json(const char* value) : value_(std::string(value)) {}       // NOLINT
  Json(std::string_view value) : value_(std::string(value)) {}  // NOLINT
  Json(std::string value) : value_(std::move(value)) {}         // NOLINT
  Json(Array value) : value_(std::move(value)) {}               // NOLINT
  /// Json::object({{"name", "a"}, {"port", 80}})
  static Json object(std::initializer_list<Member> members = {});
  static Json array(std::initializer_list<Json> items = {}) { return Json(Array(items)); }

  Type type() const { return static_cast<Type>(value_.index()); }
  bool is_null() const { return type() == Type::kNull; }
  bool is_bool() const { return type() == Type::kBool; }
  bool is_integer() const { return type() == Type::kInteger; }
  bool is_number() const { return type() == Type::kNumber || is_integer(); }
  bool is_string() const { return type() == Type::kString; }
  bool is_array() const { return type() == Type::kArray; }
  bool is_object() const { return type() == Type::kObject; }

  // The value if the type fits, else the fallback. Never fails.
  bool as_bool(bool otherwise = false) const;
  std::int64_t as_integer(std::int64_t otherwise = 0) const;  // also whole doubles in range
  double as_double(double otherwise = 0) const;               // also integers
  const std::string& as_string() const&;                      // "" otherwise
  std::string as_string() &&;
  std::string string_or(std::string_view otherwise) const;
  const Array& as_array() const&;    // empty otherwise
  const Object& as_object() const&;  // empty otherwise
  // Temporaries return copies, so that `for (x : reply().body["items"].as_array())` is safe.
  Array as_array() &&;
  Object as_object() &&;

  // Arrays. CHECK that the value is an array; a null becomes an empty array.
  Array& array_items();
  void push_back(Json item) { array_items().push_back(std::move(item)); }

  // Objects. Reading from other types finds nothing. Writing CHECKs for an object; a null becomes
  // one.
  const Json* find(std::string_view name) const;
  Json* find(std::string_view name);
  bool contains(std::string_view name) const { return find(name) != nullptr; }
  /// The member, or null if missing.
  const Json& operator[](std::string_view name) const&;
  const Json& operator[](const char* name) const& { return (*this)[std::string_view(name)]; }
  Json operator[](std::string_view name) &&;
  Json operator[](const char* name) && { return std::move(*this)[std::string_view(name)]; }
  /// The member; created as null if missing.
  Json& operator[](std::string_view name) &;
  Json& operator[](const char* name) & { return (*this)[std::string_view(name)]; }
  void set(std::string_view name, Json value) { (*this)[name] = std::move(value); }
  bool erase(std::string_view name);
  Object& object_members();

  /// at("spec/template/metadata/labels"): the value at a path, with numbers as array indexes; null
  /// if missing. Names with '/' are unreachable.
  const Json& at(std::string_view path) const&;
  Json at(std::string_view path) &&;
  /// The same, creating missing objects.
  Json& make(std::string_view path);

  std::size_t size() const;  // items or members; 0 for scalars
  bool empty() const { return size() == 0; }

  friend bool operator==(const Json& a, const Json& b);

 private:
  std::variant<std::monostate, bool, std::int64_t, double, std::string, Array, Object> value_;
};

struct ParseOptions {
  std::size_t depth_max = 200;
  std::size_t nodes_max = std::numeric_limits<std::size_t>::max();  // values of all kinds; each
                                                                    // takes some 40 bytes or more
  std::vector<std::string>* duplicates = nullptr;  // if set, gets the paths of duplicate names
                                                   // ("spec.replicas"), limited by reported_paths.h
};

/// Parses one JSON value (RFC 8259, UTF-8) that fills the text. kInvalid: "offset N: what".
Result<Json> parse_json(std::string_view text, const ParseOptions& options = {});

/// Compact; never fails. NaN and infinities become null, because JSON lacks them. A Json cannot
/// hold lone surrogates.
std::string write_json(const Json& value);
void write_json(const Json& value, std::string& out);
/// Indented by `indent` spaces per level.
std::string write_json_pretty(const Json& value, int indent = 2);

/// The value with the members of every object in byte order of their names. Equal values give equal
/// texts, for digests and for output like Go's.
Json sorted(const Json& value);
/// The name in JSON schemas: "null", "boolean", "integer", "number", "string", "array", "object".
std::string_view type_name(Json::Type type);

}  // namespace varda::codec
