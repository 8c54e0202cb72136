// Updates: the difference between a client's weights and the model of its task, as one safetensors
// file. docs/design/028-federated-learning.md has the names inside the file.
//
//   UpdateInfo info{.task = "3-train-5f1c", .base = sha256, .samples = 640, .steps = 20};
//   TRY(const std::string bytes, encode_update(info, layout, delta, {.encoding =
//   Encoding::kInt8}));
//
//   TRY(const auto update, UpdateReader::open(fs, path, layout, {.task = info.task}));
//   std::vector<float> block(4096);
//   update->read(0, block);
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "codec/digest.h"
#include "codec/json.h"
#include "federated/weights.h"
#include "os/file_system.h"

namespace varda::federated {

/// The form of the values in an update.
enum class Encoding : std::uint8_t { kDense, kInt8, kTopK };
/// "dense", "int8", "topk"
std::string_view to_string(Encoding encoding);
std::optional<Encoding> parse_encoding(std::string_view name);

/// Values that share one scale in the encoding int8.
inline constexpr std::size_t kInt8Block = 256;

/// The metadata of an update.
struct UpdateInfo {
  std::string task;
  codec::Sha256 base;         // of the model's file
  std::uint64_t samples = 0;  // weight of the update: samples that trained; at least 1
  std::uint64_t steps = 0;    // optimizer steps
  codec::Json metrics = codec::Json::object();  // of numbers; "loss" feeds q-FFL
};

struct EncodeOptions {
  Encoding encoding = Encoding::kDense;
  /// Dense values, and the values of topk: kFp32, kFp16, kBf16 (not for topk), kFp64 (dense).
  tensor::DType dtype = tensor::DType::kFp32;
  double keep = 0.01;      // topk: share of the values that travel; at least one value does
  std::uint64_t seed = 0;  // int8: stochastic rounding; equal seeds give equal bytes
  /// Error feedback: if not empty, as long as the update. The encoder adds it to the update first,
  /// and leaves the part that this encoding loses.
  std::span<float> residual = {};
  /// SCAFFOLD: the change of the client's control variate, or empty. Travels dense, or as int8 if
  /// the update does.
  std::span<const float> control = {};
};

/// The file of an update. The same arguments give the same bytes. kInvalid: a wrong length, a value
/// that is not finite or does not fit F16, samples of 0, or an option out of range.
Result<std::string> encode_update(const UpdateInfo& info, const Layout& layout,
                                  std::span<const float> delta, const EncodeOptions& options = {});

/// The reason to refuse an update, for a metric's label and the client.
enum class RefusalReason : std::uint8_t {
  kFormat,     // no update file, broken, or a tensor of the wrong type
  kTask,       // belongs to another task
  kBase,       // trained on another model
  kShape,      // a tensor that the model lacks, or one with another shape
  kNotFinite,  // NaN or infinity
  kNorm,       // L2 norm above the limit
  kIo,         // the file cannot be read: no fault of the client
};
/// "format", "task", "base", "shape", "not_finite", "norm", "io"
std::string_view to_string(RefusalReason reason);

struct Refusal {
  RefusalReason reason = RefusalReason::kFormat;
  Error error;  // kInvalid for the client's faults; names the tensor
};

struct UpdateLimits {
  std::optional<std::string> task;    // expected
  std::optional<codec::Sha256> base;  // expected
  std::optional<double> norm_max;     // L2 norm of the delta
  SafetensorsLimits file = {};
  /// The norms of an update that was checked before, from a record of the caller. open() then reads
  /// the header only, which takes microseconds.
  struct Checked {
    double norm = 0;
    double control_norm = 0;
  };
  std::optional<Checked> checked;
};

/// A checked update. Immutable; concurrent reads are safe.
///
/// A file stays on the disk: each read() copies a block from the page cache. Its name may go.
class UpdateReader {
 public:
  using Opened = Result<std::unique_ptr<UpdateReader>, Refusal>;
  /// Checks the whole file against the layout: names, shapes, types, finite values, norm.
  static Opened open(os::FileSystem& fs, const os::Path& path, LayoutPointer layout,
                     const UpdateLimits& limits = {});
  /// The same from bytes.
  static Opened of(std::string bytes, LayoutPointer layout, const UpdateLimits& limits = {});

  virtual ~UpdateReader() = default;
  virtual const Layout& layout() const = 0;
  virtual const UpdateInfo& info() const = 0;
  virtual Encoding encoding() const = 0;
  /// Bytes of the file.
  virtual std::uint64_t bytes() const = 0;
  /// L2 norm of the delta. The same bytes give the same norm, for any number of threads.
  virtual double norm() const = 0;
  /// The file has a change of control variates.
  virtual bool has_control() const = 0;
  virtual double control_norm() const = 0;

  /// The values of the delta at [first, first + out.size()) of the layout's vector. Tensors that
  /// the file lacks are zero. CHECKs the range.
  virtual void read(std::size_t first, std::span<float> out) const = 0;
  /// The same values, as a view of the bytes where memory and encoding allow it, else in `scratch`.
  virtual std::span<const float> view(std::size_t first, std::span<float> scratch) const = 0;
  /// As read(), for the change of control variates; zeros without one.
  virtual void read_control(std::size_t first, std::span<float> out) const = 0;
  /// The first failure of a read since open(), such as a disk error. The values of that read are
  /// zeros. Rule::apply() checks this.
  virtual Status status() const = 0;
};

}  // namespace varda::federated
