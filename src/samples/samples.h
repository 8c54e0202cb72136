// The samples of a dataset as tensors, for training.
//
//   TRY(auto tree, os::open_readable_tree({"/data"}));
//   TRY(auto data, Dataset::open(ctx, *tree, "/data/train.csv", {.input = model.inputs()[0]}));
//   Loader loader(*data, train::epoch_order(data->size(), seed, epoch), 32, {}, seed);
//   for (;;) {
//     TRY(const auto batch, loader.next(ctx));
//     if (!batch) break;
//     ...
//   }
//
// A sample of each format, and the memory of its index:
//
//   csv, tsv     a record; a folder of such files is one table. 12 bytes
//   imagefolder  CLASS/…/NAME.jpg, .png or .npy: one sample. 12 bytes and the file's name
//   txt          a line PATH LABEL: an image and its label, or PATH, a tab and LABEL. 12 bytes
//   idx          an item of the files *-images-idx3-ubyte and *-labels-idx1-ubyte. None
//   npy, npz     a row of the arrays X and y. None
//   coco, voc    the part of an image in a box; its label is the category. 28 bytes, and the names
//                of the images
//
// Files are read on demand. Compressed arrays (idx.gz, npz) are unpacked into memory, up to
// kUnpackedBytesMax.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/context.h"
#include "base/mutex.h"
#include "base/result.h"
#include "dataset/format.h"
#include "os/readable_tree.h"
#include "tensor/pool.h"
#include "tensor/tensor.h"
#include "transform/declaration.h"

namespace varda::samples {

enum class Task : std::uint8_t { kClassification, kMultiLabel, kRegression };

/// Random changes of images. Seed and sample determine them.
struct Augment {
  bool flip = false;      // left becomes right, for half of the images
  std::int64_t crop = 0;  // shift by up to this many pixels; the edge's pixels fill the gap
  double jitter = 0;      // brightness and contrast, each by a factor of 1 - jitter to 1 + jitter
  bool any() const { return flip || crop > 0 || jitter > 0; }
};

/// Limits on memory.
inline constexpr std::uint64_t kUnpackedBytesMax = std::uint64_t{256} << 20;  // of one dataset
inline constexpr std::uint64_t kImageBytesMax = std::uint64_t{64} << 20;      // of a file, a row
inline constexpr std::uint64_t kBatchBytesMax = std::uint64_t{1} << 30;

struct Options {
  std::string format;  // csv tsv idx npy npz imagefolder txt coco voc; "": guessed by the path
  Task task = Task::kClassification;
  dataset::Header header = dataset::Header::kAuto;  // csv, tsv
  /// csv, tsv: a column by name, or by number from 1; several between commas; "": the last column.
  std::string label;
  std::vector<std::string> features;  // csv, tsv: columns; empty: all others in the file's order
  std::vector<double> fill;  // csv, tsv: values for missing features; empty: the columns' means
  /// In the order of the model's outputs; empty: those of the data, sorted (numbers by value).
  std::vector<std::string> classes;
  transform::Declaration preprocess;  // of model.yaml
  tensor::Spec input;                 // of the model
};

struct Batch {
  tensor::Tensor input;              // [n, …] of the model's type
  std::vector<std::int64_t> labels;  // kClassification: classes by number
  std::vector<float> targets;        // otherwise: n rows of outputs()
  std::vector<std::size_t> indices;  // of the samples
};

/// Immutable and thread-safe.
///
/// Labels are names of classes. Integers also mean classes by number from 0, if no class has a
/// number as its name. Several classes of kMultiLabel have ';' or '|' between them; an empty label
/// names no class. Several label columns of kMultiLabel hold 0 or 1. Their names
/// are the classes; columns with other names follow the order of the classes.
///
/// JPEG, PNG and 8-bit arrays of images pass the image step of `preprocess`, as in serving. Without
/// a declared step they keep their values 0 to 255. Other numbers are never changed, like tensors
/// in requests.
class Dataset {
 public:
  /// Reads tables, lists and annotations whole, and checks every row and label. `tree` outlives the
  /// dataset. kInvalid: the data or options are wrong; the message names file, line and remedy.
  /// kNotFound, kForbidden: from the tree. kExhausted: above a limit of this file.
  static Result<std::shared_ptr<const Dataset>> open(const Context& ctx, os::ReadableTree& tree,
                                                     const os::Path& path, Options options);
  virtual ~Dataset() = default;

