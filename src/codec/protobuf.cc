#include "codec/protobuf.h"

#include <cstring>

namespace varda::codec {
namespace {

constexpr std::uint32_t kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5;

}  // namespace

void ProtoWriter::varint(std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out_ += static_cast<char>(value | 0x80);
  out_ += static_cast<char>(value);
}

ProtoWriter& ProtoWriter::number(std::uint32_t field, std::int64_t value) {
  return value == 0 ? *this : item(field, value);
}

ProtoWriter& ProtoWriter::item(std::uint32_t field, std::int64_t value) {
  varint(std::uint64_t{field} << 3 | kVarint);
  varint(static_cast<std::uint64_t>(value));
  return *this;
}

ProtoWriter& ProtoWriter::real(std::uint32_t field, float value) {
  char bytes[sizeof value];
  std::memcpy(bytes, &value, sizeof value);
  varint(std::uint64_t{field} << 3 | kFixed32);
  out_.append(bytes, sizeof bytes);
  return *this;
}

ProtoWriter& ProtoWriter::real64(std::uint32_t field, double value) {
  char bytes[sizeof value];
  std::memcpy(bytes, &value, sizeof value);
  varint(std::uint64_t{field} << 3 | kFixed64);
  out_.append(bytes, sizeof bytes);
  return *this;
}

ProtoWriter& ProtoWriter::sint64(std::uint32_t field, std::int64_t value) {
  const auto bits = static_cast<std::uint64_t>(value);
  return item(field, static_cast<std::int64_t>(bits << 1 ^ (value < 0 ? ~std::uint64_t{0} : 0)));
}

ProtoWriter& ProtoWriter::text(std::uint32_t field, std::string_view value) {
  return value.empty() ? *this : element(field, value);
}

ProtoWriter& ProtoWriter::element(std::uint32_t field, std::string_view value) {
  varint(std::uint64_t{field} << 3 | kBytes);
  varint(value.size());
  out_ += value;
  return *this;
}

ProtoWriter& ProtoWriter::message(std::uint32_t field,
                                  const std::function<void(ProtoWriter&)>& fill) {
  ProtoWriter inner;
  fill(inner);
  return element(field, inner.out_);
}

ProtoWriter& ProtoWriter::entry(std::uint32_t field, std::string_view key, std::string_view value) {
  return message(field, [&](ProtoWriter& inner) { inner.text(1, key).text(2, value); });
}

bool ProtoReader::varint(std::uint64_t& value) {
  value = 0;
  for (unsigned shift = 0; shift < 64 && !remaining_.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(remaining_.front());
    remaining_.remove_prefix(1);
    value |= std::uint64_t{byte & 0x7Fu} << shift;
    if (byte < 0x80) return true;
  }
  return false;
}

bool ProtoReader::skip(std::size_t count) {
  if (remaining_.size() < count) return false;
  bytes_ = remaining_.substr(0, count);
  remaining_.remove_prefix(count);
  return true;
}

bool ProtoReader::next() {
  if (broken_ || remaining_.empty()) return false;
  const std::string_view start = remaining_;
  std::uint64_t key = 0, size = 0;
  bool good = varint(key) && key >> 3 != 0 && key >> 3 < (1u << 29);
  field_ = static_cast<std::uint32_t>(key >> 3);
  wire_ = static_cast<std::uint32_t>(key & 7);
  switch (wire_) {
    case kVarint:
      good = good && varint(number_);
      break;
    case kBytes:
      good = good && varint(size) && skip(size);
      break;
    case kFixed64:
      good = good && skip(8);
      break;
    case kFixed32:
      good = good && skip(4);
      break;
    default:
      good = false;
  }
  broken_ = !good;
  raw_ = start.substr(0, start.size() - remaining_.size());
  return good;
}

bool ProtoReader::next_number() {
  if (broken_ || remaining_.empty()) return false;
  wire_ = kVarint;
  broken_ = !varint(number_);
  return !broken_;
}

float ProtoReader::real() const {
  float value = 0;
  if (is_real()) std::memcpy(&value, bytes_.data(), sizeof value);
  return value;
}

std::int64_t ProtoReader::sint64() const {
  const auto bits = static_cast<std::uint64_t>(number());
  return static_cast<std::int64_t>(bits >> 1 ^ ((bits & 1) != 0 ? ~std::uint64_t{0} : 0));
}

double ProtoReader::real64() const {
  double value = 0;
  if (is_real64()) std::memcpy(&value, bytes_.data(), sizeof value);
  return value;
}

std::pair<std::string, std::string> ProtoReader::entry() const {
  std::pair<std::string, std::string> out;
  ProtoReader inner(bytes());
  while (inner.next()) {
    if (inner.field() == 1) out.first = inner.text();
    if (inner.field() == 2) out.second = inner.text();
  }
  return out;
}

Status ProtoReader::status() const {
  return broken_ ? Status(Error(Code::kInvalid, "the bytes are no protobuf message")) : Status();
}

}  // namespace varda::codec
