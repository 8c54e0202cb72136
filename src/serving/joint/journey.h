// Journey: one request on its way over the tiers of a model, to its one answer.
//
// cascade::Machine decides; this does what it says: runs the model beside cascade.json as a job of its executor, sends the request
// up on threads of the center, and answers. Where the first tier's answer is good enough, all of that is one thread: the one that
// ran the model.
#pragma once

#include <memory>

#include "net/http.h"
#include "serving/inference.h"
#include "serving/joint/center.h"
#include "serving/joint/model.h"

namespace varda::serving::joint {

struct Start {
  std::shared_ptr<const Plan> plan;
  Result<std::shared_ptr<ModelVersion>> version;  // the one that the plan is bound to, or why there is none
  InferCall call;
};

/// Answers the request, at once or later, from any thread. Never blocks, but for a short run of the model (executor.h). `center`
/// outlives the request.
void begin(Center& center, Start start, net::Responder respond, const oip::Limits& limits);

}  // namespace varda::serving::joint
