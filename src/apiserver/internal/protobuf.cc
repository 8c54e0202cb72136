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
#include "codec/text.h"
#include "meta/object.h"

namespace varda::apiserver {

using codec::Json;

namespace {

constexpr int kDepthMax = 32;

// One field on the wire.
struct Item {
  std::uint32_t number = 0;
  std::uint32_t wire = 0;  // 0 varint, 2 bytes
  std::uint64_t value = 0;
  std::string_view bytes;
};

class Reader {
 public:
  explicit Reader(std::string_view bytes) : left_(bytes) {}
  bool done() const { return left_.empty(); }
  Result<Item> next() {
    TRY(const std::uint64_t tag, varint());
    Item item{.number = static_cast<std::uint32_t>(tag >> 3),
              .wire = static_cast<std::uint32_t>(tag & 7),
              .value = 0,
              .bytes = {}};
    if (item.wire == 0) {
      TRY(item.value, varint());
      return item;
    }
    if (item.wire != 2)
      return Error(Code::kUnsupported,
                   "protobuf wire type " + std::to_string(item.wire) + " is not supported");
    TRY(const std::uint64_t size, varint());
    if (size > left_.size())
      return Error(Code::kInvalid, "protobuf: a field is longer than its message");
    item.bytes = left_.substr(0, size);
    left_.remove_prefix(size);
    return item;
  }

  Result<std::uint64_t> varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (left_.empty()) return Error(Code::kInvalid, "protobuf: the message ends inside a number");
      const auto byte = static_cast<unsigned char>(left_.front());
      left_.remove_prefix(1);
      value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if ((byte & 0x80) == 0) return value;
    }
    return Error(Code::kInvalid, "protobuf: a number is too long");
  }

 private:
  std::string_view left_;
};

Error misplaced(const Type& type, const Item& item) {
  return Error(Code::kInvalid, "protobuf: field " + std::to_string(item.number) + " of " +
                                   type.name + " has the wrong type");
}

// Protobuf text is UTF-8. JSON output would replace other bytes, so that two names could become
// equal.
Result<std::string> text_of(std::string_view bytes) {
  if (!codec::is_utf8(bytes)) return Error(Code::kInvalid, "protobuf: a string is not UTF-8");
  return std::string(bytes);
}

struct Entry {
  std::string key;
  Item value;
};

Result<Entry> decode_entry(std::string_view bytes) {
  Entry entry{.key = {}, .value = {.number = 2, .wire = 2, .value = 0, .bytes = {}}};
  for (Reader reader(bytes); !reader.done();) {
    TRY(const Item item, reader.next());
    if (item.number == 1) {
      TRY(entry.key, text_of(item.bytes));
    } else {
      entry.value = item;
    }
  }
  return entry;
}

// {1: seconds, 2: nanoseconds}; null for an empty message.
Result<Json> decode_time(std::string_view bytes, Basic basic) {
  std::int64_t seconds = 0;
  std::int64_t nanoseconds = 0;
  for (Reader reader(bytes); !reader.done();) {
    TRY(const Item item, reader.next());
    if (item.number == 1) seconds = static_cast<std::int64_t>(item.value);
    if (item.number == 2) nanoseconds = static_cast<std::int64_t>(item.value);
  }
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
  std::uint64_t which = 0;
  std::int64_t number = 0;
  std::string text;
  for (Reader reader(bytes); !reader.done();) {
    TRY(const Item item, reader.next());
    if (item.number == 1) which = item.value;
    if (item.number == 2) number = static_cast<std::int64_t>(item.value);
    if (item.number == 3) {
      TRY(text, text_of(item.bytes));
    }
  }
  if (which == 1) return Json(text);
  return number == 0 && !pointer ? Json(nullptr) : Json(number);
}

// {1: text}
Result<Json> decode_quantity(std::string_view bytes) {
  std::string text;
  for (Reader reader(bytes); !reader.done();) {
    TRY(const Item item, reader.next());
    if (item.number == 1) {
      TRY(text, text_of(item.bytes));
    }
  }
  return text.empty() ? Json(nullptr) : Json(text);
}

Result<Json> decode_struct(const Type& type, std::string_view bytes, int depth);

bool is_varint(Basic basic) {
  return basic == Basic::kBool || basic == Basic::kInt32 || basic == Basic::kInt64;
}

