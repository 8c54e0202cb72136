// The best class of each sample of an answer, to compare the answers of two versions.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tensor/tensor.h"

namespace varda::serving::trial {

struct BestClass {
  std::string name;  // the label, or the number of the class
  double score = 0;  // 0 to 1; of logits, their softmax
};

/// One item per sample. Nothing: the answer is no classification, or has more than 65,536 scores.
///
/// An output `labels` of texts, best first, decides, with `scores` beside it. Without `labels`, the
/// output `probabilities` decides, or else the only real output of shape [N,classes] or [classes].
std::optional<std::vector<BestClass>> best_classes(std::span<const tensor::Named> outputs);

/// True if two answers to one request agree. Answers with classes agree if every sample has the
/// same best class. Other answers agree if all outputs are equal. Real values may differ by 1 %, or
/// by 0.001.
bool agree(std::span<const tensor::Named> a, std::span<const tensor::Named> b);

}  // namespace varda::serving::trial
