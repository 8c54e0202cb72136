// Types: fields of built-in kinds as data: types, encoding, merging, defaults, descriptions.
//
// A table is text, one field per line:
//
//   package core/v1
//   type Container
//     1 name string ! # what follows is the description
//     6 ports []ContainerPort ~containerPort
//     14 imagePullPolicy string
//
// The number is the protobuf field number of the published .proto files of k8s.io/api 1.33. "2.6"
// is field 6 of a message in field 2 that JSON flattens. A field without a number cannot be read
// from protobuf.
//
// Types: string bool int32 int64 quantity intstr time microtime bytes any meta (ObjectMeta of a
// template), NAME of a type, []T, map:T.
//
// Flags:
//   !       always written, also when empty
//   *       a pointer; an explicit zero is kept
//   ~KEY    strategic merge by that key
//   ~       strategic merge as a set
//   ^       retainKeys
//   =VALUE  the default (JSON or plain text)
//   ?       required by the API (for documentation)
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "apiserver/kind.h"
#include "base/result.h"

namespace varda::apiserver {

struct Type;

enum class Basic {
  kString,
  kBool,
  kInt32,
  kInt64,
  kNumber,
  kQuantity,
  kIntOrString,
  kTime,
  kMicroTime,
  kBytes,
  kAny,
  kStruct
};
enum class Shape { kOne, kList, kMap };

struct Field {
  std::string name;
  std::uint32_t number = 0;  // in protobuf; 0: none
  std::uint32_t inner = 0;   // not 0: the field `inner` of the message in `number`
  Basic basic = Basic::kString;
  Shape shape = Shape::kOne;
  const Type* type = nullptr;  // for kStruct
  std::string type_name;       // "Container"
  bool always = false;
  bool pointer = false;
  bool merge = false;
  std::string merge_key;
  bool retain_keys = false;
  std::optional<Json> default_value;
  std::string description;
};

struct Type {
  std::string package;  // "core/v1"
  std::string name;     // "Container"
  std::string description;
  std::vector<Field> fields;

  const Field* find(std::string_view field) const;
  /// "io.k8s.api.core.v1.Container"
  std::string openapi_name() const;
};

/// All built-in types. Immutable; made once.
class Types {
 public:
  static const Types& all();
  /// CHECKs that the type exists.
  const Type& get(std::string_view name) const;
  /// Null if unknown.
  const Type* find(std::string_view name) const;

 private:
  Types();
  void parse(std::string_view table);
  void link();
  std::map<std::string, std::unique_ptr<Type>, std::less<>> types_;
};

// Operations on an object of a type. They ignore root members "apiVersion", "kind" and "metadata".

/// Go's decoder: drops nulls and omitted zeros, checks types, normalizes times and quantities.
/// kInvalid: the decoder's message.
Status decode(const Type& root, Json& object);
/// Drops and reports unknown fields.
void prune(const Type& root, Json& object, std::vector<std::string>& unknown);
/// The table's defaults, then all always-written fields.
void apply_table_defaults(const Type& root, Json& object);
/// Merge rule of the list or map at "spec.template.spec.containers".
std::optional<ListMerge> list_merge(const Type& root, std::string_view path);
/// The schema of a type; nested structs are references "#/components/schemas/NAME".
Json openapi(const Type& type);

namespace tables {
// The tables, as text.
std::string_view pod();
std::string_view container();
std::string_view volume();
std::string_view core();
std::string_view meta();
std::string_view workloads();
std::string_view extensions();
}  // namespace tables

}  // namespace varda::apiserver
