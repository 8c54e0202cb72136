// Bodies in Kubernetes' protobuf format: a parsed body is valid as JSON, and equal on every read.
//
// Plain mutations break the lengths of nested messages. So the mutator parses the bytes into a tree
// of fields, changes a field, and writes correct lengths.
#include "apiserver/internal/protobuf.h"

#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "base/check.h"
#include "codec/json.h"
#include "input.h"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

namespace {

using namespace varda;  // NOLINT: a program of one file

constexpr std::string_view kMagic("k8s\0", 4);

struct Field {
  std::uint64_t tag = 0;
  std::uint64_t number = 0;   // wire type 0
  std::string bytes;          // wire type 2, if not a message
  std::vector<Field> fields;  // ... if possibly a message
};

std::optional<std::uint64_t> varint(std::string_view& text) {
  std::uint64_t out = 0;
  for (int shift = 0; shift < 64 && !text.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(text.front());
    text.remove_prefix(1);
    out |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
    if ((byte & 0x80) == 0) return out;
  }
  return std::nullopt;
}

void put_varint(std::uint64_t value, std::string& out) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

std::optional<std::vector<Field>> parse(std::string_view text, int depth) {
  std::vector<Field> out;
  while (!text.empty()) {
    Field field;
    const auto tag = varint(text);
    if (!tag || *tag >> 3 == 0 || *tag >> 3 > 100) return std::nullopt;
    field.tag = *tag;
    const auto value = (*tag & 7) == 0 || (*tag & 7) == 2 ? varint(text) : std::nullopt;
    if (!value) return std::nullopt;
    if ((*tag & 7) == 0) {
      field.number = *value;
    } else {
      if (*value > text.size()) return std::nullopt;
      const std::string_view inside = text.substr(0, *value);
      text.remove_prefix(inside.size());
      auto message = inside.empty() || depth > 12 ? std::nullopt : parse(inside, depth + 1);
      if (message) {
        field.fields = std::move(*message);
      } else {
        field.bytes = inside;
      }
    }
    out.push_back(std::move(field));
  }
  return out;
}

std::string write(const std::vector<Field>& fields) {
  std::string out;
  for (const Field& field : fields) {
    put_varint(field.tag, out);
    if ((field.tag & 7) == 0) {
      put_varint(field.number, out);
      continue;
    }
    const std::string inside = field.fields.empty() ? field.bytes : write(field.fields);
    put_varint(inside.size(), out);
    out += inside;
  }
  return out;
}

/// Collects every list of fields in the tree, for a random choice.
void collect(std::vector<Field>& fields, std::vector<std::vector<Field>*>& out) {
  out.push_back(&fields);
  for (Field& field : fields) {
    if (!field.fields.empty()) collect(field.fields, out);
  }
}

void change(std::vector<Field>& root, unsigned seed) {
  std::vector<std::vector<Field>*> messages;
  collect(root, messages);
  std::vector<Field>& message = *messages[seed / 16 % messages.size()];
  if (message.empty()) {
    message.push_back({.tag = 10});
    return;
  }
  const std::size_t at = seed / 1024 % message.size();
  Field& field = message[at];
  switch (seed % 6) {
    case 0:
      message.insert(message.begin() + static_cast<std::ptrdiff_t>(at), Field(field));
      break;
    case 1:
      message.erase(message.begin() + static_cast<std::ptrdiff_t>(at));
      break;
    case 2:
      field.tag = (seed / 64 % 24 + 1) << 3 | (field.tag & 7);
      break;
    case 3:
      field.tag ^= 2;
      break;
    default:
      if (field.fields.empty() && (field.tag & 7) == 2) {
        const std::size_t size = field.bytes.size();
        field.bytes.resize(size + 16);
        field.bytes.resize(
            LLVMFuzzerMutate(reinterpret_cast<std::uint8_t*>(field.bytes.data()), size, size + 16));
      } else {
        field.number = std::uint64_t{1} << seed / 64 % 64;
      }
  }
}

}  // namespace

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned int seed) {
  std::string_view text(reinterpret_cast<const char*>(data), size);
  std::optional<std::vector<Field>> tree;
  if (text.starts_with(kMagic)) tree = parse(text.substr(kMagic.size()), 0);
  if (!tree || seed % 11 == 0) return LLVMFuzzerMutate(data, size, max_size);
  change(*tree, seed / 11);
  const std::string out = std::string(kMagic) + write(*tree);
  if (out.size() > max_size) return LLVMFuzzerMutate(data, size, max_size);
  std::memcpy(data, out.data(), out.size());
  return out.size();
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes = fuzz::Input(data, size).rest();
  const auto object = apiserver::parse_kubernetes_protobuf(bytes);
  if (!object.ok()) {
    CHECK(!object.error().message().empty());
    return 0;
  }
  CHECK(bytes.starts_with(kMagic) && object->is_object() && (*object)["kind"].is_string());
  CHECK(*apiserver::parse_kubernetes_protobuf(bytes) == *object);
  // Stored as JSON, it is the same object.
  const std::string text = codec::write_json(*object);
  const auto stored = codec::parse_json(text);
  CHECK(stored.ok() && *stored == *object && codec::write_json(*stored) == text);
  return 0;
}
