// Pipeline: a declaration, compiled for a model's inputs and outputs.
//
//   TRY(const Pipeline pipeline,
//       Pipeline::compile(declaration, model.inputs(), model.outputs(), labels));
//   pipeline.inputs();  pipeline.outputs();                           // as clients see the model
//   TRY(Prepared ready, pipeline.before(std::move(request.inputs)));  // images become tensors
//   TRY(const auto names, pipeline.needs(wanted));
//   TRY(auto raw, model.run(ready.inputs, names));
//   TRY(auto answer, pipeline.after(ready, std::move(raw), wanted));  // scores become labels
//
// Clients see the declared input as a BYTES tensor `image`, [1] or [N]. Each element is a JPEG or
// PNG file, or its base64 for JSON, which cannot carry binary data. A client may instead send the
// model's own input under its name; this skips the preprocessing only.
//
// The default outputs are the results of the steps, and the outputs of the model that no step
// reads. Clients may request further outputs by name. These are intermediate results
// (`probabilities`) and every output of the model. An output is always available as `raw.NAME`, and
// as NAME unless a result has that name.
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

/// Limits per request.
struct Limits {
  std::size_t images_max = 256;
  std::size_t pixels_max = std::size_t{64} << 20;         // of all images, by their headers
  std::size_t tensor_bytes_max = std::size_t{512} << 20;  // of the resulting tensor
};

/// Original size of an image.
struct ImageSize {
  std::size_t width = 0;
  std::size_t height = 0;
};

/// Result of before().
struct Prepared {
  std::vector<tensor::Named> inputs;  // the model's inputs
  std::vector<ImageSize> images;      // one per image; empty if the client sent tensors
};

/// Immutable, thus thread-safe. Cheap to move.
class Pipeline {
 public:
  /// Accepts an empty declaration: then everything passes through. kInvalid, kUnsupported: the
  /// declaration does not fit the model. The message names the setting, the model's inputs or
  /// outputs, and a fix.
  static Result<Pipeline> compile(const Declaration& declaration, std::vector<tensor::Spec> inputs,
                                  std::vector<tensor::Spec> outputs,
                                  std::vector<std::string> labels, const Limits& limits = {});
  ~Pipeline();
  Pipeline(Pipeline&&) noexcept;
  Pipeline& operator=(Pipeline&&) noexcept;

  /// True for an empty declaration: before() and after() are then not needed.
  bool empty() const;
  bool takes_images() const;

  /// As clients see them, for the model's metadata.
  const std::vector<tensor::Spec>& inputs() const;
  /// Outputs of a request that names none: the results first, then the outputs that no step reads,
  /// in the model's order.
  const std::vector<tensor::Spec>& outputs() const;
  /// All outputs that can be requested without the prefix: outputs() first. Policies choose among
  /// these.
  const std::vector<tensor::Spec>& available() const;

  /// Decodes, resizes and normalises images; passes tensors through. The engine rejects unknown
  /// inputs. kInvalid: no image, a torn one, too many or too large images, or an input given in
  /// both forms; the message names the image.
  Result<Prepared> before(std::vector<tensor::Named> inputs) const;
  /// The model outputs, without duplicates, that after() needs for `wanted` (empty: outputs()).
  /// kInvalid: neither a step nor the model has such an output.
  Result<std::vector<std::string>> needs(std::span<const std::string> wanted) const;
  /// The response, ordered like `wanted` (empty: outputs()). `raw` has at least the outputs from
  /// needs(). kInvalid: a step cannot read the model's output (open dimensions are known only now).
  Result<std::vector<tensor::Named>> after(const Prepared& prepared,
                                           const std::vector<tensor::Named>& raw,
                                           std::span<const std::string> wanted) const;

  /// Inputs for a warm-up request: a black PNG of the model's size as `image`. Empty if
  /// takes_images() is false.
  Result<std::vector<tensor::Named>> sample() const;

 private:
  struct Compiled;
  explicit Pipeline(std::unique_ptr<const Compiled> compiled);
  std::unique_ptr<const Compiled> compiled_;
};

}  // namespace varda::transform
