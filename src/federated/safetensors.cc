#include "federated/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>
#include <tuple>
#include <utility>

#include "codec/json.h"
#include "federated/internal/shown.h"

namespace varda::federated {
namespace {

using codec::Json;
using tensor::DType;

constexpr std::size_t kLengthBytes = 8;
constexpr std::string_view kMetadataName = "__metadata__";
static_assert(std::endian::native == std::endian::little, "values are read in place");

constexpr std::pair<std::string_view, DType> kDTypes[] = {
    {"BOOL", DType::kBool},  {"U8", DType::kUint8},   {"I8", DType::kInt8},
    {"U16", DType::kUint16}, {"I16", DType::kInt16},  {"U32", DType::kUint32},
    {"I32", DType::kInt32},  {"U64", DType::kUint64}, {"I64", DType::kInt64},
    {"F16", DType::kFp16},   {"BF16", DType::kBf16},  {"F32", DType::kFp32},
    {"F64", DType::kFp64},
};

std::string_view dtype_name(DType dtype) {
  for (const auto& [name, known] : kDTypes)
    if (known == dtype) return name;
  return "";
}

Error broken(const std::string& what) { return Error(Code::kInvalid, "safetensors: " + what); }

Result<std::uint64_t> offset_of(const Json& value) {
  if (!value.is_integer() || value.as_integer(-1) < 0)
    return broken("data_offsets must be two integers from 0");
  return static_cast<std::uint64_t>(value.as_integer());
}

Result<SafetensorsEntry> parse_entry(const std::string& name, const Json& json,
                                     const SafetensorsLimits& limits) {
  if (name.empty()) return broken("a tensor has an empty name");
  if (name.size() > limits.name_bytes_max)
    return broken("the name " + shown(name) + " has more than " +
                  std::to_string(limits.name_bytes_max) + " bytes");
  SafetensorsEntry out;
  out.name = name;
  for (const auto& [member, value] : json.as_object())
    if (member != "dtype" && member != "shape" && member != "data_offsets")
      return broken("tensor " + shown(name) + " has the unknown member " + shown(member));
  const std::string& dtype = json["dtype"].as_string();
  const auto* const known = std::find_if(std::begin(kDTypes), std::end(kDTypes),
                                         [&](const auto& pair) { return pair.first == dtype; });
  if (known == std::end(kDTypes)) {
    return Error(dtype.empty() ? Code::kInvalid : Code::kUnsupported,
                 "safetensors: tensor " + shown(name) + " has the type " + shown(dtype) +
                     ", not one of BOOL, U8 … I64, F16, BF16, F32, F64");
  }
  out.dtype = known->second;
  const Json& shape = json["shape"];
  if (!shape.is_array()) return broken("tensor " + shown(name) + " has no shape");
  if (shape.size() > limits.rank_max)
    return broken("tensor " + shown(name) + " has more than " + std::to_string(limits.rank_max) +
                  " axes");
  for (const Json& size : shape.as_array()) {
    if (!size.is_integer() || size.as_integer(-1) < 0)
      return broken("the shape of tensor " + shown(name) + " must have integers from 0");
    out.shape.push_back(size.as_integer());
  }
  TRY(out.elements, tensor::elements(out.shape).context("safetensors: tensor " + shown(name)));
  const Json& offsets = json["data_offsets"];
  if (offsets.size() != 2 || !offsets.is_array())
    return broken("tensor " + shown(name) + " needs data_offsets, a begin and an end");
  TRY(out.offset, offset_of(offsets.as_array()[0]).context("tensor " + shown(name)));
  TRY(const std::uint64_t end, offset_of(offsets.as_array()[1]).context("tensor " + shown(name)));
  // At most 2^48 elements of 8 bytes: no overflow.
  out.bytes = out.elements * tensor::element_bytes(out.dtype);
  if (end < out.offset || end - out.offset != out.bytes) {
    return broken("tensor " + shown(name) + " of shape " + tensor::to_string(out.shape) +
                  " takes " + std::to_string(out.bytes) + " bytes, its offsets are " +
                  std::to_string(out.offset) + " and " + std::to_string(end));
  }
  return out;
}

Result<SafetensorsMetadata> parse_metadata(const Json& json) {
  if (!json.is_object()) return broken("__metadata__ must be an object of strings");
  SafetensorsMetadata out;
  for (const auto& [name, value] : json.as_object()) {
    if (!value.is_string()) return broken("__metadata__ has no string for " + shown(name));
    out.emplace(name, value.as_string());
  }
  return out;
}

std::string length_bytes(std::uint64_t length) {
  std::string out(kLengthBytes, '\0');
  std::memcpy(out.data(), &length, kLengthBytes);
  return out;
}

}  // namespace

Result<std::size_t> SafetensorsHeader::bytes_of(std::string_view first_8_bytes,
                                                const SafetensorsLimits& limits) {
  if (first_8_bytes.size() < kLengthBytes) return broken("the file has less than 8 bytes");
  std::uint64_t length = 0;
  std::memcpy(&length, first_8_bytes.data(), kLengthBytes);
  if (length > limits.header_bytes_max) {
    return broken("a header of " + std::to_string(length) + " bytes, the limit is " +
                  std::to_string(limits.header_bytes_max));
  }
  return kLengthBytes + static_cast<std::size_t>(length);
}

Result<SafetensorsHeader> SafetensorsHeader::parse(std::string_view begin, std::uint64_t file_bytes,
                                                   const SafetensorsLimits& limits) {
  TRY(const std::size_t data_at, bytes_of(begin, limits));
  if (data_at > begin.size() || data_at > file_bytes)
    return broken("the file ends within a header of " + std::to_string(data_at) + " bytes");
  const std::string_view text = begin.substr(kLengthBytes, data_at - kLengthBytes);
  if (!text.starts_with('{')) return broken("the header must begin with {");
  std::vector<std::string> duplicates;
  // A tensor has about ten values. The factor leaves room for axes and metadata.
  TRY(const Json json, codec::parse_json(text, {.depth_max = 4,
                                                .nodes_max = 64 + 24 * limits.tensors_max,
                                                .duplicates = &duplicates})
                           .context("safetensors: header"));
  if (!duplicates.empty()) return broken("the header has " + shown(duplicates.front()) + " twice");
  if (json.size() > limits.tensors_max + 1)
    return broken("more than " + std::to_string(limits.tensors_max) + " tensors");

  SafetensorsHeader out;
  out.entries_.reserve(json.size());
  for (const auto& [name, value] : json.as_object()) {
    if (name == kMetadataName) {
      TRY(out.metadata_, parse_metadata(value));
    } else {
      TRY(SafetensorsEntry entry, parse_entry(name, value, limits));
      out.entries_.push_back(std::move(entry));
    }
  }
  // Empty tensors have the offset of the next tensor. Names make the order unique.
  std::sort(out.entries_.begin(), out.entries_.end(), [](const auto& a, const auto& b) {
    return std::tie(a.offset, a.bytes, a.name) < std::tie(b.offset, b.bytes, b.name);
  });
  std::uint64_t end = 0;
  for (SafetensorsEntry& entry : out.entries_) {
    if (entry.offset != end) {
      return broken(std::string(entry.offset < end ? "two tensors overlap at " : "a hole before ") +
                    shown(entry.name));
    }
    end += entry.bytes;
    if (end > file_bytes - data_at) {
      return broken("the values of " + shown(entry.name) + " end after the file, which has " +
                    std::to_string(file_bytes) + " bytes");
    }
    entry.offset += data_at;
  }
  if (end != file_bytes - data_at) {
    return broken(std::to_string(file_bytes - data_at - end) +
                  " bytes follow the values of the last tensor");
  }
  out.by_name_.resize(out.entries_.size());
  std::iota(out.by_name_.begin(), out.by_name_.end(), std::size_t{0});
  std::sort(out.by_name_.begin(), out.by_name_.end(), [&](std::size_t a, std::size_t b) {
    return out.entries_[a].name < out.entries_[b].name;
  });
  return out;
}

Result<SafetensorsHeader> SafetensorsHeader::read(const os::PositionalFile& file,
                                                  const SafetensorsLimits& limits) {
  const auto bytes_at_begin = [&](std::uint64_t count) -> Result<std::string> {
    std::string out(static_cast<std::size_t>(std::min(count, file.size())), '\0');
    TRY_VOID(file.read(0, std::as_writable_bytes(std::span(out.data(), out.size()))));
    return out;
  };
  TRY(const std::string length, bytes_at_begin(kLengthBytes));
  TRY(const std::size_t size, bytes_of(length, limits));
  TRY(const std::string begin, bytes_at_begin(size));
  return parse(begin, file.size(), limits);
}

const SafetensorsEntry* SafetensorsHeader::find(std::string_view name) const {
  const auto it =
      std::lower_bound(by_name_.begin(), by_name_.end(), name,
                       [&](std::size_t i, std::string_view key) { return entries_[i].name < key; });
  return it != by_name_.end() && entries_[*it].name == name ? &entries_[*it] : nullptr;
}

std::string_view SafetensorsHeader::metadata(std::string_view name) const {
  const auto it = metadata_.find(name);
  return it == metadata_.end() ? std::string_view() : std::string_view(it->second);
}

Result<Safetensors> Safetensors::over(std::span<const std::byte> bytes,
                                      std::shared_ptr<const void> owner,
                                      const SafetensorsLimits& limits) {
  TRY(SafetensorsHeader header,
      SafetensorsHeader::parse({reinterpret_cast<const char*>(bytes.data()), bytes.size()},
                               bytes.size(), limits));
  Safetensors out;
  out.header_ = std::make_shared<const SafetensorsHeader>(std::move(header));
  out.bytes_ = bytes;
  out.owner_ = std::move(owner);
  return out;
}

Result<Safetensors> Safetensors::of(std::string bytes, const SafetensorsLimits& limits) {
  auto owner = std::make_shared<const std::string>(std::move(bytes));
  const auto view = std::as_bytes(std::span(owner->data(), owner->size()));
  return over(view, std::move(owner), limits);
}

Result<Safetensors> Safetensors::open(os::FileSystem& fs, const os::Path& path,
                                      const SafetensorsLimits& limits) {
  TRY(const std::shared_ptr<const os::PositionalFile> file, os::PositionalFile::open(fs, path));
  std::string bytes(file->size(), '\0');
  TRY_VOID(file->read(0, std::as_writable_bytes(std::span(bytes.data(), bytes.size()))));
  return of(std::move(bytes), limits).context(path.string());
}

std::span<const std::byte> Safetensors::bytes(const SafetensorsEntry& entry) const {
  return bytes_.subspan(static_cast<std::size_t>(entry.offset),
                        static_cast<std::size_t>(entry.bytes));
}

Result<tensor::Tensor> Safetensors::tensor(std::string_view name) const {
  const SafetensorsEntry* const entry = header_->find(name);
  if (entry == nullptr) return Error(Code::kNotFound, "the file has no tensor " + shown(name));
  return tensor::Tensor::over(entry->dtype, entry->shape, bytes(*entry), owner_)
      .context("tensor " + shown(name));
}

Result<std::string> safetensors_header(std::span<const SafetensorsSpec> specs,
                                       const SafetensorsMetadata& metadata) {
  Json header = Json::object();
  // The vector directly: Json::set() searches all earlier names.
  Json::Object& members = header.object_members();
  if (!metadata.empty()) {
    Json map = Json::object();
    for (const auto& [name, value] : metadata) map.object_members().emplace_back(name, value);
    members.emplace_back(kMetadataName, std::move(map));
  }
  std::vector<std::string_view> names;
  std::uint64_t offset = 0;
  for (const SafetensorsSpec& spec : specs) {
    if (spec.name.empty() || spec.name == kMetadataName)
      return Error(Code::kInvalid, "no tensor can have the name " + shown(spec.name));
    if (dtype_name(spec.dtype).empty())
      return Error(Code::kInvalid, "tensor " + shown(spec.name) + " has strings");
    TRY(const std::size_t elements,
        tensor::elements(spec.shape).context("tensor " + shown(spec.name)));
    const std::uint64_t end = offset + elements * tensor::element_bytes(spec.dtype);
    Json shape = Json::array();
    for (const std::int64_t size : spec.shape) shape.push_back(size);
    members.emplace_back(spec.name, Json::object({{"dtype", dtype_name(spec.dtype)},
                                                  {"shape", std::move(shape)},
                                                  {"data_offsets", Json::array({offset, end})}}));
    offset = end;
    names.push_back(spec.name);
  }
  std::sort(names.begin(), names.end());
  if (const auto twice = std::adjacent_find(names.begin(), names.end()); twice != names.end())
    return Error(Code::kInvalid, "two tensors have the name " + shown(*twice));
  std::string text = codec::write_json(header);
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return length_bytes(text.size()) + text;
}

Result<std::string> write_safetensors(std::span<const tensor::Named> tensors,
                                      const SafetensorsMetadata& metadata) {
  std::vector<const tensor::Named*> order;
  for (const tensor::Named& tensor : tensors) order.push_back(&tensor);
  std::sort(order.begin(), order.end(), [](const tensor::Named* a, const tensor::Named* b) {
    const std::size_t a_bytes = tensor::element_bytes(a->tensor.dtype());
    const std::size_t b_bytes = tensor::element_bytes(b->tensor.dtype());
    return a_bytes != b_bytes ? a_bytes > b_bytes : a->name < b->name;
  });
  std::vector<SafetensorsSpec> specs;
  std::size_t total = 0;
  for (const tensor::Named* tensor : order) {
    specs.push_back({tensor->name, tensor->tensor.dtype(), tensor->tensor.shape()});
    total += tensor->tensor.bytes().size();
  }
  TRY(std::string out, safetensors_header(specs, metadata));
  out.reserve(out.size() + total);
  for (const tensor::Named* tensor : order) {
    const std::span<const std::byte> bytes = tensor->tensor.bytes();
    out.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  return out;
}

}  // namespace varda::federated
