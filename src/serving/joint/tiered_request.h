// TieredRequest: carries one request over the tiers of a model to a single answer.
//
// tiers::Machine decides; TieredRequest performs the steps. It runs the local model as a job of its
// executor, calls later tiers on the tier runtime's threads, and answers. If the first tier's
// answer is good enough, all of that happens on the thread that ran the model.
#pragma once

#include <memory>

#include "net/http.h"
#include "serving/inference.h"
#include "serving/joint/model.h"
#include "serving/joint/tier_runtime.h"
#include "serving/sampling/model.h"

namespace varda::serving::joint {

struct Start {
  std::shared_ptr<const Plan> plan;
  std::shared_ptr<const sampling::Plan> samples;  // null: the request is not kept
  Result<std::shared_ptr<ModelVersion>> version;  // bound by the plan, or why missing
  InferCall call;
};

/// Answers the request, now or later, on any thread. Does not block, except for a short run of the
/// model (executor.h). `runtime` outlives the request.
void begin(TierRuntime& runtime, Start start, net::Responder respond, const oip::Limits& limits);

}  // namespace varda::serving::joint
