// Pipeline: a declaration, compiled against what a model takes and gives.
//
//   TRY(const Pipeline pipeline, Pipeline::compile(declaration, model.inputs(), model.outputs(), labels));
//   pipeline.inputs();  pipeline.outputs();                              // what the model has to the outside
//   TRY(Prepared ready, pipeline.before(std::move(request.inputs)));     // images become tensors
//   TRY(const auto names, pipeline.needs(wanted));
//   TRY(auto raw, model.run(ready.inputs, names));
//   TRY(auto answer, pipeline.after(ready, std::move(raw), wanted));     // scores become labels, boxes
//
// To the outside the declared input is a BYTES tensor `image`, [1] or [N]: each element a JPEG or PNG file, or (for JSON,
// which cannot carry one) its base64. Whoever sends the
// model's own input instead, under its own name, goes past the preprocessing; all else stays the same.
//
// Outputs to the outside are the results of the steps and those outputs of the model that no step reads. Whatever else there is can
// be asked for by name: what a step reads and gives on (`probabilities`), and every output of the model, under its name where no
// result is called that, and as `raw.NAME` always.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tensor/tensor.h"
#include "transform/declaration.h"

namespace varda::transform {

inline constexpr std::string_view kImageInput = "image";
inline constexpr std::string_view kRawPrefix = "raw.";

/// Of one request.
struct Limits {
  std::size_t images_max = 256;
  std::size_t pixels_max = std::size_t{64} << 20;         // of all images together, by their headers
  std::size_t tensor_bytes_max = std::size_t{512} << 20;  // of what the images become
};

/// Of an image as it was sent.
struct ImageSize {
  std::size_t width = 0;
  std::size_t height = 0;
};

/// What before() made.
struct Prepared {
  std::vector<tensor::Named> inputs;  // the model's
  std::vector<ImageSize> images;      // one for each that was sent; empty where the model's own tensors were
};

/// Immutable; safe from several threads at once. Cheap to move.
class Pipeline {
 public:
  /// Also of an empty declaration: then everything passes through. kInvalid, kUnsupported: the declaration does not fit the model;
  /// the message names the setting, what the model has, and what to do.
  static Result<Pipeline> compile(const Declaration& declaration, std::vector<tensor::Spec> inputs,
                                  std::vector<tensor::Spec> outputs, std::vector<std::string> labels, const Limits& limits = {});
  ~Pipeline();
  Pipeline(Pipeline&&) noexcept;
  Pipeline& operator=(Pipeline&&) noexcept;

  /// True where nothing is declared: before() and after() need not be called.
  bool empty() const;
  bool takes_images() const;

  /// To the outside, for the model's metadata.
  const std::vector<tensor::Spec>& inputs() const;
  /// What a request gets that names no outputs: the results first, then what no step reads, as the model orders it.
  const std::vector<tensor::Spec>& outputs() const;
  /// All that can be asked for without the prefix: outputs() first. What decides about an answer (a policy) chooses among these.
  const std::vector<tensor::Spec>& available() const;

  /// Decodes, resizes and normalises where images were sent, else hands the inputs on. Inputs it does not know are the engine's to
  /// refuse. kInvalid: no image, a torn one, too many or too large ones, an input given in both forms; the message says which
  /// image.
  Result<Prepared> before(std::vector<tensor::Named> inputs) const;
  /// The model's outputs, each once, that after() needs for `wanted` (empty: outputs()). kInvalid: an output that neither steps nor
  /// model have.
  Result<std::vector<std::string>> needs(std::span<const std::string> wanted) const;
  /// The answer, in the order of `wanted` (empty: outputs()). `raw` are at least the outputs that needs() named. kInvalid: the
  /// model gave what a step cannot read (open dimensions are known only now).
  Result<std::vector<tensor::Named>> after(const Prepared& prepared, const std::vector<tensor::Named>& raw,
                                           std::span<const std::string> wanted) const;

  /// A request's inputs for warming: a black PNG of the model's size as `image`. Empty unless takes_images().
  Result<std::vector<tensor::Named>> sample() const;

 private:
  struct Compiled;
  explicit Pipeline(std::unique_ptr<const Compiled> compiled);
  std::unique_ptr<const Compiled> compiled_;
};

}  // namespace varda::transform
