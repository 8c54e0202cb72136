#include "schema/cause.h"

#include <algorithm>
#include <charconv>

namespace varda::schema {

namespace {

std::string number_text(const Json& value) {
  char buffer[40];
  if (value.is_integer()) {
    const auto end = std::to_chars(buffer, buffer + sizeof buffer, value.as_integer()).ptr;
    return std::string(buffer, end);
  }
  return codec::write_json(value);
}

// A value inside a map or a list, like Go's %#v.
void go_dump(const Json& value, std::string& out) {
  switch (value.type()) {
    case Json::Type::kNull:
      out += "interface {}(nil)";
      return;
    case Json::Type::kBool:
      out += value.as_bool() ? "true" : "false";
      return;
    case Json::Type::kInteger:
    case Json::Type::kNumber:
      out += number_text(value);
      return;
    case Json::Type::kString:
      out += go_quote(value.as_string());
      return;
    case Json::Type::kArray: {
      out += "[]interface {}{";
      bool first = true;
      for (const Json& item : value.as_array()) {
        if (!first) out += ", ";
        first = false;
        go_dump(item, out);
      }
      out += "}";
      return;
    }
    case Json::Type::kObject: {
      out += "map[string]interface {}{";
      std::vector<const Json::Member*> members;
      for (const Json::Member& member : value.as_object()) members.push_back(&member);
      std::sort(members.begin(), members.end(),
                [](const auto* a, const auto* b) { return a->first < b->first; });
      bool first = true;
      for (const Json::Member* member : members) {
        if (!first) out += ", ";
        first = false;
        out += go_quote(member->first) + ":";
        go_dump(member->second, out);
      }
      out += "}";
      return;
    }
  }
}

}  // namespace

std::string go_quote(std::string_view text) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out = "\"";
  for (const char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      default: {
        const auto byte = static_cast<unsigned char>(c);
        if (byte < 0x20 || byte == 0x7f) {
          out += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
        } else {
          out += c;
        }
      }
    }
  }
  return out + '"';
}

std::string go_value(const Json& value) {
  if (value.is_null()) return "null";
  std::string out;
  go_dump(value, out);
  return out;
}

StatusCause required(std::string_view field, std::string_view detail) {
  std::string message = "Required value";
  if (!detail.empty()) message.append(": ").append(detail);
  return {"FieldValueRequired", std::move(message), std::string(field)};
}

StatusCause invalid(std::string_view field, const Json& value, std::string_view detail) {
  std::string message = "Invalid value: " + go_value(value);
  if (!detail.empty()) message.append(": ").append(detail);
  return {"FieldValueInvalid", std::move(message), std::string(field)};
}

StatusCause type_invalid(std::string_view field, const Json& value, std::string_view detail) {
  StatusCause cause = invalid(field, value, detail);
  cause.reason = "FieldValueTypeInvalid";
  return cause;
}

StatusCause not_supported(std::string_view field, const Json& value,
                          const std::vector<std::string>& supported) {
  std::string message = "Unsupported value: " + go_value(value);
  const char* separator = ": supported values: ";
  for (const std::string& text : supported) {
    message += separator + go_quote(text);
    separator = ", ";
  }
  return {"FieldValueNotSupported", std::move(message), std::string(field)};
}

StatusCause forbidden_field(std::string_view field, std::string_view detail) {
  return {"FieldValueForbidden", "Forbidden: " + std::string(detail), std::string(field)};
}

StatusCause duplicate(std::string_view field, const Json& value) {
  return {"FieldValueDuplicate", "Duplicate value: " + go_value(value), std::string(field)};
}

StatusCause too_long(std::string_view field, std::int64_t max) {
  return {"FieldValueTooLong", "Too long: may not be more than " + std::to_string(max) + " bytes",
          std::string(field)};
}

StatusCause too_many(std::string_view field, std::size_t actual, std::int64_t max) {
  return {"FieldValueTooMany",
          "Too many: " + std::to_string(actual) + ": must have at most " + std::to_string(max) +
              " items",
          std::string(field)};
}

std::string FieldPath::str() const {
  if (parent_ == nullptr) return "";
  return name_.data() == nullptr ? indexed(parent_->str(), index_) : child(parent_->str(), name_);
}

std::string child(std::string_view parent, std::string_view name) {
  if (parent.empty()) return std::string(name);
  return std::string(parent).append(".").append(name);
}

std::string keyed(std::string_view parent, std::string_view name) {
  return std::string(parent).append("[").append(name).append("]");
}

std::string indexed(std::string_view parent, std::size_t index) {
  return keyed(parent, std::to_string(index));
}

}  // namespace varda::schema
