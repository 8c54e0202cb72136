// Types: the built-in kinds' fields as data: what a Kubernetes type has, how it is written, merged, defaulted and shown.
//
// A table is text, one field a line:
//
//   package core/v1
//   type Container
//     1 name string ! # what follows is the description
//     6 ports []ContainerPort ~containerPort
//     14 imagePullPolicy string
//
// The number is the field's in protobuf, as the published .proto files of k8s.io/api 1.33 have it; "2.6" is field 6 of a message in
// field 2 that JSON does not show. A field without a number cannot be read from protobuf.
//
// Types: string bool int32 int64 quantity intstr time microtime bytes any meta (ObjectMeta of a template), NAME of a type, []T,
// map:T. Flags: ! always written, also when empty;  * a pointer: a zero that was sent stays;  ~KEY strategic merge by that key; ~
// merge as a set;  ^ retainKeys;  =VALUE the default (JSON or plain text);  ? required by the API (for documentation).
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

enum class Basic { kString, kBool, kInt32, kInt64, kNumber, kQuantity, kIntOrString, kTime, kMicroTime, kBytes, kAny, kStruct };
enum class Shape { kOne, kList, kMap };

struct Field {
  std::string name;
  std::uint32_t number = 0;  // in protobuf; 0: none
  std::uint32_t inner = 0;   // not 0: the field `inner` of the message in `number`
  Basic basic = Basic::kString;
  Shape shape = Shape::kOne;
  const Type* type = nullptr;  // of kStruct
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
  /// CHECKs that the type is known.
  const Type& get(std::string_view name) const;
  /// Null: not known.
  const Type* find(std::string_view name) const;

 private:
  Types();
  void parse(std::string_view table);
  void link();
  std::map<std::string, std::unique_ptr<Type>, std::less<>> types_;
};

// The operations on an object of a type. Members "apiVersion", "kind" and "metadata" of a root are left alone.

/// Go's decoder: drops nulls and zeros that are not written, checks types, normalises times and quantities.
/// kInvalid: the decoder's complaint.
Status decode(const Type& root, Json& object);
/// Drops and reports unknown fields.
void prune(const Type& root, Json& object, std::vector<std::string>& unknown);
/// Defaults of the table, then everything that is always written.
void apply_table_defaults(const Type& root, Json& object);
/// How the list or map at "spec.template.spec.containers" merges.
std::optional<ListMerge> list_merge(const Type& root, std::string_view path);
/// The schema of a type; structs below it as references "#/components/schemas/NAME".
Json openapi(const Type& type);

/// The canonical form of a resource quantity ("0.5" -> "500m", "1024Mi" -> "1Gi"); kInvalid otherwise.
Result<std::string> canonical_quantity(std::string_view text);

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
