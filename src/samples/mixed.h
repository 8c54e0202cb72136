// Some samples of one or several datasets as one dataset.
//
//   TRY(auto data, mix(ctx, {{.data = fresh, .indices = {3, 4}}, {.data = old, .indices = {0}}}));
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "base/context.h"
#include "base/result.h"
#include "samples/samples.h"

namespace varda::samples {

struct Part {
  std::shared_ptr<const Dataset> data;
  std::vector<std::size_t> indices;
};

/// The samples of the parts, in this order. The fingerprint covers the places of the samples, so a
/// dataset that grows changes nothing. `parts` has one part or more. kInvalid: the parts have
/// different classes or targets.
Result<std::shared_ptr<const Dataset>> mix(const Context& ctx, std::vector<Part> parts);

}  // namespace varda::samples
