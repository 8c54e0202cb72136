// Json: a JSON value as a tree, with the parser and the writer.
//
// Integers stay integers: 1 and 1.0 are different values, as the Kubernetes API has them. Objects keep the order in which members
// were added; equality ignores it. Names are unique: the last one of a document wins, as in Go's decoder.
#pragma once

#include <cstdint>
#include <initializer_list>
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
  using Object = std::vector<Member>;  // unique names; use the member functions below to keep it so

  enum class Type { kNull, kBool, kInteger, kNumber, kString, kArray, kObject };

  Json() = default;
  Json(std::nullptr_t) {}                                       // NOLINT: conversions are the point
  Json(bool value) : value_(value) {}                           // NOLINT
  Json(std::int64_t value) : value_(value) {}                   // NOLINT
  Json(int value) : value_(std::int64_t{value}) {}              // NOLINT
  Json(unsigned value) : value_(std::int64_t{value}) {}         // NOLINT
  Json(std::uint64_t value);                                    // NOLINT: beyond int64 it becomes a double
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

  // The value where the type fits, else the fallback. Never fails.
  bool as_bool(bool otherwise = false) const;
  std::int64_t as_integer(std::int64_t otherwise = 0) const;  // also a double that is a whole number in range
  double as_double(double otherwise = 0) const;               // also integers
  const std::string& as_string() const&;                      // "" otherwise
  std::string as_string() &&;
  std::string string_or(std::string_view otherwise) const;
  const Array& as_array() const&;    // empty otherwise
  const Object& as_object() const&;  // empty otherwise
  // What is read out of a temporary is a value of its own, so that `for (x : reply().body["items"].as_array())` holds.
  Array as_array() &&;
  Object as_object() &&;

  // Arrays. CHECKs that the value is an array (a null becomes an empty one first).
  Array& array_items();
  void push_back(Json item) { array_items().push_back(std::move(item)); }

  // Objects. Reading a member of anything else finds nothing; writing CHECKs that it is an object (a null becomes one first).
  const Json* find(std::string_view name) const;
  Json* find(std::string_view name);
  bool contains(std::string_view name) const { return find(name) != nullptr; }
  /// The member, or null.
  const Json& operator[](std::string_view name) const&;
  const Json& operator[](const char* name) const& { return (*this)[std::string_view(name)]; }
  Json operator[](std::string_view name) &&;
  Json operator[](const char* name) && { return std::move(*this)[std::string_view(name)]; }
  /// The member, made as null if missing.
  Json& operator[](std::string_view name) &;
  Json& operator[](const char* name) & { return (*this)[std::string_view(name)]; }
  void set(std::string_view name, Json value) { (*this)[name] = std::move(value); }
  bool erase(std::string_view name);
  Object& object_members();

  /// at("spec/template/metadata/labels"): the value below, array indexes as numbers, or null. Member names with '/' are not
  /// reachable.
  const Json& at(std::string_view path) const&;
  Json at(std::string_view path) &&;
  /// The same, making objects on the way.
  Json& make(std::string_view path);

  std::size_t size() const;  // items or members; 0 for scalars
  bool empty() const { return size() == 0; }

  friend bool operator==(const Json& a, const Json& b);

 private:
  std::variant<std::monostate, bool, std::int64_t, double, std::string, Array, Object> value_;
};

struct ParseOptions {
  std::size_t depth_max = 200;
  std::vector<std::string>* duplicates = nullptr;  // if set, gets the paths ("spec.replicas") of names that stand twice, as
                                                   // many as reported_paths.h keeps
};

/// The whole text is one JSON value (RFC 8259, UTF-8). kInvalid: "offset N: what".
Result<Json> parse_json(std::string_view text, const ParseOptions& options = {});

/// Compact; never fails. NaN and infinities, which JSON lacks, become null. Lone surrogates cannot be in a Json.
std::string write_json(const Json& value);
void write_json(const Json& value, std::string& out);
/// Indented by `indent` spaces a level.
std::string write_json_pretty(const Json& value, int indent = 2);

}  // namespace varda::codec
