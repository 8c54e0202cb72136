// Descriptions of kinds: names and constraints of members, once, beside the C++ type.
//
//   struct ManifestEntry {
//     std::string version;
//     std::string download_url;
//     Json unknown;
//     static void describe(Type<ManifestEntry>& t);   // all that the header needs
//   };
//
//   // In the .cc, which alone includes this file:
//   void ManifestEntry::describe(Type<ManifestEntry>& t) {
//     t.doc("One version of the model.");
//     t.field("version", &ManifestEntry::version, "Name of the version.").required().length(1, 63);
//     t.field("downloadURL", &ManifestEntry::download_url, "URL of the archive.");
//     t.keep_unknown(&ManifestEntry::unknown);
//   }
//
// A description gives JSON reading and writing, the schema, validation and documentation. Templates
// only bind a member to type-erased operations. All other code is in describe.cc.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/schema.h"
#include "base/result.h"
#include "meta/object.h"

namespace varda::api {

template <typename T>
class Type;

/// Place and reason of a failed read: path ".ports[0].name", what "must be a string".
struct ReadError {
  std::string path;
  std::string what;
};
using ReadOutcome = std::optional<ReadError>;

/// Operations on a value of one C++ type, through a pointer.
struct ValueOps {
  Schema (*schema)();
  ReadOutcome (*read)(void* value, const Json& json);
  Json (*write)(const void* value);
  // True: the writer omits the member, unless it is required or defaulted.
  bool (*zero)(const void* value);
};

/// One described member, type-erased.
struct Slot {
  std::string name;
  const ValueOps* ops = nullptr;
  std::function<const void*(const void* object)> locate;
  bool always = false;  // written also when zero
};

/// One described struct, type-erased.
struct TypeInfo {
  Schema schema;
  std::vector<Slot> slots;                                 // same order as schema.properties
  std::function<const Json&(const void* object)> unknown;  // empty: undescribed members are dropped
};

ReadOutcome read_struct(const TypeInfo& info, void* object, const Json& json);
Json write_struct(const TypeInfo& info, const void* object);

/// Sets constraints of a member, chained.
class FieldBuilder {
 public:
  FieldBuilder(TypeInfo& info, std::size_t index, Json initial)
      : info_(info), index_(index), initial_(std::move(initial)) {}
  FieldBuilder& required();
  FieldBuilder& defaulted();  // the default is the value in a new C++ object
  FieldBuilder& always();     // written also when zero
  FieldBuilder& one_of(std::vector<std::string> values);
  FieldBuilder& pattern(std::string_view regex);
  FieldBuilder& format(std::string_view name);
  FieldBuilder& length(std::size_t min, std::size_t max);
  FieldBuilder& range(std::int64_t min, std::int64_t max);
  FieldBuilder& int_or_string();             // of a Json member
  FieldBuilder& shaped(Schema shape);        // of a Json member: its schema
  FieldBuilder& items_min(std::size_t min);  // lists and maps
  FieldBuilder& items_max(std::size_t max);
  FieldBuilder& each_length(std::size_t min, std::size_t max);  // of the strings in a list or map
  FieldBuilder& each_pattern(std::string_view regex);
  FieldBuilder& list_map(std::vector<std::string> keys);
  FieldBuilder& atomic();  // an object with one owner: Schema::atomic
  FieldBuilder& rule(Rule rule);

 private:
  Schema& schema() { return info_.schema.properties[index_].schema; }
  TypeInfo& info_;
  std::size_t index_;
  Json initial_;
};

namespace detail {
FieldBuilder add_field(TypeInfo& info, std::string_view name, std::string_view description,
                       const ValueOps& ops, std::function<const void*(const void*)> locate,
                       Json initial);
}  // namespace detail

template <typename M>
const ValueOps& ops_of();
template <typename T>
const TypeInfo& type_info();

/// Collects the description of T.
template <typename T>
class Type {
 public:
  void doc(std::string_view text) { info_.schema.description = std::string(text); }
  void rule(Rule rule) { info_.schema.rules.push_back(std::move(rule)); }

  template <typename M>
  FieldBuilder field(std::string_view name, M T::*member, std::string_view description) {
    const ValueOps& ops = ops_of<M>();
    const T fresh{};
    return detail::add_field(
        info_, name, description, ops,
        [member](const void* object) -> const void* {
          return &(static_cast<const T*>(object)->*member);
        },
        ops.write(&(fresh.*member)));
  }

