// A run with `continual.slda`: one pass over the samples, which changes the last layer only.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/context.h"
#include "base/result.h"
#include "infer/engine.h"
#include "training/internal/run_data.h"
#include "training/run.h"

namespace varda::training {

struct Streamed {
  std::string model;
  std::uint64_t samples = 0;  // of this pass, with old ones
};

/// The file carries the state of the layer as metadata, so a later run continues from the file. A
/// file without a state begins with the samples of `request.old`. The same state and samples give
/// the same bytes. `report` gets the number of samples after each batch. kInvalid: neither a state
/// nor old samples. kUnsupported: the model ends with another layer.
Result<Streamed> stream(const Context& ctx, infer::Engine& engine, const RunData& data,
                        const Request& request, const std::function<void(std::uint64_t)>& report);

}  // namespace varda::training
