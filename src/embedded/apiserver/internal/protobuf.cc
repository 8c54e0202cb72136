#include "apiserver/internal/protobuf.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "apiserver/kinds/types.h"
#include "base/clock.h"
#include "codec/digest.h"
#include "codec/protobuf.h"
#include "codec/text.h"
#include "meta/object.h"

namespace varda::apiserver {

using codec::Json;
using codec::ProtoReader;

namespace {

constexpr int kDepthMax = 32;

Error misplaced(const Type& type, const ProtoReader& item) {
  return Error(Code::kInvalid, "protobuf: field " + std::to_string(item.field()) + " of " +
                                   type.name + " has the wrong type");
}

// Protobuf text is UTF-8. JSON output would replace other bytes, so that two names could become
// equal.
Result<std::string> text_of(std::string_view bytes) {
  if (!codec::is_utf8(bytes)) return Error(Code::kInvalid, "protobuf: a string is not UTF-8");
  return std::string(bytes);
}

// {1: seconds, 2: nanoseconds}; null for an empty message.
Result<Json> decode_time(std::string_view bytes, Basic basic) {
  std::int64_t seconds = 0;
  std::int64_t nanoseconds = 0;
  ProtoReader in(bytes);
  while (in.next()) {
    if (in.field() == 1) seconds = in.number();
    if (in.field() == 2) nanoseconds = in.number();
  }
  TRY_VOID(in.status());
  constexpr std::int64_t kEndOfTime = 9'223'372'036;  // year 2262: 64 bits of nanoseconds
  if (seconds <= 0) return Json(nullptr);
  if (seconds >= kEndOfTime) return Error(Code::kInvalid, "protobuf: a time beyond the year 2262");
  if (nanoseconds < 0 || nanoseconds >= 1000000000)
    return Error(Code::kInvalid, "protobuf: a time with more than a second of nanoseconds");
  if (basic == Basic::kTime)
    return Json(meta::format_time(WallTime(std::chrono::seconds(seconds))));
  return Json(meta::format_micro_time(WallTime(std::chrono::duration_cast<WallTime::duration>(
      std::chrono::seconds(seconds) + std::chrono::nanoseconds(nanoseconds)))));
}

// {1: type, 2: number, 3: text}.
Result<Json> decode_int_or_string(std::string_view bytes, bool pointer) {
  std::int64_t which = 0;
  std::int64_t number = 0;
  std::string text;
  ProtoReader in(bytes);
  while (in.next()) {
    if (in.field() == 1) which = in.number();
    if (in.field() == 2) number = in.number();
    if (in.field() == 3) {
      TRY(text, text_of(in.bytes()));
    }
  }
  TRY_VOID(in.status());
  if (which == 1) return Json(text);
  return number == 0 && !pointer ? Json(nullptr) : Json(number);
}

// {1: text}
Result<Json> decode_quantity(std::string_view bytes) {
  std::string text;
  ProtoReader in(bytes);
  while (in.next()) {
    if (in.field() == 1) {
      TRY(text, text_of(in.bytes()));
    }
  }
  TRY_VOID(in.status());
  return text.empty() ? Json(nullptr) : Json(text);
}

Result<Json> decode_struct(const Type& type, std::string_view bytes, int depth);

bool is_varint(Basic basic) {
  return basic == Basic::kBool || basic == Basic::kInt32 || basic == Basic::kInt64;
}

Result<Json> decode_value(const Type& type, const Field& field, const ProtoReader& item,
                          int depth) {
  if (item.is_number() != is_varint(field.basic)) return misplaced(type, item);
  switch (field.basic) {
    case Basic::kBool:
      return Json(item.flag());
    case Basic::kInt32:
    case Basic::kInt64:
      return Json(item.number());
    case Basic::kString: {
      TRY(std::string text, text_of(item.bytes()));
      return Json(std::move(text));
    }
    case Basic::kBytes:
      return Json(codec::base64(item.bytes()));
    case Basic::kTime:
    case Basic::kMicroTime:
      return decode_time(item.bytes(), field.basic);
    case Basic::kIntOrString:
      return decode_int_or_string(item.bytes(), field.pointer);
    case Basic::kQuantity:
      return decode_quantity(item.bytes());
    case Basic::kStruct:
      return decode_struct(*field.type, item.bytes(), depth + 1);
    case Basic::kAny:
    case Basic::kNumber:
      break;
  }
  return Error(Code::kUnsupported,
               field.name + " of " + type.name + " is not supported in protobuf; send JSON");
}

// Go encodes zeros of non-pointer fields; such zeros mean "absent".
bool is_unassigned(const Field& field, const Json& value) {
  if (value.is_null()) return true;
  if (field.pointer) return false;
  return (value.is_string() && value.as_string().empty()) ||
         (value.is_integer() && value.as_integer() == 0) || (value.is_bool() && !value.as_bool());
}

// Index of map entries by key; a linear search per entry would take quadratic time.
using MapPlaces = std::map<const Field*, std::unordered_map<std::string, std::size_t>>;

void add_entry(Json& map, std::unordered_map<std::string, std::size_t>& places, std::string key,
               Json value) {
  Json::Object& members = map.object_members();
  const auto [place, fresh] = places.emplace(key, members.size());
  if (fresh) {
    members.emplace_back(std::move(key), std::move(value));
  } else {
    members[place->second].second = std::move(value);  // the last entry wins
  }
}

Status add_field(const Type& type, const Field& field, const ProtoReader& item, int depth,
                 Json& out, MapPlaces& places) {
  if (field.shape == Shape::kMap) {
    if (!item.is_bytes()) return misplaced(type, item);
    std::string key;
    const bool is_text = field.basic == Basic::kString || field.basic == Basic::kBytes;
    Json value = is_text ? Json("") : Json();  // of an entry without a value
    ProtoReader entry(item.bytes());
    while (entry.next()) {
      if (entry.field() == 1) {
        TRY(key, text_of(entry.bytes()));
      } else {
        TRY(value, decode_value(type, field, entry, depth));
      }
    }
    TRY_VOID(entry.status());
    add_entry(out[field.name], places[&field], std::move(key), std::move(value));
    return {};
  }
  if (field.shape == Shape::kList) {
    Json& list = out[field.name];
    if (is_varint(field.basic) && item.is_bytes()) {  // packed
      ProtoReader packed(item.bytes());
      while (packed.next_number())
        list.push_back(field.basic == Basic::kBool ? Json(packed.flag()) : Json(packed.number()));
      return packed.status();
    }
    TRY(Json value, decode_value(type, field, item, depth));
    list.push_back(std::move(value));
    return {};
  }
  TRY(Json value, decode_value(type, field, item, depth));
  if (!is_unassigned(field, value)) out.set(field.name, std::move(value));
  return {};
}

Error unknown_field(const Type& type, const std::string& number) {
  return Error(Code::kUnsupported,
               "field " + number + " of " + type.name + " is not supported in protobuf; send JSON");
}

// Fields in a nested protobuf message that JSON flattens: a volume's source, a probe's action.
Status add_embedded(const Type& type, const ProtoReader& outer, int depth, Json& out,
                    MapPlaces& places) {
  ProtoReader item(outer.bytes());
  while (item.next()) {
    const auto field = std::find_if(type.fields.begin(), type.fields.end(), [&](const Field& f) {
      return f.number == outer.field() && f.inner == item.field();
    });
    if (field == type.fields.end()) {
      return unknown_field(type,
                           std::to_string(outer.field()) + "." + std::to_string(item.field()));
    }
    TRY_VOID(add_field(type, *field, item, depth, out, places));
  }
  return item.status();
}

Result<Json> decode_struct(const Type& type, std::string_view bytes, int depth) {
  if (depth > kDepthMax) return Error(Code::kInvalid, "protobuf: nested too deeply");
  Json out = Json::object();
  MapPlaces places;
  ProtoReader item(bytes);
  while (item.next()) {
    const auto field = std::find_if(type.fields.begin(), type.fields.end(),
                                    [&](const Field& f) { return f.number == item.field(); });
    if (field != type.fields.end() && item.field() != 0) {
      if (field->inner == 0) {
        TRY_VOID(add_field(type, *field, item, depth, out, places));
      } else if (item.is_bytes()) {
        TRY_VOID(add_embedded(type, item, depth, out, places));
      } else {
        return misplaced(type, item);
      }
    } else if (depth == 0 && item.field() == 1 && item.is_bytes()) {  // field 1: a kind's metadata
      TRY(Json metadata, decode_struct(Types::all().get("ObjectMeta"), item.bytes(), depth + 1));
      out.set("metadata", std::move(metadata));
    } else {
      return unknown_field(type, std::to_string(item.field()));
    }
  }
  TRY_VOID(item.status());
  return out;
}

}  // namespace

Result<Json> parse_kubernetes_protobuf(std::string_view bytes) {
  constexpr std::string_view kMagic("k8s\0", 4);
  if (!bytes.starts_with(kMagic)) return Error(Code::kInvalid, "protobuf: the envelope is missing");
  std::string api_version;
  std::string kind;
  std::optional<std::string_view> raw;
  ProtoReader envelope(bytes.substr(kMagic.size()));
  while (envelope.next()) {
    if (envelope.field() == 1) {
      ProtoReader type(envelope.bytes());
      while (type.next()) {
        TRY((type.field() == 1 ? api_version : kind), text_of(type.bytes()));
      }
      TRY_VOID(type.status());
    } else if (envelope.field() == 2) {
      raw = envelope.bytes();
    }
  }
  TRY_VOID(envelope.status());
  if (!raw) return Error(Code::kInvalid, "protobuf: the envelope is empty");
  const Type* type = Types::all().find(kind);
  if (type == nullptr)
    return Error(Code::kUnsupported, "kind " + kind + " is not supported in protobuf; send JSON");
  TRY(Json object, decode_struct(*type, *raw, 0));
  object.set("apiVersion", api_version);
  object.set("kind", kind);
  return object;
}

}  // namespace varda::apiserver
