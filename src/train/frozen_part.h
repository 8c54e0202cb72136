// Splits a model at the tensor between the frozen beginning and the first trained weight.
//
//   input -> Conv (frozen) -> Relu -> Flatten -> features -> MatMul (trained) -> scores
//            `beginning`                      ->          `rest`
//
// The features of a sample are the same in every epoch, so a run computes them once.
#pragma once

#include <optional>
#include <set>
#include <string>

#include "onnx/model.h"
#include "tensor/tensor.h"
#include "train/trace.h"

namespace varda::train {

struct SplitModel {
  onnx::Model beginning;  // the inputs of the model -> `features`
  onnx::Model rest;       // `features` -> the output, with all trained weights
  std::string features;   // name of the tensor
  tensor::Shape shape;    // of `features` for one batch; the first axis counts samples
};

/// `forward` is a model after onnx::upgrade(), and `facts` are of the same model. `trained` are
/// names of initializers; `output` is the output of the loss. Nothing: no layer is frozen before
/// the first trained weight, or more than one tensor of FP32 leads to the rest, or a node has a
/// subgraph.
std::optional<SplitModel> split_frozen(const onnx::Model& forward, const Facts& facts,
                                       const std::set<std::string>& trained,
                                       const std::string& output);

}  // namespace varda::train
