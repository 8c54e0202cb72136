// The data of one run: the samples that train, the samples that evaluate, and their meaning.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/context.h"
#include "base/result.h"
#include "samples/samples.h"
#include "training/run.h"
#include "training/split.h"

namespace varda::training {

/// Constant after prepare().
class RunData {
 public:
  /// `request` outlives the object.
  explicit RunData(const Request& request) : request_(request) {}
  /// Checks the data and holds samples out. kInvalid: the data do not fit each other or the
  /// settings.
  Status prepare(const Context& ctx);

  const samples::Dataset& train() const { return *request_.train; }
  const samples::Dataset& evaluation() const {
    return request_.evaluation ? *request_.evaluation : *request_.train;
  }
  const Split& split() const { return split_; }
  bool is_classification() const;

  /// kInvalid: `settings.head` has another number of classes than the data.
  Status check_head(std::int64_t classes) const;
  /// kInvalid: a model with so many output values for a sample does not fit the data.
  Status check_outputs(std::size_t values) const;
  /// For each class the samples divided by those of the class; the mean over the samples is 1.
  std::vector<float> balanced_weights() const;

  std::string class_name(std::int64_t label) const;
  /// multilabel: the names of the values that are set.
  std::string label_names(std::span<const float> values, float threshold) const;

 private:
  Status check_classes() const;
  Result<std::vector<std::int64_t>> read_labels(const Context& ctx) const;
  bool fits(std::size_t values) const;
  std::string describe_outputs() const;

  const Request& request_;
  Split split_;
};

/// A digest of all that decides the bytes of the result. The number of threads has no part, because
/// a run may continue on another machine.
Result<std::string> identity_of(const Request& request);

}  // namespace varda::training