Result<Json> decode_value(const Type& type, const Field& field, const Item& item, int depth) {
  if ((item.wire == 0) != is_varint(field.basic)) return misplaced(type, item);
  switch (field.basic) {
    case Basic::kBool:
      return Json(item.value != 0);
    case Basic::kInt32:
    case Basic::kInt64:
      return Json(static_cast<std::int64_t>(item.value));
    case Basic::kString: {
      TRY(std::string text, text_of(item.bytes));
      return Json(std::move(text));
    }
    case Basic::kBytes:
      return Json(codec::base64(item.bytes));
    case Basic::kTime:
    case Basic::kMicroTime:
      return decode_time(item.bytes, field.basic);
    case Basic::kIntOrString:
      return decode_int_or_string(item.bytes, field.pointer);
    case Basic::kQuantity:
      return decode_quantity(item.bytes);
    case Basic::kStruct:
      return decode_struct(*field.type, item.bytes, depth + 1);
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

Status add_field(const Type& type, const Field& field, const Item& item, int depth, Json& out,
                 MapPlaces& places) {
  if (field.shape == Shape::kMap) {
    if (item.wire != 2) return misplaced(type, item);
    TRY(const Entry entry, decode_entry(item.bytes));
    TRY(Json value, decode_value(type, field, entry.value, depth));
    add_entry(out[field.name], places[&field], entry.key, std::move(value));
    return {};
  }
  if (field.shape == Shape::kList) {
    Json& list = out[field.name];
    if (is_varint(field.basic) && item.wire == 2) {  // packed
      for (Reader reader(item.bytes); !reader.done();) {
        TRY(const std::uint64_t value, reader.varint());
        list.push_back(field.basic == Basic::kBool ? Json(value != 0)
                                                   : Json(static_cast<std::int64_t>(value)));
      }
      return {};
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
Status add_embedded(const Type& type, const Item& outer, int depth, Json& out, MapPlaces& places) {
  for (Reader reader(outer.bytes); !reader.done();) {
    TRY(const Item item, reader.next());
    const auto field = std::find_if(type.fields.begin(), type.fields.end(), [&](const Field& f) {
      return f.number == outer.number && f.inner == item.number;
    });
    if (field == type.fields.end()) {
      return unknown_field(type, std::to_string(outer.number) + "." + std::to_string(item.number));
    }
    TRY_VOID(add_field(type, *field, item, depth, out, places));
  }
  return {};
}

Result<Json> decode_struct(const Type& type, std::string_view bytes, int depth) {
  if (depth > kDepthMax) return Error(Code::kInvalid, "protobuf: nested too deeply");
  Json out = Json::object();
  MapPlaces places;
  for (Reader reader(bytes); !reader.done();) {
    TRY(const Item item, reader.next());
    const auto field = std::find_if(type.fields.begin(), type.fields.end(),
                                    [&](const Field& f) { return f.number == item.number; });
    if (field != type.fields.end() && item.number != 0) {
      if (field->inner == 0) {
        TRY_VOID(add_field(type, *field, item, depth, out, places));
      } else if (item.wire == 2) {
        TRY_VOID(add_embedded(type, item, depth, out, places));
      } else {
        return misplaced(type, item);
      }
    } else if (depth == 0 && item.number == 1 && item.wire == 2) {  // field 1: a kind's metadata
      TRY(Json metadata, decode_struct(Types::all().get("ObjectMeta"), item.bytes, depth + 1));
      out.set("metadata", std::move(metadata));
    } else {
      return unknown_field(type, std::to_string(item.number));
    }
  }
  return out;
}

}  // namespace

Result<Json> parse_kubernetes_protobuf(std::string_view bytes) {
  constexpr std::string_view kMagic("k8s\0", 4);
  if (!bytes.starts_with(kMagic)) return Error(Code::kInvalid, "protobuf: the envelope is missing");
  std::string api_version;
  std::string kind;
  std::optional<std::string_view> raw;
  for (Reader reader(bytes.substr(kMagic.size())); !reader.done();) {
    TRY(const Item item, reader.next());
    if (item.number == 1) {
      for (Reader type(item.bytes); !type.done();) {
        TRY(const Item part, type.next());
        TRY((part.number == 1 ? api_version : kind), text_of(part.bytes));
      }
    } else if (item.number == 2) {
      raw = item.bytes;
    }
  }
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
