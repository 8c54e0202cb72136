// The base of all datasets: labels, fingerprint, and batches made sample by sample.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "samples/internal/files.h"
#include "samples/internal/labels.h"
#include "samples/samples.h"

namespace varda::samples::internal {

/// Arguments of Dataset::open(), and the facts of the path.
struct Source {
  const Context& ctx;
  os::ReadableTree& tree;
  os::Path path;
  bool is_folder = false;
  Options options;

  std::string name() const { return path.filename().string(); }
};

using Opened = Result<std::shared_ptr<const Dataset>>;

/// A format's dataset is filled by its open function, and immutable from then on.
class SampleReader;
class Readable : public Dataset {
 public:
  explicit Readable(Labels labels) : labels_(std::move(labels)) {}

  const std::vector<std::string>& classes() const override { return labels_.classes(); }
  std::size_t outputs() const override { return labels_.outputs(); }
  std::vector<std::uint64_t> class_counts() const override { return labels_.counts(); }
  std::string fingerprint() const override { return fingerprint_; }
  Result<Batch> read(std::span<const std::size_t> indices, const Augment& augment,
                     std::uint64_t seed) const final {
    tensor::Pool memory(0);
    return read_until(Context::background(), indices, augment, seed, memory);
  }
  Result<Batch> read_until(const Context& ctx, std::span<const std::size_t> indices,
                           const Augment& augment, std::uint64_t seed,
                           tensor::Pool& memory) const final;
  Result<std::string> picture(std::size_t) const override { return std::string(); }

 protected:
  virtual bool has_pictures() const { return false; }
  /// The input of a batch. The readers write all values.
  virtual Result<tensor::Tensor> allocate(std::size_t count, tensor::Pool& memory) const = 0;
  /// For the samples of one batch. It may keep files open, and memory for the next sample.
  virtual std::unique_ptr<SampleReader> reader() const = 0;

  Labels labels_;
  std::string fingerprint_;
};

class SampleReader {
 public:
  virtual ~SampleReader() = default;
  struct Place {
    std::size_t index = 0, row = 0;  // of the dataset, of the batch
    const Augment& augment;
    std::uint64_t seed = 0;
  };
  /// Writes a row of the input and appends the label. An error lacks the place.
  virtual Status read(const Place& place, Batch& out) = 0;
};

}  // namespace varda::samples::internal