  void keep_unknown(Json T::*member) {
    info_.unknown = [member](const void* object) -> const Json& {
      return static_cast<const T*>(object)->*member;
    };
    info_.schema.preserve_unknown = false;
  }

  TypeInfo build() && { return std::move(info_); }

 private:
  TypeInfo info_;
};

template <typename T>
const TypeInfo& type_info() {
  static const TypeInfo info = [] {
    Type<T> type;
    T::describe(type);
    TypeInfo built = std::move(type).build();
    built.schema.type = Schema::Type::kObject;
    return built;
  }();
  return info;
}

// Operations of each member type. Types without templates are in describe.cc.
template <>
const ValueOps& ops_of<std::string>();
template <>
const ValueOps& ops_of<std::int64_t>();
template <>
const ValueOps& ops_of<double>();
template <>
const ValueOps& ops_of<bool>();
template <>
const ValueOps& ops_of<Json>();
template <>
const ValueOps& ops_of<std::map<std::string, std::string>>();
template <>
const ValueOps& ops_of<std::map<std::string, std::int64_t>>();
template <>
const ValueOps& ops_of<meta::ObjectMeta>();
template <>
const ValueOps& ops_of<meta::Condition>();

namespace detail {

template <typename M>
struct Ops {  // a described struct
  static Schema schema() { return type_info<M>().schema; }
  static ReadOutcome read(void* value, const Json& json) {
    return read_struct(type_info<M>(), value, json);
  }
  static Json write(const void* value) { return write_struct(type_info<M>(), value); }
  static bool zero(const void* value) { return write(value).empty(); }
};

template <typename M>
struct Ops<std::optional<M>> {
  static Schema schema() { return ops_of<M>().schema(); }
  static ReadOutcome read(void* value, const Json& json) {
    return ops_of<M>().read(&static_cast<std::optional<M>*>(value)->emplace(), json);
  }
  static Json write(const void* value) {
    const auto& held = *static_cast<const std::optional<M>*>(value);
    return held ? ops_of<M>().write(&*held) : Json();
  }
  static bool zero(const void* value) {
    return !static_cast<const std::optional<M>*>(value)->has_value();
  }
};

Schema array_schema(const ValueOps& item);
ReadOutcome read_array(const Json& json, const ValueOps& item,
                       const std::function<void*()>& append);

template <typename M>
struct Ops<std::vector<M>> {
  static Schema schema() { return array_schema(ops_of<M>()); }
  static ReadOutcome read(void* value, const Json& json) {
    auto& list = *static_cast<std::vector<M>*>(value);
    list.clear();
    return read_array(json, ops_of<M>(), [&list]() -> void* { return &list.emplace_back(); });
  }
  static Json write(const void* value) {
    Json out = Json::array();
    for (const M& item : *static_cast<const std::vector<M>*>(value))
      out.push_back(ops_of<M>().write(&item));
    return out;
  }
  static bool zero(const void* value) { return static_cast<const std::vector<M>*>(value)->empty(); }
};

}  // namespace detail

template <typename M>
const ValueOps& ops_of() {
  using Ops = detail::Ops<M>;
  static constexpr ValueOps ops{&Ops::schema, &Ops::read, &Ops::write, &Ops::zero};
  return ops;
}

// Whole objects: apiVersion, kind, and the described members.

namespace detail {
Status read_object(const TypeInfo& info, const meta::Resource& resource, void* object,
                   const Json& json);
Json write_object(const TypeInfo& info, const meta::Resource& resource, const void* object);
}  // namespace detail

/// kInvalid: another kind, or a member has the wrong type: "Pod default/web: spec.hostNetwork: must
/// be a boolean".
template <typename T>
Result<T> read_object(const Json& json) {
  T object;
  TRY_VOID(detail::read_object(type_info<T>(), T::resource(), &object, json));
  return object;
}

template <typename T>
Json write_object(const T& object) {
  return detail::write_object(type_info<T>(), T::resource(), &object);
}

/// A described struct alone, such as a status or a spec.
template <typename T>
Json write_part(const T& part) {
  return write_struct(type_info<T>(), &part);
}

}  // namespace varda::api
