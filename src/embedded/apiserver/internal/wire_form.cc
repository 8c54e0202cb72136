#include "apiserver/internal/wire_form.h"

#include <charconv>

#include "apiserver/internal/objects.h"

namespace varda::apiserver {

namespace {

// A value's note: the number of the kind that serves these bytes unchanged, and two offsets: behind
// kind and apiVersion, and at metadata's end.
constexpr int kEndBits = 24, kBeginBits = 12;
constexpr std::size_t kEndMax = (std::size_t{1} << kEndBits) - 1,
                      kBeginMax = (std::size_t{1} << kBeginBits) - 1;
constexpr std::uint64_t kNumberMax = (std::uint64_t{1} << (64 - kEndBits - kBeginBits)) - 1;

struct Note {
  std::uint64_t kind = 0;
  std::size_t begin = 0, end = 0;
};

Note unpack(std::uint64_t word) {
  return {.kind = word >> (kEndBits + kBeginBits),
          .begin = (word >> kEndBits) & kBeginMax,
          .end = word & kEndMax};
}

void append_string(std::string& out, std::string_view text) { codec::write_json(Json(text), out); }

void append_member(std::string& out, const Json::Member& member) {
  if (out.back() != '{') out += ',';
  append_string(out, member.first);
  out += ':';
  codec::write_json(member.second, out);
}

// "{"kind":"Pod","apiVersion":"v1","
std::string header_of(const meta::Resource& resource) {
  std::string out = "{\"kind\":";
  append_string(out, resource.kind);
  out += ",\"apiVersion\":";
  append_string(out, resource.api_version());
  return out += ',';
}

// Sets the note if `text`, the encoded form of `object`, equals the stored bytes.
void take_note(const Kind& kind, const Json& object, const std::string& text,
               const store::Value& value) {
  if (kind.number() > kNumberMax || text != static_cast<const std::string&>(value)) return;
  const std::string header = header_of(kind.resource());
  constexpr std::string_view kMetadata = "\"metadata\":";
  if (!text.starts_with(header) ||
      !std::string_view(text).substr(header.size()).starts_with(kMetadata))
    return;
  const Json& metadata = object["metadata"];
  if (!metadata.is_object() || metadata.empty() || metadata.contains("resourceVersion")) return;
  const std::size_t end = header.size() + kMetadata.size() + codec::write_json(metadata).size() - 1;
  if (header.size() > kBeginMax || end > kEndMax) return;
  value.set_note(kind.number() << (kEndBits + kBeginBits) |
                 std::uint64_t{header.size()} << kEndBits | end);
}

void append_noted(const Note& note, const store::Entry& entry, bool headless, std::string& out) {
  const std::string& bytes = *entry.value;
  char version[24];
  const char* end = std::to_chars(version, version + sizeof version, entry.modified).ptr;
  constexpr std::string_view kMember = ",\"resourceVersion\":\"";
  out.reserve(out.size() + bytes.size() + 64);
  if (headless) {
    out += '{';
    out.append(bytes, note.begin, note.end - note.begin);
  } else {
    out.append(bytes, 0, note.end);
  }
  out.append(kMember)
      .append(version, static_cast<std::size_t>(end - version))
      .append("\"")
      .append(bytes, note.end);
}

}  // namespace

Outcome<void> append_wire_form(const Kind& kind, const store::Entry& entry, Place place,
                               std::string& out) {
  const bool headless = place == Place::kInList && !kind.info().custom;
  Note note = unpack(entry.value->note());
  if (note.kind != kind.number()) {
    auto parsed = codec::parse_json(*entry.value, {.depth_max = 1000});
    if (!parsed.ok())
      return internal("the stored object " + entry.key +
                      " is unreadable: " + parsed.error().message());
    Json object = std::move(parsed).value();
    kind.from_storage(object);
    take_note(kind, object, codec::write_json(object), *entry.value);
    note = unpack(entry.value->note());
    if (note.kind != kind.number()) {
      if (headless) {
        object.erase("kind");
        object.erase("apiVersion");
      }
      object["metadata"].set("resourceVersion", std::to_string(entry.modified));
      codec::write_json(object, out);
      return {};
    }
  }
  append_noted(note, entry, headless, out);
  return {};
}

std::string stored_form(const Json& object) {
  std::string out = "{";
  for (const char* name : {"kind", "apiVersion"}) {
    if (const Json* value = object.find(name)) append_member(out, {name, *value});
  }
  if (const Json* metadata = object.find("metadata")) {
    if (out.back() != '{') out += ',';
    out += "\"metadata\":{";
    for (const Json::Member& member : metadata->as_object()) {
      if (member.first != "resourceVersion") append_member(out, member);
    }
    out += '}';
  }
  for (const Json::Member& member : object.as_object()) {
    if (member.first != "kind" && member.first != "apiVersion" && member.first != "metadata")
      append_member(out, member);
  }
  return out += '}';
}

}  // namespace varda::apiserver
