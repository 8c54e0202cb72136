// Arrays of numbers in idx and npy files, read row by row.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/context.h"
#include "base/result.h"
#include "os/readable_tree.h"
#include "samples/internal/files.h"
#include "tensor/tensor.h"

namespace varda::samples::internal {

struct ArrayHeader {
  tensor::DType dtype = tensor::DType::kUint8;
  bool big_endian = false;
  tensor::Shape shape;
  std::uint64_t data_at = 0, data_bytes = 0;
};

/// http://yann.lecun.com/exdb/mnist/ ("the IDX file format"): two zeros, the type, the number of
/// dimensions, their sizes as 32-bit big-endian numbers, the values. kInvalid: another format.
Result<ArrayHeader> parse_idx_header(std::string_view bytes);

/// Immutable. Bytes of a file stay there; bytes of a compressed file are in memory.
class Array {
 public:
  /// An idx or npy file, possibly compressed with gzip. `memory_left` shrinks by the bytes kept in
  /// memory. kExhausted: more than that. kInvalid: another format, or another size than the header
  /// says; a message names the file.
  static Result<Array> open(const Context& ctx, os::ReadableTree& tree, const os::Path& path,
                            std::uint64_t& memory_left);
  static Result<Array> of_bytes(std::string name, std::string bytes);

  const std::string& name() const { return name_; }
  tensor::DType dtype() const { return header_.dtype; }
  const tensor::Shape& shape() const { return header_.shape; }
  std::size_t rows() const { return rows_; }
  tensor::Shape row_shape() const { return {header_.shape.begin() + 1, header_.shape.end()}; }

  /// Reads rows of one array. `block_bytes`: bytes read at once, for rows in order. Not
  /// thread-safe.
  class Rows {
   public:
    explicit Rows(const Array& array, std::size_t block_bytes = 0)
        : array_(array), block_bytes_(block_bytes) {}
    /// The bytes as in the file; valid until the next call.
    Result<std::string_view> bytes(std::size_t row);
    /// Valid until the next call.
    Result<std::span<const double>> values(std::size_t row);

   private:
    const Array& array_;
    const std::size_t block_bytes_;
    std::unique_ptr<os::ReadableFile> file_;
    std::string block_;
    std::uint64_t block_at_ = 0;  // offset in the values
    std::vector<double> values_;
  };

 private:
  Status check_size(std::uint64_t bytes);

  std::string name_;
  ArrayHeader header_;
  std::size_t rows_ = 0;
  std::uint64_t row_bytes_ = 0;
  os::ReadableTree* tree_ = nullptr;  // unset: `memory_` has the bytes
  os::Path path_;
  os::FileFacts facts_;
  std::shared_ptr<const std::string> memory_;
};

}  // namespace varda::samples::internal
