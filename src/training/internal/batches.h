// Batches of samples as batches of the trainer: of a fixed size, with targets and weights.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "samples/samples.h"
#include "tensor/tensor.h"
#include "train/trainer.h"
#include "training/settings.h"

namespace varda::training {

/// The tensor with `rows` rows: the missing ones are copies of all present ones in turn, so that no
/// sample dominates the statistics of BatchNormalization. kInvalid: it has no row, or more rows.
Result<tensor::Tensor> filled(const tensor::Tensor& tensor, std::int64_t rows);

struct Batches {
  std::int64_t size = 0;       // rows of every batch
  std::string input;           // of the model
  std::size_t classes = 0;     // classification
  tensor::Shape output;        // of the model, for one batch
  std::vector<float> weights;  // of the classes, with the mean 1 over the samples; empty: all 1

  std::size_t values() const;  // of the output in a row
  /// kInvalid: a label is out of range, or a row has another number of targets; the message has the
  /// sample's place.
  Status check(const samples::Batch& batch, const samples::Dataset& data, samples::Task task) const;
  Result<std::vector<tensor::Named>> inputs(const samples::Batch& batch) const;
  /// Each sample weighs 1/`samples`, times the weight of its class. Errors as in check().
  Result<train::Batch> make(const samples::Batch& batch, const samples::Dataset& data,
                            const Settings& settings, std::size_t samples) const;
};

}  // namespace varda::training
