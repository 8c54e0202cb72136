#include <algorithm>
#include <limits>

#include "apiserver/kinds/cause.h"
#include "apiserver/kinds/types.h"
#include "codec/reported_paths.h"
#include "meta/object.h"
#include "meta/quantity.h"

namespace varda::apiserver {

namespace {

bool is_root_member(std::string_view name) {
  return name == "apiVersion" || name == "kind" || name == "metadata";
}

std::string_view go_type(Basic basic) {
  switch (basic) {
    case Basic::kBool:
      return "bool";
    case Basic::kInt32:
      return "int32";
    case Basic::kInt64:
      return "int64";
    case Basic::kNumber:
      return "float64";
    default:
      return "string";
  }
}

std::string json_type(const Json& value) {
  if (value.is_array()) return "array";
  if (value.is_object()) return "object";
  if (value.is_bool()) return "bool";
  if (value.is_string()) return "string";
  return "number";
}

// The decoder's position, for error messages.
struct Place {
  const Type& type;
  const std::string& path;
};

Error mismatch(const Json& value, const Place& place, std::string_view wanted) {
  std::string actual = json_type(value);
  if (actual == "number" && wanted.starts_with("int")) actual += " " + codec::write_json(value);
  return Error(Code::kInvalid, "json: cannot unmarshal " + actual + " into Go struct field " +
                                   place.type.name + "." + place.path + " of type " +
                                   std::string(wanted));
}

Status decode_integer(Json& value, Basic basic, const Place& place) {
  const bool whole =
      value.is_integer() ||
      (value.is_number() && Json(value.as_integer()).as_double() == value.as_double());
  const std::int64_t number = value.as_integer();
  const bool fits = basic == Basic::kInt64 || (number >= std::numeric_limits<std::int32_t>::min() &&
                                               number <= std::numeric_limits<std::int32_t>::max());
  if (!value.is_number() || !whole || !fits) return mismatch(value, place, go_type(basic));
  value = Json(number);
  return {};
}

Error bad_time(const std::string& text, std::string_view layout) {
  return Error(Code::kInvalid, "parsing time " + go_quote(text) + " as \"" + std::string(layout) +
                                   "\": cannot parse " + go_quote(text) + " as \"2006\"");
}

// True for a time that is kept as written, even outside our clock's range ("9999-12-31T23:59:59Z").
bool is_normal(std::string_view text) {
  return text[10] == 'T' && text.back() == 'Z' && text.substr(17, 2) != "60";
}

Status decode_time(Json& value, const Place& place) {
  if (!value.is_string()) return mismatch(value, place, "string");
  auto time = meta::parse_time(value.as_string());
  if (!time.ok()) return bad_time(value.as_string(), "2006-01-02T15:04:05Z07:00");
  if (value.as_string().size() == 20 && is_normal(value.as_string())) return {};
  value = meta::format_time(*time);
  return {};
}

// Exactly six digits of fraction, as MicroTime in Kubernetes requires.
Status decode_micro_time(Json& value, const Place& place) {
  if (!value.is_string()) return mismatch(value, place, "string");
  const std::string& text = value.as_string();
  const auto point = text.find('.');
  const bool six = point == 19 && text.find_first_not_of("0123456789", point + 1) == point + 7;
  auto time = meta::parse_time(text);
  if (!six || !time.ok()) return bad_time(text, "2006-01-02T15:04:05.000000Z07:00");
  if (is_normal(text)) return {};
  value = meta::format_micro_time(*time);
  return {};
}

Status decode_bytes(const Json& value, const Place& place) {
  if (!value.is_string()) return mismatch(value, place, "string");
  const std::string& text = value.as_string();
  const auto bad =
      text.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/");
  const std::size_t body = std::min(bad, text.size());
  const bool padded =
      text.find_first_not_of('=', body) == std::string::npos && text.size() - body <= 2;
  if (!padded || text.size() % 4 != 0) {
    return Error(Code::kInvalid, "illegal base64 data at input byte " +
                                     std::to_string(padded ? text.size() : body));
  }
  return {};
}

Status decode_struct(const Type& type, Json& object, const std::string& path, bool root);

Status decode_value(const Field& field, Json& value, const Place& place) {
  switch (field.basic) {
    case Basic::kString:
      return value.is_string() ? Status() : Status(mismatch(value, place, "string"));
    case Basic::kBool:
      return value.is_bool() ? Status() : Status(mismatch(value, place, "bool"));
    case Basic::kNumber:
      return value.is_number() ? Status() : Status(mismatch(value, place, "float64"));
    case Basic::kInt32:
    case Basic::kInt64:
      return decode_integer(value, field.basic, place);
    case Basic::kQuantity: {
      if (!value.is_string() && !value.is_number()) return mismatch(value, place, "string");
      TRY(std::string text, meta::canonical_quantity(value.is_string() ? value.as_string()
                                                                       : codec::write_json(value)));
      value = std::move(text);
      return {};
    }
    case Basic::kIntOrString:
      if (value.is_string()) return {};
      return decode_integer(value, Basic::kInt32, place);
    case Basic::kTime:
      return decode_time(value, place);
    case Basic::kMicroTime:
      return decode_micro_time(value, place);
    case Basic::kBytes:
      return decode_bytes(value, place);
    case Basic::kAny:
      return {};
    case Basic::kStruct:
      if (!value.is_object())
        return mismatch(value, place,
                        field.type->package.substr(field.type->package.rfind('/') + 1) + "." +
                            field.type->name);
      return decode_struct(*field.type, value, place.path, false);
  }
  return {};
}

Status decode_field(const Field& field, Json& value, const Place& place) {
  if (field.shape == Shape::kOne) return decode_value(field, value, place);
  if (field.shape == Shape::kList) {
    if (!value.is_array())
      return mismatch(
          value, place,
          "[]" + (field.type == nullptr ? std::string(go_type(field.basic)) : field.type->name));
    for (Json& item : value.array_items()) {
      // Go decodes a null into the zero value of the item.
      if (item.is_null() && field.basic == Basic::kStruct) item = Json::object();
      if (item.is_null() && field.basic == Basic::kString) item = "";
      TRY_VOID(decode_value(field, item, place));
    }
    return {};
  }
  if (!value.is_object())
    return mismatch(value, place,
                    "map[string]" + (field.type == nullptr ? std::string(go_type(field.basic))
                                                           : field.type->name));
  for (Json::Member& member : value.object_members()) {
    if (member.second.is_null() && (field.basic == Basic::kString || field.basic == Basic::kBytes))
      member.second = "";
    TRY_VOID(decode_value(field, member.second, place));
  }
  return {};
}

// True for values that Go's `omitempty` omits.
bool is_zero(const Field& field, const Json& value) {
  if (field.basic == Basic::kAny && field.shape == Shape::kOne) return false;
  if (field.shape != Shape::kOne) return value.empty();
  if (field.basic == Basic::kStruct || field.basic == Basic::kQuantity ||
      field.basic == Basic::kIntOrString)
    return false;
  if (value.is_string()) return value.as_string().empty();
  if (value.is_bool()) return !value.as_bool();
  return value.is_number() && value.as_double() == 0;
}

Status decode_struct(const Type& type, Json& object, const std::string& path, bool root) {
  Json::Object& members = object.object_members();
  for (auto member = members.begin(); member != members.end();) {
    if (root && is_root_member(member->first)) {
      ++member;
      continue;
    }
    const Field* field = type.find(member->first);
    if (field == nullptr) {
      ++member;
      continue;
    }
    if (member->second.is_null()) {
      member = members.erase(member);
      continue;
    }
    const std::string where = path.empty() ? member->first : path + "." + member->first;
    TRY_VOID(decode_field(*field, member->second, {type, where}));
    member =
        !field->pointer && is_zero(*field, member->second) ? members.erase(member) : member + 1;
  }
  return {};
}

void prune_struct(const Type& type, Json& object, const FieldPath& path, bool root,
                  std::vector<std::string>& unknown) {
  if (!object.is_object()) return;
  std::erase_if(object.object_members(), [&](Json::Member& member) {
    if (root && is_root_member(member.first)) return false;
    const FieldPath where(path, member.first);
    const Field* field = type.find(member.first);
    if (field == nullptr) {
      codec::report_path(unknown, [&] { return where.str(); });
      return true;
    }
    if (field->type == nullptr) return false;
    if (field->shape == Shape::kOne) {
      prune_struct(*field->type, member.second, where, false, unknown);
    } else if (field->shape == Shape::kList && member.second.is_array()) {
      Json::Array& items = member.second.array_items();
      for (std::size_t i = 0; i < items.size(); ++i)
        prune_struct(*field->type, items[i], FieldPath(where, i), false, unknown);
    } else if (field->shape == Shape::kMap && member.second.is_object()) {
      for (Json::Member& entry : member.second.object_members()) {
        prune_struct(*field->type, entry.second, FieldPath(where, entry.first), false, unknown);
      }
    }
    return false;
  });
}

Json zero(const Field& field) {
  if (field.shape != Shape::kOne) return nullptr;
  switch (field.basic) {
    case Basic::kString:
      return "";
    case Basic::kBool:
      return false;
    case Basic::kInt32:
    case Basic::kInt64:
    case Basic::kIntOrString:
    case Basic::kNumber:
      return 0;
    case Basic::kQuantity:
      return "0";
    case Basic::kStruct:
      return Json::object();
    default:
      return nullptr;
  }
}

void complete_struct(const Type& type, Json& object) {
  if (!object.is_object()) return;
  for (const Field& field : type.fields) {
    Json* value = object.find(field.name);
    if (value == nullptr) {
      if (field.default_value) {
        object.set(field.name, *field.default_value);
      } else if (field.always) {
        object.set(field.name, zero(field));
      } else {
        continue;
      }
      value = object.find(field.name);
    }
    if (field.type == nullptr) continue;
    if (field.shape == Shape::kOne) {
      complete_struct(*field.type, *value);
    } else if (field.shape == Shape::kList && value->is_array()) {
      for (Json& item : value->array_items()) complete_struct(*field.type, item);
    } else if (field.shape == Shape::kMap && value->is_object()) {
      for (Json::Member& entry : value->object_members())
        complete_struct(*field.type, entry.second);
    }
  }
}

}  // namespace

Status decode(const Type& root, Json& object) { return decode_struct(root, object, "", true); }

void prune(const Type& root, Json& object, std::vector<std::string>& unknown) {
  prune_struct(root, object, FieldPath(), true, unknown);
}

void apply_table_defaults(const Type& root, Json& object) { complete_struct(root, object); }

}  // namespace varda::apiserver