  virtual std::size_t size() const = 0;
  virtual const std::vector<std::string>& classes() const = 0;
  virtual std::size_t outputs() const = 0;  // classes, or target columns
  /// Samples of each class; empty for kRegression.
  virtual std::vector<std::uint64_t> class_counts() const = 0;
  /// "sha256:" and 64 hex digits, the same on every machine. Covers tables, lists and annotations
  /// whole; of other files names, sizes and the first and last 64 KiB (images: 4 KiB).
  virtual std::string fingerprint() const = 0;
  /// kInvalid: an image that cannot be decoded, or values that do not fit the input; the message
  /// names the place. kConflict: a file changed after open().
  virtual Result<Batch> read(std::span<const std::size_t> indices, const Augment& augment,
                             std::uint64_t seed) const = 0;
  /// The same, until `ctx` ends: checked before each sample. The input is from `memory`.
  virtual Result<Batch> read_until(const Context& ctx, std::span<const std::size_t> indices,
                                   const Augment& augment, std::uint64_t seed,
                                   tensor::Pool& memory) const {
    (void)memory;
    TRY_VOID(ctx.check());
    return read(indices, augment, seed);
  }
  /// kClassification: the classes of these samples. Image files are not decoded.
  virtual Result<std::vector<std::int64_t>> labels(const Context& ctx,
                                                   std::span<const std::size_t> indices) const;
  virtual std::string place(std::size_t index) const = 0;  // "train.csv, line 17" for messages
  /// A line for a list of samples: path and label of an image file, the record of a table, else the
  /// number of the sample from 0.
  virtual Result<std::string> line(std::size_t index) const { return std::to_string(index); }
  /// csv, tsv: the line above the records; "": none.
  virtual std::string header() const { return ""; }
  /// JPEG or PNG; "": the sample is no picture.
  virtual Result<std::string> picture(std::size_t index) const = 0;
  /// csv, tsv: the values for missing features. Pass them as Options::fill for other data of the
  /// same training.
  virtual std::vector<double> fill() const { return {}; }
  /// csv, tsv: names of the feature columns, or their numbers from 1.
  virtual std::vector<std::string> features() const { return {}; }
};

/// Reads batches on one thread, up to two ahead. Their order and content never depend on timing.
/// A batch uses the memory of an earlier one, once the caller has no copy of its tensor left. So
/// three batches are in memory, and one more for each that the caller keeps. One thread at a time
/// calls next().
class Loader {
 public:
  /// `dataset` outlives the loader. The last batch may be smaller. `first_batch`: the batches
  /// before are skipped without reading.
  Loader(const Dataset& dataset, std::vector<std::size_t> order, std::size_t batch, Augment augment,
         std::uint64_t seed, std::size_t first_batch = 0);
  /// Stops the thread after the sample that it reads.
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  /// Nothing after the last batch. An error takes the place of the batch that failed, and ends the
  /// sequence: later calls return it again. kCancelled, kTimeout: from `ctx`; a later call
  /// continues.
  Result<std::optional<Batch>> next(const Context& ctx);

 private:
  static constexpr std::size_t kAhead = 2;
  void run(const std::stop_token& stop);

  const Dataset& dataset_;
  const std::vector<std::size_t> order_;
  const std::size_t batch_;
  const Augment augment_;
  const std::uint64_t seed_;
  tensor::Pool memory_{kAhead + 1};
  Mutex mutex_;
  CondVar changed_;
  std::vector<Result<Batch>> ready_ GUARDED_BY(mutex_);  // in order
  bool ended_ GUARDED_BY(mutex_) = false;                // nothing follows `ready_`
  std::optional<Error> failed_;
  std::size_t next_ = 0;  // position in `order_`, of the thread
  std::jthread thread_;   // last: it uses the members above
};

}  // namespace varda::samples
