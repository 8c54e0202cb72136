// JSON: parsed values are written and read back equal, compact and indented. The reader without a
// tree reads the same values.
#include "codec/json.h"

#include <string_view>

#include "base/check.h"
#include "codec/json_reader.h"
#include "input.h"

namespace {

using varda::codec::Json;
using varda::codec::JsonReader;

/// The value that JsonReader gives when every array and object is entered.
Json walk(JsonReader& reader, int depth) {
  switch (depth > 100 ? JsonReader::Kind::kOther : reader.peek()) {
    case JsonReader::Kind::kObject: {
      Json out = Json::object();
      std::string name;
      reader.begin_object();
      while (reader.next_member(name)) {
        Json value = walk(reader, depth + 1);
        out.set(name, std::move(value));
      }
      return out;
    }
    case JsonReader::Kind::kArray: {
      Json out = Json::array();
      reader.begin_array();
      while (reader.next_item()) out.push_back(walk(reader, depth + 1));
      return out;
    }
    case JsonReader::Kind::kString:
      return reader.string();
    case JsonReader::Kind::kBool:
      return reader.boolean();
    default:
      return reader.value();
  }
}

std::size_t depth_of(const Json& value) {
  std::size_t deepest = 0;
  for (const Json& item : value.as_array()) deepest = std::max(deepest, depth_of(item));
  for (const auto& [name, member] : value.as_object())
    deepest = std::max(deepest, depth_of(member));
  return deepest + 1;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = varda::fuzz::Input(data, size).rest();
  JsonReader reader(text);
  const Json walked = walk(reader, 0);
  const bool read = reader.finish().ok();

  const auto value = varda::codec::parse_json(text);
  if (!value.ok()) return 0;
  CHECK(depth_of(*value) <= 201);
  const auto again = varda::codec::parse_json(varda::codec::write_json(*value));
  CHECK(again.ok() && *again == *value);
  const auto pretty = varda::codec::parse_json(varda::codec::write_json_pretty(*value));
  CHECK(pretty.ok() && *pretty == *value);
  if (depth_of(*value) < 100) CHECK(read && walked == *value);
  return 0;
}
