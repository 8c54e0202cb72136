// safetensors: named tensors and a map of strings in one file.
//
// The format (huggingface.co/docs/safetensors): 8 bytes with the length of a JSON header, the
// header, the values. The values are little-endian, row-major and without holes.
//
//   TRY(const auto file, Safetensors::over(bytes, owner));
//   TRY(const tensor::Tensor weight, file.tensor("conv1.weight"));
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "os/file_system.h"
#include "os/positional_file.h"
#include "tensor/tensor.h"

namespace varda::federated {

struct SafetensorsLimits {
  std::size_t header_bytes_max = 16u << 20;
  std::size_t tensors_max = 100'000;
  std::size_t name_bytes_max = 1024;
  std::size_t rank_max = 32;
};

/// A tensor's place in a file. Offsets count from the begin of the file.
struct SafetensorsEntry {
  std::string name;
  tensor::DType dtype = tensor::DType::kFp32;
  tensor::Shape shape;
  std::size_t elements = 0;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  friend bool operator==(const SafetensorsEntry&, const SafetensorsEntry&) = default;
};

/// The header of a file. Immutable.
class SafetensorsHeader {
 public:
  /// Bytes that parse() needs: 8 plus the length in `first_8_bytes`. kInvalid: shorter than 8
  /// bytes, or above the limit.
  static Result<std::size_t> bytes_of(std::string_view first_8_bytes,
                                      const SafetensorsLimits& limits = {});
  /// Parses the first bytes of a file that has `file_bytes` bytes. kInvalid: anything else than a
  /// header with tensors that fill the file without holes or overlaps. kUnsupported: an element
  /// type that tensors lack, such as F8_E4M3.
  static Result<SafetensorsHeader> parse(std::string_view begin, std::uint64_t file_bytes,
                                         const SafetensorsLimits& limits = {});
  /// Reads and parses the header of a file.
  static Result<SafetensorsHeader> read(const os::PositionalFile& file,
                                        const SafetensorsLimits& limits = {});

  /// In the order of the values.
  const std::vector<SafetensorsEntry>& entries() const { return entries_; }
  /// Null: no tensor has this name.
  const SafetensorsEntry* find(std::string_view name) const;
  const std::map<std::string, std::string, std::less<>>& metadata() const { return metadata_; }
  /// A member of `__metadata__`; "" if missing.
  std::string_view metadata(std::string_view name) const;

 private:
  std::vector<SafetensorsEntry> entries_;
  std::vector<std::size_t> by_name_;  // indexes into entries_
  std::map<std::string, std::string, std::less<>> metadata_;
};

/// A file in memory. Immutable, cheap to copy; concurrent reads are safe.
class Safetensors {
 public:
  /// A view of bytes that `owner` keeps alive. Errors as SafetensorsHeader::parse().
  static Result<Safetensors> over(std::span<const std::byte> bytes,
                                  std::shared_ptr<const void> owner,
                                  const SafetensorsLimits& limits = {});
  /// Takes the bytes.
  static Result<Safetensors> of(std::string bytes, const SafetensorsLimits& limits = {});
  /// Reads the whole file.
  static Result<Safetensors> open(os::FileSystem& fs, const os::Path& path,
                                  const SafetensorsLimits& limits = {});

  const SafetensorsHeader& header() const { return *header_; }
  /// The bytes of an entry of header(); possibly unaligned.
  std::span<const std::byte> bytes(const SafetensorsEntry& entry) const;
  /// A view, or a copy if the values are unaligned. kNotFound: no such tensor. kInvalid: a BOOL
  /// tensor has other bytes than 0 and 1.
  Result<tensor::Tensor> tensor(std::string_view name) const;

 private:
  Safetensors() = default;
  std::shared_ptr<const SafetensorsHeader> header_;
  std::span<const std::byte> bytes_;
  std::shared_ptr<const void> owner_;
};

/// A tensor to write: its values follow later.
struct SafetensorsSpec {
  std::string name;
  tensor::DType dtype = tensor::DType::kFp32;
  tensor::Shape shape;
};

using SafetensorsMetadata = std::map<std::string, std::string, std::less<>>;

/// The header, padded to 8 bytes, of a file with values in the order of `specs`. Wide types
/// first keep all values aligned. kInvalid: a name twice or reserved, a bad shape, BYTES.
Result<std::string> safetensors_header(std::span<const SafetensorsSpec> specs,
                                       const SafetensorsMetadata& metadata = {});
/// A whole file: tensors by falling size of their elements, then by name. Equal content gives equal
/// bytes. Errors as safetensors_header().
Result<std::string> write_safetensors(std::span<const tensor::Named> tensors,
                                      const SafetensorsMetadata& metadata = {});

}  // namespace varda::federated
