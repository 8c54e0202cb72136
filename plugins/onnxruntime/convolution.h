// Convolutions, batch normalization and their gradients on oneDNN. Tensors are FP32 and dense, as
// in ONNX.
#pragma once

#include <cstddef>
#include <memory>
#include <oneapi/dnnl/dnnl.hpp>

namespace varda_onednn {

/// Memory and stream of one session. Primitives run one after another, so all share one block,
/// which grows to the largest need.
class Workspace {
 public:
  Workspace();
  const dnnl::engine& engine() const { return engine_; }
  dnnl::stream& stream() { return stream_; }
  /// At least `bytes`, aligned to a cache line; the former block is invalid.
  std::byte* reserve(std::size_t bytes);

 private:
  struct Free {
    void operator()(std::byte* block) const;
  };
  dnnl::engine engine_;
  dnnl::stream stream_;
  std::unique_ptr<std::byte, Free> block_;
  std::size_t bytes_ = 0;
};

/// Sizes of one convolution. Weights have the shape [M, C / group, kernel].
struct Sizes {
  dnnl::memory::dims x, weights, y;
  dnnl::memory::dims strides, dilations;  // dilations as in ONNX: 1 is a dense kernel
  dnnl::memory::dims before, after;       // padding
  dnnl::memory::dim group = 1;

  friend bool operator==(const Sizes&, const Sizes&) = default;
};

/// One convolution of fixed sizes. Not thread-safe. Functions throw dnnl::error.
class Convolution {
 public:
  enum class Bias { kNone, kAdded };
  Convolution(Workspace& workspace, const Sizes& sizes, Bias bias);
  ~Convolution();

  void forward(const float* x, const float* weights, const float* bias, float* y);
  /// Null: this gradient is not wanted. `bias_gradient` needs `weights_gradient`.
  void backward(const float* x, const float* weights, const float* y_gradient, float* x_gradient,
                float* weights_gradient, float* bias_gradient);

 private:
  struct Primitives;
  std::unique_ptr<Primitives> primitives_;
};

/// Batch normalization over the batch, of fixed sizes [N,C,...]. As Convolution in all else.
class BatchNormalization {
 public:
  BatchNormalization(Workspace& workspace, const dnnl::memory::dims& x, float epsilon);
  ~BatchNormalization();

  /// `variance` is that of the population, as ONNX stores it.
  void forward(const float* x, const float* scale, const float* bias, float* y, float* mean,
               float* variance);
  void backward(const float* x, const float* scale, const float* mean, const float* variance,
                const float* y_gradient, float* x_gradient, float* scale_gradient,
                float* bias_gradient);

 private:
  struct Primitives;
  std::unique_ptr<Primitives> primitives_;
};

}  // namespace varda_onednn
